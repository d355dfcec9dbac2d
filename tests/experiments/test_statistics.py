"""Second halves, collapse, intervals over seeds and paired differences, against numbers worked out by other means."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lagproof.experiments.statistics import (
    RunSummary,
    over_seeds,
    paired,
    summarise,
    verdicts,
)

sys.path.insert(0, str(Path(__file__).parent))
from made_runs import run_of


def summary(accuracy: float, seed: int, label: str = "grpo", lag: int = 8, **more: float) -> RunSummary:
    values = {"accuracy": accuracy, "minimum": accuracy - 0.1, "final": accuracy, **more}
    return RunSummary(label, lag, seed, values, False, 10, 10)


def test_the_second_half_begins_after_half_the_steps() -> None:
    rows = [{"step": s, "d_bar": float(s), "eval/accuracy": s / 10} for s in range(5)]
    values = summarise(run_of(rows)).values
    assert values["d_bar"] == pytest.approx(3.5)  # steps 3 and 4
    assert values["accuracy"] == pytest.approx(0.35)
    assert values["minimum"] == pytest.approx(0.1)  # step 0 is before training
    assert values["final"] == pytest.approx(0.4)


def test_the_second_half_is_that_of_the_steps_made() -> None:
    rows = [{"step": s, "d_bar": float(s)} for s in range(1, 5)]
    found = summarise(run_of(rows, steps=100))
    assert found.values["d_bar"] == pytest.approx(3.5)
    assert (found.steps, found.planned_steps) == (4, 100)


def test_no_data_is_no_value() -> None:
    found = summarise(run_of([{"step": 0}, {"step": 1, "reward": 1.0}]))
    assert found.values == {} and found.collapsed is None
    assert summarise(run_of([])).values == {}


def test_clipped_adds_both_sides() -> None:
    rows = [{"step": 1, "clipped_high": 0.9, "clipped_low": 0.9}, {"step": 2, "clipped_high": 0.1, "clipped_low": 0.02}]
    assert summarise(run_of(rows)).values["clipped"] == pytest.approx(0.12)
    assert summarise(run_of([{"step": 2, "clipped_high": 0.1}])).values["clipped"] == pytest.approx(0.1)


def test_changed_is_the_objectives_own_under_its_own_name() -> None:
    rows = [{"step": 1, "any/changed": 0.9}, {"step": 2, "any/changed": 0.1, "changed": 0.5, "any/changed_too": 0.5}]
    assert summarise(run_of(rows)).values == {"changed": pytest.approx(0.1)}


def test_values_that_are_not_finite_are_no_data() -> None:
    rows = [{"step": 3, "k3": float("nan")}, {"step": 4, "k3": 0.5}]
    assert summarise(run_of(rows)).values["k3"] == 0.5


def test_the_mismatch_of_the_last_fifth_stands_beside_that_of_the_second_half() -> None:
    rows = [{"step": s, "d_bar": float(s)} for s in range(1, 11)]
    values = summarise(run_of(rows)).values
    assert values["d_bar"] == pytest.approx(8.0)  # steps 6 to 10
    assert values["d_bar_last"] == pytest.approx(9.5)  # steps 9 and 10


def test_a_collapse_is_that_of_its_file() -> None:
    accuracy = [0.5, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1]
    found = summarise(run_of([{"step": 10 * i, "eval/accuracy": a} for i, a in enumerate(accuracy)]))
    assert (found.collapsed, found.began) == (True, 40)
    assert found.values["second_half_share"] == pytest.approx(0.2)  # steps 40 to 60
    assert found.values["final_share"] == pytest.approx(0.2)


def test_seeds_are_put_together_by_objective_and_lag() -> None:
    runs = [summary(0.6, 0), summary(0.5, 1), summary(0.3, 0, label="naive"), summary(0.7, 0, lag=1)]
    cells = over_seeds(runs)
    assert [(cell.label, cell.lag, cell.seeds) for cell in cells] == [
        ("grpo", 8, (0, 1)),
        ("naive", 8, (0,)),
        ("grpo", 1, (0,)),
    ]
    both = cells[0].estimates["accuracy"]
    assert (both.mean, both.n) == (pytest.approx(0.55), 2) and both.interval == pytest.approx(
        (0.55 - 0.635310, 0.55 + 0.635310), abs=1e-5
    )  # t(.975, 1) = 12.7062, s = .1 / sqrt 2, so 12.7062 x .05
    assert cells[0].worst == pytest.approx(0.4)
    assert cells[1].estimates["accuracy"].interval is None
    assert "d_bar" not in cells[0].estimates


def test_a_number_that_some_seeds_lack_says_over_how_many_it_is() -> None:
    cell = over_seeds([summary(0.6, 0, changed=0.02), summary(0.5, 1)])[0]
    assert cell.estimates["changed"].n == 1 and cell.estimates["accuracy"].n == 2


def test_collapsed_and_stopped_seeds_are_counted() -> None:
    values = {"accuracy": 0.2, "minimum": 0.1, "final": 0.2}
    runs = [RunSummary("naive", 8, seed, values, seed > 0, 10 - seed, 10) for seed in range(3)]
    cell = over_seeds([*runs, RunSummary("naive", 8, 3, {}, None, 10, 10)])[0]
    assert (cell.collapsed, cell.stopped) == (2, (1, 2))
    assert verdicts([cell]) == [
        "Lag 8: collapsed: naive (2 of 3 seeds). None held.",
        "Exploratory at lag 8: fewer than 5 seeds of an objective there.",
    ]


def test_verdicts_say_when_it_began() -> None:
    values = {"accuracy": 0.2}
    runs = [RunSummary("naive", 8, s, values, s < 3, 10, 10, began=(40, 20, 60, None, None)[s]) for s in range(5)]
    assert verdicts(over_seeds(runs)) == ["Lag 8: collapsed: naive (3 of 5 seeds, from step 40 (20-60)). None held."]


def test_verdicts_name_what_fell_and_what_held() -> None:
    values = {"accuracy": 0.2, "minimum": 0.1, "final": 0.2}
    cells = over_seeds([summary(0.6, 0, lag=1), RunSummary("naive", 8, 0, values, True, 9, 9), summary(0.6, 0)])
    assert verdicts(cells) == [
        "Lag 1: nothing collapsed.",
        "Lag 8: collapsed: naive (1 of 1 seed). Held: grpo.",
        "Exploratory at lag 1, 8: fewer than 5 seeds of an objective there.",
    ]


def test_differences_are_taken_seed_by_seed() -> None:
    # seeds differ by 0.3, the objectives by 0.02 and 0.021: only pairs can see it; t(.975, 1) x .0005 = 0.006353
    runs = [summary(0.3 * s, s, label="grpo") for s in range(3)] + [
        summary(0.3 * s + 0.019 + 0.001 * s, s, label="sat-grpo", d_bar=0.1) for s in (2, 1, 5)
    ]
    (found,) = paired(runs, {"sat-grpo": "grpo"})
    assert (found.label, found.baseline, found.lag, found.seeds) == ("sat-grpo", "grpo", 8, (2, 1))
    estimate = found.estimates["accuracy"]
    assert estimate.mean == pytest.approx(0.0205)
    assert estimate.interval == pytest.approx((0.0205 - 0.006353, 0.0205 + 0.006353), abs=1e-6)
    assert "d_bar" not in found.estimates  # the baseline has none


def test_nothing_to_pair_is_no_difference() -> None:
    runs = [summary(0.5, 0, label="grpo"), summary(0.6, 1, label="spo"), summary(0.6, 0, label="spo", lag=1)]
    assert paired(runs, {"spo": "grpo"}) == []
    assert paired(runs, {}) == []
