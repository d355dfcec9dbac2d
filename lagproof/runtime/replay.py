"""The recorded schedule of a run, repeated in one process: which worker, which version, which order, what was lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from lagproof.data.samples import Group
from lagproof.data.slices import Key
from lagproof.errors import InputError, RunStoppedError
from lagproof.runs.run import Run
from lagproof.runtime.driver import CALL, RESUMED
from lagproof.runtime.executor import Happening, Moment, Sampled
from lagproof.runtime.inline import finished
from lagproof.runtime.schedule import (
    Begin,
    Event,
    SampleFailed,
    SampleFinished,
    Start,
    StepFinished,
    Train,
    WorkerJoined,
    WorkerLost,
    from_json,
)
from lagproof.runtime.trainer import Trainer
from lagproof.runtime.watch import Watch
from lagproof.runtime.worker import Evaluator, RolloutWorker


class ScheduleRecord:
    """What happened in a run, in order: events, and which prompts shared a call of an engine.

    Args:
        run: that was recorded.

    Raises:
        RunDirError: it has no record, or one that is damaged.
        InputError: a record of a run that was resumed: the schedule did not go on as one.
    """

    def __init__(self, run: Run) -> None:
        self.path = run.path
        self._todo: deque[tuple[Event, int | None]] = deque()
        for record in run.schedule:
            fields = dict(record)
            if fields.get("event") == RESUMED:
                raise InputError(
                    f"{run.layout.schedule}: the run was resumed at version {fields.get('version')}; what was running "
                    "then was started again, and cannot be repeated in one go: replay a run that was not resumed"
                )
            call = fields.pop(CALL, None)
            self._todo.append((from_json(fields), call))

    def joined(self) -> list[WorkerJoined]:
        """The workers that were there at the start."""
        found: list[WorkerJoined] = []
        while self._todo and not isinstance(event := self._todo.popleft()[0], Begin):
            if not isinstance(event, WorkerJoined):
                raise InputError(f"{self.path}: its schedule begins with {event} instead of its workers")
            found.append(event)
        return found

    def next(self) -> list[Event]:
        """What happened next; the prompts of one call together.

        Raises:
            RunStoppedError: nothing more was recorded.
        """
        if not self._todo:
            raise RunStoppedError(
                f"the record of {self.path} ends here: the run was stopped, or still runs; rows and alarms up to here "
                "are those of the run"
            )
        event, call = self._todo.popleft()
        events = [event]
        while call is not None and self._todo and self._todo[0][1] == call:
            events.append(self._todo.popleft()[0])
        return events


class ReplayExecutor:
    """Does in one process what a record says was done elsewhere, in that order.

    Args:
        record: see :class:`ScheduleRecord`.
        trainer: the learning side.
        worker: the rollout side; its engine takes the weights of each call in turn.
        evaluator: of the trainer's own model.
        watch: for the seconds spent.
    """

    def __init__(
        self, record: ScheduleRecord, trainer: Trainer, worker: RolloutWorker, evaluator: Evaluator, watch: Watch
    ) -> None:
        self._record, self._trainer, self._worker, self._evaluator = record, trainer, worker, evaluator
        self._watch = watch
        self._starts: dict[int, Start] = {}
        self._held: dict[int, Group] = {}
        self._train: Train | None = None
        published, weights = trainer.channel.fetch()
        self._weights: dict[int, Mapping[str, Tensor]] = {published: weights}

    def join(self) -> Sequence[WorkerJoined]:
        return self._record.joined()

    def sample(self, starts: Sequence[Start]) -> Sequence[Happening]:
        self._starts |= {start.ticket: start for start in starts}
        return ()

    def train(self, command: Train) -> Sequence[Happening]:
        self._train = command
        return ()

    def publish(self, version: int, in_flight: Collection[int]) -> Sequence[Happening]:
        self._trainer.publish(version, in_flight)
        published, weights = self._trainer.channel.fetch()
        needed = {start.version for start in self._starts.values()}
        self._weights = {v: w for v, w in self._weights.items() if v in needed} | {published: weights}
        return ()

    def evaluate(self, step: int) -> Mapping[Key, float] | None:
        return self._evaluator.evaluate(step)

    def waits(self) -> Mapping[str, float]:
        return {}

    def discard(self, ticket: int) -> None:
        self._held.pop(ticket, None)

    def cancel(self, ticket: int) -> Sequence[Happening]:
        self._starts.pop(ticket, None)
        return ()

    def restart(self, worker: int) -> Sequence[Happening]:
        return ()

    def save(self, moment: Moment, held: Sequence[int]) -> None:
        self._trainer.save(moment, {ticket: self._held[ticket] for ticket in held})

    def wait(self) -> Sequence[Happening]:
        events = self._record.next()
        sampled = [event for event in events if isinstance(event, SampleFinished)]
        if sampled:
            return [self._sample(sampled)]
        match events:
            case [StepFinished() as event]:
                return [self._learn(event)]
            case [SampleFailed(ticket)]:
                self._starts.pop(ticket, None)
            case [WorkerLost(worker)]:
                self._starts = {ticket: start for ticket, start in self._starts.items() if start.worker != worker}
        return events

    def _sample(self, recorded: Sequence[SampleFinished]) -> Sampled:
        starts = [self._starts.pop(event.ticket, None) for event in recorded]
        known = [start for start in starts if start is not None]
        if known:
            with self._watch.on("publish"):
                version = known[0].version
                if self._worker.engine.version != version:
                    self._worker.engine.load(version, self._weights[version])
            groups = self._worker.sample([start.prompt for start in known])
            for start, group in zip(known, groups, strict=True):
                self._held[start.ticket] = group
                again = finished(start, group)
                self._check(again, next(event for event in recorded if event.ticket == start.ticket))
        return Sampled(tuple(recorded))

    def _learn(self, recorded: StepFinished) -> Happening:
        command, self._train = self._train, None
        if command is None:
            raise self._differs(recorded, "no batch is with the learner")
        trained = self._trainer.train(command, [self._held.pop(ticket) for ticket in command.tickets])
        self._check(StepFinished(trained.batch, trained.outcome), recorded)
        return trained

    def _check(self, again: Event, recorded: Event) -> None:
        if again != recorded:
            raise self._differs(recorded, f"here it is {again}")

    def _differs(self, recorded: Event, what: str) -> RunStoppedError:
        return RunStoppedError(
            f"the record of {self._record.path} says {recorded}, and {what}: model, data, settings or package are not "
            "those of the run, or its engine is not the embedded one"
        )
