"""Curves: thinning keeps means, and a mean over seeds is over the steps that all of them have."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from lagproof.report.series import MAX_CURVE_POINTS, MAX_POINTS, curves, joined, thinned
from lagproof.runs.run import Run

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from made_runs import run_of


def run(values: dict[int, float], label: str = "grpo", seed: int = 0, lag: int = 1) -> Run:
    return run_of(({"step": s, "d_bar": v} for s, v in values.items()), label, lag=lag, seed=seed, steps=9)


def test_thinning_takes_means_of_steps_in_a_row() -> None:
    steps, values = thinned([1, 2, 3, 4, 5], [1.0, 3.0, 5.0, 7.0, 100.0], 2)
    assert steps == (1.5, 3.5, 5.0) and values == (2.0, 6.0, 100.0)
    assert thinned([1, 2], [3.0, 4.0], 1) == ((1, 2), (3.0, 4.0))


def test_a_long_run_is_thinned_and_says_so() -> None:
    values = np.random.default_rng(0).random(1000)
    found = curves([run({s + 1: float(v) for s, v in enumerate(values)})], "d_bar")
    assert found.window == 7 and len(found.single[0].steps) == 143 <= MAX_CURVE_POINTS
    assert found.single[0].values[0] == pytest.approx(values[:7].mean())


def test_many_runs_share_the_points_of_a_figure() -> None:
    runs = [run(dict.fromkeys(range(1, 241), 1.0), seed=seed) for seed in range(200)]
    found = curves(runs, "d_bar")
    assert sum(len(curve.steps) for curve in found.single) <= MAX_POINTS


def test_a_mean_is_over_the_steps_that_all_seeds_have() -> None:
    runs = [run({1: 1.0, 2: 2.0, 3: 9.0}, seed=0), run({1: 3.0, 2: 5.0}, seed=1), run({1: 7.0}, label="spo")]
    found = curves(runs, "d_bar")
    (mean,) = found.mean
    assert (mean.label, mean.seed, mean.steps, mean.values) == ("grpo", None, (1, 2), (2.0, 3.5))
    assert [(c.label, c.seed) for c in found.front] == [("grpo", None), ("spo", 0)]


def test_runs_without_the_metric_have_no_curve() -> None:
    found = curves([run({1: 1.0})], "k3")
    assert (found.single, found.mean, found.values) == ((), (), [])


def test_metrics_of_one_run_share_a_chart() -> None:
    found = joined([("first", curves([run({1: 1.0})], "d_bar")), ("second", curves([run({1: 1.0})], "k3"))])
    assert [curve.label for curve in found.single] == ["first"]
