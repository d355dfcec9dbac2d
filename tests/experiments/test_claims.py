"""Claims: what they may say, and what runs make of them; every verdict is reached and every edge of it is pinned."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lagproof.cli.comparing import show
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.experiments.claims import ClaimVerdict, judge, parse
from lagproof.experiments.comparison import Comparison
from lagproof.experiments.grid import from_tree, load
from lagproof.experiments.statistics import summarise
from lagproof.experiments.tables import save
from lagproof.runs.run import Run

sys.path.insert(0, str(Path(__file__).parent))
from made_runs import run_of

HOLDS, FAILS, UNDECIDED = ClaimVerdict.HOLDS, ClaimVerdict.FAILS, ClaimVerdict.UNDECIDED
COLLAPSE: dict[str, Any] = {"text": "t", "kind": "collapses", "entries": ["a"], "lags": [8]}
ABOVE: dict[str, Any] = COLLAPSE | {"kind": "higher", "metric": "accuracy", "than": "b"}
BOUND: dict[str, Any] = COLLAPSE | {"kind": "within", "metric": "loss", "limit": 0.5}


def run(label: str, seed: int, accuracy: float, *, lag: int = 8, best: float | None = None, loss: float = 0.0) -> Run:
    """Accuracy ``best`` (or what it is later) in the first half and ``accuracy`` in the second."""
    first = accuracy if best is None else best
    values = [first] * 3 + [accuracy] * 3
    rows = tuple({"step": i + 1, "eval/accuracy": v, "loss": loss if i == 4 else 0.0} for i, v in enumerate(values))
    return run_of(rows, label, lag=lag, seed=seed, steps=6)


def verdict(claim: dict[str, Any], runs: list[Run]) -> ClaimVerdict:
    (judged,) = judge([parse(claim, "claims[0]")], runs, [summarise(r) for r in runs])
    return judged.verdict


def collapses(*collapsed: bool) -> list[Run]:
    return [run("a", seed, 0.1 if fell else 0.6, best=0.6) for seed, fell in enumerate(collapsed)]


@pytest.mark.parametrize(
    ("collapsed", "expected"),
    [
        ((True, True), (HOLDS, FAILS)),
        ((False, False), (FAILS, HOLDS)),
        ((True, False), (UNDECIDED, UNDECIDED)),
        ((True,), (UNDECIDED, UNDECIDED)),
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
        ("higher", 0.0, (0.02,), UNDECIDED),  # one seed
        ("higher", 0.0, (0.0, 0.0), FAILS),  # alike to the last bit, and not above
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
        ("equal", 0.05, (0.0,), UNDECIDED),
        ("equal", 0.05, (0.0, 0.0), HOLDS),
        ("higher", 0.0, (0.02, 0.03), UNDECIDED),  # two seeds: 0.025 +- 0.0635
    ],
)
def test_differences(kind: str, margin: float, differences: tuple[float, ...], expected: ClaimVerdict) -> None:
    assert verdict(ABOVE | {"kind": kind, "margin": margin}, pairs(*differences)) is expected


def test_a_difference_takes_only_seeds_that_both_have() -> None:
    runs = [*pairs(*five(0.02, 0.03)), run("a", 7, 0.0)]
    (judged,) = judge([parse(ABOVE, "c")], runs, [summarise(r) for r in runs])
    assert judged.verdict is HOLDS and judged.parts[0].seeds == 5
    assert judged.parts[0].value == pytest.approx(0.025)
    assert judged.parts[0].said == "a minus b at lag 8: accuracy +0.0250 [+0.0188, +0.0312], 5 seeds"


@pytest.mark.parametrize(
    ("losses", "within", "beyond"),
    [((0.5, -0.5), HOLDS, FAILS), ((0.1, -0.6), FAILS, FAILS), ((0.6, -0.7), FAILS, HOLDS), ((), UNDECIDED, UNDECIDED)],
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
    fell = [run(label, s, 0.1, best=0.6, lag=lag) for label in "ab" for lag in (1, 8) for s in (0, 1)]
    assert verdict(both, fell) is HOLDS
    assert verdict(both, fell[:-1]) is UNDECIDED
    stood = [run("b", s, 0.6, lag=8) for s in (0, 1)]
    assert verdict(both, [*fell[:4], *stood]) is FAILS


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"kind": "hold"}, UnknownNameError, "holds"),
        ({"than": "b"}, UnknownNameError, "kind collapses"),
        ({"kind": "higher", "metric": "accuracy"}, ConfigError, "kind higher needs than"),
        ({"kind": "equal", "metric": "accuracy", "than": "b"}, ConfigError, "kind equal needs margin"),
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
    assert len(grid.claims) == 7
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
    tree = {"objectives": [{"name": "grpo", "label": "a"}], "lags": [8], "seeds": [0, 1], "steps": 6}
    claim = COLLAPSE | {"text": "It falls"}
    comparison = Comparison(tmp_path, from_tree(tree | {"claims": [claim]}, "x"), tuple(collapses(True, True)))
    text = io.StringIO()
    show(comparison.findings, Console(file=text, width=80))
    lines = text.getvalue().splitlines()
    assert "Claim: It falls: holds" in lines and "  a at lag 8: 2 of 2 seeds collapsed: holds" in [
        x.rstrip() for x in lines
    ]
    assert max(map(len, lines)) <= 80
    assert save(comparison) == tmp_path / "table.json"
    (found,) = json.loads((tmp_path / "table.json").read_text())["claims"]
    assert found["verdict"] == "holds" and found["claim"]["text"] == "It falls"
    assert found["parts"][0]["value"] == 1.0 and found["parts"][0]["seeds"] == 2
