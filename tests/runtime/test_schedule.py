"""The schedules, driven by a reference runtime that has neither clock nor model nor weights."""

from __future__ import annotations

import ast
import doctest
import json
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import lagproof
from lagproof.errors import CheckpointError, ConfigError, InputError
from lagproof.runtime.schedule import (
    Admission,
    Begin,
    Command,
    Event,
    FailureLimits,
    MaxAge,
    Periodic,
    Plan,
    Publish,
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
    ages,
    from_json,
    to_json,
)

LAG_PAGE = Path(__file__).parents[2] / "docs" / "lag.md"
ROOM = Path(lagproof.__file__).parent / "runtime" / "schedule"
TRAINED, TIED, NON_FINITE = StepOutcome.TRAINED, StepOutcome.ZERO_VARIANCE, StepOutcome.NON_FINITE


@dataclass
class Driver:
    """Executes the commands of a scheduler in one process: what every runtime does, without the work.

    Depth first: the commands that follow from an answer come before those that were left. So a publication is loaded,
    and the starts that waited for it are sampled, before the learner steps again.
    """

    scheduler: Scheduler
    outcome: Callable[[int], StepOutcome] = lambda batch: TRAINED
    kill_after: int | None = None  # leave everything as it is when the learner is done with this batch
    held: dict[int, tuple[int, int]] = field(default_factory=dict)  # ticket: (prompt, version), stands for a group
    trained: list[list[tuple[int, int]]] = field(default_factory=list)  # a step: (prompt, age) of each group
    calls: list[list[int]] = field(default_factory=list)  # prompts that were sampled together
    events: list[Event] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)

    def run(self) -> Driver:
        self.loaded = self.scheduler.published
        todo = deque(self.tell(WorkerJoined(0, self.loaded), Begin()))
        while todo:
            answers: list[Event] = []
            match todo.popleft():
                case Start() as first:
                    starts = [first]
                    while todo and isinstance(following := todo[0], Start):
                        starts.append(following)
                        todo.popleft()
                    answers += self.sample(starts)
                case Train(batch, tickets):
                    answers.append(self.step(batch, tickets))
                case Publish(version):
                    self.loaded = version
                    answers.append(WeightsLoaded(0, version))
                case Stop():
                    return self
                case command:
                    raise AssertionError(command)
            todo.extendleft(reversed(self.tell(*answers)))
            if self.kill_after is not None and answers == [StepFinished(self.kill_after)]:
                return self
        raise AssertionError("nothing is left to do, and the run has not stopped")

    def tell(self, *events: Event) -> list[Command]:
        self.events += events
        commands = self.scheduler.handle(*events)
        self.scheduler.check()
        self.commands += commands
        return commands

    def sample(self, starts: Sequence[Start]) -> list[Event]:
        assert all(start.version == self.loaded for start in starts)
        self.calls.append([start.prompt for start in starts])
        self.held |= {start.ticket: (start.prompt, self.loaded) for start in starts}
        return [SampleFinished(start.ticket, self.loaded, self.loaded) for start in starts]

    def step(self, batch: int, tickets: Sequence[int]) -> Event:
        groups = [self.held.pop(ticket) for ticket in tickets]
        if self.outcome(batch) is TRAINED:
            self.trained.append([(prompt, self.scheduler.version - version) for prompt, version in groups])
        return StepFinished(batch, self.outcome(batch))


def drive(plan: Plan, outcome: Callable[[int], StepOutcome] = lambda batch: TRAINED) -> Driver:
    return Driver(Scheduler(plan), outcome).run()


def prompts(driver: Driver) -> list[int]:
    return [prompt for step in driver.trained for prompt, _ in step]


def realised(driver: Driver) -> list[set[int]]:
    return [{age for _, age in step} for step in driver.trained]


# Periodic schedules


@pytest.mark.parametrize(("n", "k"), [(1, 0), (1, 1), (3, 3), (8, 8), (4, 1), (1, 5), (4, 2), (3, 7), (5, 0)])
def test_periodic_ages_are_the_closed_form(n: int, k: int) -> None:
    plan = Plan(Periodic(n, k), prompts_per_step=2, steps=30)
    driver = drive(plan)
    assert driver.scheduler.stopped == Stop(StopReason.FINISHED, "30 steps")
    assert realised(driver) == [{age} for age in ages(Periodic(n, k), 30)]
    assert max(ages(Periodic(n, k), 30)) == plan.max_age == k + n - 1
    assert [[prompt for prompt, _ in step] for step in driver.trained] == [[2 * j, 2 * j + 1] for j in range(30)]
    # no prompt too many was started, and none is left
    counts = driver.scheduler.counts
    assert (counts.started, counts.trained, counts.buffered, counts.running) == (60, 60, 0, 0)
    assert driver.held == {}


def test_table_of_the_documentation() -> None:
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| ([\d, ]+?) \| (\d+) \|$", LAG_PAGE.read_text(), re.M)
    assert len(rows) >= 6
    for _name, n, k, listed, promise in rows:
        expected = [int(age) for age in listed.split(",")]
        plan = Plan(Periodic(int(n), int(k)), prompts_per_step=3, steps=len(expected))
        assert realised(drive(plan)) == [{age} for age in expected]
        assert plan.max_age == int(promise)


def test_code_of_the_documentation() -> None:
    result = doctest.testfile(str(LAG_PAGE), module_relative=False)
    assert result.attempted >= 10
    assert result.failed == 0


def test_several_steps_on_one_rollout_are_counted_one_by_one() -> None:
    # four batches of one rollout, two versions old when the first of them is trained: not 2 four times
    assert ages(Periodic(broadcast_every=4, batches_ahead=2), 10)[2:] == [2, 3, 4, 5, 2, 3, 4, 5]
    assert Plan(Periodic(4, 2), prompts_per_step=1, steps=9).max_age == 5


def test_commands_of_one_step_off_in_full() -> None:
    scheduler = Scheduler(Plan(Periodic(1, 1), prompts_per_step=2, steps=3))
    assert scheduler.handle(WorkerJoined(0, 0)) == []
    assert scheduler.handle(Begin()) == [Start(i, i, 0, 1, 0) for i in range(4)]
    assert scheduler.handle(SampleFinished(0, 0, 0)) == []
    assert scheduler.handle(SampleFinished(2, 0, 0)) == []
    assert scheduler.handle(SampleFinished(1, 0, 0)) == [Train(0, (0, 1))]
    assert scheduler.handle(SampleFinished(3, 0, 0)) == []
    assert scheduler.handle(StepFinished(0)) == [Publish(1), Train(1, (2, 3))]
    assert scheduler.handle(WeightsLoaded(0, 1)) == [Start(4, 4, 0, 1, 1), Start(5, 5, 0, 1, 1)]
    # the last two prompts are running: no more are started for the one step that is left
    assert scheduler.handle(StepFinished(1)) == [Publish(2)]
    assert scheduler.handle(WeightsLoaded(0, 2)) == []
    assert scheduler.handle(SampleFinished(5, 1, 1), SampleFinished(4, 1, 1)) == [Train(2, (4, 5))]
    assert scheduler.handle(StepFinished(2)) == [Stop(StopReason.FINISHED, "3 steps")]
    assert scheduler.handle(Tick(0.0), SampleFinished(5, 1, 1)) == []


def test_prompts_start_only_on_workers_that_hold_the_publication() -> None:
    scheduler = Scheduler(Plan(Periodic(1, 0), prompts_per_step=4, steps=9))
    starts = scheduler.handle(WorkerJoined(0, 0), WorkerJoined(1, 0), Begin())
    assert [start.worker for start in starts if isinstance(start, Start)] == [0, 1, 0, 1]
    scheduler.handle(*(SampleFinished(ticket, 0, 0) for ticket in range(4)))
    assert scheduler.handle(StepFinished(0)) == [Publish(1)]
    assert scheduler.handle(WorkerJoined(2, 0)) == []
    assert scheduler.handle(WeightsLoaded(1, 1)) == [Start(4 + i, 4 + i, 1, 1, 1) for i in range(4)]
    assert scheduler.handle(WeightsLoaded(0, 1), WeightsLoaded(2, 1)) == []


def test_slots_limit_what_a_worker_has() -> None:
    scheduler = Scheduler(Plan(Periodic(1, 0), prompts_per_step=4, steps=1))
    assert scheduler.handle(WorkerJoined(0, 0, slots=2), Begin()) == [Start(0, 0, 0, 1, 0), Start(1, 1, 0, 1, 0)]
    assert scheduler.handle(SampleFinished(1, 0, 0)) == [Start(2, 2, 0, 1, 0)]
    scheduler.check()


@pytest.mark.parametrize("k", [0, 1, 4])
def test_a_tied_batch_is_no_step(k: int) -> None:
    plan = Plan(Periodic(2, k), prompts_per_step=2, steps=6)
    driver = drive(plan, lambda batch: TIED if batch in (0, 3, 4) else TRAINED)
    assert driver.scheduler.stopped == Stop(StopReason.FINISHED, "6 steps")
    assert driver.scheduler.version == 6
    assert [c.version for c in driver.commands if isinstance(c, Publish)] == [2, 4]
    assert prompts(driver) == [2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 16, 17]
    assert driver.scheduler.dropped == {"zero_variance": 6}
    assert max(map(max, realised(driver))) <= plan.max_age
    # batches that were started in advance may be left when a later one is tied, never when the earlier ones are
    assert driver.scheduler.counts.buffered == driver.scheduler.counts.running == 0


@pytest.mark.parametrize("admission", [Periodic(1, 0), Periodic(3, 3), Threshold(0.5, 2), MaxAge(2, "drop", 1)])
@pytest.mark.parametrize("num_prompts", [1, 4, 7, 9])
def test_data_that_end_in_a_batch(admission: Admission, num_prompts: int) -> None:
    driver = drive(Plan(admission, prompts_per_step=4, steps=9, num_prompts=num_prompts))
    stop = driver.scheduler.stopped
    assert stop is not None and stop.reason is StopReason.DATA_ENDED and stop.reason.success
    assert prompts(driver) == list(range(num_prompts))
    sizes = [len(step) for step in driver.trained]
    assert sizes == [4] * (num_prompts // 4) + [num_prompts % 4] * (num_prompts % 4 > 0)


# Free-running schedules


def quota(scheduler: Scheduler, *events: Event) -> int:
    return sum(isinstance(command, Start) for command in scheduler.handle(*events))


def finish(scheduler: Scheduler, *tickets: int) -> list[Command]:
    version = scheduler.published
    return scheduler.handle(*(SampleFinished(ticket, version, version) for ticket in tickets))


def test_quota_of_the_staleness_threshold() -> None:
    # (1 + 0.5) * 2 * 4 = 12 prompts between two broadcasts
    scheduler = Scheduler(Plan(Threshold(0.5, 2), prompts_per_step=4, steps=99))
    assert quota(scheduler, WorkerJoined(0, 0), Begin()) == 12
    assert finish(scheduler, 5, 4, 3, 2, 1) == [Train(0, (5, 4, 3, 2))]  # in the order in which they finished
    assert quota(scheduler, StepFinished(0)) == 0  # 12 are used up
    assert finish(scheduler, 0, 6, 7) == [Train(1, (1, 0, 6, 7))]
    finish(scheduler, 8)
    assert scheduler.handle(StepFinished(1)) == [Publish(2)]
    # 4 of the 12 are started and not trained, 1 buffered and 3 running: 12 - 4
    assert quota(scheduler, WeightsLoaded(0, 2)) == 8
    assert scheduler.counts.started == 20


def test_threshold_zero_is_synchronous() -> None:
    driver = drive(Plan(Threshold(0.0, 1), prompts_per_step=4, steps=5))
    assert realised(driver) == [{0}] * 5
    assert driver.calls == [[4 * j + i for i in range(4)] for j in range(5)]


@pytest.mark.parametrize(
    ("s", "n", "b", "depth"), [(0.5, 1, 3, 4), (0.25, 3, 3, 11), (0.4, 3, 10, 42), (0.9, 3, 10, 57)]
)
def test_threshold_is_exact_for_decimal_shares(s: float, n: int, b: int, depth: int) -> None:
    assert Threshold(s, n).depth(b) == depth  # in floats 1.4 * 3 * 10 is below 42


def test_quota_of_the_age_bound() -> None:
    # at version v at most (1 + v + 1) * 2 prompts were ever started
    scheduler = Scheduler(Plan(MaxAge(1, "train", 1), prompts_per_step=2, steps=99))
    assert quota(scheduler, WorkerJoined(0, 0), Begin()) == 4
    finish(scheduler, 0, 1)
    assert scheduler.handle(StepFinished(0)) == [Publish(1)]
    assert quota(scheduler, WeightsLoaded(0, 1)) == 2
    finish(scheduler, 4, 5)
    assert scheduler.handle(StepFinished(1)) == [Publish(2)]
    assert quota(scheduler, WeightsLoaded(0, 2)) == 2
    assert scheduler.counts.started == (1 + 2 + 1) * 2


FREE_RUNNING = [
    Threshold(0.0, 3),
    Threshold(0.5, 1),
    Threshold(0.5, 2),
    Threshold(1.5, 3),
    MaxAge(0, "drop", 1),
    MaxAge(2, "train", 3),
    MaxAge(5, "drop", 2),
]


@pytest.mark.parametrize("admission", FREE_RUNNING)
def test_nothing_is_late_that_finishes_in_its_turn(admission: Admission) -> None:
    plan = Plan(admission, prompts_per_step=4, steps=40)
    driver = drive(plan, lambda batch: TIED if batch % 7 == 5 else TRAINED)
    assert max(map(max, realised(driver))) == plan.max_age  # kept, and not kept too well
    assert driver.scheduler.late == 0
    assert set(driver.scheduler.dropped) == {"zero_variance"}
    assert driver.scheduler.counts.started == 4 * (40 + 6)


def overtaken(late: str) -> tuple[Scheduler, list[Command]]:
    """Prompt 0 is slow: it was started with version 0 and finishes when the learner is at version 3."""
    scheduler = Scheduler(Plan(MaxAge(1, late, 1), prompts_per_step=1, steps=9))  # type: ignore[arg-type]
    scheduler.handle(WorkerJoined(0, 0), Begin())
    for step in range(3):
        ticket = step + 1
        assert scheduler.handle(SampleFinished(ticket, step, step)) == [Train(step, (ticket,))]
        assert scheduler.handle(StepFinished(step)) == [Publish(step + 1)]
        assert [c.prompt for c in scheduler.handle(WeightsLoaded(0, step + 1)) if isinstance(c, Start)] == [step + 2]
    return scheduler, scheduler.handle(SampleFinished(0, 0, 3))


def test_late_results_are_trained_and_counted() -> None:
    scheduler, commands = overtaken("train")
    assert commands == [Train(3, (0,))]
    scheduler.handle(StepFinished(3))
    assert (scheduler.late, scheduler.dropped, scheduler.counts.trained) == (1, {}, 4)


def test_late_results_are_dropped_if_asked() -> None:
    scheduler, commands = overtaken("drop")
    discard, start = commands
    assert "3 versions old, at most 1 allowed" in str(discard)
    assert isinstance(start, Start) and start.prompt == 5  # its place is free again
    assert (scheduler.late, scheduler.dropped, scheduler.counts.trained) == (0, {"late": 1}, 3)


def test_age_bound_that_rare_weights_cannot_keep_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"schedule.max_age = 0: must be >= schedule.broadcast_every - 1 = 1"):
        MaxAge(0, "train", broadcast_every=2)
    MaxAge(1, "train", broadcast_every=2)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Periodic(0, 0),
        lambda: Periodic(1, -1),
        lambda: Threshold(-0.1, 1),
        lambda: Threshold(float("inf"), 1),
        lambda: Threshold(float("nan"), 1),
        lambda: Threshold(0.5, 0),
        lambda: MaxAge(-1, "train", 1),
        lambda: MaxAge(0, "train", 0),
        lambda: MaxAge(0, "never", 1),  # type: ignore[arg-type]
        lambda: Plan(Periodic(1, 0), prompts_per_step=0, steps=1),
        lambda: Plan(Periodic(1, 0), prompts_per_step=1, steps=0),
        lambda: Plan(Periodic(1, 0), prompts_per_step=1, steps=1, num_prompts=0),
        lambda: FailureLimits(attempts=0),
        lambda: FailureLimits(failed_prompts=0),
        lambda: FailureLimits(zero_variance_batches=0),
        lambda: FailureLimits(bad_steps=0),
        lambda: FailureLimits(restarts=-1),
        lambda: FailureLimits(sample_timeout_s=0.0),
    ],
)
def test_values_out_of_range(build: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=r"= .*: must be "):
        build()


# Checkpoints and records


ALL = [Periodic(1, 0), Periodic(1, 1), Periodic(3, 3), Periodic(4, 1), Periodic(2, 5), *FREE_RUNNING]


@pytest.mark.parametrize("admission", ALL)
def test_resume_after_any_step_changes_nothing(admission: Admission) -> None:
    plan = Plan(admission, prompts_per_step=3, steps=12, num_prompts=40)

    def outcome(batch: int) -> StepOutcome:
        return {4: TIED, 6: NON_FINITE}.get(batch, TRAINED)

    whole = drive(plan, outcome)
    assert len(whole.trained) == 12 or isinstance(admission, Threshold)
    for batch in (b for b in range(whole.scheduler.snapshot()["batches"]) if outcome(b) is TRAINED):
        first = Driver(Scheduler(plan), outcome, kill_after=batch).run()
        snapshot = json.loads(json.dumps(first.scheduler.snapshot()))
        held = {ticket: first.held[ticket] for ticket in first.scheduler.held}
        second = Driver(Scheduler.restore(plan, snapshot), outcome, held=held).run()
        assert first.trained + second.trained == whole.trained
        assert first.calls + second.calls == whole.calls or not isinstance(admission, Periodic)
        assert second.scheduler.counts == whole.scheduler.counts
        assert second.scheduler.stopped == whole.scheduler.stopped


def test_resume_trains_each_prompt_once() -> None:
    # prompts 0..7, batch 2, four ahead; trained {0, 1}, buffered {2, 3}, in flight {4, 5}; save, kill, resume
    plan = Plan(Periodic(1, 2), prompts_per_step=2, steps=99, num_prompts=8)
    scheduler = Scheduler(plan)
    scheduler.handle(WorkerJoined(0, 0), Begin())
    scheduler.handle(*(SampleFinished(ticket, 0, 0) for ticket in range(4)), StepFinished(0))
    snapshot = scheduler.snapshot()
    assert scheduler.counts.trained == 2
    assert scheduler.held == [2, 3]
    second = Driver(Scheduler.restore(plan, snapshot), held={2: (2, 0), 3: (3, 0)}).run()
    assert prompts(second) == [2, 3, 4, 5, 6, 7]
    assert second.calls == [[4, 5, 6, 7]]
    # saved exactly after the last prompt: nothing more
    third = Driver(Scheduler.restore(plan, second.scheduler.snapshot())).run()
    assert third.commands == [second.scheduler.stopped]
    assert third.trained == []


def test_late_answers_of_before_the_resume_are_ignored() -> None:
    plan = Plan(Periodic(1, 0), prompts_per_step=2, steps=1)
    scheduler = Scheduler(plan)
    scheduler.handle(WorkerJoined(0, 0), Begin(), SampleFinished(1, 0, 0))
    scheduler = Scheduler.restore(plan, scheduler.snapshot())
    assert scheduler.handle(WorkerJoined(0, 0), Begin()) == [Start(2, 0, 0, 2, 0)]
    assert [c for c in scheduler.handle(SampleFinished(0, 0, 0)) if isinstance(c, Train)] == []
    assert scheduler.handle(SampleFinished(2, 0, 0)) == [Train(0, (2, 1))]


def test_more_steps_than_before_go_on_after_the_end() -> None:
    first = drive(Plan(Periodic(2, 2), prompts_per_step=2, steps=5))
    plan = Plan(Periodic(2, 2), prompts_per_step=2, steps=8)
    second = Driver(Scheduler.restore(plan, first.scheduler.snapshot())).run()
    assert prompts(first) + prompts(second) == list(range(16))


def test_snapshots_that_cannot_be_used() -> None:
    plan = Plan(Periodic(2, 1), prompts_per_step=2, steps=5)
    snapshot = drive(plan).scheduler.snapshot()
    for other in (Plan(Periodic(1, 1), 2, 5), Plan(Periodic(2, 1), 3, 5), Plan(Threshold(0.5, 2), 2, 5)):
        with pytest.raises(ConfigError, match="the run was begun with"):
            Scheduler.restore(other, snapshot)
    with pytest.raises(CheckpointError, match="format"):
        Scheduler.restore(plan, {**snapshot, "format": 99})
    for damage in ({"started": 9}, {"version": 99}, {"buffer": [[1]]}, {"open": None}, {"next_ticket": "x"}):
        with pytest.raises(CheckpointError, match="damaged"):
            Scheduler.restore(plan, {**snapshot, **damage})
    with pytest.raises(CheckpointError, match="damaged"):
        Scheduler.restore(plan, {name: value for name, value in snapshot.items() if name != "late"})


def test_a_record_of_the_events_replays_the_run() -> None:
    plan = Plan(MaxAge(1, "drop", 1), prompts_per_step=3, steps=10)
    driver = drive(plan, lambda batch: TIED if batch == 2 else TRAINED)
    lines = [json.dumps(to_json(event)) for event in driver.events]
    scheduler = Scheduler(plan)
    commands = [command for line in lines for command in scheduler.handle(from_json(json.loads(line)))]
    assert commands == driver.commands  # one by one as in handfuls
    assert scheduler.snapshot() == driver.scheduler.snapshot()


@pytest.mark.parametrize(
    "event",
    [
        Begin(),
        WorkerJoined(1, 2, None),
        WorkerJoined(1, 2, 3),
        WorkerLost(1, "killed by signal 9"),
        WeightsLoaded(1, 2),
        SampleFinished(1, 2, 3),
        SampleFailed(1, "no"),
        StepFinished(1, NON_FINITE),
        Tick(1.5),
    ],
)
def test_events_as_json(event: Event) -> None:
    again = from_json(json.loads(json.dumps(to_json(event))))
    assert again == event
    assert type(getattr(again, "outcome", NON_FINITE)) is StepOutcome


@pytest.mark.parametrize(
    "record", [{}, {"event": "nap"}, {"event": "tick"}, {"event": "step_finished", "batch": 1, "outcome": "fine"}]
)
def test_records_that_are_no_events(record: dict[str, object]) -> None:
    with pytest.raises(InputError, match="schedule record"):
        from_json(record)


def test_memory_does_not_grow() -> None:
    plan = Plan(Threshold(0.5, 2), prompts_per_step=4, steps=10**6)
    early, late = (Driver(Scheduler(plan), kill_after=batch).run() for batch in (19, 199))
    assert len(early.held) == len(late.held) == 4  # what the quota allows in advance: s n B
    assert early.scheduler.counts.buffered == late.scheduler.counts.buffered
    assert early.scheduler.counts.running == late.scheduler.counts.running
    assert len(early.scheduler.snapshot()["buffer"]) == len(late.scheduler.snapshot()["buffer"]) == 4


def test_the_room_has_no_clock_no_loop_and_no_tensors() -> None:
    allowed = {"__future__", "collections", "dataclasses", "enum", "fractions", "heapq", "math", "typing", "lagproof"}
    files = sorted(ROOM.glob("*.py"))
    assert len(files) >= 6
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert name.split(".")[0] in allowed, f"{file.name} imports {name}"
                assert not name.startswith("lagproof") or name.startswith(
                    (
                        "lagproof.config",
                        "lagproof.data.samples",
                        "lagproof.errors",
                        "lagproof.settings",
                        "lagproof.runtime.schedule",
                    )
                )
            assert not isinstance(node, ast.Await | ast.AsyncFunctionDef)
