"""The note about an objective that acts on nothing: once while the run goes, once at its end."""

from __future__ import annotations

from lagproof.data.rows import Row
from lagproof.objectives import objective
from lagproof.runtime.idle import WINDOW, IdleNote


def row(step: int, changed: float, outcome: str | None = None) -> Row:
    return Row.parse({"step": step, "sat/q": 0.4, "sat/changed": changed, "outcome": outcome})


def watched(rows: list[Row]) -> list[str]:
    said: list[str] = []
    passed: list[Row] = []
    note = IdleNote(objective("sat-grpo"), said.append)
    on_row = note.before(passed.append)
    for one in rows:
        on_row(one)
    assert passed == rows
    note.finish(rows)
    return said


def test_a_run_in_which_nothing_happens_says_so_twice() -> None:
    said = watched([row(0, 0.0), *(row(step, 0.0) for step in range(1, 3 * WINDOW))])
    assert len(said) == 2
    assert said[0].startswith(f"step {WINDOW}, the last {WINDOW} steps: sat-grpo acts on nothing")
    assert said[1].startswith("the whole run: sat-grpo acts on nothing: it is grpo on every token of 59 steps")


def test_one_that_stops_acting_says_so_when_it_does() -> None:
    said = watched([row(step, 0.01 if step <= 2 * WINDOW else 0.0) for step in range(1, 3 * WINDOW + 1)])
    assert len(said) == 1  # 40 of 60 steps acted: the whole run is not idle
    assert said[0].startswith(f"step {2 * WINDOW + WINDOW // 2}, ")


def test_one_that_acts_says_nothing() -> None:
    assert watched([row(step, 0.01) for step in range(1, 3 * WINDOW)]) == []


def test_a_batch_that_made_no_step_is_no_evidence() -> None:
    assert watched([row(1, 0.0, "zero_variance")] * (2 * WINDOW)) == []
