"""Runs on a simulated clock: deterministic, really out of order, and exact about versions."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lagproof.config import Config
from lagproof.errors import ConfigError, InterruptedRunError
from lagproof.runs.run import Run
from lagproof.runtime import train as train_module
from lagproof.runtime.train import train
from lagproof.tasks.arithmetic import ArithmeticTask
from lagproof.tasks.task import Grade

STEPS, PROMPTS = 8, 4
SMALL = (
    'runtime="simulated"',
    f"rollout.prompts={PROMPTS}",
    "rollout.samples=4",
    "rollout.workers=2",
    f"steps={STEPS}",
    "eval.every=4",
    "eval.prompts=8",
    "save.every=3",
    "learner.lr=2e-4",
    "objective.name=grpo",
    "clock.tail=1.2",
    "clock.step_s=5",
)
BOUNDED = ("schedule.max_age=2", "schedule.broadcast_every=1")


@pytest.fixture(autouse=True)
def every_group_has_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ArithmeticTask, "grade", lambda self, answers: [Grade(i % 2, "alternating") for i in range(len(answers))]
    )


def config(path: Path, *overrides: str) -> Config:
    return Config.load(None, [*SMALL, f"run_dir={json.dumps(str(path))}", *overrides])


def lines(path: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in (path / name).read_text().splitlines()]


def rollouts(path: Path) -> list[dict]:
    return [row for file in sorted((path / "rollouts").glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def test_the_same_seed_gives_the_same_bits_and_the_same_times(tmp_path: Path) -> None:
    for name in ("a", "b"):
        train(config(tmp_path / name, *BOUNDED, "clock.jitter=0.2"))
    assert lines(tmp_path / "a", "metrics.jsonl") == lines(tmp_path / "b", "metrics.jsonl")
    assert rollouts(tmp_path / "a") == rollouts(tmp_path / "b")
    train(config(tmp_path / "c", *BOUNDED, "clock.jitter=0.2", "seed=1"))
    assert lines(tmp_path / "a", "metrics.jsonl") != lines(tmp_path / "c", "metrics.jsonl")


def test_prompts_finish_out_of_order_and_each_is_trained_once(tmp_path: Path) -> None:
    train(config(tmp_path / "a", *BOUNDED))
    finished = [e["ticket"] for e in lines(tmp_path / "a", "schedule.jsonl") if e["event"] == "sample_finished"]
    assert finished != sorted(finished)
    rows = rollouts(tmp_path / "a")
    assert set(Counter((row["step"], row["prompt"]) for row in rows).values()) == {4}
    assert len({row["prompt"] for row in rows}) == STEPS * PROMPTS
    ages = Counter(row["step"] - 1 - min(row["version"]) for row in rows)
    assert len(ages) >= 2 and max(ages) <= 4, ages


def test_late_prompts_are_dropped_if_asked(tmp_path: Path) -> None:
    train(config(tmp_path / "a", "schedule.max_age=1", 'schedule.late="drop"', "clock.tail=2.0", "clock.step_s=1"))
    assert max(row["step"] - 1 - min(row["version"]) for row in rollouts(tmp_path / "a")) <= 1
    assert Run.open(tmp_path / "a").lag == "a1n1drop"


@pytest.mark.parametrize("recompute", ["false", "true"])
def test_weights_in_flight_give_a_version_to_each_token(tmp_path: Path, recompute: str) -> None:
    train(config(tmp_path / "a", *BOUNDED, "rollout.in_flight=true", f"rollout.recompute_cache={recompute}"))
    rows = rollouts(tmp_path / "a")
    versions = [row["version"] for row in rows]
    assert all(v == sorted(v) for v in versions)
    assert sum(len(set(v)) > 1 for v in versions) > 5
    by_step = {row["step"]: row for row in lines(tmp_path / "a", "metrics.jsonl") if row["step"] > 0}
    for step, row in by_step.items():
        ages = [step - 1 - v for r in rows if r["step"] == step for v in r["version"]]
        assert row["age_mean"] == pytest.approx(sum(ages) / len(ages))
        assert row["age_max"] == max(ages)


def test_without_it_no_response_has_two_versions(tmp_path: Path) -> None:
    train(config(tmp_path / "a", *BOUNDED))
    assert all(len(set(row["version"])) == 1 for row in rollouts(tmp_path / "a"))


def test_the_times_of_a_run_are_simulated(tmp_path: Path) -> None:
    # No tail, one worker: a batch takes as long as its longest response, a step 5 s, a publication 1 s.
    overrides = ("schedule.broadcast_every=1", "schedule.batches_ahead=0", "clock.tail=0", "rollout.workers=1")
    train(config(tmp_path / "a", *overrides, "eval.every=0"))
    rows = rollouts(tmp_path / "a")
    for row in lines(tmp_path / "a", "metrics.jsonl"):
        longest = max(len(r["version"]) for r in rows if r["step"] == row["step"])
        published = 1.0 if row["step"] > 1 else 0.0
        assert row["time/step_s"] == pytest.approx(published + longest + 5)
        assert row["time/learner_wait_s"] == pytest.approx(published + longest)


def test_a_run_can_be_replayed_in_one_process(tmp_path: Path) -> None:
    train(config(tmp_path / "a", *BOUNDED))
    again = config(tmp_path / "b", *BOUNDED, 'runtime="inline"', f"replay={json.dumps(str(tmp_path / 'a'))}")
    train(again)
    assert rollouts(tmp_path / "a") == rollouts(tmp_path / "b")


def test_a_run_that_was_interrupted_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import contextmanager

    @contextmanager
    def once():
        asked = iter([False] * 9 + [True] * 99)
        yield lambda: next(asked)

    with monkeypatch.context() as patch, pytest.raises(InterruptedRunError):
        patch.setattr(train_module, "interruptible", once)
        train(config(tmp_path / "a", *BOUNDED))
    result = train(config(tmp_path / "a", *BOUNDED), resume=True)
    assert result.success and result.steps == STEPS
    trained = Counter(row["prompt"] for row in rollouts(tmp_path / "a"))
    assert set(trained.values()) == {4} and len(trained) == STEPS * PROMPTS


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.in_flight = True: must be false with runtime = inline"):
        config(tmp_path, 'runtime="inline"', "rollout.in_flight=true")
    with pytest.raises(ConfigError, match=r"schedule\.max_age = 1: must be >= schedule\.broadcast_every - 1 = 3"):
        config(tmp_path, "schedule.max_age=1", "schedule.broadcast_every=4")
    with pytest.raises(ConfigError, match="exclude each other"):
        config(tmp_path, "schedule.max_age=1", "schedule.staleness_threshold=0.5")
