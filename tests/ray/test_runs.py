"""Whole runs with a model: the bits of one process, the ages of the schedule, and a record that repeats them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from stubs import processes_of

from lagproof.config import Config
from lagproof.errors import ConfigError, MissingPackageError, RunDirError, RunStoppedError
from lagproof.runtime.ray import cluster as cluster_module
from lagproof.runtime.ray import executor as executor_module
from lagproof.runtime.schedule import Periodic, ages
from lagproof.runtime.train import train

SMALL = (
    "rollout.prompts=6",
    "rollout.samples=4",
    "steps=6",
    "eval.every=3",
    "eval.prompts=8",
    "save.every=2",
    "rollout.workers=2",
)
SYNCHRONOUS = ("schedule.broadcast_every=1", "schedule.batches_ahead=0")


def config(path: Path, *overrides: str) -> Config:
    return Config.load(None, [*SMALL, f"run_dir={json.dumps(str(path))}", *overrides])


def timeless(path: Path) -> list[dict]:
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def weights(path: Path) -> bytes:
    return (path / "checkpoints" / "step-000006" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("reference") / "r"
    train(config(path, *SYNCHRONOUS))
    return path


@pytest.mark.usefixtures("ray_here")
class TestBits:
    @pytest.mark.parametrize("where", ["workers", "learner"])
    def test_a_synchronous_schedule_gives_the_bits_of_one_process(self, reference, tmp_path, where):
        train(config(tmp_path / "r", *SYNCHRONOUS, "runtime=ray", f"eval.where={where}"))
        assert timeless(tmp_path / "r") == timeless(reference)
        assert weights(tmp_path / "r") == weights(reference)
        rows = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
        for row in rows[1:]:
            assert row["time/learner_wait_s"] > 0 and row["time/rollout_wait_s"] > 0
            assert max(row["time/learner_wait_s"], row["time/rollout_wait_s"]) < row["time/step_s"]

    def test_ages_and_the_record(self, tmp_path):
        path = tmp_path / "r"
        train(config(path, "schedule.broadcast_every=2", "schedule.batches_ahead=1", "runtime=ray"))
        assert [row["age_max"] for row in timeless(path)[1:]] == ages(Periodic(2, 1), 6)
        again = {"runtime": "inline", "replay": str(path), "run_dir": f"{path}-replay"}
        train(Config.of_table(Config.load(path / "config.toml").to_dict() | again))
        assert timeless(Path(f"{path}-replay")) == timeless(path)
        assert weights(Path(f"{path}-replay")) == weights(path)

    def test_a_run_with_a_killed_worker_is_repeated_as_it_was(self, tmp_path):
        path = tmp_path / "r"

        def kill(row):
            if row.step == 2:
                os.kill(processes_of(path)[1][0], signal.SIGKILL)

        train(config(path, "schedule.broadcast_every=1", "schedule.batches_ahead=1", "runtime=ray"), on_step=kill)
        assert "was lost" in (path / "notes.txt").read_text()
        again = {"runtime": "inline", "replay": str(path), "run_dir": f"{path}-replay"}
        train(Config.of_table(Config.load(path / "config.toml").to_dict() | again))
        assert timeless(Path(f"{path}-replay")) == timeless(path)


class TestCommandLine:
    def test_interrupted_then_killed_then_resumed(self, reference, tmp_path):
        """With another number of workers at the end, and in one process: bits as if nothing had happened."""
        path = tmp_path / "r"
        new = [*SMALL, *SYNCHRONOUS, "runtime=ray", f"run_dir={json.dumps(str(path))}"]
        first = launched([part for override in new for part in ("--set", override)])
        until(lambda: steps(path) >= 2, first)
        os.killpg(first.pid, signal.SIGINT)
        assert first.wait(timeout=120) == 130, first.stderr
        gone(path)

        second = launched(["--resume", str(path)])
        before = steps(path)
        until(lambda: steps(path) > before, second)
        learner, _ = processes_of(path)
        os.kill(second.pid, signal.SIGKILL)
        second.wait()
        until(lambda: not Path(f"/proc/{learner}").exists(), None)

        third = launched(["--resume", str(path), "--set", "runtime=inline"])
        assert third.wait(timeout=120) == 0
        assert timeless(path) == timeless(reference)
        assert weights(path) == weights(reference)


def launched(arguments: list[str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "lagproof", "train", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def steps(path: Path) -> int:
    file = path / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def until(holds: Callable[[], bool], process: subprocess.Popen | None, limit_s: float = 180.0) -> None:
    """Wait for something in other processes, which tell nobody."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < limit_s and (process is None or process.poll() is None)
        time.sleep(0.05)


def gone(path: Path) -> None:
    learner, workers = processes_of(path)
    assert not any(Path(f"/proc/{number}").exists() for number in (learner, *workers))


class TestBadInput:
    def test_without_ray(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        with pytest.raises(MissingPackageError, match=r"ray is not installed: pip install 'lagproof\[ray\]'"):
            train(config(tmp_path / "r", "runtime=ray"))
        assert not (tmp_path / "r").exists()

    @pytest.mark.parametrize(
        ("address", "message"),
        [
            ("127.0.0.1:1", r"no Ray cluster answers within 5 s .*start one with ray start --head"),
            ("ray://somewhere", "must be host:port"),
            ("nonsense", "must be host:port"),
        ],
    )
    def test_an_address_that_does_not_answer(self, tmp_path, address, message, monkeypatch):
        monkeypatch.setattr(cluster_module.ray_package(), "is_initialized", lambda: False)
        with pytest.raises(ConfigError, match=message):
            train(config(tmp_path / "r", "runtime=ray", f'ray.address="{address}"', "ray.start_timeout_s=5"))
        assert not (tmp_path / "r").exists()

    @pytest.mark.usefixtures("ray_here")
    def test_a_worker_with_another_version(self, tmp_path, monkeypatch):
        theirs = executor_module.versions() | {"lagproof": "9.9"}
        monkeypatch.setattr(executor_module, "versions", lambda: theirs)
        with pytest.raises(RunStoppedError, match=r"has lagproof \S+ instead of 9\.9"):
            train(config(tmp_path / "r", "runtime=ray", "rollout.workers=1"))
        assert not (tmp_path / "r").exists()

    def test_more_processes_than_cores(self, tmp_path, monkeypatch):
        said: list[str] = []
        monkeypatch.setattr(cluster_module.ray_package(), "is_initialized", lambda: False)
        monkeypatch.setattr(cluster_module, "start_local", lambda num_cpus: (_ for _ in ()).throw(InterruptedError))
        with pytest.raises(InterruptedError):
            train(config(tmp_path / "r", "runtime=ray", "rollout.workers=999"), on_note=said.append)
        assert any(
            "rollout.workers = 999 and a learner, with ray.threads = 1, want 1000 cores and there" in s for s in said
        )

    def test_other_settings_are_listed(self, reference, tmp_path):
        with pytest.raises(RunDirError, match=r"steps was 6 and is 9; task\.terms"):
            train(config(reference, *SYNCHRONOUS, "runtime=ray", "steps=9", "task.terms=3"), resume=True)
