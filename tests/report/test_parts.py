"""What quantities are made of: sums stay sums, means are over tokens, and what is absent is left out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lagproof.report.charts import heat, stacked
from lagproof.report.series import (
    MAX_COLUMNS,
    MAX_STACK_POINTS,
    Stack,
    d_bar_by_age,
    mass_by_age,
    sources,
    time_spent,
)
from lagproof.runs.run import Run

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from made_runs import run_of


def run(*rows: dict[str, Any]) -> Run:
    return run_of(({"step": i} | row for i, row in enumerate(rows)), lag=8, steps=len(rows))


def layers(stack: Stack | None) -> dict[str, tuple[float, ...]]:
    assert stack is not None
    return {layer.label: layer.values for layer in stack.layers}


def test_a_run_without_the_data_has_no_parts() -> None:
    empty = run({"eval/accuracy": 0.5}, {"d_bar": 0.1}, {})
    assert sources(empty) is None and time_spent(empty) is None and mass_by_age(empty) is None
    assert d_bar_by_age(empty) == []


def test_sources_are_taken_where_there_is_a_probe() -> None:
    found = sources(
        run({}, {"probe/policy": 0.1, "probe/engine": -0.01}, {}, {"probe/policy": 0.2, "probe/engine": 0.02})
    )
    assert found is not None and found.steps == (1.0, 3.0)
    assert layers(found) == {"policy update": (0.1, 0.2), "engine": (-0.01, 0.02)}


def test_what_is_left_of_a_step_is_other() -> None:
    start = {"time/eval_s": 9.0, "time/step_s": 9.0}  # the evaluation before training is no step
    one = {"time/sample_s": 1.0, "time/learn_s": 2.0, "time/step_s": 3.5, "time/tokens_per_s": 1e4}
    two = {"time/learner_wait_s": 1.0, "time/rollout_wait_s": 2.0, "time/learn_s": 1.0, "time/step_s": 3.9}
    found = time_spent(run(start, one, two))
    assert found is not None and found.steps == (1.0, 2.0)
    assert layers(found) == {
        "sampling": (1.0, 0.0),
        "learning": (2.0, 1.0),
        "waiting": (0.0, 3.0),
        "other": (0.5, 0.0),  # sides that work at the same time add up to more than the step
    }


def test_mass_by_age_has_the_same_bands_on_both_sides() -> None:
    rows = [{"mass_positive": 3.0, "mass_negative": 1.0, "age/8/mass_positive": 3.0, "age/8/mass_negative": 1.0}]
    rows += [{"mass_positive": 2.0, "age/9/mass_positive": 1.5, "age/32-63/mass_positive": 0.5}]
    found = mass_by_age(run({}, *rows))
    assert found is not None
    up, down = found
    assert up.steps == down.steps == (1.0, 2.0)
    assert layers(up) == {"age 8": (3.0, 0.0), "age 9": (0.0, 1.5), "age 32-63": (0.0, 0.5)}
    assert layers(down) == {"age 8": (1.0, 0.0), "age 9": (0.0, 0.0), "age 32-63": (0.0, 0.0)}


def test_many_ages_become_eight_bands() -> None:
    rows = [{"mass_positive": 1.0, f"age/{age}/mass_positive": 1.0} for age in range(16)]
    found = mass_by_age(run(*rows, {"mass_positive": 1.0, "age/32-63/mass_positive": 1.0}))
    assert found is not None
    labels = [layer.label for layer in found[0].layers]
    assert labels == ["age 0-2", "age 3-5", "age 6-8", "age 9-11", "age 12-14", "age 15-63"]
    assert sum(sum(layer.values) for layer in found[0].layers) == 17.0


def test_a_long_run_keeps_its_sums() -> None:
    num_steps = 2 * MAX_STACK_POINTS + 1
    rows = [{"mass_positive": 1.0, f"age/{i % 4}/mass_positive": float(i)} for i in range(num_steps)]
    found = mass_by_age(run(*rows))
    assert found is not None
    up = found[0]
    assert len(up.steps) <= MAX_STACK_POINTS and up.steps[0] == 1.0  # the mean of steps 0, 1 and 2
    means = [sum(layer.values[0] for layer in up.layers), sum(layer.values[-1] for layer in up.layers)]
    assert means == pytest.approx([1.0, num_steps - 2.0])


def test_d_bar_is_a_mean_over_tokens() -> None:
    fill: list[dict[str, Any]] = [{} for _ in range(MAX_COLUMNS - 1)]
    rows = [{"age/2/d_bar": 0.1, "age/2/tokens": 300}, {"age/2/d_bar": 0.5, "age/2/tokens": 100, "age/10/d_bar": 1.0}]
    first, second = d_bar_by_age(run({}, *rows, *fill))
    assert (first.first, first.last, first.age.label, first.tokens) == (1, 2, "2", 400)
    assert first.d_bar == pytest.approx(0.2)
    assert (second.age.label, second.d_bar, second.tokens) == ("10", 1.0, 0)


def test_tiles_are_in_the_order_of_ages() -> None:
    rows = [{f"age/{age}/d_bar": 0.1 for age in ("10", "2", "32-63")}]
    spec = heat(d_bar_by_age(run({}, *rows)), last_step=1)
    assert spec is not None
    assert spec["layer"][0]["encoding"]["y"]["sort"] == ["32-63", "10", "2"]  # from the top
    assert heat(d_bar_by_age(run({}, {"age/0/d_bar": 0.0})), last_step=1) is None


def test_the_other_side_is_drawn_downwards() -> None:
    rows = [{"mass_positive": 1.0, "age/0/mass_positive": 1.0, "age/0/mass_negative": 2.0}]
    found = mass_by_age(run({}, *rows))
    assert found is not None
    spec = stacked(found[0], {"age 0": 0}, below=found[1], last_step=1)
    drawn, pointed = spec["datasets"]["rows0"], spec["datasets"]["rows1"]
    assert [row["v"] for row in drawn] == [1, -2]
    assert pointed == [{"s": 1, "p0": 1, "p1": 2}]
