"""What SAT says of having been its base: in how many steps, and why."""

from __future__ import annotations

import math

import pytest

from lagproof.data.rows import Row
from lagproof.objectives import OBJECTIVES, objective


def rows(*steps: tuple[float, float]) -> list[Row]:
    """(q, share changed) of each step."""
    return [Row.parse({"step": i + 1, "sat/q": q, "sat/changed": share}) for i, (q, share) in enumerate(steps)]


def test_the_arithmetic_of_a_run_in_which_it_never_acts() -> None:
    said = objective("sat-grpo", low=0.2, high=0.2).idle(rows(*[(0.3, 0.0), (0.4, 0.0), (0.5, 0.0)]))
    assert said is not None
    assert said.startswith("sat-grpo acts on nothing: it is grpo on every token of 3 steps.")
    assert "q is 0.4 (median of 3 steps, 0.3 to 0.5) nats" in said
    high, low = math.log(1.2), -math.log(0.8)
    assert f"at or above log(1 + high) = {high:.3g} and -log(1 - low) = {low:.3g} in all 3 steps" in said


def test_a_closed_limit_is_told_from_a_tail_without_tokens() -> None:
    said = objective("sat-gspo", low=0.1, high=0.1).idle(rows((0.05, 0.0), (0.3, 0.0)))
    assert said is not None and "it is gspo on every token of 2 steps" in said
    assert "below log(1 + high) = 0.0953 in 1 of 2 steps" in said


@pytest.mark.parametrize(("acted", "says"), [(0, True), (4, True), (5, True), (6, False), (10, False)])
def test_it_is_said_unless_it_acts_in_most_steps(acted: int, says: bool) -> None:
    found = objective("sat-grpo").idle(rows(*[(0.3, 0.01 if i < acted else 0.0) for i in range(10)]))
    assert (found is not None) is says
    if found is not None and acted:
        assert f"sat-grpo acts in {acted} of 10 steps and is grpo on every token of the others" in found


def test_a_risk_that_no_limit_can_be_held_against() -> None:
    said = objective("sat-grpo", risk="probability_mass").idle(rows((0.01, 0.0)))
    assert said == "sat-grpo acts on nothing: it is grpo on every token of 1 steps; q is 0.01 (probability_mass)"


def test_nothing_is_said_without_rows_or_by_others() -> None:
    assert objective("sat-grpo").idle([]) is None
    assert objective("sat-grpo").idle([Row.parse({"step": 1, "reward": 0.5})]) is None
    others = [name for name in OBJECTIVES if not name.startswith("sat-")]
    assert len(others) > 10
    assert all(objective(name).idle(rows((0.3, 0.0))) is None for name in others)
