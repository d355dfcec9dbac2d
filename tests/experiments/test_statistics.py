"""Second halves, collapse, intervals over seeds and paired differences, against numbers worked out by other means."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from lagproof.experiments.statistics import (
    RunSummary,
    has_collapsed,
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


WAVE = 0.15 * np.sin(np.linspace(0, 20, 25))


@pytest.mark.parametrize(
    ("level", "wave", "collapsed"),
    [  # start .50-.53; second-half means that real runs of the small task had
        (0.25, 1.0, True),  # naive at lag 8 swings with a period of five lags
        (0.35, 1.0, True),  # naive at lag 4
        (0.18, 0.5, True),  # naive at lag 16
        (0.64, 0.1, False),  # spo
        (0.58, 0.1, False),  # the weakest that holds
        (0.53, 0.2, False),  # asympo at twice the learning rate
    ],
)
def test_collapse_parts_the_runs_that_fail_from_those_that_hold(level: float, wave: float, collapsed: bool) -> None:
    way = np.minimum(np.arange(25) / 8, 1.0)
    accuracy = 0.515 + (level - 0.515) * way + wave * WAVE * way
    second = float(accuracy[13:].mean())
    assert abs(second - level) < 0.04
    assert has_collapsed(accuracy.tolist(), second) is collapsed


def test_collapse_is_judged_by_a_best_that_one_lucky_evaluation_cannot_make() -> None:
    flat = [0.3] * 20
    lucky = [*flat[:10], 0.6, *flat[11:]]
    assert not has_collapsed(flat, 0.3)
    assert not has_collapsed(lucky, 0.3)  # 0.75 * (0.3 + 0.6 + 0.3) / 3 = 0.3
    assert has_collapsed([0.3, 0.6, 0.6, 0.6, 0.3, 0.3], 0.3)


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
    assert verdicts([cell]) == ["Lag 8: collapsed: naive (2 of 3 seeds). None held."]


def test_verdicts_name_what_fell_and_what_held() -> None:
    values = {"accuracy": 0.2, "minimum": 0.1, "final": 0.2}
    cells = over_seeds([summary(0.6, 0, lag=1), RunSummary("naive", 8, 0, values, True, 9, 9), summary(0.6, 0)])
    assert verdicts(cells) == [
        "Lag 1: nothing collapsed.",
        "Lag 8: collapsed: naive (1 of 1 seed). Held: grpo.",
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
