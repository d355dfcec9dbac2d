"""A run under a staleness threshold: aged as the threshold says, deterministic, and resumable bit for bit."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM

from lagproof.config import Config
from lagproof.errors import ConfigError, InterruptedRunError, RunDirError
from lagproof.runtime import train as train_module
from lagproof.runtime.train import train
from lagproof.tasks.arithmetic import ArithmeticTask
from lagproof.tasks.task import Grade

STEPS, PROMPTS, EVERY, THRESHOLD = 12, 6, 3, 0.75
SMALL = (
    f"rollout.prompts={PROMPTS}",
    "rollout.samples=4",
    f"steps={STEPS}",
    "eval.every=5",
    "eval.prompts=16",
    "save.every=4",
    f"schedule.broadcast_every={EVERY}",
    f"schedule.staleness_threshold={THRESHOLD}",
    "learner.lr=2e-4",
    "objective.name=grpo",
)


@pytest.fixture(scope="module", autouse=True)
def every_group_has_a_signal() -> Iterator[None]:
    """No batch is tied, so that the ages follow from the threshold alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ArithmeticTask, "grade", lambda self, answers: [Grade(i % 2, "alternating") for i in range(len(answers))]
        )
        yield


def config(path: Path, *overrides: str) -> Config:
    return Config.load(None, [*SMALL, f"run_dir={json.dumps(str(path))}", *overrides])


def timeless(path: Path) -> list[dict]:
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def rollouts(path: Path) -> list[dict]:
    return [row for file in sorted((path / "rollouts").glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def weights(path: Path) -> dict[str, torch.Tensor]:
    newest = sorted((path / "checkpoints").glob("step-*"))[-1]
    return AutoModelForCausalLM.from_pretrained(newest).state_dict()


def assert_same_run(path: Path, reference: Path) -> None:
    assert timeless(path) == timeless(reference)
    assert rollouts(path) == rollouts(reference) and len(rollouts(path)) == STEPS * PROMPTS * 4
    expected = weights(reference)
    assert all(torch.equal(w, expected[name]) for name, w in weights(path).items())


def expected_ages(threshold: float, every: int, prompts: int, steps: int) -> list[list[int]]:
    """A queue of sampled prompts, first come first trained; a broadcast fills it up to ``floor((1 + s) n B)``."""
    queue: deque[int] = deque()
    left = steps * prompts
    ages: list[list[int]] = []
    for step in range(steps):
        if step % every == 0:
            fresh = min(math.floor((1 + threshold) * every * prompts) - len(queue), left)
            queue.extend([step] * fresh)
            left -= fresh
        ages.append([step - queue.popleft() for _ in range(prompts)])
    return ages


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, every_group_has_a_signal: None) -> Path:
    path = tmp_path_factory.mktemp("threshold") / "run"
    assert train(config(path)).steps == STEPS
    return path


def test_the_same_configuration_gives_the_same_bits(reference: Path, tmp_path: Path) -> None:
    train(config(tmp_path / "r"))
    assert_same_run(tmp_path / "r", reference)


def test_the_threshold_is_saved_and_batches_ahead_is_not(reference: Path) -> None:
    saved = Config.load(reference / "config.toml").schedule
    assert (saved.staleness_threshold, saved.broadcast_every, saved.batches_ahead) == (THRESHOLD, EVERY, None)


def test_ages_are_those_of_a_queue(reference: Path) -> None:
    expected = expected_ages(THRESHOLD, EVERY, PROMPTS, STEPS)
    assert any(len(set(ages)) > 1 for ages in expected) and max(map(max, expected)) == 5  # mixed batches, and late ones
    found = timeless(reference)[1:]
    assert [row["age_max"] for row in found] == [max(ages) for ages in expected]
    counted: list[Counter[int]] = [Counter() for _ in range(STEPS)]
    for row in rollouts(reference):
        (version,) = set(row["version"])
        counted[row["step"] - 1][row["step"] - 1 - version] += 1
    assert counted == [Counter(4 * ages) for ages in expected]  # 4 samples a prompt


def test_without_staleness_every_step_is_on_policy(tmp_path: Path) -> None:
    overrides = ("schedule.broadcast_every=1", "schedule.staleness_threshold=0", "steps=3", "eval.every=0")
    train(config(tmp_path / "r", *overrides))
    assert [row["age_max"] for row in timeless(tmp_path / "r")] == [0, 0, 0]


@pytest.mark.parametrize("at", [2, 4, 7])
def test_it_goes_on_after_an_interrupt(
    at: int, reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "r", []

    class Ask:
        def __enter__(self):
            return lambda: len(seen) > at

        def __exit__(self, *error):
            return None

    with monkeypatch.context() as patch:
        patch.setattr(train_module, "interruptible", Ask)
        with pytest.raises(InterruptedRunError):
            train(config(path), on_step=seen.append)
    assert timeless(path)[-1]["step"] == at < STEPS
    train(config(path), resume=True)
    assert_same_run(path, reference)


def test_it_goes_on_from_an_earlier_checkpoint(reference: Path, tmp_path: Path) -> None:
    path = tmp_path / "r"
    shutil.copytree(reference, path)
    (path / "result.json").unlink()
    shutil.rmtree(path / "checkpoints" / f"step-{STEPS:06d}")
    assert [p.name for p in (path / "checkpoints").iterdir()] == ["step-000008"]
    train(config(path), resume=True)
    assert_same_run(path, reference)


def test_another_threshold_is_another_run(reference: Path, tmp_path: Path) -> None:
    path = tmp_path / "r"
    shutil.copytree(reference, path)
    (path / "result.json").unlink()
    with pytest.raises(RunDirError, match=r"schedule\.staleness_threshold"):
        train(config(path, "schedule.staleness_threshold=0.5"), resume=True)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "schedule.batches_ahead=2",
            r"staleness_threshold = 0\.75 and schedule\.batches_ahead = 2: exclude each other",
        ),
        ("schedule.staleness_threshold=-0.1", r"staleness_threshold = -0\.1: must be >= 0"),
        ("schedule.staleness_threshold=inf", "finite"),
        ("schedule.staleness_threshold=nan", "finite"),
    ],
)
def test_what_is_refused(override: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        train(config(tmp_path / "r", override))
    assert not (tmp_path / "r").exists()
