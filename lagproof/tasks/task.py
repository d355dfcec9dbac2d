"""The seam between a run and its problems. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lagproof.data.samples import Finish
from lagproof.grading.grader import Grade

Messages = Sequence[dict[str, str]]


@dataclass(frozen=True)
class Problem:
    """One problem.

    Attributes:
        id: unique in the task.
        prompt: text that is tokenised as it is, or chat messages (``{"role", "content"}``).
        gold: the right answer, as text.
        task: name of the task it belongs to; metrics are kept apart by it.
        stop: strings that end an answer to this prompt, where the model itself might not end it.
    """

    id: str
    prompt: str | Messages
    gold: str
    task: str
    info: dict[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A response to be graded."""

    problem: Problem
    text: str
    finish: Finish = Finish.STOP


class Task(Protocol):
    """Problems by index, and what an answer is worth. The same index always gives the same problem."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int | None:
        """Number of training problems; ``None`` for a generator that never ends."""
        ...

    @property
    def eval_size(self) -> int | None:
        """Number of evaluation problems; they are never trained on where the task can keep them apart."""
        ...

    @property
    def data(self) -> Mapping[str, Any] | None:
        """Digest and sizes of what was read from files, to notice that it changed; ``None`` where problems are made."""
        ...

    def problem(self, index: int) -> Problem: ...

    def eval_problem(self, index: int) -> Problem: ...

    def grade(self, answers: Sequence[Answer]) -> list[Grade]:
        """One grade an answer, in order. Never raises because of what an answer says."""
        ...

    def key(self, answer: Answer) -> str | None:
        """What an answer says, in one form for one meaning, so that answers can be counted; ``None`` for nothing."""
        ...

    def close(self) -> None:
        """Release processes and files."""
        ...
