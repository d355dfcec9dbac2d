"""The simulated clock: timelines worked out by hand, and the two limits of a schedule."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, deque

import numpy as np
import pytest

from lagproof.errors import ConfigError
from lagproof.runtime.clock.cluster import SimulatedCluster
from lagproof.runtime.clock.durations import LogNormalLengths, MeasuredLengths, PromptLengths
from lagproof.runtime.clock.planner import Forecast, Hardware, Workload, capacity, forecast, smallest_lag
from lagproof.runtime.schedule import (
    Admission,
    Begin,
    Command,
    Discard,
    MaxAge,
    Periodic,
    Plan,
    Publish,
    SampleFinished,
    Scheduler,
    Start,
    StepFinished,
    Stop,
    Threshold,
    Train,
    WeightsLoaded,
)


class Timeline:
    """A scheduler over a cluster with two workers of one slot each; what happened, with its time."""

    def __init__(self, plan: Plan, sample_s: list[float], train_s: float, publish_s: float, in_flight: bool = False):
        self.scheduler = Scheduler(plan)
        self.cluster = SimulatedCluster(2, 1, in_flight=in_flight)
        self.seen: list[tuple[float, object]] = []
        self.sample_s, self.train_s, self.publish_s = sample_s, train_s, publish_s
        self.ages: list[int] = []
        oldest: dict[int, int] = {}
        todo: deque[Command] = deque(self.scheduler.handle(*self.cluster.join(), Begin()))
        while True:
            while todo:
                command = todo.popleft()
                self.seen.append((self.cluster.now_s, command))
                match command:
                    case Start():
                        self.cluster.start(command.ticket, command.worker, sample_s[command.prompt])
                    case Train():
                        self.ages += [self.scheduler.version - oldest[ticket] for ticket in command.tickets]
                        self.cluster.train(command.batch, train_s)
                    case Publish():
                        self.cluster.publish(command.version, publish_s)
                    case Stop():
                        return
                    case _:
                        pass
            for event in self.cluster.next():
                self.seen.append((self.cluster.now_s, event))
                if isinstance(event, SampleFinished):
                    oldest[event.ticket] = event.oldest
                todo.extend(self.scheduler.handle(event))
                self.scheduler.check()

    def at(self, kind: type) -> list[tuple[float, object]]:
        return [(time_s, what) for time_s, what in self.seen if isinstance(what, kind)]


def test_one_step_off_by_hand() -> None:
    # Two workers, batches of two prompts, one batch ahead. Prompts 0..5 take 3 5 | 4 4 | 9 2 s, a step 6 s, weights 1.
    #   worker 0: 0 [0-3]  2 [3-7]   load 1 [12]   4 [12-21]
    #   worker 1: 1 [0-5]  3 [5-9]   load 1 [12]   5 [12-14]   load 2 at 18
    #   learner:  0 [5-11] 1 [11-17] 2 [21-27]
    # Version 1 is published at 11 and arrives at 12, when both workers are idle; batch 2 starts only then.
    # Version 2 is published at 17 and arrives at 18: worker 1 is idle and takes it, worker 0 when prompt 4 is done.
    run = Timeline(Plan(Periodic(1, 1), 2, 3), [3, 5, 4, 4, 9, 2], train_s=6, publish_s=1)
    assert [(t, e.ticket) for t, e in run.at(SampleFinished)] == [(3, 0), (5, 1), (7, 2), (9, 3), (14, 5), (21, 4)]
    assert [(t, c.batch) for t, c in run.at(Train)] == [(5, 0), (11, 1), (21, 2)]
    assert [(t, e.batch) for t, e in run.at(StepFinished)] == [(11, 0), (17, 1), (27, 2)]
    loads = [(t, e.worker, e.version) for t, e in run.at(WeightsLoaded)]
    assert loads == [(12, 0, 1), (12, 1, 1), (18, 1, 2), (21, 0, 2)]
    assert run.ages == [0, 0, 1, 1, 1, 1]
    assert run.cluster.now_s == 27
    assert run.cluster.learning_s == 18
    assert run.cluster.sampling_s == 3 + 5 + 4 + 4 + 9 + 2


def test_weights_in_flight_by_hand() -> None:
    # The same, but weights are taken while prompt 4 is sampled: at 18, six seconds after it began with version 1.
    run = Timeline(Plan(Periodic(1, 1), 2, 3), [3, 5, 4, 4, 9, 2], train_s=6, publish_s=1, in_flight=True)
    assert [(t, e.worker, e.version) for t, e in run.at(WeightsLoaded)] == [(12, None, 1), (18, None, 2)]
    versions = {e.ticket: (e.oldest, e.newest) for _, e in run.at(SampleFinished)}
    assert versions == {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0), 4: (1, 2), 5: (1, 1)}


def test_prompts_that_finish_out_of_order_are_trained_in_that_order() -> None:
    # max_age 1: four prompts may be out. Prompt 0 takes 30 s; worker 1 does 1, 2, 3, 4 ... meanwhile, 2 s each.
    #   0-2 1, 2-4 2, train [1, 2] 4-5, 4-6 3, 5: version 1, arrives at once: worker 1 loads at 6 when 3 is done,
    #   then 4 [6-8], train [3, 4] 8-9: version 2, the quota is (1 + 2 + 1) 2 = 8. Prompt 0 is trained late.
    plan = Plan(MaxAge(1, "train", 1), 2, 8)
    run = Timeline(plan, [30] + [2.0] * 40, train_s=1, publish_s=0)
    finished = [e.ticket for _, e in run.at(SampleFinished)]
    assert finished[:4] == [1, 2, 3, 4]
    assert [c.tickets for _, c in run.at(Train)][:2] == [(1, 2), (3, 4)]
    # At 30 prompt 0 is there: 1..14 were trained, at 4, 8, ... by pairs of 2 s and a wait for nothing: version 7.
    assert run.ages[[t for _, c in run.at(Train) for t in c.tickets].index(0)] == 7
    assert run.scheduler.late == 1
    dropped = Timeline(Plan(MaxAge(1, "drop", 1), 2, 8), [30] + [2.0] * 40, train_s=1, publish_s=0)
    assert 0 in [c.ticket for _, c in dropped.at(Discard)] and max(dropped.ages) <= 1


@pytest.mark.parametrize("schedule", [Periodic(1, 0), Periodic(2, 3), Threshold(0.5, 2), MaxAge(1, "drop", 1)])
@pytest.mark.parametrize("in_flight", [False, True])
def test_the_books_balance_at_every_moment(schedule: Admission, in_flight: bool) -> None:
    rng = random.Random(0)
    plan = Plan(schedule, 4, 15)
    run = Timeline(plan, [rng.lognormvariate(0, 1.5) for _ in range(400)], 2.0, 0.7, in_flight)  # checks as it goes
    counts = run.scheduler.counts
    assert counts.started == counts.trained + counts.dropped and counts.trained == 60
    started = Counter(c.prompt for _, c in run.at(Start))
    assert set(started.values()) == {1}


def test_a_publication_that_is_overtaken_changes_nothing() -> None:
    cluster = SimulatedCluster(1, 1)
    cluster.publish(1, 5.0)
    cluster.publish(2, 1.0)
    assert cluster.next() == [WeightsLoaded(0, 2)] and cluster.now_s == 1.0
    assert cluster.next() == []


def test_a_prompt_that_takes_another_time() -> None:
    cluster = SimulatedCluster(1, 2)
    cluster.start(0, 0, 5.0)
    cluster.start(1, 0, 2.0)
    cluster.finish_at(0, 1.0)
    assert cluster.next() == [SampleFinished(0, 0, 0)] and cluster.now_s == 1.0
    cluster.cancel(1)
    assert cluster.next() == [] and cluster.sampling_s == 2.0


EVEN = LogNormalLengths(mean=100, sigma=0, max_tokens=100)
HARDWARE = Hardware(
    workers=2, slots=2, engine_tokens_per_s=40, learners=2, learner_tokens_per_s=50, step_s=1, publish_s=3
)
# A response is drawn at 40 / (2 * 2) = 10 tokens a second: 10 s. A step on 4 * 2 * 100 tokens: 1 + 800 / 100 = 9 s.
WORK = Workload(prompts=4, samples=2, lengths=EVEN, steps=10)


def test_the_synchronous_limit() -> None:
    found = forecast("sync", Periodic(1, 0), HARDWARE, WORK)
    assert found.step_s == pytest.approx(10 + 9 + 3)  # sample, train and publish one after the other
    assert found.tokens_per_s == pytest.approx(800 / 22)
    assert found.learner_wait == pytest.approx(13 / 22)
    assert found.rollout_wait == pytest.approx(12 / 22)
    assert found.ages == {0: 40}


def test_the_overlapped_limits() -> None:
    found = forecast("one step off", Periodic(1, 1), HARDWARE, WORK)
    # Batches are sampled one after the other, 10 s each, and begin every second time 2 s late: step 0 of two ends at 9,
    # its weights arrive at 12, while a batch is sampled until 13; the next one is until 23, step 1 ends at 22 and its
    # weights arrive at 25.
    assert found.step_s == pytest.approx((10 + 12) / 2)
    slow = dataclasses.replace(HARDWARE, learner_tokens_per_s=20)  # a step: 1 + 800 / 40 = 21 s
    bound = forecast("one step off", Periodic(1, 1), slow, WORK)
    assert bound.step_s == pytest.approx(21) and bound.learner_wait == pytest.approx(0)
    assert bound.tokens_per_s == pytest.approx(capacity(slow, WORK).learning)


def test_sampling_that_never_waits_gives_its_capacity() -> None:
    hardware = dataclasses.replace(HARDWARE, publish_s=0, learner_tokens_per_s=10_000)
    work = dataclasses.replace(WORK, lengths=LogNormalLengths(100, 0.7, 400), steps=200)
    found = forecast("far ahead", Periodic(8, 24), hardware, work)
    assert found.rollout_wait < 0.05
    assert found.tokens_per_s == pytest.approx(capacity(hardware, work).sampling, rel=0.05)


def test_the_smallest_lag_is_the_smallest() -> None:
    hardware = Hardware(4, 8, engine_tokens_per_s=4_000, learners=1, learner_tokens_per_s=4_500, publish_s=1)
    work = Workload(prompts=16, samples=2, lengths=LogNormalLengths(300, 0.9, 2_000), steps=40)
    found = smallest_lag(hardware, work)
    assert found is not None and found.busy and found.name.startswith("k")
    lag = int(found.name[1:])
    assert lag >= 2 and found == forecast(found.name, Periodic(1, lag), hardware, work)
    assert not forecast("one less", Periodic(1, lag - 1), hardware, work).busy
    fast = dataclasses.replace(hardware, learner_tokens_per_s=100_000)
    assert capacity(fast, work).sampling < capacity(fast, work).learning
    assert smallest_lag(fast, work) is None


def test_a_forecast_is_a_function_of_its_seed() -> None:
    work = dataclasses.replace(WORK, lengths=LogNormalLengths(100, 1.0, 1_000))

    def at(seed: int) -> Forecast:
        return forecast("a", Threshold(0.5, 2), HARDWARE, dataclasses.replace(work, seed=seed))

    assert at(0) == at(0)
    assert at(0) != at(1)
    assert at(0).promised == 2 and sum(at(0).ages.values()) == 40


def test_lengths() -> None:
    rng = np.random.default_rng(0)
    drawn = LogNormalLengths(200, 0.5, 10_000).draw(rng, (4_000, 8))
    assert drawn.mean() == pytest.approx(200, rel=0.01)
    assert np.log(drawn).std() == pytest.approx(0.5, rel=0.02)
    lengths = PromptLengths(MeasuredLengths(np.array([3, 7]), "a test"), 4, seed=1)
    longest, total = lengths.of(2_000)
    assert longest in (3, 7) and 12 <= total <= 28
    assert lengths.of(2_000) == PromptLengths(MeasuredLengths(np.array([3, 7]), "a test"), 4, seed=1).of(2_000)
    with pytest.raises(ConfigError, match=r"length\.mean = 0\.5: must be >= 1"):
        LogNormalLengths(0.5, 1, 10)
    with pytest.raises(ConfigError, match="workers = 0"):
        Hardware(0, 1, 1, 1, 1)
