"""A recorded schedule, repeated; and what a run with several workers records of itself."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from lagproof.config import Config
from lagproof.errors import InputError, RunDirError, RunStoppedError
from lagproof.runs.run import Run
from lagproof.runtime.schedule import (
    Begin,
    Periodic,
    Plan,
    Publish,
    SampleFinished,
    Scheduler,
    Start,
    StepFinished,
    WeightsLoaded,
    WorkerJoined,
    from_json,
)
from lagproof.runtime.train import _plan, resolve, train
from lagproof.tasks import build

SMALL = (
    "rollout.prompts=6",
    "rollout.samples=4",
    "steps=6",
    "eval.every=3",
    "eval.prompts=8",
    "save.every=2",
    "schedule.broadcast_every=2",
    "schedule.batches_ahead=1",
)


def config(path: Path, *overrides: str) -> Config:
    return Config.load(None, [*SMALL, f"run_dir={json.dumps(str(path))}", *overrides])


def timeless(path: Path) -> list[dict]:
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def replayed(path: Path, *overrides: str) -> Path:
    out = path.with_name(path.name + "-replay")
    train(Config.of_table(Run.open(path).config | {"run_dir": str(out), "replay": str(path)}, overrides))
    return out


@pytest.fixture(scope="module", params=[1, 3])
def run(request, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("run") / "r"
    train(config(path, f"rollout.workers={request.param}"))
    return path


def test_the_record_is_the_whole_schedule(run):
    """The commands that follow from the recorded events end the run after the same steps, with the books balanced."""
    settings = resolve(Config.load(run / "config.toml"))
    scheduler = Scheduler(_plan(settings, build("arithmetic")))
    for record in Run.open(run).schedule:
        scheduler.handle(from_json({k: v for k, v in record.items() if k != "call"}))
        scheduler.check()
    assert scheduler.stopped is not None and scheduler.stopped.reason.success
    assert asdict(scheduler.counts) == {
        "started": 36,
        "trained": 36,
        "buffered": 0,
        "running": 0,
        "failed": 0,
        "dropped": 0,
    }


def test_workers_share_the_prompts_evenly(run):
    records = Run.open(run).schedule
    workers = sum(record["event"] == "worker_joined" for record in records)
    calls: dict[int, int] = {}
    for record in records:
        if record["event"] == "sample_finished":
            calls[record["call"]] = calls.get(record["call"], 0) + 1
    assert set(list(calls.values())[workers:]) == {6 // workers}


def test_a_replay_has_the_metrics_and_weights_of_its_run(run):
    out = replayed(run)
    assert timeless(out) == timeless(run)
    weights = [(p / "checkpoints" / "step-000006" / "model.safetensors").read_bytes() for p in (run, out)]
    assert weights[0] == weights[1]
    assert Run.open(out).schedule == Run.open(run).schedule


def test_a_replay_may_look_deeper(run, tmp_path):
    replayed(run, "probe.every=1", f"run_dir={json.dumps(str(tmp_path / 'deep'))}")
    rows = timeless(tmp_path / "deep")
    assert [{k: v for k, v in row.items() if not k.startswith("probe/")} for row in rows] == timeless(run)
    assert all("probe/d_bar" in row for row in rows[1:])


class TestWhatCannotBeRepeated:
    @pytest.fixture
    def short(self, tmp_path) -> Path:
        train(config(tmp_path / "r", "steps=2", "eval.every=0"))
        return tmp_path / "r"

    def test_another_outcome_is_noticed(self, short):
        file = short / "schedule.jsonl"
        file.write_text(file.read_text().replace('"outcome": "trained"', '"outcome": "non_finite"', 1))
        with pytest.raises(RunStoppedError, match=r"says StepFinished.*non_finite.*here it is StepFinished.*trained"):
            replayed(short)

    def test_a_record_that_ends_early_says_so(self, short):
        file = short / "schedule.jsonl"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:-3]))
        with pytest.raises(RunStoppedError, match="ends here: the run was stopped"):
            replayed(short)

    def test_a_run_that_was_resumed(self, short):
        with (short / "schedule.jsonl").open("a") as file:
            file.write('{"event": "resumed", "version": 2}\n')
        with pytest.raises(InputError, match="was resumed at version 2"):
            replayed(short)

    def test_a_run_without_a_record(self, short):
        (short / "schedule.jsonl").unlink()
        with pytest.raises(RunDirError, match="missing or empty"):
            replayed(short)

    def test_a_replay_is_not_resumed(self, short):
        out = replayed(short)
        with pytest.raises(RunDirError, match="start it again with --replay"):
            train(Config.load(out / "config.toml"), resume=True)


def test_weights_that_all_workers_have_are_one_event():
    """Else the first worker to have them would get every prompt."""
    scheduler = Scheduler(Plan(Periodic(1, 0), prompts_per_step=4, steps=2))
    scheduler.handle(WorkerJoined(0, 0), WorkerJoined(1, 0), Begin())
    scheduler.handle(*(SampleFinished(ticket, 0, 0) for ticket in range(4)))
    assert scheduler.handle(StepFinished(0)) == [Publish(1)]
    started = scheduler.handle(WeightsLoaded(None, 1))
    assert [(c.worker, c.version) for c in started if isinstance(c, Start)] == [(0, 1), (1, 1), (0, 1), (1, 1)]
