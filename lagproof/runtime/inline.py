"""Both sides of a run in one process, in turn: deterministic, bit-reproducible."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from lagproof.data.samples import Group
from lagproof.data.slices import Key
from lagproof.runtime.executor import Happening, Moment, Sampled
from lagproof.runtime.schedule import SampleFinished, Start, Train, WeightsLoaded, WorkerJoined
from lagproof.runtime.trainer import Trainer
from lagproof.runtime.watch import Watch
from lagproof.runtime.worker import Evaluator, RolloutWorker


class InlineExecutor:
    """Executes every command at once, and never fails.

    Args:
        trainer: the learning side.
        worker: the rollout side.
        evaluator: of the trainer's own model.
        watch: for the seconds spent.
        held: groups by ticket, of a restored run.
        workers: what the scheduler sees: one engine, and a call of it for each of them, as if they were processes.
    """

    def __init__(
        self,
        trainer: Trainer,
        worker: RolloutWorker,
        evaluator: Evaluator,
        watch: Watch,
        held: Mapping[int, Group] | None = None,
        workers: int = 1,
    ) -> None:
        self._trainer, self._worker, self._evaluator, self._watch = trainer, worker, evaluator, watch
        self._held: dict[int, Group] = dict(held or {})
        self._workers = workers

    def join(self) -> Sequence[WorkerJoined]:
        return [WorkerJoined(number, self._worker.engine.version) for number in range(self._workers)]

    def sample(self, starts: Sequence[Start]) -> Sequence[Happening]:
        return [self._call(own) for own in by_worker(starts).values()]

    def _call(self, starts: Sequence[Start]) -> Sampled:
        groups = self._worker.sample([start.prompt for start in starts])
        self._held |= {start.ticket: group for start, group in zip(starts, groups, strict=True)}
        return Sampled(tuple(finished(start, group) for start, group in zip(starts, groups, strict=True)))

    def train(self, command: Train) -> Sequence[Happening]:
        return [self._trainer.train(command, [self._held.pop(ticket) for ticket in command.tickets])]

    def publish(self, version: int, in_flight: Collection[int]) -> Sequence[Happening]:
        self._trainer.publish(version, in_flight)
        with self._watch.on("publish"):
            self._worker.engine.load(*self._trainer.channel.fetch())
        return [WeightsLoaded(None, version)]

    def evaluate(self, step: int) -> Mapping[Key, float] | None:
        return self._evaluator.evaluate(step)

    def waits(self) -> Mapping[str, float]:
        return {}  # each side waits whenever the other works

    def discard(self, ticket: int) -> None:
        self._held.pop(ticket, None)

    def cancel(self, ticket: int) -> NoReturn:
        raise AssertionError(f"ticket {ticket} is cancelled: cannot happen with workers that never fail")

    def restart(self, worker: int) -> NoReturn:
        raise AssertionError(f"worker {worker} is replaced: cannot happen with workers that never fail")

    def save(self, moment: Moment, held: Sequence[int]) -> None:
        self._trainer.save(moment, {ticket: self._held[ticket] for ticket in held})

    def wait(self) -> NoReturn:
        raise AssertionError("nothing happens elsewhere, and the scheduler waits for something")


def by_worker(starts: Sequence[Start]) -> dict[int, list[Start]]:
    """Starts that came together, by the worker that they are for."""
    found: dict[int, list[Start]] = {}
    for start in starts:
        found.setdefault(start.worker, []).append(start)
    return found


def finished(start: Start, group: Group) -> SampleFinished:
    """The event of a group that is sampled."""
    versions = group.versions or {start.version}
    return SampleFinished(start.ticket, min(versions), max(versions))
