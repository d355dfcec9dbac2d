"""What executes the commands of a scheduler, and what it tells. Imports no torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lagproof.data.samples import StepOutcome
from lagproof.data.slices import Key
from lagproof.runtime.schedule import Event, SampleFinished, Start, Train, WorkerJoined


@dataclass(frozen=True)
class Trained:
    """The learner is done with a batch.

    Attributes:
        batch: its running number.
        outcome: whether the weights moved.
        step: optimiser steps trained by now.
        values: measures of the batch and the step.
        num_tokens: response tokens of the batch.
    """

    batch: int
    outcome: StepOutcome
    step: int
    values: Mapping[Key, float]
    num_tokens: int


@dataclass(frozen=True)
class Moment:
    """What a checkpoint keeps of the moment, besides weights and groups.

    Attributes:
        version: optimiser steps trained.
        schedule: the scheduler's snapshot.
        written: bytes of the files of the run that grow by lines.
    """

    version: int
    schedule: Mapping[str, Any]
    written: Mapping[str, int]


@dataclass(frozen=True)
class Evaluated:
    """An evaluation that was asked for is done."""

    step: int
    values: Mapping[Key, float]


@dataclass(frozen=True)
class Sampled:
    """A call of an engine is done: its prompts in the order in which they shared the call."""

    prompts: tuple[SampleFinished, ...]


Happening = Event | Sampled | Trained | Evaluated


class Executor(Protocol):
    """Executes commands: either at once, and returns what happened; or elsewhere, and :meth:`wait` tells.

    The runtime never calls it from two threads.
    """

    def join(self) -> Sequence[WorkerJoined]:
        """The workers that are there at the start."""
        ...

    def sample(self, starts: Sequence[Start]) -> Sequence[Happening]:
        """Sample the prompts of commands that came together; the groups are held under their tickets."""
        ...

    def train(self, command: Train) -> Sequence[Happening]:
        """Take a step on groups that are held, and release them; the answer is :class:`Trained`."""
        ...

    def publish(self, version: int, in_flight: Collection[int]) -> Sequence[Happening]:
        """Give the learner's present weights to every worker; ``in_flight`` are versions still to be trained."""
        ...

    def evaluate(self, step: int) -> Mapping[Key, float] | None:
        """Evaluate the learner's present weights; ``None``: :class:`Evaluated` comes later."""
        ...

    def waits(self) -> Mapping[str, float]:
        """Seconds without work since the last call: ``learner_wait`` and ``rollout_wait``, where they exist."""
        ...

    def discard(self, ticket: int) -> None:
        """Release what is held under a ticket, if anything."""
        ...

    def cancel(self, ticket: int) -> Sequence[Happening]:
        """Nobody waits for this attempt any more."""
        ...

    def restart(self, worker: int) -> Sequence[Happening]:
        """Bring up a worker in place of a lost one."""
        ...

    def save(self, moment: Moment, held: Sequence[int]) -> None:
        """A checkpoint with the groups of these tickets; it is complete when this returns."""
        ...

    def wait(self) -> Sequence[Happening]:
        """What happened elsewhere; empty after a while in which nothing did."""
        ...
