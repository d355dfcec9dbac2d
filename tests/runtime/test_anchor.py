"""Runs whose objective reads the anchor: the learner's own log-probabilities at the versions that sampled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import lagproof as lp
from lagproof.config import Config
from lagproof.errors import ConfigError, InterruptedRunError, RunStoppedError
from lagproof.models.loading import load
from lagproof.runtime.train import train

SMALL = (
    "rollout.prompts=8",
    "rollout.samples=4",
    "steps=9",
    "eval.every=0",
    "save.every=1",
    "save.keep=9",
    "schedule.broadcast_every=2",
    "schedule.batches_ahead=3",
    "learner.lr=1e-3",
    "rollout.precision=int8",
    "objective.name=decoupled-grpo",
    "alarm.window=1",
)


def config(path: Path, *overrides: str) -> Config:
    return Config.load(None, [*SMALL, f"run_dir={json.dumps(str(path))}", *overrides])


def rows(path: Path) -> list[dict]:
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in lines]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> lp.Run:
    path = tmp_path_factory.mktemp("anchor") / "run"
    train(config(path))
    return lp.Run.open(path)


def trained(run: lp.Run):
    """Every trained response: its step, ids, versions and log-probabilities."""
    for table in run.rollouts():
        for row in table.to_pylist():
            if row["step"] is not None:
                yield row


def test_it_is_what_the_weights_of_the_version_give_the_token(run, close):
    """Each saved version's model, called plainly on prompt and response, has the last word."""
    models = {}
    compared = 0
    for row in trained(run):
        for version in set(row["version"]) - {0}:
            if version not in models:
                models[version] = load(str(run.path / "checkpoints" / f"step-{version:06d}")).model
            ids = torch.tensor([row["prompt_ids"] + row["response_ids"]])
            with torch.no_grad():
                logits = models[version](ids).logits[0].float()
            own = logits.log_softmax(-1)[:-1].gather(-1, ids[0, 1:, None]).squeeze(-1)[len(row["prompt_ids"]) - 1 :]
            at = np.array(row["version"]) == version
            close(np.array(row["anchor_logp"], dtype=np.float64)[at].tolist(), own.double().numpy()[at].tolist(), 2e-5)
            compared += int(at.sum())
    assert len(models) >= 2 and compared > 200


def test_the_parts_add_up_and_the_engine_is_in_one_of_them(run):
    for row in trained(run):
        policy, anchor, sampler = (np.array(row[f"{name}_logp"]) for name in ("policy", "anchor", "sampler"))
        age = row["step"] - 1 - np.array(row["version"])
        assert bool((policy[age == 0] == anchor[age == 0]).all())
        assert float(np.abs(anchor - sampler).max()) > 0  # int8 weights
    assert all(row["missing_anchor"] == 0 for row in rows(run.path)[0:])


def test_a_resumed_run_has_the_anchors_of_one_that_was_not_interrupted(run, tmp_path):
    seen = []

    def stop(row):
        seen.append(row.step)
        if row.step == 4:
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, InterruptedRunError)):
        train(config(tmp_path / "cut"), on_step=stop)
    train(config(tmp_path / "cut"), resume=True)
    assert rows(tmp_path / "cut") == rows(run.path)


def test_versions_that_are_not_kept_are_counted_and_named(tmp_path):
    with pytest.raises(RunStoppedError, match=r"tokens of the last batch have no anchor.*anchor_versions"):
        train(config(tmp_path / "run", "learner.anchor_versions=1", "save.every=9"))
    lost = next(row for row in rows(tmp_path / "run") if row["missing_anchor"])
    assert lost["dropped_tokens"] == lost["missing_anchor"] > 0 and lost["outcome"] == "non_finite"


def test_another_anchor_needs_no_kept_weights(tmp_path):
    for name in ("batch_start", "interpolated"):
        train(config(tmp_path / name, f"learner.anchor={name}", "save.every=9", "steps=3"))
        assert all(row["missing_anchor"] == 0 for row in rows(tmp_path / name))
    for row in trained(lp.Run.open(tmp_path / "batch_start")):
        assert row["anchor_logp"] == row["policy_logp"]
    for row in trained(lp.Run.open(tmp_path / "interpolated")):
        k = np.maximum(row["step"] - 1 - np.array(row["version"]), 1)
        policy, sampler = np.array(row["policy_logp"]), np.array(row["sampler_logp"])
        assert np.allclose(row["anchor_logp"], sampler + (k - 1) / k * (policy - sampler), atol=1e-5)


def test_an_objective_that_reads_it_is_refused_without_one(tmp_path):
    with pytest.raises(ConfigError, match=r"learner.anchor = none: decoupled-grpo compares the policy with an anchor"):
        train(config(tmp_path / "run", "learner.anchor=none"))
    assert not (tmp_path / "run").exists()
