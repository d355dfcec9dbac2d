"""When a prompt may start and what makes a batch: the schedules, as data and a few lines of arithmetic each.

With ``n = broadcast_every``, ``B = prompts_per_step``, learner version ``V`` and newest published version
``P``:

* :class:`Periodic`: batch ``j`` may start when step ``j - k`` begins; batches are made in prompt order.
* :class:`Threshold`, :class:`MaxAge`: started and not yet trained is at most ``depth - (V - P) * B`` prompts;
  batches are made in the order in which the prompts finish.

In all of them a prompt starts only on a worker that holds ``P``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from lagproof.config import ScheduleConfig

Late = Literal["never", "train", "drop"]  # what becomes of results that are older than the schedule promises


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        version: optimiser steps trained (V).
        published: newest version that was published (P).
        batches: batches that the learner is done with, trained or not.
        started: prompts started so far, which is also the number of the next one.
        outstanding: prompts that are started and neither trained, failed nor dropped.
        data_ended: whether no prompt is left to start.
    """

    version: int
    published: int
    batches: int
    started: int
    outstanding: int
    data_ended: bool


@dataclass(frozen=True)
class Periodic:
    """Batch ``j`` is the prompts ``jB .. jB + B - 1``; it starts when step ``j - k`` begins.

    It is sampled with version ``n * floor((j - k) / n)`` (0 before the first broadcast): the age at step
    ``j`` is ``k + (j - k) mod n``, so ``k .. k + n - 1``. Batches that are not trained (zero variance, non-finite)
    only make it smaller.

    Args:
        broadcast_every: optimiser steps between two weight broadcasts (n), >= 1.
        batches_ahead: batches that sampling runs ahead of learning (k), >= 0.

    Raises:
        ConfigError: a value out of range.
    """

    broadcast_every: int
    batches_ahead: int

    late: ClassVar[Late] = "never"

    def __post_init__(self) -> None:
        ScheduleConfig(self.broadcast_every, self.batches_ahead)  # whose bounds these are

    def max_age(self, prompts_per_step: int) -> int:
        """``k + n - 1``."""
        return self.batches_ahead + self.broadcast_every - 1

    def room(self, progress: Progress, prompts_per_step: int, steps: int) -> int:
        """Batches up to ``k`` after the present one, and none that the last step could not reach."""
        ahead = min(self.batches_ahead + 1, steps - progress.version)
        return (progress.batches + ahead) * prompts_per_step - progress.started

    def batch(
        self,
        progress: Progress,
        prompts_per_step: int,
        finished: Mapping[int, object],
        unfinished: Collection[int],
    ) -> list[int] | None:
        """The next ``B`` prompts by number; fewer where some failed or the data ended.

        ``unfinished`` comes in the order of the numbers: none of the batch is among them if the first is not.
        """
        end = (progress.batches + 1) * prompts_per_step
        if progress.started < end and not progress.data_ended:
            return None
        members = range(end - prompts_per_step, min(end, progress.started))
        if next(iter(unfinished), end) < end:
            return None
        return [prompt for prompt in members if prompt in finished]


@dataclass(frozen=True)
class Threshold:
    """Between two broadcasts at most ``(1 + s) n B`` prompts, less those already started and not yet trained.

    Sampling pauses when the quota is used up. A prompt that failed or was dropped gives its place back, or
    the batch that the next broadcast waits for might never be full. ``s = 0`` is synchronous.

    Args:
        staleness_threshold: share of the prompts between two broadcasts that may be started in advance (s),
            >= 0.
        broadcast_every: optimiser steps between two weight broadcasts (n), >= 1.

    Raises:
        ConfigError: a value out of range.
    """

    staleness_threshold: float
    broadcast_every: int

    late: ClassVar[Late] = "train"

    def __post_init__(self) -> None:
        ScheduleConfig(self.broadcast_every, staleness_threshold=self.staleness_threshold)

    def depth(self, prompts_per_step: int) -> int:
        """``floor((1 + s) n B)``, prompts; exact for a decimal ``s``."""
        share = 1 + Fraction(self.staleness_threshold).limit_denominator(10**6)
        return math.floor(share * self.broadcast_every * prompts_per_step)

    def max_age(self, prompts_per_step: int) -> int:
        """``ceil(depth / B) - 1`` for prompts that finish in the order of their start; others may be late."""
        return math.ceil(self.depth(prompts_per_step) / prompts_per_step) - 1

    def room(self, progress: Progress, prompts_per_step: int, steps: int) -> int:
        """See :func:`free_running_room`."""
        return free_running_room(progress, self.depth(prompts_per_step), prompts_per_step, steps)

    def batch(
        self,
        progress: Progress,
        prompts_per_step: int,
        finished: Mapping[int, object],
        unfinished: Collection[int],
    ) -> list[int] | None:
        """See :func:`first_finished`."""
        return first_finished(progress, prompts_per_step, finished, unfinished)


@dataclass(frozen=True)
class MaxAge:
    """At most ``(a + P + 1) B`` prompts are ever started, less those that failed or were dropped.

    So a prompt that finishes in its turn is at most ``a`` versions old, and nothing has to be thrown away.
    One that is overtaken may be older: it is trained and counted as late, or dropped, which starves prompts
    that take long.

    Args:
        age: age in versions (a), >= ``broadcast_every - 1``: with less, the learner would wait for weights
            that are published only after it has stepped.
        late: what becomes of results that are older, ``"train"`` or ``"drop"``.
        broadcast_every: optimiser steps between two weight broadcasts (n), >= 1.

    Raises:
        ConfigError: a value out of range, or an age that weights published so rarely cannot keep.
    """

    age: int
    late: Literal["train", "drop"]
    broadcast_every: int

    def __post_init__(self) -> None:
        ScheduleConfig(self.broadcast_every, max_age=self.age, late=self.late)

    def max_age(self, prompts_per_step: int) -> int:
        """``a``."""
        return self.age

    def room(self, progress: Progress, prompts_per_step: int, steps: int) -> int:
        """See :func:`free_running_room`; the depth is ``(a + 1) B``."""
        return free_running_room(progress, (self.age + 1) * prompts_per_step, prompts_per_step, steps)

    def batch(
        self,
        progress: Progress,
        prompts_per_step: int,
        finished: Mapping[int, object],
        unfinished: Collection[int],
    ) -> list[int] | None:
        """See :func:`first_finished`."""
        return first_finished(progress, prompts_per_step, finished, unfinished)


Admission = Periodic | Threshold | MaxAge


def free_running_room(progress: Progress, depth: int, prompts_per_step: int, steps: int) -> int:
    """``min(depth - (V - P) B, (steps - V) B) - outstanding``.

    What was trained since the broadcast, ``(V - P) B``, and what is outstanding share the quota ``depth``;
    and no more may be outstanding than the steps that are left can train.
    """
    since_broadcast = (progress.version - progress.published) * prompts_per_step
    trainable = (steps - progress.version) * prompts_per_step
    return min(depth - since_broadcast, trainable) - progress.outstanding


def first_finished(
    progress: Progress, prompts_per_step: int, finished: Mapping[int, object], unfinished: Collection[int]
) -> list[int] | None:
    """The first ``B`` that finished; all that are left once the data ended and nothing runs any more."""
    if len(finished) >= prompts_per_step:
        return list(finished)[:prompts_per_step]
    if progress.data_ended and finished and not unfinished:
        return list(finished)
    return None


def ages(schedule: Periodic, steps: int) -> list[int]:
    """Age at steps ``j = 0, 1, ...`` if every batch is trained: ``j - max(0, n floor((j - k) / n))``."""
    n, k = schedule.broadcast_every, schedule.batches_ahead
    return [j - max(0, n * ((j - k) // n)) for j in range(steps)]
