"""The seam between a run and its problems, and in which order they are trained on. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from lagproof.data.samples import Finish
from lagproof.errors import InputError
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
        template: arguments of the model's chat template, such as ``enable_thinking``.
    """

    id: str
    prompt: str | Messages
    gold: str
    task: str
    info: dict[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    template: Mapping[str, Any] = field(default_factory=dict)


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


def position(n: int, size: int | None, seed: int, apart: int = 1) -> tuple[int, int]:
    """Epoch and index of the ``n``-th problem of a run: a pure function of one integer, the cursor.

    Every epoch is a permutation of all ``size`` problems of its own, drawn from ``(seed, epoch)``; so the whole state
    of the order is the cursor ``n``, and a resumed run continues as an uninterrupted one. Where an epoch would begin
    with a problem that the one before has just ended with, that one comes a little later.

    Args:
        n: problems drawn before this one, >= 0.
        size: problems of the task; ``None`` for a generator that never ends: one epoch, no order.
        seed: >= 0.
        apart: so many problems in a row are different ones, also from one epoch to the next; at most ``size``.

    Raises:
        InputError: there are no problems.
    """
    if n < 0:
        raise ValueError(f"cursor {n}: must be >= 0")
    if size is None:
        return 0, n
    if size < 1:
        raise InputError("the task has no problems: nothing to train on")
    epoch, place = divmod(n, size)
    return epoch, int(_order(size, seed, epoch, min(apart, size))[place])


@lru_cache(maxsize=4)
def _order(size: int, seed: int, epoch: int, apart: int) -> np.ndarray:
    if epoch == 0 or apart < 2:
        return _permutation(size, seed, epoch)
    if size < 3 * apart:  # the end of an epoch may then depend on the one before
        orders = _small_orders(size, seed, apart)
        while len(orders) <= epoch:
            orders.append(_kept_apart(orders[-1], _permutation(size, seed, len(orders)), apart))
        return orders[epoch]
    return _kept_apart(_permutation(size, seed, epoch - 1), _permutation(size, seed, epoch), apart)


def _kept_apart(before: np.ndarray, drawn: np.ndarray, apart: int) -> np.ndarray:
    """The same problems; those at the beginning that came just before are moved back as little as that takes."""
    recent = before[len(before) - (apart - 1) :].tolist()
    waiting = drawn.tolist()
    out: list[int] = []
    while recent:
        chosen = next(i for i, problem in enumerate(waiting) if problem not in recent)
        out.append(waiting.pop(chosen))
        recent.pop(0)
    return np.array([*out, *waiting])


@lru_cache(maxsize=4)
def _small_orders(size: int, seed: int, apart: int) -> list[np.ndarray]:
    """The epochs of few problems so far, which :func:`_order` continues."""
    return [_permutation(size, seed, 0)]


def _permutation(size: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(size)
