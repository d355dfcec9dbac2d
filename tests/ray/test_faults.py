"""Processes that are killed, raise, hang or answer nonsense: each ends as docs/lag.md says, and the books balance."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from stubs import counts, drive, flat, processes_of, settings, trained

from lagproof.errors import InterruptedRunError, RunStoppedError
from lagproof.runs.run import Run

pytestmark = [pytest.mark.usefixtures("ray_here")]
ALL = list(range(24))
ASYNC = ("schedule.broadcast_every=1", "schedule.batches_ahead=1", "rollout.workers=2")


def test_without_faults_every_prompt_is_trained_once(tmp_path):
    config = settings(tmp_path / "r", *ASYNC)
    assert drive(config).reason == "finished"
    assert flat(trained(tmp_path / "r")) == ALL
    assert counts(config).trained == 24


@pytest.mark.parametrize("prompt", [5, 23])
def test_a_worker_that_is_killed_in_a_response_is_replaced(tmp_path, prompt):
    """Its prompts are started again: none is lost, none trained twice, none counted as failed."""
    config = settings(tmp_path / "r", *ASYNC)
    assert drive(config, {prompt: "once:kill"}).reason == "finished"
    assert flat(trained(tmp_path / "r")) == ALL
    found = counts(config)
    assert (found.trained, found.failed, found.dropped) == (24, 0, 0)
    notes = (tmp_path / "r" / "notes.txt").read_text()
    assert re.search(r"rollout worker \d was lost: .*unexpectedly", notes)


def test_all_workers_killed_at_once(tmp_path):
    config = settings(tmp_path / "r", *ASYNC, "rollout.prompts=4")
    assert drive(config, {0: "once:kill", 1: "once:kill"}).reason == "finished"
    assert flat(trained(tmp_path / "r")) == ALL
    assert "runs again in process" in (tmp_path / "r" / "notes.txt").read_text()


def test_a_prompt_that_kills_every_worker_stops_the_run_with_the_original_error(tmp_path):
    stop = drive(settings(tmp_path / "r", *ASYNC, "ray.restarts=2"), {5: "kill"})
    assert stop.reason == "workers_lost" and not stop.reason.success
    assert "3 rollout workers were lost and 2 may be replaced" in stop.detail
    assert "unexpectedly" in stop.detail


def test_a_worker_that_raises_once_tries_again(tmp_path):
    config = settings(tmp_path / "r", *ASYNC)
    assert drive(config, {5: "once:raise"}).reason == "finished"
    assert flat(trained(tmp_path / "r")) == ALL


@pytest.mark.parametrize("prompt", [0, 5, 23])
def test_a_prompt_that_always_raises_is_given_up_alone(tmp_path, prompt):
    """Its neighbours in the call are sampled without it, and trained; its batch is smaller."""
    config = settings(tmp_path / "r", *ASYNC)
    assert drive(config, {prompt: "raise"}).reason == "finished"
    assert flat(trained(tmp_path / "r")) == [p for p in ALL if p != prompt]
    assert counts(config).failed == 1
    record = [e for e in Run.open(tmp_path / "r").schedule if e["event"] == "sample_failed"]
    assert {e["reason"] for e in record} == {f"ArithmeticError: prompt {prompt} is cursed"}


@pytest.mark.parametrize("fault", ["raise", "garbage"])
def test_workers_that_never_answer_right_stop_the_run(tmp_path, fault):
    began = time.monotonic()
    stop = drive(settings(tmp_path / "r", *ASYNC), dict.fromkeys(range(99), fault))
    assert stop.reason == "samples_failed" and not stop.reason.success
    assert ("is cursed" if fault == "raise" else "answered 'banana' for") in stop.detail
    assert time.monotonic() - began < 60


def test_a_worker_that_hangs_is_killed_after_its_time(tmp_path):
    """So is one whose grader never returns: both are one call that does not end."""
    config = settings(tmp_path / "r", *ASYNC, "ray.call_timeout_s=2.0")
    assert drive(config, {5: "once:hang"}).reason == "finished"
    assert flat(trained(tmp_path / "r")) == ALL
    assert "no answer within ray.call_timeout_s = 2 s" in (tmp_path / "r" / "notes.txt").read_text()


def test_the_learner_killed_and_resumed(tmp_path):
    config = settings(tmp_path / "r", *ASYNC)
    with pytest.raises(RunStoppedError, match=r"the learner's process was lost: .*continue with --resume"):
        drive(config, batch_faults={3: "once:kill"})
    assert len(trained(tmp_path / "r")) == 2
    assert drive(config).reason == "finished"
    assert flat(trained(tmp_path / "r")) == ALL
    assert [row.step for row in Run.open(tmp_path / "r").rows] == [1, 2, 3, 4, 5, 6]


def test_the_learner_raises(tmp_path):
    with pytest.raises(RunStoppedError, match="ArithmeticError: batch 2 is cursed"):
        drive(settings(tmp_path / "r", *ASYNC), batch_faults={2: "raise"})


@pytest.mark.parametrize("outcome", ["non_finite", "zero_variance"])
def test_a_batch_that_makes_no_step(tmp_path, outcome):
    config = settings(tmp_path / "r", *ASYNC)
    assert drive(config, batch_faults={2: outcome}).reason == "finished"
    found = counts(config)
    assert (found.trained, found.dropped) == (24, 4)
    assert flat(trained(tmp_path / "r")) == [p for p in range(28) if p not in range(8, 12)]


def test_gradients_that_stay_non_finite_stop_the_run(tmp_path):
    config = settings(tmp_path / "r", *ASYNC, "learner.max_bad_steps=2")
    assert drive(config, batch_faults=dict.fromkeys(range(9), "non_finite")).reason == "non_finite"


class TestEvaluation:
    EVAL = ("eval.every=2", "eval.prompts=4")

    def test_rows_are_written_in_order_with_their_evaluations(self, tmp_path):
        drive(settings(tmp_path / "r", *ASYNC, *self.EVAL))
        rows = Run.open(tmp_path / "r").rows
        assert [(row.step, row.get("eval/accuracy")) for row in rows] == [
            (step, float(step) if step % 2 == 0 else None) for step in range(7)
        ]

    def test_a_worker_that_is_killed_in_an_evaluation(self, tmp_path):
        drive(settings(tmp_path / "r", *ASYNC, *self.EVAL), {-5: "once:kill"})
        assert [row.get("eval/accuracy") for row in Run.open(tmp_path / "r").rows][::2] == [0, 2, 4, 6]

    @pytest.mark.parametrize("restarts", [1, 0])
    def test_the_only_worker_is_killed_while_a_checkpoint_waits_for_it(self, tmp_path, restarts):
        overrides = ("rollout.workers=1", "schedule.batches_ahead=9", f"ray.restarts={restarts}", *self.EVAL)
        stop = drive(settings(tmp_path / "r", *overrides), {-3: "once:kill"})
        assert stop.reason == ("finished" if restarts else "workers_lost")
        assert [row.step for row in Run.open(tmp_path / "r").rows] == list(range(7 if restarts else 3))

    def test_an_evaluation_that_raises_stops_the_run(self, tmp_path):
        with pytest.raises(RunStoppedError, match=r"evaluation of step 2 failed: .*evaluation 2 is cursed"):
            drive(settings(tmp_path / "r", *ASYNC, *self.EVAL), {-3: "raise"})


def test_killed_from_outside_at_any_time(tmp_path):
    """Workers and then the learner are killed by number; the run is resumed, with another number of workers."""
    path = tmp_path / "r"
    config = settings(path, *ASYNC, "ray.restarts=9", "steps=12")
    asked = []

    def kill(row):
        learner, workers = processes_of(path)
        if row.step in (2, 5):
            os.kill(workers[row.step % 2], signal.SIGKILL)
        if row.step == 8 and not asked:
            asked.append(learner)
            os.kill(learner, signal.SIGKILL)

    with pytest.raises(RunStoppedError, match="the learner's process was lost"):
        drive(config, work_s=0.02, on_row=kill)
    drive(settings(path, *ASYNC, "steps=12", "rollout.workers=1"))
    assert flat(trained(path)) == list(range(48))
    assert [row.step for row in Run.open(path).rows] == list(range(1, 13))


def test_an_interrupt_saves_everything(tmp_path):
    path = tmp_path / "r"
    seen = []
    with pytest.raises(InterruptedRunError, match=r"stopped after step \d of 6; continue with --resume"):
        drive(settings(path, *ASYNC), on_row=seen.append, interrupted=lambda: len(seen) == 3)
    assert len(trained(path)) == 3
    drive(settings(path, *ASYNC))
    assert flat(trained(path)) == ALL
