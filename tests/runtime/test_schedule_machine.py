"""The scheduler in a world where everything may happen in any order: a model of the runtime that knows no schedule."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lagproof.runtime.schedule import (
    Admission,
    Begin,
    Cancel,
    Command,
    Discard,
    DiscardReason,
    Event,
    FailureLimits,
    MaxAge,
    Periodic,
    Plan,
    PromptCounts,
    Publish,
    Replace,
    SampleFailed,
    SampleFinished,
    Scheduler,
    Start,
    StepFinished,
    StepOutcome,
    Stop,
    StopReason,
    Threshold,
    Tick,
    Train,
    WeightsLoaded,
    WorkerJoined,
    WorkerLost,
    from_json,
    to_json,
)


@dataclass
class Engine:
    version: int
    slots: int | None
    to_load: list[int] = field(default_factory=list)  # publications that have not arrived yet


@dataclass
class Sampling:
    prompt: int
    worker: int
    version: int


small = st.integers(1, 3)
periodic = st.builds(Periodic, small, st.integers(0, 4))
threshold = st.builds(Threshold, st.sampled_from([0.0, 0.25, 0.5, 2.0]), small)
max_age = small.flatmap(
    lambda n: st.builds(MaxAge, st.integers(n - 1, n + 2), st.sampled_from(["train", "drop"]), st.just(n))
)
limits = st.builds(
    FailureLimits,
    attempts=small,
    failed_prompts=st.integers(1, 6),
    zero_variance_batches=small,
    bad_steps=small,
    restarts=st.integers(0, 4),
    sample_timeout_s=st.sampled_from([None, 1.0, 5.0]),
)
plans = st.builds(
    Plan,
    st.one_of(periodic, threshold, max_age),
    prompts_per_step=st.integers(1, 4),
    steps=st.integers(1, 12),
    num_prompts=st.one_of(st.none(), st.integers(1, 30)),
    limits=limits,
)


class Runtime(RuleBasedStateMachine):
    """Workers, a learner and a clock, with failures; every count is kept a second time, from the commands alone."""

    begun = False

    @initialize(plan=plans, slots=st.lists(st.one_of(st.none(), small), min_size=1, max_size=3))
    def begin(self, plan: Plan, slots: list[int | None]) -> None:
        self.plan = plan
        self.begun = True
        self.origin: dict[str, Any] | None = None
        self.scheduler = Scheduler(plan)
        self.record: list[Event] = []
        self.commands: list[Command] = []
        self.engines: dict[int, Engine] = {}
        self.sampling: dict[int, Sampling] = {}
        self.given_up: list[int] = []
        self.results: dict[int, tuple[int, int]] = {}  # ticket: (prompt, oldest version)
        self.batch: Train | None = None
        self.replacing: list[int] = []
        self.version = self.published = self.batches = self.late = self.since_broadcast = 0
        self.started = self.now_s = 0
        self.settled: dict[int, str] = {}  # prompt: trained | failed | dropped
        self.stop: Stop | None = None
        for worker, number in enumerate(slots):
            self.join(worker, 0, number)
        self.tell(Begin())

    def join(self, worker: int, version: int, slots: int | None) -> None:
        self.engines[worker] = Engine(version, slots)
        if version < self.published:
            self.engines[worker].to_load.append(self.published)
        self.tell(WorkerJoined(worker, version, slots))

    def tell(self, event: Event) -> None:
        self.record.append(event)
        commands = self.scheduler.handle(event)
        self.commands += commands
        for command in commands:
            assert self.stop is None, f"{command} after Stop"
            match command:
                case Start():
                    self.start(command)
                case Train():
                    self.train(command)
                case Publish(version):
                    assert version == self.version == self.published + self.plan.admission.broadcast_every
                    self.published, self.since_broadcast = version, 0
                    for engine in self.engines.values():
                        engine.to_load.append(version)
                case Cancel(ticket):
                    del self.sampling[ticket]
                    self.given_up.append(ticket)
                case Discard():
                    self.discard(command)
                case Replace(worker):
                    self.replacing.append(worker)
                case Stop():
                    self.stop = command

    def start(self, command: Start) -> None:
        engine = self.engines[command.worker]
        assert engine.version == command.version == self.published
        load = sum(s.worker == command.worker for s in self.sampling.values())
        assert engine.slots is None or load < engine.slots
        assert command.prompt not in self.settled
        assert all(command.prompt != s.prompt for s in self.sampling.values()), "the prompt runs already"
        assert all(command.prompt != prompt for prompt, _ in self.results.values()), "the prompt has a result"
        assert (command.attempt == 1) == (command.prompt == self.started)
        if command.attempt == 1:
            self.started += 1
            assert self.plan.num_prompts is None or self.started <= self.plan.num_prompts
            self.check_quota(self.plan.admission, command.prompt)
        self.sampling[command.ticket] = Sampling(command.prompt, command.worker, command.version)

    def check_quota(self, admission: Admission, prompt: int) -> None:
        size = self.plan.prompts_per_step
        outcomes = list(self.settled.values())
        outstanding = self.started - len(outcomes)
        match admission:
            case Periodic(_, k):
                assert prompt // size <= self.batches + k
                assert prompt // size < self.batches + self.plan.steps - self.version
            case Threshold(s, n):
                assert outstanding + self.since_broadcast <= (1 + s) * n * size
            case MaxAge(a, _, _):
                accepted_and_running = self.started - outcomes.count("failed") - outcomes.count("dropped")
                assert accepted_and_running <= (a + self.published + 1) * size

    def train(self, command: Train) -> None:
        assert self.batch is None and command.batch == self.batches
        assert 1 <= len(command.tickets) <= self.plan.prompts_per_step
        groups = [self.results[ticket] for ticket in command.tickets]
        if self.plan.admission.late != "train":
            assert max(self.version - oldest for _, oldest in groups) <= self.plan.max_age
        if isinstance(self.plan.admission, Periodic):
            size = self.plan.prompts_per_step
            members = range(self.batches * size, (self.batches + 1) * size)
            prompts = [prompt for prompt, _ in groups]
            assert prompts == [p for p in members if p < self.started and self.settled.get(p) != "failed"]
        self.batch = command

    def discard(self, command: Discard) -> None:
        if command.reason is DiscardReason.SUPERSEDED:
            assert command.prompt is None and command.ticket not in self.results
            return
        assert command.prompt is not None and command.prompt not in self.settled
        if command.reason is DiscardReason.LATE:
            prompt, oldest = self.results.pop(command.ticket)
            assert prompt == command.prompt and self.version - oldest > self.plan.max_age
            self.settled[prompt] = "dropped"
        else:
            self.settled[command.prompt] = "failed"
            self.pass_over()

    def pass_over(self) -> None:
        """A batch in prompt order of which every prompt failed is no batch."""
        size = self.plan.prompts_per_step
        while self.batch is None and isinstance(self.plan.admission, Periodic):
            end = min((self.batches + 1) * size, self.plan.num_prompts or 10**9)
            members = range(self.batches * size, end)
            if not members or any(self.settled.get(prompt) != "failed" for prompt in members):
                return
            self.batches += 1

    # what may happen

    running = precondition(lambda self: self.stop is None)
    sampled = precondition(lambda self: self.stop is None and self.sampling)

    @sampled
    @rule(data=st.data(), in_flight=st.booleans())
    def sample_finishes(self, data: st.DataObject, in_flight: bool) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.sampling)))
        self.finish(ticket, in_flight)

    @sampled
    @rule()
    def all_samples_finish(self) -> None:
        for ticket in sorted(self.sampling):
            if ticket in self.sampling:
                self.finish(ticket, False)

    def finish(self, ticket: int, in_flight: bool) -> None:
        run = self.sampling.pop(ticket)
        self.results[ticket] = (run.prompt, run.version)
        newest = self.engines[run.worker].version if in_flight else run.version
        self.tell(SampleFinished(ticket, run.version, newest))

    @sampled
    @rule(rounds=st.integers(1, 6))
    def the_oldest_sample_is_overtaken(self, rounds: int) -> None:
        slow = min(self.sampling)
        for _ in range(rounds):
            if self.stop is None:
                self.get_on(but=slow)

    def get_on(self, but: int | None = None) -> bool:
        """Whatever is under way goes well, but for one sample."""
        busy = False
        for worker in list(self.engines):
            while worker in self.engines and self.engines[worker].to_load:
                busy = True
                self.load(worker)
        for ticket in sorted(self.sampling.keys() - {but}):
            busy = True
            if self.stop is None:
                self.finish(ticket, in_flight=False)
        if self.batch is not None and self.stop is None:
            busy = True
            self.step(StepOutcome.TRAINED)
        return busy

    @sampled
    @rule(data=st.data())
    def sample_fails(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.sampling)))
        del self.sampling[ticket]
        self.tell(SampleFailed(ticket, "failed"))

    @precondition(lambda self: self.stop is None and self.given_up)
    @rule(data=st.data(), failed=st.booleans())
    def news_of_an_attempt_that_was_given_up(self, data: st.DataObject, failed: bool) -> None:
        ticket = data.draw(st.sampled_from(self.given_up))
        before = self.scheduler.counts
        self.tell(SampleFailed(ticket, "cancelled") if failed else SampleFinished(ticket, 0, 0))
        assert self.scheduler.counts == before

    @precondition(lambda self: self.stop is None and self.results)
    @rule(data=st.data())
    def result_comes_twice(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.results)))
        self.tell(SampleFinished(ticket, 0, 0))
        assert ticket in self.scheduler.held

    @precondition(lambda self: self.stop is None and any(e.to_load for e in self.engines.values()))
    @rule(data=st.data())
    def weights_arrive(self, data: st.DataObject) -> None:
        workers = sorted(worker for worker, engine in self.engines.items() if engine.to_load)
        self.load(data.draw(st.sampled_from(workers)))

    def load(self, worker: int) -> None:
        self.engines[worker].version = self.engines[worker].to_load.pop(0)
        self.tell(WeightsLoaded(worker, self.engines[worker].version))

    @precondition(lambda self: self.stop is None and self.batch)
    @rule(outcome=st.sampled_from([StepOutcome.TRAINED] * 6 + [StepOutcome.ZERO_VARIANCE, StepOutcome.NON_FINITE]))
    def learner_is_done(self, outcome: StepOutcome) -> None:
        self.step(outcome)

    def step(self, outcome: StepOutcome) -> None:
        assert self.batch is not None
        groups = [self.results.pop(ticket) for ticket in self.batch.tickets]
        kind = "trained" if outcome is StepOutcome.TRAINED else "dropped"
        self.settled |= {prompt: kind for prompt, _ in groups}
        batch, self.batch = self.batch.batch, None
        if outcome is StepOutcome.TRAINED:
            self.late += sum(self.version - oldest > self.plan.max_age for _, oldest in groups)
            self.version += 1
            self.since_broadcast += len(groups)
        self.batches = batch + 1
        self.pass_over()
        self.tell(StepFinished(batch, outcome))

    @precondition(lambda self: self.stop is None and self.engines)
    @rule(data=st.data())
    def worker_dies(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.engines)))
        del self.engines[worker]
        self.given_up += [ticket for ticket, run in self.sampling.items() if run.worker == worker]
        self.sampling = {t: run for t, run in self.sampling.items() if run.worker != worker}
        self.tell(WorkerLost(worker, "killed"))

    @precondition(lambda self: self.stop is None and self.replacing)
    @rule(comes=st.booleans(), has_weights=st.booleans(), slots=st.one_of(st.none(), small))
    def replacement(self, comes: bool, has_weights: bool, slots: int | None) -> None:
        worker = self.replacing.pop()
        if comes:
            self.join(worker, self.published if has_weights else 0, slots)
        else:
            self.tell(WorkerLost(worker, "did not come"))

    @running
    @rule(seconds=st.integers(0, 4))
    def time_goes_by(self, seconds: int) -> None:
        self.now_s += seconds
        self.tell(Tick(float(self.now_s)))

    @precondition(lambda self: self.stop is not None)
    @rule()
    def nothing_follows_a_stop(self) -> None:
        assert self.scheduler.handle(Tick(1e9), WorkerLost(0, "gone"), SampleFinished(0, 0, 0)) == []

    @rule()
    def killed_and_resumed(self) -> None:
        before, self.stop = self.stop, None
        snapshot = json.loads(json.dumps(self.scheduler.snapshot()))
        self.scheduler = Scheduler.restore(self.plan, snapshot)
        self.origin = snapshot
        assert self.scheduler.snapshot() == snapshot
        self.record, self.commands = [], []
        self.given_up += self.sampling
        self.sampling, self.replacing, self.batch = {}, [], None
        slots = [engine.slots for engine in self.engines.values()] or [None]
        self.engines = {}
        for worker, number in enumerate(slots):
            self.join(worker, self.published, number)
        self.tell(Begin())
        if before is not None and before.reason.success:
            assert self.commands == [before]

    # what always holds

    @invariant()
    def check(self) -> None:
        scheduler = self.scheduler
        scheduler.check()
        outcomes = list(self.settled.values())
        assert scheduler.counts == PromptCounts(
            started=self.started,
            trained=outcomes.count("trained"),
            buffered=len(self.results),
            running=self.started - len(outcomes) - len(self.results),
            failed=outcomes.count("failed"),
            dropped=outcomes.count("dropped"),
        )
        assert (scheduler.version, scheduler.published) == (self.version, self.published)
        assert scheduler.late == self.late
        assert sorted(scheduler.held) == sorted(self.results), "the runtime holds what nobody will train"
        assert scheduler.stopped == self.stop
        self.check_that_something_can_come()

    def check_that_something_can_come(self) -> None:
        loading = any(engine.to_load for engine in self.engines.values())
        if self.stop is None:
            assert self.sampling or self.batch or loading or self.replacing, "waits for nothing"
        elif self.stop.reason is StopReason.FINISHED:
            assert self.version == self.plan.steps and not self.sampling and not self.results
        elif self.stop.reason is StopReason.DATA_ENDED:
            assert len(self.settled) == self.started == self.plan.num_prompts

    def teardown(self) -> None:
        if not self.begun:
            return
        for _ in range(1_000):  # from here on everything goes well, so the run comes to its end
            if self.stop is not None:
                break
            if self.replacing:
                self.join(self.replacing.pop(), self.published, None)
            else:
                assert self.get_on(), "nothing is under way"
            self.check()
        assert self.stop is not None, "the run never ends"
        self.replay()

    def replay(self) -> None:
        """The events alone, as JSON, give the same commands."""
        scheduler = Scheduler(self.plan) if self.origin is None else Scheduler.restore(self.plan, self.origin)
        lines = [json.dumps(to_json(event)) for event in self.record]
        assert [c for line in lines for c in scheduler.handle(from_json(json.loads(line)))] == self.commands
        assert scheduler.snapshot() == self.scheduler.snapshot()


TestRuntime = Runtime.TestCase
TestRuntime.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
