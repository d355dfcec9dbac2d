"""Graded responses and what they say about a model. Items are grouped by id, never by text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from lagproof.data.samples import Finish
from lagproof.data.slices import Key, OfTask
from lagproof.evaluation.statistics import Interval, bootstrap, majority, pass_at_k


@dataclass(frozen=True)
class GradedResponse:
    """One graded response.

    Attributes:
        problem_id: of the task.
        task: name of the task of the problem.
        sample: number within the problem, from 0.
        reward: in [0, 1]; NaN where the task could not grade it because its own answer cannot be read.
        reason: of the grade, in one word.
        key: what the response says, in one form for one meaning; ``None`` where it says nothing.
        tokens: response tokens, those that ended the response included.
        finish: why it ended.
        text: the response.
        gold: the right answer.
    """

    problem_id: str
    task: str
    sample: int
    reward: float
    reason: str
    key: str | None
    tokens: int
    finish: Finish
    text: str
    gold: str


@dataclass(frozen=True)
class ProblemResult:
    """The responses to one problem, ``k`` of which were asked for."""

    problem_id: str
    task: str
    gold: str
    k: int
    responses: Sequence[GradedResponse]

    @property
    def missing(self) -> int:
        """Samples that were asked for and never came, or were given up; they count as wrong."""
        return self.k - len(self._came)

    @property
    def skipped(self) -> bool:
        """Whether nothing can be said, because the task's own answer cannot be read."""
        return any(math.isnan(response.reward) for response in self._came)

    @property
    def correct(self) -> int:
        """Responses with full reward."""
        return sum(response.reward == 1.0 for response in self._came)

    @property
    def average(self) -> float:
        """Mean reward over the ``k`` samples that were asked for."""
        return sum(response.reward for response in self._came) / self.k

    @property
    def majority(self) -> float:
        """What the most frequent answer is worth."""
        return majority([r.key for r in self._came], [r.reward for r in self._came])

    @property
    def _came(self) -> list[GradedResponse]:
        return [response for response in self.responses if response.finish is not Finish.ABORTED]

    def row(self) -> dict[str, Any]:
        """A line of the per-problem table."""
        lengths = [response.tokens for response in self._came]
        return {
            "problem_id": self.problem_id,
            "task": self.task,
            "gold": self.gold,
            "samples": len(lengths),
            "correct": self.correct,
            "average": None if self.skipped else self.average,
            "majority": None if self.skipped else self.majority,
            "response_tokens": float(np.mean(lengths)) if lengths else None,
            "truncated": sum(response.finish is Finish.LENGTH for response in self._came),
            "missing": self.missing,
            "skipped": self.skipped,
        }


@dataclass(frozen=True)
class EvalResult:
    """What ``k`` samples per problem say.

    Attributes:
        k: samples that were asked for of each problem.
        problems: every problem that was asked, also those without a response.
        seed: of the bootstrap.
    """

    k: int
    problems: Sequence[ProblemResult]
    seed: int = 0
    resamples: int = field(default=10_000, repr=False)

    @cached_property
    def counted(self) -> list[ProblemResult]:
        """Problems that say something; the others are reported as skipped."""
        return [problem for problem in self.problems if not problem.skipped]

    @property
    def accuracy(self) -> float | None:
        """avg@k: the plain mean reward; ``None`` without a problem."""
        return _mean([problem.average for problem in self.counted])

    @cached_property
    def interval(self) -> Interval | None:
        """95 % bootstrap interval of the accuracy over problems."""
        averages = [problem.average for problem in self.counted]
        return bootstrap(averages, seed=self.seed, resamples=self.resamples)

    @property
    def majority(self) -> float | None:
        """maj@k."""
        return _mean([problem.majority for problem in self.counted])

    def pass_at(self, k: int) -> float | None:
        """Unbiased pass@k for any ``k`` up to the samples; a sample that never came is a wrong one."""
        return _mean([pass_at_k(self.k, problem.correct, k) for problem in self.counted])

    @property
    def missing(self) -> int:
        """Samples that never came, over all problems."""
        return sum(problem.missing for problem in self.problems)

    @property
    def skipped(self) -> int:
        """Problems whose own answer cannot be read."""
        return len(self.problems) - len(self.counted)

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of every response that came, also of truncated ones."""
        return [response.tokens for response in self._responses]

    @property
    def response_tokens(self) -> float | None:
        """Mean length in tokens."""
        return _mean(self.lengths)

    @property
    def truncated(self) -> float | None:
        """Share of responses that reached the limit of tokens."""
        return _mean([float(response.finish is Finish.LENGTH) for response in self._responses])

    @property
    def reasons(self) -> dict[str, int]:
        """How often each reason was given."""
        return dict(sorted(Counter(response.reason for response in self._responses).items()))

    def by_task(self) -> dict[str, EvalResult]:
        """The same for each task apart, in order of appearance."""
        parts: dict[str, list[ProblemResult]] = {}
        for problem in self.problems:
            parts.setdefault(problem.task, []).append(problem)
        return {task: EvalResult(self.k, part, self.seed, self.resamples) for task, part in parts.items()}

    def metrics(self) -> dict[Key, float]:
        """Numbers for a line of metrics; of a mixture also those of each task. What has no data is absent."""
        tasks = self.by_task()
        parts: dict[OfTask | None, EvalResult] = {None: self}
        parts |= {OfTask(task): part for task, part in tasks.items()} if len(tasks) > 1 else {}
        values = {
            Key(f"eval/{name}", of): value
            for of, result in parts.items()
            for name, value in (
                ("accuracy", result.accuracy),
                ("response_tokens", result.response_tokens),
                ("truncated", result.truncated),
                ("missing", result.missing or None),
                ("skipped", result.skipped or None),
            )
        }
        return {key: float(value) for key, value in values.items() if value is not None}

    def summary(self) -> dict[str, Any]:
        """Every number for a file or a table; ``None`` where there is no data."""
        interval = self.interval
        quantiles = np.quantile(self.lengths, [0.5, 0.9]).tolist() if self.lengths else [None, None]
        return {
            "problems": len(self.problems),
            "k": self.k,
            "average": self.accuracy,
            "average_low": interval.low if interval else None,
            "average_high": interval.high if interval else None,
            "pass": {str(k): self.pass_at(k) for k in range(1, self.k + 1)},
            "majority": self.majority,
            "response_tokens": self.response_tokens,
            "response_tokens_median": quantiles[0],
            "response_tokens_p90": quantiles[1],
            "response_tokens_max": max(self.lengths, default=None),
            "truncated": self.truncated,
            "missing_samples": self.missing,
            "skipped_problems": self.skipped,
            "reasons": self.reasons,
        }

    @cached_property
    def _responses(self) -> list[GradedResponse]:
        return [r for problem in self.problems for r in problem.responses if r.finish is not Finish.ABORTED]


@dataclass(frozen=True)
class ModelDifference:
    """``other - base`` over the problems that both have, with a paired interval."""

    base: str
    other: str
    problems: int
    mean: float
    interval: Interval | None

    def to_dict(self) -> dict[str, Any]:
        """As plain values for a file."""
        return vars(self) | {"interval": self.interval and self.interval._asdict()}


def difference(results: Mapping[str, EvalResult], base: str, other: str, *, seed: int = 0) -> ModelDifference | None:
    """Paired comparison of two models by problem id; ``None`` where they share no problem."""
    left = {(p.task, p.problem_id): p.average for p in results[base].counted}
    right = {(p.task, p.problem_id): p.average for p in results[other].counted}
    gaps = [right[key] - value for key, value in left.items() if key in right]
    if not gaps:
        return None
    return ModelDifference(base, other, len(gaps), float(np.mean(gaps)), bootstrap(gaps, seed=seed))


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
