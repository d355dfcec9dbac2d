"""Sums of one-digit terms, small enough for a tiny model: ``7+5-9+3=`` -> ``12,3,6``. Imports no torch."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from lagproof.data.samples import Finish
from lagproof.settings.keys import key
from lagproof.settings.models import model
from lagproof.tasks.task import Answer, Grade, Problem

_TRAIN, _EVAL, _WORKED = 0, 1, 2
_HELD_OUT_ONE_IN = 8


@model("task")
class ArithmeticOptions:
    """Options of the generator."""

    terms: int = key(4, "one-digit terms of an expression, >= 2", ge=2)
    seed: int | None = key(None, "which problems; absent: the run's to train on, 0 to evaluate on", ge=0)
    label: str | None = key(None, "name in metrics; absent: the task's own")


@model("task")
class ArithmeticTask(ArithmeticOptions):
    """Running sums: the answer lists the sum after the second, the third, ... and the last term.

    Problems never end, and each is a pure function of ``(seed, split, index)``. One expression in eight,
    whatever the seed, belongs to evaluation and is never trained on.

    Reward: 1 if the response ended by itself and the text after its last comma is the final sum, else 0. The
    steps on the way are not looked at.

    Attributes:
        run_seed: which problems are trained on where ``seed`` is absent.
    """

    run_seed: int = 0

    @property
    def name(self) -> str:
        return self.label or "arithmetic"

    @property
    def size(self) -> int | None:
        return None

    @property
    def eval_size(self) -> int | None:
        return 10_000

    @property
    def data(self) -> None:
        return None

    def problem(self, index: int) -> Problem:
        return self._problem("train", index, *self._draw(_TRAIN, index))

    def eval_problem(self, index: int) -> Problem:
        return self._problem("eval", index, *self._draw(_EVAL, index))

    def worked_example(self, index: int) -> tuple[str, str]:
        """Prompt and right response, for a supervised start: a stream of its own, no evaluation problems."""
        expression, sums = self._draw(_WORKED, index)
        return f"{expression}=", ",".join(map(str, sums))

    def grade(self, answers: Sequence[Answer]) -> list[Grade]:
        return [_grade(answer) for answer in answers]

    def key(self, answer: Answer) -> str | None:
        return answer.text.rsplit(",", 1)[-1] or None

    def close(self) -> None:
        """Nothing is held."""

    def _problem(self, split: str, index: int, expression: str, sums: list[int]) -> Problem:
        return Problem(f"{self.name}-{split}-{index}", f"{expression}=", str(sums[-1]), self.name)

    def _draw(self, split: int, index: int) -> tuple[str, list[int]]:
        """Draw expressions until one is of the right side."""
        absent = self.run_seed if split == _TRAIN else 0
        rng = np.random.default_rng([absent if self.seed is None else self.seed, split, index])
        while True:
            digits = rng.integers(0, 10, size=self.terms).tolist()
            signs = [1, *(1 - 2 * rng.integers(0, 2, size=self.terms - 1)).tolist()]
            expression = str(digits[0]) + "".join(
                f"{'+' if sign > 0 else '-'}{digit}" for sign, digit in zip(signs[1:], digits[1:], strict=True)
            )
            held_out = zlib.crc32(expression.encode()) % _HELD_OUT_ONE_IN == 0
            if held_out == (split == _EVAL):
                sums = np.cumsum(np.multiply(signs, digits)).tolist()
                return expression, sums[1:]


def _grade(answer: Answer) -> Grade:
    if answer.finish is not Finish.STOP:
        return Grade(0.0, "truncated")
    right = answer.text.rsplit(",", 1)[-1] == answer.problem.gold
    return Grade(1.0, "correct") if right else Grade(0.0, "wrong")
