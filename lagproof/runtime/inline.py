"""Both sides of a run in one process, in turn: deterministic, bit-reproducible."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from lagproof.data.samples import Group
from lagproof.data.slices import Key
from lagproof.runtime.driver import Happening
from lagproof.runtime.schedule import SampleFinished, Start, Train, WeightsLoaded, WorkerJoined
from lagproof.runtime.trainer import Moment, Trainer
from lagproof.runtime.watch import Watch
from lagproof.runtime.worker import Evaluator, RolloutWorker

WORKER = 0


class InlineExecutor:
    """Executes every command at once: with one worker that never fails.

    Args:
        trainer: the learning side.
        worker: the rollout side.
        evaluator: of the trainer's own model.
        watch: for the seconds spent.
        held: groups by ticket, of a restored run.
    """

    def __init__(
        self,
        trainer: Trainer,
        worker: RolloutWorker,
        evaluator: Evaluator,
        watch: Watch,
        held: Mapping[int, Group] | None = None,
    ) -> None:
        self._trainer, self._worker, self._evaluator, self._watch = trainer, worker, evaluator, watch
        self._held: dict[int, Group] = dict(held or {})

    def join(self) -> Sequence[WorkerJoined]:
        return [WorkerJoined(WORKER, self._worker.engine.version)]

    def sample(self, starts: Sequence[Start]) -> Sequence[Happening]:
        groups = self._worker.sample([start.prompt for start in starts])
        events: list[Happening] = []
        for start, group in zip(starts, groups, strict=True):
            self._held[start.ticket] = group
            versions = group.versions or {start.version}
            events.append(SampleFinished(start.ticket, min(versions), max(versions)))
        return events

    def train(self, command: Train) -> Sequence[Happening]:
        return [self._trainer.train(command, [self._held.pop(ticket) for ticket in command.tickets])]

    def publish(self, version: int, in_flight: Collection[int]) -> Sequence[Happening]:
        self._trainer.publish(version, in_flight)
        with self._watch.on("publish"):
            self._worker.engine.load(*self._trainer.channel.fetch())
        return [WeightsLoaded(WORKER, version)]

    def evaluate(self, step: int) -> Mapping[Key, float] | None:
        return self._evaluator.evaluate(step)

    def discard(self, ticket: int) -> None:
        self._held.pop(ticket, None)

    def cancel(self, ticket: int) -> NoReturn:
        raise AssertionError(f"ticket {ticket} is cancelled: cannot happen with one worker that never fails")

    def restart(self, worker: int) -> NoReturn:
        raise AssertionError(f"worker {worker} is replaced: cannot happen with one worker that never fails")

    def save(self, moment: Moment, held: Sequence[int]) -> None:
        self._trainer.save(moment, {ticket: self._held[ticket] for ticket in held})

    def wait(self) -> NoReturn:
        raise AssertionError("nothing happens elsewhere, and the scheduler waits for something")
