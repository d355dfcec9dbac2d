"""The scheduler as lists of events, and a reference driver: a whole runtime without clock, model or weights."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from lagproof.runtime.schedule import (
    Begin,
    Command,
    Event,
    Periodic,
    Plan,
    Publish,
    SampleFinished,
    Scheduler,
    Start,
    StepFinished,
    StepOutcome,
    Stop,
    StopReason,
    Train,
    WeightsLoaded,
    WorkerJoined,
    ages,
)


@dataclass
class Driver:
    """Executes the commands of a scheduler in one process: what every runtime has to do, without the work.

    Commands are executed depth first: those that follow from an event come before the ones that were left, so that
    ``Publish`` is loaded, and the starts that waited for it are sampled, before the learner changes the weights.
    """

    scheduler: Scheduler
    outcome: Callable[[int], StepOutcome] = lambda batch: StepOutcome.TRAINED
    stop_before_batch: int | None = None  # a checkpoint is due: leave the commands that are left unexecuted
    held: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # ticket -> prompt, version: stands for a group
    trained: list[list[tuple[int, int]]] = field(default_factory=list)  # a batch: (prompt, age) of each group
    starts: list[list[int]] = field(default_factory=list)  # prompts that were sampled together
    events: list[Event] = field(default_factory=list)
    loaded: int = 0

    def run(self) -> Stop | None:
        self.loaded = self.scheduler.published
        todo: deque[Command] = deque(self.handle(WorkerJoined(0, self.loaded), Begin()))
        while todo:
            command = todo.popleft()
            match command:
                case Start():
                    group = [command]
                    while todo and isinstance(todo[0], Start):
                        group.append(todo.popleft())
                    answers = self.sample(group)
                case Train(batch, tickets):
                    if batch == self.stop_before_batch:
                        return None
                    answers = [self.step(batch, tickets)]
                case Publish(version):
                    self.loaded = version
                    answers = [WeightsLoaded(0, version)]
                case Stop():
                    return command
                case _:
                    raise AssertionError(command)
            todo.extendleft(reversed(self.handle(*answers)))
        raise AssertionError("nothing left to do, and no Stop")

    def handle(self, *events: Event) -> list[Command]:
        self.events.extend(events)
        commands = self.scheduler.handle(*events)
        self.scheduler.check()
        return commands

    def sample(self, group: Sequence[Start]) -> list[Event]:
        assert all(start.version == self.loaded for start in group)
        self.starts.append([start.prompt for start in group])
        self.held.update({start.ticket: (start.prompt, self.loaded) for start in group})
        return [SampleFinished(start.ticket, self.loaded, self.loaded) for start in group]

    def step(self, batch: int, tickets: Sequence[int]) -> Event:
        groups = [self.held.pop(ticket) for ticket in tickets]
        outcome = self.outcome(batch)
        if outcome is StepOutcome.TRAINED:
            self.trained.append([(prompt, self.scheduler.version - version) for prompt, version in groups])
        return StepFinished(batch, outcome)


def drive(plan: Plan, **options: object) -> Driver:
    driver = Driver(Scheduler(plan), **options)  # type: ignore[arg-type]
    driver.run()
    return driver


PIPELINES = [(1, 0), (1, 1), (3, 3), (8, 8), (4, 1), (1, 5), (4, 2), (3, 7), (5, 0)]


@pytest.mark.parametrize(("n", "k"), PIPELINES)
def test_realised_age_is_the_closed_form(n: int, k: int) -> None:
    plan = Plan(Periodic(n, k), prompts_per_step=2, steps=30)
    driver = drive(plan)
    assert driver.scheduler.stopped == Stop(StopReason.FINISHED, "30 steps")
    realised = [[age for _, age in batch] for batch in driver.trained]
    assert realised == [[age, age] for age in ages(Periodic(n, k), 30)]
    assert max(map(max, realised)) == plan.max_age
    assert [[prompt for prompt, _ in batch] for batch in driver.trained] == [
        [2 * j, 2 * j + 1] for j in range(30)
    ]
