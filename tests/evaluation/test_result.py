"""Grouping and counting graded responses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lagproof.data.samples import Finish
from lagproof.data.slices import Key, OfTask
from lagproof.evaluation.evaluate import collect
from lagproof.evaluation.result import EvalResult, GradedResponse, ProblemResult, difference
from lagproof.tasks.task import Problem


def response(problem: str, sample: int = 0, reward: float = 1.0, **other: object) -> GradedResponse:
    values: dict[str, object] = {
        "task": "t",
        "reason": "correct" if reward == 1 else "wrong",
        "key": str(reward),
        "tokens": 4,
        "finish": Finish.STOP,
        "text": "same text",
        "gold": "5",
    }
    return GradedResponse(problem, sample=sample, reward=reward, **{**values, **other})  # type: ignore[arg-type]


def problems(*names: str) -> list[Problem]:
    return [Problem(name, "same text", "5", "t") for name in names]


def test_items_are_grouped_by_id_and_not_by_text() -> None:
    result = collect(
        problems("a", "b"), [response("b", 1, 0.0), response("a", 0), response("b", 0), response("a", 1)], k=2
    )
    assert [p.average for p in result.problems] == [1.0, 0.5]


def test_missing_samples_are_counted_and_not_averaged_away() -> None:
    aborted = response("b", 1, finish=Finish.ABORTED, reward=0.0, tokens=99)
    came = [response("a", 0), response("a", 1), response("b", 0), aborted]
    result = collect(problems("a", "b", "c"), came, k=2)
    assert result.missing == 3
    assert result.accuracy == pytest.approx((1 + 0.5 + 0) / 3)
    assert result.pass_at(2) == pytest.approx(2 / 3)
    assert result.pass_at(1) == pytest.approx((1 + 0.5 + 0) / 3)
    assert result.response_tokens == 4.0
    assert result.metrics()[Key("eval/missing")] == 3


def test_a_problem_whose_gold_cannot_be_read_is_skipped_and_counted() -> None:
    bad = [response("b", i, math.nan, reason="bad_gold") for i in range(2)]
    result = collect(problems("a", "b"), [response("a", 0), response("a", 1, 0.0), *bad], k=2)
    assert (result.accuracy, result.skipped) == (0.5, 1)
    assert result.problems[1].row()["average"] is None
    nothing = collect(problems("b"), bad, k=2)
    assert (nothing.accuracy, nothing.interval, nothing.majority) == (None, None, None)
    assert Key("eval/accuracy") not in nothing.metrics()


def test_lengths_come_from_the_tokens_also_of_truncated_responses() -> None:
    """F67: lengths 4 (ended) and 8 (truncated): mean 6, largest 8, truncated .5."""
    came = [response("a", 0, tokens=4), response("a", 1, 0.0, tokens=8, finish=Finish.LENGTH)]
    summary = collect(problems("a"), came, k=2).summary()
    assert (summary["response_tokens"], summary["response_tokens_max"], summary["truncated"]) == (6.0, 8, 0.5)


def test_a_mixture_is_reported_by_task_too() -> None:
    parts = [
        ProblemResult("1", "easy", "5", 1, [response("1")]),
        ProblemResult("1", "hard", "5", 1, [response("1", reward=0.0)]),
        ProblemResult("2", "hard", "5", 1, [response("2", reward=0.0)]),
    ]
    metrics = EvalResult(1, parts).metrics()
    assert metrics[Key("eval/accuracy")] == pytest.approx(1 / 3)
    assert (metrics[Key("eval/accuracy", OfTask("easy"))], metrics[Key("eval/accuracy", OfTask("hard"))]) == (1.0, 0.0)


def test_paired_differences_are_taken_by_problem() -> None:
    rewards = np.random.default_rng(0).integers(0, 2, size=200).astype(float)
    names = [str(i) for i in range(200)]
    base = collect(problems(*names), [response(n, 0, r) for n, r in zip(names, rewards, strict=True)], k=1)
    better = rewards.copy()
    better[np.flatnonzero(rewards == 0)[:5]] = 1.0
    other = collect(problems(*names[::-1]), [response(n, 0, r) for n, r in zip(names, better, strict=True)], k=1)
    gap = difference({"base": base, "other": other}, "base", "other")
    assert gap is not None
    assert gap.mean == pytest.approx(5 / 200)
    assert gap.interval is not None
    assert base.interval is not None
    assert 0 < gap.interval.low < gap.mean < gap.interval.high
    assert gap.interval.high - gap.interval.low < 0.5 * (base.interval.high - base.interval.low)
    assert difference({"a": base, "b": collect(problems("x"), [response("x")], k=1)}, "a", "b") is None


def test_results_and_differences_without_a_spread_have_no_interval() -> None:
    names = [str(i) for i in range(16)]
    never = collect(problems(*names), [response(n, 0, 0.0) for n in names], k=1)
    always = collect(problems(*names), [response(n, 0, 1.0) for n in names], k=1)
    assert (never.accuracy, never.interval, never.summary()["average_high"]) == (0.0, None, None)
    gap = difference({"a": never, "b": always}, "a", "b")
    assert gap is not None
    assert (gap.mean, gap.interval) == (1.0, None)
