"""What the scheduler does when something does not come, comes twice, or comes too late."""

from __future__ import annotations

import pytest

from lagproof.runtime.schedule import (
    Admission,
    Begin,
    Cancel,
    Command,
    Discard,
    DiscardReason,
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
)

SYNCHRONOUS = Periodic(1, 0)
SCHEDULES = [SYNCHRONOUS, Periodic(3, 3), Threshold(0.5, 2), MaxAge(2, "drop", 1)]


def begun(plan: Plan, workers: int = 1, slots: int | None = None) -> Scheduler:
    scheduler = Scheduler(plan)
    scheduler.handle(*(WorkerJoined(worker, 0, slots) for worker in range(workers)), Begin())
    return scheduler


def starts(commands: list[Command]) -> list[tuple[int, int, int]]:
    """(ticket, prompt, worker) of each start."""
    return [(c.ticket, c.prompt, c.worker) for c in commands if isinstance(c, Start)]


def stop(commands: list[Command]) -> Stop:
    assert isinstance(commands[-1], Stop)
    return commands[-1]


# attempts


def test_result_of_a_timed_out_attempt_after_the_retry() -> None:
    # attempt 1 times out, attempt 2 returns, then attempt 1 returns: one result is kept
    plan = Plan(SYNCHRONOUS, prompts_per_step=1, steps=9, limits=FailureLimits(sample_timeout_s=1.0))
    scheduler = begun(plan)
    assert scheduler.handle(Tick(10.0), Tick(10.9)) == []
    assert scheduler.handle(Tick(11.0)) == [Cancel(0), Start(1, 0, 0, 2, 0)]
    assert scheduler.handle(SampleFinished(1, 0, 0)) == [Train(0, (1,))]
    superseded = Discard(0, None, DiscardReason.SUPERSEDED, "its attempt was given up")
    assert scheduler.handle(SampleFinished(0, 0, 0)) == [superseded]
    assert scheduler.handle(SampleFailed(0, "cancelled")) == []
    assert scheduler.ignored == 2
    assert scheduler.counts == PromptCounts(started=1, trained=0, buffered=1, running=0, failed=0, dropped=0)


def test_result_of_a_timed_out_attempt_before_the_retry() -> None:
    plan = Plan(SYNCHRONOUS, prompts_per_step=1, steps=9, limits=FailureLimits(sample_timeout_s=1.0))
    scheduler = begun(plan)
    scheduler.handle(Tick(0.0), Tick(1.0))
    assert scheduler.handle(SampleFinished(0, 0, 0)) == [
        Discard(0, None, DiscardReason.SUPERSEDED, "its attempt was given up")
    ]
    assert scheduler.handle(SampleFinished(1, 0, 0)) == [Train(0, (1,))]


def test_a_result_that_comes_twice_does_not_take_the_first_away() -> None:
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=2, steps=9))
    assert scheduler.handle(SampleFinished(0, 0, 0), SampleFinished(0, 0, 0)) == []
    assert scheduler.held == [0]
    assert scheduler.handle(SampleFinished(1, 0, 0)) == [Train(0, (0, 1))]
    assert scheduler.handle(SampleFinished(1, 0, 0)) == []
    assert scheduler.ignored == 2


def test_stuck_samples_give_their_slots_back() -> None:
    # two slots, two prompts that never return, one second for each attempt
    limits = FailureLimits(attempts=2, sample_timeout_s=1.0)
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=4, steps=9, limits=limits), slots=2)
    scheduler.handle(Tick(0.0))
    assert starts(scheduler.handle(Tick(1.0))) == [(2, 0, 0), (3, 1, 0)]
    scheduler.handle(Tick(1.5))
    commands = scheduler.handle(Tick(2.5))
    assert [c for c in commands if isinstance(c, Cancel)] == [Cancel(2), Cancel(3)]
    assert [c.prompt for c in commands if isinstance(c, Discard)] == [0, 1]
    assert starts(commands) == [(4, 2, 0), (5, 3, 0)]
    assert scheduler.handle(SampleFinished(4, 0, 0), SampleFinished(5, 0, 0)) == [Train(0, (4, 5))]
    assert scheduler.counts == PromptCounts(started=4, trained=0, buffered=2, running=0, failed=2, dropped=0)


def test_a_stop_ends_a_tick() -> None:
    limits = FailureLimits(attempts=1, failed_prompts=1, sample_timeout_s=1.0)
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=2, steps=9, limits=limits))
    cancel, discard, *rest = scheduler.handle(Tick(0.0), Tick(1.0))
    assert (cancel, rest[0]) == (Cancel(0), Cancel(1))
    assert isinstance(discard, Discard) and discard.reason is DiscardReason.FAILED
    assert stop(rest).detail.endswith("no result within 1 s")
    assert len(rest) == 2


def test_without_a_time_limit_a_tick_says_nothing() -> None:
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=1, steps=9))
    assert scheduler.handle(Tick(0.0), Tick(1e9)) == []


def test_surplus_results_stay_for_the_next_step() -> None:
    # 10 groups are finished and the batch is 8: 2 remain
    scheduler = begun(Plan(Threshold(0.5, 1), prompts_per_step=8, steps=3, num_prompts=24))
    trained: list[int] = []
    tickets = {ticket: ticket for ticket in range(12)}  # ticket: prompt
    commands = scheduler.handle(*(SampleFinished(ticket, 0, 0) for ticket in range(10)))
    assert scheduler.counts.buffered == 10
    assert commands == [Train(0, tuple(range(8)))]
    while scheduler.stopped is None:
        (train,) = (c for c in commands if isinstance(c, Train))
        trained += [tickets[ticket] for ticket in train.tickets]
        step = scheduler.handle(StepFinished(train.batch))
        started = starts(scheduler.handle(WeightsLoaded(0, scheduler.version)))
        tickets |= {ticket: prompt for ticket, prompt, _ in started}
        running = [10, 11] if train.batch == 0 else []
        version = scheduler.version
        late = [SampleFinished(ticket, 0, 0) for ticket in running]
        fresh = [SampleFinished(ticket, version, version) for ticket, _, _ in started]
        commands = step + scheduler.handle(*late, *fresh)
    assert sorted(trained) == list(range(24))


def test_a_prompt_is_given_up_after_its_attempts_and_its_batch_is_smaller() -> None:
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=3, steps=9))
    scheduler.handle(SampleFinished(2, 0, 0), SampleFinished(0, 0, 0))
    assert scheduler.handle(SampleFailed(1, "first")) == [Start(3, 1, 0, 2, 0)]
    assert scheduler.handle(SampleFailed(3, "second")) == [Start(4, 1, 0, 3, 0)]
    assert scheduler.handle(SampleFailed(4, "third")) == [
        Discard(4, 1, DiscardReason.FAILED, "third"),
        Train(0, (0, 2)),
    ]


def test_a_batch_of_which_nothing_came_is_passed_over() -> None:
    scheduler = begun(Plan(Periodic(1, 1), prompts_per_step=1, steps=2, limits=FailureLimits(attempts=1)))
    scheduler.handle(SampleFinished(1, 0, 0))
    assert scheduler.handle(SampleFailed(0, "no")) == [
        Discard(0, 0, DiscardReason.FAILED, "no"),
        Start(2, 2, 0, 1, 0),
        Train(1, (1,)),
    ]
    assert scheduler.version == 0
    assert scheduler.handle(StepFinished(1), SampleFinished(2, 0, 0)) == [Publish(1), Train(2, (2,))]


@pytest.mark.parametrize("admission", SCHEDULES)
def test_when_every_prompt_fails_the_run_stops_with_the_original_error(admission: Admission) -> None:
    scheduler = begun(Plan(admission, prompts_per_step=2, steps=99, limits=FailureLimits(attempts=2, failed_prompts=5)))
    for ticket in range(1000):
        commands = scheduler.handle(SampleFailed(ticket, f"ZeroDivisionError in ticket {ticket}"))
        scheduler.check()
        if scheduler.stopped is not None:
            break
    assert ticket < 30
    assert stop(commands).reason is StopReason.SAMPLES_FAILED and not stop(commands).reason.success
    assert stop(commands).detail.endswith(f"ZeroDivisionError in ticket {ticket}")
    assert scheduler.counts.failed == 5


@pytest.mark.parametrize("admission", SCHEDULES)
def test_when_the_data_end_and_everything_failed_it_is_no_success(admission: Admission) -> None:
    plan = Plan(admission, prompts_per_step=2, steps=99, num_prompts=3, limits=FailureLimits(attempts=1))
    scheduler = begun(plan)
    for ticket in range(3):
        commands = scheduler.handle(SampleFailed(ticket, "no route to host"))
    assert stop(commands).reason is StopReason.SAMPLES_FAILED
    assert "no route to host" in stop(commands).detail


def test_a_result_starts_the_count_of_failures_again() -> None:
    scheduler = begun(
        Plan(SYNCHRONOUS, prompts_per_step=9, steps=9, limits=FailureLimits(attempts=1, failed_prompts=2))
    )
    scheduler.handle(SampleFailed(0, "a"), SampleFinished(1, 0, 0), SampleFailed(2, "b"))
    assert scheduler.stopped is None
    assert stop(scheduler.handle(SampleFailed(3, "c"))).detail.endswith("c")


# workers


@pytest.mark.parametrize("admission", SCHEDULES)
def test_prompts_of_a_lost_worker_start_elsewhere(admission: Admission) -> None:
    scheduler = begun(Plan(admission, prompts_per_step=4, steps=9, limits=FailureLimits(attempts=1)), workers=2)
    commands = scheduler.handle(SampleFinished(0, 0, 0), WorkerLost(0, "killed by signal 9"))
    assert commands[0] == Replace(0)
    lost = [ticket for ticket in range(0, scheduler.counts.started, 2) if ticket != 0]
    assert [prompt for _, prompt, _ in starts(commands)] == lost
    assert {worker for *_, worker in starts(commands)} == {1}
    assert all(c.attempt == 2 for c in commands if isinstance(c, Start))
    late = scheduler.handle(SampleFinished(lost[0], 0, 0))
    assert [c.reason for c in late if isinstance(c, Discard)] == [DiscardReason.SUPERSEDED]
    assert scheduler.counts.failed == 0  # a loss is not the prompt's fault
    scheduler.check()


def test_prompts_wait_for_the_replacement() -> None:
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=2, steps=9))
    scheduler.handle(SampleFinished(0, 0, 0), SampleFinished(1, 0, 0), StepFinished(0), WeightsLoaded(0, 1))
    assert scheduler.handle(WorkerLost(0, "gone")) == [Replace(0)]
    assert scheduler.counts.running == 2
    assert scheduler.handle(WorkerJoined(0, 0)) == []
    assert scheduler.handle(WeightsLoaded(0, 1)) == [Start(4, 2, 0, 2, 1), Start(5, 3, 0, 2, 1)]


def test_too_many_lost_workers_stop_the_run_with_the_original_error() -> None:
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=2, steps=9, limits=FailureLimits(restarts=2)), workers=2)
    assert Replace(0) in scheduler.handle(WorkerLost(0, "first"))
    assert scheduler.handle(WorkerLost(0, "did not come up")) == [Replace(0)]  # the replacement counts as well
    commands = scheduler.handle(WorkerLost(1, "OSError: out of memory"))
    assert stop(commands).reason is StopReason.WORKERS_LOST and not stop(commands).reason.success
    assert stop(commands).detail.endswith("OSError: out of memory")
    assert scheduler.handle(WorkerJoined(0, 0)) == []


def test_a_stop_cancels_what_runs() -> None:
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=3, steps=9, limits=FailureLimits(restarts=0)), workers=3)
    commands = scheduler.handle(SampleFinished(1, 0, 0), WorkerLost(0, "gone"))
    assert commands[:-1] == [Cancel(2)]
    assert scheduler.counts == PromptCounts(started=3, trained=0, buffered=1, running=2, failed=0, dropped=0)


def test_news_of_a_worker_that_is_gone() -> None:
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=1, steps=9))
    scheduler.handle(WorkerLost(0, "gone"))
    assert scheduler.handle(WeightsLoaded(0, 0)) == []


# steps


@pytest.mark.parametrize("admission", SCHEDULES)
@pytest.mark.parametrize("num_prompts", [None, 600])
def test_when_everything_is_tied_the_run_stops_and_says_so(admission: Admission, num_prompts: int | None) -> None:
    limits = FailureLimits(zero_variance_batches=4)
    plan = Plan(admission, prompts_per_step=2, steps=99, num_prompts=num_prompts, limits=limits)
    scheduler = begun(plan)
    batches, ticket = 0, 0
    commands: list[Command] = []
    while scheduler.stopped is None:
        finished = [SampleFinished(t, 0, 0) for t in range(ticket, scheduler.counts.started)]
        ticket = scheduler.counts.started
        commands += scheduler.handle(*finished)
        commands = scheduler.handle(StepFinished(batches, StepOutcome.ZERO_VARIANCE))
        batches += 1
    assert batches == 4
    assert stop(commands).reason is StopReason.NO_SIGNAL and not stop(commands).reason.success
    assert "4 batches in a row" in stop(commands).detail
    assert (scheduler.version, scheduler.published, scheduler.dropped) == (0, 0, {"zero_variance": 8})


def test_when_the_data_end_and_everything_was_tied_it_says_so() -> None:
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=2, steps=99, num_prompts=2))
    scheduler.handle(SampleFinished(0, 0, 0), SampleFinished(1, 0, 0))
    commands = scheduler.handle(StepFinished(0, StepOutcome.ZERO_VARIANCE))
    assert stop(commands).reason is StopReason.NO_SIGNAL
    assert "zero_variance" in stop(commands).detail


def outcomes(limits: FailureLimits, *sequence: StepOutcome) -> Scheduler:
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=1, steps=99, limits=limits))
    for batch, outcome in enumerate(sequence):
        version = scheduler.version
        scheduler.handle(SampleFinished(batch, version, version), StepFinished(batch, outcome))
        scheduler.handle(WeightsLoaded(0, scheduler.version))
    return scheduler


T, E, X = StepOutcome.TRAINED, StepOutcome.ZERO_VARIANCE, StepOutcome.NON_FINITE


def test_non_finite_steps_publish_nothing_and_stop_the_run() -> None:
    scheduler = outcomes(FailureLimits(bad_steps=2), T, X)
    assert (scheduler.version, scheduler.published, scheduler.dropped) == (1, 1, {"non_finite": 1})
    scheduler = outcomes(FailureLimits(bad_steps=2), T, X, T, X, X)
    assert scheduler.stopped == Stop(StopReason.NON_FINITE, "2 steps in a row had gradients that are not finite")
    assert not StopReason.NON_FINITE.success


def test_a_trained_step_starts_the_counts_again() -> None:
    assert outcomes(FailureLimits(zero_variance_batches=2, bad_steps=2), E, T, E, T, X, T, X).stopped is None


def test_tied_and_non_finite_in_turn_do_not_go_on_for_ever() -> None:
    scheduler = outcomes(FailureLimits(zero_variance_batches=3, bad_steps=3), E, X, E, X, E)
    assert scheduler.stopped is not None and scheduler.stopped.reason is StopReason.NO_SIGNAL


def test_a_failed_run_is_no_success() -> None:
    # the producer fails after 3 of 10 batches
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=1, steps=10, limits=FailureLimits(restarts=0)))
    for step in range(3):
        scheduler.handle(SampleFinished(step, step, step), StepFinished(step), WeightsLoaded(0, step + 1))
    commands = scheduler.handle(WorkerLost(0, "RuntimeError: boom"))
    assert scheduler.version == 3
    assert not stop(commands).reason.success
    assert "RuntimeError: boom" in stop(commands).detail


# counts that go over a resume


def resumed(scheduler: Scheduler) -> Scheduler:
    again = Scheduler.restore(scheduler.plan, scheduler.snapshot())
    again.handle(WorkerJoined(0, again.published), Begin())
    return again


def test_failures_before_a_resume_count() -> None:
    scheduler = begun(
        Plan(SYNCHRONOUS, prompts_per_step=2, steps=9, limits=FailureLimits(attempts=2, failed_prompts=2))
    )
    scheduler.handle(SampleFailed(0, "a"))  # ticket 2 is prompt 0 again
    scheduler = resumed(scheduler)  # tickets 3 and 4
    assert [c.prompt for c in scheduler.handle(SampleFailed(3, "b")) if isinstance(c, Discard)] == [0]
    scheduler = resumed(scheduler)  # ticket 5 is prompt 1
    scheduler.handle(SampleFailed(5, "c"))
    assert stop(scheduler.handle(SampleFailed(6, "d"))).reason is StopReason.SAMPLES_FAILED


@pytest.mark.parametrize("outcome", [StepOutcome.ZERO_VARIANCE, StepOutcome.NON_FINITE])
def test_steps_without_training_before_a_resume_count(outcome: StepOutcome) -> None:
    limits = FailureLimits(zero_variance_batches=2, bad_steps=2)
    scheduler = begun(Plan(SYNCHRONOUS, prompts_per_step=1, steps=9, limits=limits))
    scheduler.handle(SampleFinished(0, 0, 0), StepFinished(0, outcome))
    scheduler = resumed(scheduler)
    scheduler.handle(SampleFinished(2, 0, 0))
    assert stop(scheduler.handle(StepFinished(1, outcome))).detail.startswith("2 ")


# what a runtime must not do


def test_events_that_cannot_be_are_caught() -> None:
    plan = Plan(SYNCHRONOUS, prompts_per_step=1, steps=9)
    with pytest.raises(AssertionError, match="Begin comes once"):
        begun(plan).handle(Begin())
    with pytest.raises(AssertionError, match="joined twice"):
        begun(plan).handle(WorkerJoined(0, 0))
    with pytest.raises(AssertionError, match="takes no prompts"):
        begun(plan).handle(WorkerJoined(1, 0, slots=0))
    with pytest.raises(AssertionError, match="batch 0 is not with the learner"):
        begun(plan).handle(StepFinished(0))
    with pytest.raises(AssertionError, match="the learner is at 0"):
        begun(plan).handle(SampleFinished(0, 0, 1))
    with pytest.raises(AssertionError, match="started with version 0"):
        begun(plan).handle(SampleFinished(0, -1, 0))
