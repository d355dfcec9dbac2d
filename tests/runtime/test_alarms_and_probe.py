"""Alarms and probes of a whole run: written, told, and the same after a restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lagproof.config import Config
from lagproof.data.rows import Row
from lagproof.errors import InterruptedRunError
from lagproof.monitor.alarm import alarms
from lagproof.runtime import train as train_module
from lagproof.runtime.train import train

SMALL = (
    "rollout.prompts=8",
    "rollout.samples=4",
    "steps=9",
    "eval.every=0",
    "save.every=4",
    "save.rollouts=false",
    "schedule.broadcast_every=2",
    "schedule.batches_ahead=4",
    "learner.lr=3e-4",
    "alarm.window=2",
    "alarm.d_bar=[0.001, 0.2]",
    "alarm.reward=[1.0, 0.0]",
    "probe.every=2",
)


def config(path: Path, *overrides: str) -> Config:
    return Config.load(None, [*SMALL, f"run_dir={json.dumps(str(path))}", *overrides])


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def timeless(path: Path) -> list[dict]:
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in lines(path / "metrics.jsonl")]


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> tuple[Path, list]:
    path, told = tmp_path_factory.mktemp("reference") / "run", []
    train(config(path), on_alarm=told.append)
    return path, told


def test_alarms_are_written_as_they_are_told_and_as_the_history_rings_them(reference):
    path, told = reference
    written = lines(path / "alarms.jsonl")
    assert written == [alarm.to_dict() for alarm in told]
    assert {"mismatch", "reward_collapse"} <= {alarm["name"] for alarm in written}
    assert written == [
        a.to_dict()
        for a in alarms(map(Row.parse, lines(path / "metrics.jsonl")), Config.load(path / "config.toml").alarm)
    ]


def test_a_probe_runs_when_it_is_due_and_splits_every_token(reference):
    path, _ = reference
    rows = lines(path / "metrics.jsonl")
    assert [row["step"] for row in rows if "probe/d_bar" in row] == [2, 4, 6, 8]
    for row in rows[1::2]:
        assert row["probe/unattributed"] == 0 and row["probe/tokens"] == row["tokens"]
        assert row["probe/policy"] + row["probe/engine"] == pytest.approx(row["probe/d_bar"], rel=1e-9)
        assert row["probe/d_bar"] == pytest.approx(row["d_bar"], rel=1e-4)
        assert row["probe/engine_abs"] < 1e-5
    assert rows[-2]["probe/policy_abs"] > 1e-3 and rows[-2]["age_max"] >= 4


@pytest.mark.parametrize("stop_after", [4, 6])
def test_a_restart_rings_and_probes_as_if_nothing_had_happened(reference, tmp_path, monkeypatch, stop_after):
    path, _ = reference
    real = train_module._join

    def impatient(*args, **kwargs):
        run = real(*args, **kwargs)
        run._interrupted = lambda: run._scheduler.version == stop_after
        return run

    monkeypatch.setattr(train_module, "_join", impatient)
    with pytest.raises(InterruptedRunError):
        train(config(tmp_path / "run"))
    monkeypatch.undo()
    rung_before = (tmp_path / "run" / "alarms.jsonl").read_text()
    with (tmp_path / "run" / "alarms.jsonl").open("a") as file:
        file.write('{"step": 99, "name": "of a later step that is forgotten"}\n')
    told: list = []
    train(config(tmp_path / "run"), resume=True, on_alarm=told.append)
    assert timeless(tmp_path / "run") == timeless(path)
    assert (tmp_path / "run" / "alarms.jsonl").read_text() == (path / "alarms.jsonl").read_text()
    assert len(rung_before.splitlines()) + len(told) == len(lines(path / "alarms.jsonl"))


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_coarse_sampler_shows_in_the_engines_part_alone(reference, tmp_path, precision):
    path, _ = reference
    train(config(tmp_path / "run", f"rollout.precision={precision}"))
    exact, coarse = lines(path / "metrics.jsonl"), lines(tmp_path / "run" / "metrics.jsonl")
    for a, b in zip(exact[1::2], coarse[1::2], strict=True):
        assert a["probe/engine_abs"] < 1e-5 and b["probe/engine_abs"] > 5e-4
    # other tokens are sampled, but the policy moves as far as it did
    a, b = (sum(row["probe/policy_abs"] for row in rows[1::2]) for rows in (exact, coarse))
    assert b == pytest.approx(a, rel=0.4)


def test_no_more_versions_are_kept_than_allowed(tmp_path):
    train(config(tmp_path / "run", "probe.versions=1", "steps=8"))
    found = [row["probe/unattributed"] for row in lines(tmp_path / "run" / "metrics.jsonl") if "probe/tokens" in row]
    assert found[0] == 0.0 and found[-1] == 1.0  # the one version kept is newer than the batch by then
    kept = list((tmp_path / "run" / "checkpoints").glob("step-000008/run/kept-*.safetensors"))
    assert len(kept) <= 1


def test_without_a_probe_nothing_is_kept(tmp_path):
    train(config(tmp_path / "run", "probe.every=0", "steps=4"))
    assert not any(key.startswith("probe/") for row in lines(tmp_path / "run" / "metrics.jsonl") for key in row)
    assert not list((tmp_path / "run" / "checkpoints").glob("*/run/kept-*"))


def test_a_quiet_run_has_no_file_of_alarms(tmp_path):
    train(config(tmp_path / "run", "alarm.window=8", "steps=3"))  # no window is full
    assert not (tmp_path / "run" / "alarms.jsonl").exists()
