"""Claims: what they may say, and what runs make of them; every verdict is reached and every edge of it is pinned."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from lagproof.cli.comparing import show
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.experiments.claims import ClaimVerdict, judge, parse
from lagproof.experiments.comparison import Comparison
from lagproof.experiments.grid import from_tree, load
from lagproof.experiments.statistics import RunSummary, summarise
from lagproof.experiments.tables import save
from lagproof.runs.run import Run

sys.path.insert(0, str(Path(__file__).parent))
from made_runs import run_of

HOLDS, FAILS, UNDECIDED = ClaimVerdict.HOLDS, ClaimVerdict.FAILS, ClaimVerdict.UNDECIDED
EXPLORATORY = ClaimVerdict.EXPLORATORY
COLLAPSE: dict[str, Any] = {"text": "t", "kind": "collapses", "entries": ["a"], "lags": [8]}
ABOVE: dict[str, Any] = COLLAPSE | {"kind": "higher", "metric": "accuracy", "than": "b"}
BOUND: dict[str, Any] = COLLAPSE | {"kind": "within", "metric": "loss", "limit": 0.5}


def run(label: str, seed: int, accuracy: float, *, lag: int = 8, best: float | None = None, loss: float = 0.0) -> Run:
    """Accuracy ``best`` (or what it is later) in the first half and ``accuracy`` in the second."""
    first = accuracy if best is None else best
    values = [first] * 3 + [accuracy] * 3
    rows = tuple({"step": i + 1, "eval/accuracy": v, "loss": loss if i == 4 else 0.0} for i, v in enumerate(values))
    return run_of(rows, label, lag=lag, seed=seed, steps=6)


def summary(label: str, seed: int, accuracy: float) -> RunSummary:
    return RunSummary(label, 8, seed, {"accuracy": accuracy}, False, 10, 10)


def verdict(claim: dict[str, Any], runs: list[Run]) -> ClaimVerdict:
    (judged,) = judge([parse(claim, "claims[0]")], runs, [summarise(r) for r in runs])
    return judged.verdict


def collapses(*collapsed: bool) -> list[Run]:
    return [run("a", seed, 0.1 if fell else 0.6, best=0.6) for seed, fell in enumerate(collapsed)]


@pytest.mark.parametrize(
    ("collapsed", "expected"),
    [
        ((True,) * 5, (HOLDS, FAILS)),
        ((False,) * 5, (FAILS, HOLDS)),
        ((True,) * 4 + (False,), (UNDECIDED, UNDECIDED)),
        ((True,) * 4, (EXPLORATORY, EXPLORATORY)),
        ((False,), (EXPLORATORY, EXPLORATORY)),
        ((), (UNDECIDED, UNDECIDED)),
    ],
)
def test_collapse_needs_all_seeds(collapsed: tuple[bool, ...], expected: tuple[ClaimVerdict, ClaimVerdict]) -> None:
    runs = collapses(*collapsed)
    assert (verdict(COLLAPSE, runs), verdict(COLLAPSE | {"kind": "holds"}, runs)) == expected


def pairs(*differences: float) -> list[Run]:
    base = [run("b", seed, 0.5) for seed in range(len(differences))]
    return base + [run("a", seed, 0.5 + d) for seed, d in enumerate(differences)]


def five(low: float, high: float) -> tuple[float, ...]:
    """Mean m = (low + high) / 2, s = h = (high - low) / 2; interval m +- t(.975, 4) h / sqrt 5 = m +- 1.2415 h."""
    return (low, high, low, high, (low + high) / 2)


@pytest.mark.parametrize(
    ("kind", "margin", "differences", "expected"),
    [
        ("higher", 0.0, five(0.02, 0.03), HOLDS),
        ("higher", 0.0, five(-0.02, -0.03), FAILS),
        ("higher", 0.0, five(-0.02, 0.03), UNDECIDED),
        ("higher", 0.0, (0.02,), EXPLORATORY),
        ("higher", 0.0, five(0.02, 0.03)[:4], EXPLORATORY),
        ("higher", 0.0, (0.0,) * 5, FAILS),  # alike to the last bit, and not above
        ("higher", 0.0, (0.0,) * 4, EXPLORATORY),
        ("higher", 0.1, five(0.02, 0.03), FAILS),  # there, but too small to matter
        ("higher", 0.025, five(0.01, 0.03), UNDECIDED),  # above 0, mean below the margin, end above it
        ("higher", 0.01, five(-0.001, 0.002), FAILS),  # a null result with a tight interval
        ("lower", 0.0, five(-0.02, -0.03), HOLDS),
        ("lower", 0.0, five(0.02, 0.03), FAILS),
        ("lower", 0.1, five(-0.02, -0.03), FAILS),
        ("lower", 0.0, five(-0.02, 0.03), UNDECIDED),
        ("equal", 0.05, five(-0.02, 0.03), HOLDS),
        ("equal", 0.05, five(0.06, 0.08), FAILS),
        ("equal", 0.05, five(-0.06, -0.08), FAILS),
        ("equal", 0.05, five(0.02, 0.08), UNDECIDED),
        ("equal", 0.05, (0.0,) * 5, HOLDS),
        ("equal", 0.05, (0.06, 0.07), EXPLORATORY),
        ("not_lower", 0.01, five(-0.004, 0.002), HOLDS),  # -.001 +- .0037: its end is above -.01
        ("not_lower", 0.01, five(-0.02, 0.02), UNDECIDED),  # 0 +- .025: "no difference found" is not "no worse"
        ("not_lower", 0.01, five(-0.03, -0.02), FAILS),
        ("not_lower", 0.01, (0.0,) * 5, HOLDS),
        ("not_higher", 0.01, five(-0.002, 0.004), HOLDS),
        ("not_higher", 0.01, five(0.02, 0.03), FAILS),
        ("not_higher", 0.01, five(-0.04, -0.02), HOLDS),  # better is no worse
    ],
)
def test_differences(kind: str, margin: float, differences: tuple[float, ...], expected: ClaimVerdict) -> None:
    assert verdict(ABOVE | {"kind": kind, "margin": margin}, pairs(*differences)) is expected


def test_a_difference_takes_only_seeds_that_both_have() -> None:
    runs = [*pairs(*five(0.02, 0.03)), run("a", 7, 0.0)]
    (judged,) = judge([parse(ABOVE, "c")], runs, [summarise(r) for r in runs])
    assert judged.verdict is HOLDS and judged.parts[0].seeds == 5
    assert judged.parts[0].value == pytest.approx(0.025)
    assert judged.parts[0].said == (
        # t = .025 / (.005 / sqrt 5) = 11.18, 4 degrees of freedom, one-sided .000182; two tests: .00036
        "a minus b at lag 8: accuracy +0.0250 [+0.0188, +0.0312], 5 seeds, p 0.00036 (Holm)"
    )
    assert judged.parts[0].p == pytest.approx(2 * 0.000182, rel=0.01)


def test_all_differences_of_a_comparison_are_corrected_together() -> None:
    """One line of .00018 against two of .2: alone it is times 2, with the others times 6."""
    weak = [run("c", seed, 0.5 + d) for seed, d in enumerate(five(-0.01, 0.02))]
    runs = [*pairs(*five(0.02, 0.03)), *weak]
    claims = [parse(ABOVE, "c"), parse(ABOVE | {"entries": ["c"]}, "c"), parse(COLLAPSE, "c")]
    summaries = [summarise(r) for r in runs]
    alone, together = judge(claims[:1], runs, summaries), judge(claims, runs, summaries)
    assert alone[0].parts[0].p is not None and together[0].parts[0].p is not None
    assert together[0].parts[0].p == pytest.approx(2 * alone[0].parts[0].p)
    assert together[2].parts[0].p is None  # a count is not tested


def test_a_verdict_that_holds_alone_may_not_hold_among_many() -> None:
    clear = [run("a", seed, 0.5 + d) for seed, d in enumerate(five(0.006, 0.03))]  # t = 3.35: p .014 one-sided
    noise = [run(f"n{i}", seed, 0.5 + d) for i in range(4) for seed, d in enumerate(five(-0.01, 0.01 + 0.001 * i))]
    runs = [*pairs(*[0.0] * 5)[:5], *clear, *noise]
    summaries = [summarise(r) for r in runs]
    many = [parse(ABOVE, "c"), *(parse(ABOVE | {"entries": [f"n{i}"]}, "c") for i in range(4))]
    assert judge(many[:1], runs, summaries)[0].verdict is HOLDS
    assert judge(many, runs, summaries)[0].verdict is UNDECIDED


def test_wrong_verdicts_of_a_whole_comparison_are_as_rare_as_it_says() -> None:
    """300 comparisons of six lines without any difference: at most 5 % may say one; uncorrected a quarter would."""
    rng = np.random.default_rng(5)
    claims = [parse(ABOVE | {"entries": [f"n{i}"]}, "c") for i in range(6)]
    wrong = 0
    for _ in range(300):
        base = [summary("b", seed, 0.5) for seed in range(8)]
        found = [summary(f"n{i}", seed, 0.5 + 0.01 * rng.standard_normal()) for i in range(6) for seed in range(8)]
        wrong += any(judged.verdict in (HOLDS, FAILS) for judged in judge(claims, [], [*base, *found]))
    assert wrong / 300 == pytest.approx(0.05, abs=0.03)


@pytest.mark.parametrize(
    ("losses", "within", "beyond"),
    [
        ((0.5, -0.5) * 3, HOLDS, FAILS),
        ((0.1, -0.6) * 3, FAILS, FAILS),
        ((0.6, -0.7) * 3, FAILS, HOLDS),
        ((0.5, -0.5), EXPLORATORY, FAILS),  # one counterexample is enough, four examples are not
        ((0.6, -0.7), FAILS, EXPLORATORY),
        ((), UNDECIDED, UNDECIDED),
    ],
)
def test_bounds_look_at_every_step_of_every_run(
    losses: tuple[float, ...], within: ClaimVerdict, beyond: ClaimVerdict
) -> None:
    runs = [run("a", seed, 0.5, loss=loss) for seed, loss in enumerate(losses)]
    assert (verdict(BOUND, runs), verdict(BOUND | {"kind": "beyond"}, runs)) == (within, beyond)


def test_a_line_without_data_says_why_and_nothing_else() -> None:
    (judged,) = judge([parse(COLLAPSE, "c")], [], [])
    assert judged.parts[0].line == "a at lag 8: no run with an evaluation has ended"
    (judged,) = judge([parse(ABOVE, "c")], [], [])
    assert judged.parts[0].line == "a at lag 8: no seed has accuracy of both a and b"


def test_one_entry_at_one_lag_is_enough_to_refute() -> None:
    both = COLLAPSE | {"entries": ["a", "b"], "lags": [8, 1]}
    fell = [run(label, s, 0.1, best=0.6, lag=lag) for label in "ab" for lag in (1, 8) for s in range(5)]
    assert verdict(both, fell) is HOLDS
    assert verdict(both, fell[:-1]) is EXPLORATORY
    stood = [run("b", s, 0.6, lag=8) for s in range(5)]
    assert verdict(both, [*fell[:10], *stood]) is FAILS


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"kind": "hold"}, UnknownNameError, "holds"),
        ({"than": "b"}, UnknownNameError, "kind collapses"),
        ({"kind": "higher", "metric": "accuracy"}, ConfigError, "kind higher needs than"),
        ({"kind": "equal", "metric": "accuracy", "than": "b"}, ConfigError, "kind equal needs margin"),
        ({"kind": "not_lower", "metric": "accuracy", "than": "b"}, ConfigError, "kind not_lower needs margin"),
        ({"kind": "not_higher", "metric": "d_bar", "than": "b", "margin": 0.0}, ConfigError, "'no worse' says by how"),
        ({"kind": "within", "metric": "loss"}, ConfigError, "needs limit"),
        ({"kind": "higher", "metric": "acuracy", "than": "b"}, UnknownNameError, "accuracy"),
        ({"lags": []}, ConfigError, "lags = \\[\\]: must be a list of whole numbers"),
        ({"lags": [-1]}, ConfigError, "whole numbers >= 0"),
        ({"entries": "a"}, ConfigError, "a list of labels"),
        ({"text": " "}, ConfigError, "must be text"),
        ({"kind": "within", "metric": "loss", "limit": float("nan")}, ConfigError, "a number >= 0"),
    ],
)
def test_what_a_claim_may_not_say(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse(COLLAPSE | change, "claims[0]")
    with pytest.raises(ConfigError, match="must be a table"):
        parse("naive collapses", "claims[0]")


def test_claims_survive_the_file_and_change_no_run() -> None:
    grid = load("asympo")
    assert len(grid.claims) == 8
    assert from_tree(grid.tree(), "asympo") == grid
    without = from_tree({k: v for k, v in grid.tree().items() if k != "claims"}, "asympo")
    assert without.claims == () and grid.differences(without) == []


@pytest.mark.parametrize("name", ["asympo", "sat"])
def test_claims_of_the_presets_speak_of_their_runs(name: str) -> None:
    grid = load(name)
    labels, lags = {e.label for e in grid.entries}, {lag.lag for lag in grid.lags}
    assert grid.claims
    for claim in grid.claims:
        assert {*claim.entries, claim.than or claim.entries[0]} <= labels and set(claim.lags) <= lags
        seeds = [lag.seeds for lag in grid.lags if lag.lag in claim.lags]
        assert all(len(s) >= 5 for s in seeds), claim.text


def test_they_are_printed_and_saved(tmp_path: Path) -> None:
    tree = {"objectives": [{"name": "grpo", "label": "a"}], "lags": [8], "seeds": [0, 1, 2, 3, 4], "steps": 6}
    claim = COLLAPSE | {"text": "It falls"}
    comparison = Comparison(tmp_path, from_tree(tree | {"claims": [claim]}, "x"), tuple(collapses(*[True] * 5)))
    text = io.StringIO()
    show(comparison.findings, Console(file=text, width=80))
    lines = text.getvalue().splitlines()
    assert "Claim: It falls: holds" in lines and "  a at lag 8: 5 of 5 seeds collapsed [48%, 100%]: holds" in [
        x.rstrip() for x in lines
    ]
    assert max(map(len, lines)) <= 80
    assert save(comparison) == tmp_path / "table.json"
    (found,) = json.loads((tmp_path / "table.json").read_text())["claims"]
    assert found["verdict"] == "holds" and found["claim"]["text"] == "It falls"
    assert found["parts"][0]["value"] == 1.0 and found["parts"][0]["seeds"] == 5
