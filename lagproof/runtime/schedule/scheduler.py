"""The state machine: events in, commands out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lagproof.runtime.schedule.admission import Progress
from lagproof.runtime.schedule.events import (
    Begin,
    Cancel,
    Command,
    Discard,
    DiscardReason,
    Event,
    Publish,
    Replace,
    SampleFailed,
    SampleFinished,
    Start,
    StepFinished,
    StepOutcome,
    Stop,
    StopReason,
    Tick,
    Train,
    WeightsLoaded,
    WorkerJoined,
    WorkerLost,
)
from lagproof.runtime.schedule.plan import Plan
from lagproof.runtime.schedule.pool import WorkerPool
from lagproof.runtime.schedule.state import (
    PromptCounts,
    SampledPrompt,
    ScheduleState,
    Tries,
    from_snapshot,
    to_snapshot,
)


class Scheduler:
    """Decides what a run does next. Deterministic: the same events give the same commands.

    ::

        command   waits for                                unblocked by
        Start     room in the schedule; a worker with a    StepFinished, WeightsLoaded, WorkerJoined,
                  free slot and the newest publication     SampleFinished, SampleFailed, Tick
        Train     an idle learner; a complete batch        StepFinished, SampleFinished, SampleFailed, Tick
        Publish   every n-th trained step                  StepFinished
        Stop      last step, end of the data, a limit      all of these, WorkerLost

    The runtime executes the commands in order. It answers each ``Start`` with ``SampleFinished`` or
    ``SampleFailed``, each ``Train`` with ``StepFinished``, each ``Publish`` with one ``WeightsLoaded`` a
    worker, each ``Replace`` with ``WorkerJoined`` or ``WorkerLost``.
    ``handle(a, b)`` is ``handle(a) + handle(b)``.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._state = ScheduleState()
        self._pool = WorkerPool()
        self._waiting: set[int] = set()  # open prompts that nobody runs
        self._begun = False
        self._lost = 0
        self._last_failure = "before the resume"
        self._stop: Stop | None = None

    @classmethod
    def restore(cls, plan: Plan, snapshot: Mapping[str, Any]) -> Scheduler:
        """A scheduler that resumes where :meth:`snapshot` was taken.

        The workers join again, holding version :attr:`published`. At ``Begin`` the prompts that were running
        are started again under new tickets; results that were buffered keep theirs.

        Raises:
            ConfigError: the run was begun with another schedule or another number of prompts per step.
            CheckpointError: not a snapshot, or a damaged one.
        """
        scheduler = cls(plan)
        scheduler._state = from_snapshot(plan, snapshot)
        scheduler._waiting = set(scheduler._state.open)
        return scheduler

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain JSON values, for :meth:`restore`."""
        return to_snapshot(self.plan, self._state)

    @property
    def version(self) -> int:
        """Optimiser steps trained."""
        return self._state.version

    @property
    def published(self) -> int:
        """Newest version that was published; workers hold it, or are about to."""
        return self._state.published

    @property
    def counts(self) -> PromptCounts:
        """Prompts by what became of them."""
        return self._state.counts

    @property
    def dropped(self) -> dict[str, int]:
        """Dropped prompts by reason: ``zero_variance``, ``non_finite``, ``late``."""
        return dict(self._state.dropped)

    @property
    def late(self) -> int:
        """Prompts trained although they were older than the promise; free-running schedules only."""
        return self._state.late

    @property
    def ignored(self) -> int:
        """Results and failures that came for attempts which had been given up."""
        return self._state.ignored

    @property
    def held(self) -> list[int]:
        """Tickets whose results the runtime has to hold: with the learner, or buffered."""
        return self._state.held

    @property
    def in_flight(self) -> set[int]:
        """Versions behind what is sampled, or being sampled, and not trained yet."""
        return self._state.versions | {run.version for run in self._pool.runs.values()}

    @property
    def stopped(self) -> Stop | None:
        """The ``Stop`` that ended the run."""
        return self._stop

    def check(self) -> None:
        """Assert the invariants that hold between any two events."""
        violation = self._state.violation()
        assert violation is None, violation
        self._pool.check()
        running = {run.prompt for run in self._pool.runs.values()}
        assert running <= self._state.open.keys(), "a prompt runs that is not open"
        assert self._waiting == self._state.open.keys() - running, "an open prompt neither runs nor waits"

    def handle(self, *events: Event) -> list[Command]:
        """Take events in the order in which they happened; return what to do next. Empty after ``Stop``."""
        commands: list[Command] = []
        for event in events:
            if self._stop is None:
                self._take(event, commands)
            if self._stop is None and self._begun:
                self._advance(commands)
        assert self._state.counts.adds_up, f"prompts do not add up: {self._state.counts}"
        return commands

    # An event changes the state, and asks only for what follows from the event itself.

    def _take(self, event: Event, commands: list[Command]) -> None:
        match event:
            case Begin():
                assert not self._begun, "Begin comes once"
                self._begun = True
            case WorkerJoined(worker, version, slots):
                self._pool.join(worker, version, slots)
            case WorkerLost(worker, reason):
                self._worker_lost(worker, reason, commands)
            case WeightsLoaded(worker, version):
                self._pool.load(worker, version)
            case SampleFinished():
                self._sample_finished(event, commands)
            case SampleFailed(ticket, reason):
                self._sample_failed(ticket, reason, commands)
            case StepFinished(batch, outcome):
                self._step_finished(batch, outcome, commands)
            case Tick(now_s):
                self._tick(now_s, commands)

    def _worker_lost(self, number: int, reason: str, commands: list[Command]) -> None:
        self._waiting |= set(self._pool.lose(number))
        self._lost += 1
        restarts = self.plan.limits.restarts
        if self._lost > restarts:
            detail = f"{self._lost} rollout workers were lost and {restarts} may be replaced; the last: {reason}"
            self._end(StopReason.WORKERS_LOST, detail, commands)
        else:
            commands.append(Replace(number))

    def _sample_finished(self, event: SampleFinished, commands: list[Command]) -> None:
        state, ticket = self._state, event.ticket
        if ticket not in self._pool.runs:
            state.ignored += 1
            if ticket not in state.held:  # a result that comes twice must not take the first one away
                commands.append(Discard(ticket, None, DiscardReason.SUPERSEDED, "its attempt was given up"))
            return
        run = self._pool.end(ticket)
        assert run.version <= event.oldest <= event.newest <= state.version, (
            f"{event}: started with version {run.version}, and the learner is at {state.version}"
        )
        del state.open[run.prompt]
        state.buffer[run.prompt] = SampledPrompt(ticket, event.oldest, event.newest)
        state.failed_in_row = 0
        self._drop_late([run.prompt], commands)

    def _sample_failed(self, ticket: int, reason: str, commands: list[Command]) -> None:
        state, limits = self._state, self.plan.limits
        if ticket not in self._pool.runs:
            state.ignored += 1
            return
        prompt = self._pool.end(ticket).prompt
        state.open[prompt].failures += 1
        if state.open[prompt].failures < limits.attempts:
            self._waiting.add(prompt)
            return
        del state.open[prompt]
        state.failed += 1
        state.failed_in_row += 1
        self._last_failure = reason
        commands.append(Discard(ticket, prompt, DiscardReason.FAILED, reason))
        if state.failed_in_row >= limits.failed_prompts:
            detail = f"{state.failed_in_row} prompts in a row failed, {limits.attempts} attempts each; the last: "
            self._end(StopReason.SAMPLES_FAILED, detail + reason, commands)

    def _tick(self, now_s: float, commands: list[Command]) -> None:
        timeout_s = self.plan.limits.sample_timeout_s
        for ticket in [] if timeout_s is None else self._pool.timed_out(now_s, timeout_s):
            if self._stop is None:
                commands.append(Cancel(ticket))
                self._sample_failed(ticket, f"no result within {timeout_s:g} s", commands)

    def _step_finished(self, batch: int, outcome: StepOutcome, commands: list[Command]) -> None:
        state, limits = self._state, self.plan.limits
        assert state.training is not None and batch == state.batches, f"batch {batch} is not with the learner"
        num_late, size = self._num_late, len(state.training)
        state.training = None
        state.batches += 1
        if outcome is StepOutcome.TRAINED:
            state.late += num_late
            state.trained += size
            self._next_version(commands)
            return
        state.drop(outcome.value, size)
        if outcome is StepOutcome.ZERO_VARIANCE:
            state.zero_variance_in_row += 1
            if state.zero_variance_in_row >= limits.zero_variance_batches:
                detail = f"{state.zero_variance_in_row} batches in a row had no signal: no group with unequal rewards"
                self._end(StopReason.NO_SIGNAL, detail, commands)
        else:
            state.bad_in_row += 1
            if state.bad_in_row >= limits.bad_steps:
                detail = f"{state.bad_in_row} steps in a row had gradients that are not finite"
                self._end(StopReason.NON_FINITE, detail, commands)

    def _next_version(self, commands: list[Command]) -> None:
        state = self._state
        state.version += 1
        self._drop_late(list(state.buffer), commands)
        state.zero_variance_in_row = state.bad_in_row = 0
        if state.version % self.plan.admission.broadcast_every == 0 and state.version < self.plan.steps:
            state.published = state.version
            commands.append(Publish(state.version))

    # What may happen now does.

    def _advance(self, commands: list[Command]) -> None:
        train = self._next_batch(commands) if self._state.training is None else None
        if self._stop is None:
            self._start(commands)
            commands.extend([train] if train else [])

    def _next_batch(self, commands: list[Command]) -> Train | None:
        state, size = self._state, self.plan.prompts_per_step
        while not self._at_end(commands):
            batch = self.plan.admission.batch(self._progress, size, state.buffer, state.open)
            if batch is None:
                return None
            if batch:
                state.training = {prompt: state.buffer.pop(prompt) for prompt in batch}
                assert self.plan.admission.late == "train" or self._num_late == 0, "older than promised"
                return Train(state.batches, tuple(result.ticket for result in state.training.values()))
            state.batches += 1  # all its prompts failed
        return None

    def _drop_late(self, prompts: Iterable[int], commands: list[Command]) -> None:
        """Of these, where one may have become too old: as it came, or as the version moved."""
        if self.plan.admission.late != "drop":
            return
        state, max_age = self._state, self.plan.max_age
        for prompt in prompts:
            age = state.version - state.buffer[prompt].oldest
            if age > max_age:
                result = state.buffer.pop(prompt)
                state.drop(DiscardReason.LATE.value, 1)
                detail = f"{age} versions old, at most {max_age} allowed"
                commands.append(Discard(result.ticket, prompt, DiscardReason.LATE, detail))

    def _at_end(self, commands: list[Command]) -> bool:
        state = self._state
        if state.version >= self.plan.steps:
            self._end(StopReason.FINISHED, f"{state.version} steps", commands)
            return True
        if not self._progress.data_ended or state.outstanding > 0:
            return False
        ended = f"the data ended after {state.started} prompts and {state.version} of {self.plan.steps} steps"
        if state.trained > 0:
            self._end(StopReason.DATA_ENDED, ended, commands)
        elif state.failed > 0:
            detail = f"{ended}: {state.failed} prompts failed; the last: {self._last_failure}"
            self._end(StopReason.SAMPLES_FAILED, detail, commands)
        else:
            self._end(StopReason.NO_SIGNAL, f"{ended}: prompts dropped by reason: {state.dropped}", commands)
        return True

    def _start(self, commands: list[Command]) -> None:
        state, plan = self._state, self.plan
        if self._pool.free(state.published) is None:
            return
        room = plan.admission.room(self._progress, plan.prompts_per_step, plan.steps)
        if plan.num_prompts is not None:
            room = min(room, plan.num_prompts - state.started)
        for prompt in sorted(self._waiting):
            if not self._start_one(prompt, commands):
                return
        for prompt in range(state.started, state.started + room):
            if not self._start_one(prompt, commands):
                return

    def _start_one(self, prompt: int, commands: list[Command]) -> bool:
        state = self._state
        run = self._pool.start(state.next_ticket, prompt, state.published)
        if run is None:
            return False
        self._waiting.discard(prompt)
        tries = state.open.setdefault(prompt, Tries())
        tries.starts += 1
        commands.append(Start(state.next_ticket, prompt, run.worker, tries.starts, run.version))
        state.started = max(state.started, prompt + 1)
        state.next_ticket += 1
        return True

    @property
    def _num_late(self) -> int:
        """Prompts in the learner's batch that are older than the promise."""
        oldest = self._state.version - self.plan.max_age
        return sum(result.oldest < oldest for result in (self._state.training or {}).values())

    @property
    def _progress(self) -> Progress:
        state, total = self._state, self.plan.num_prompts
        return Progress(
            version=state.version,
            published=state.published,
            batches=state.batches,
            started=state.started,
            outstanding=state.outstanding,
            data_ended=total is not None and state.started >= total,
        )

    def _end(self, reason: StopReason, detail: str, commands: list[Command]) -> None:
        commands.extend(Cancel(ticket) for ticket in self._pool.runs)
        self._stop = Stop(reason, detail)
        commands.append(self._stop)
