"""The page of metrics names what a run writes, what rings and what is recognised, and its code runs."""

from __future__ import annotations

import dataclasses
import doctest
import json
import re
from pathlib import Path

import pytest

from lagproof.config import AlarmConfig, Config, ProbeConfig
from lagproof.dumps.columns import OTHERS
from lagproof.dumps.trainers import TRAINERS
from lagproof.monitor.alarm import RULES
from lagproof.runtime.train import train

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMES = set(re.findall(r"`([a-z_0-9/]+)`", TEXT))
GROUP = re.compile(r"^(sign/positive|sign/negative|age/[0-9-]+)/")
ENDINGS = ("q50", "q90", "q99", "q999", "max")


def is_named(key: str) -> bool:
    key = GROUP.sub("", key)
    stem, _, ending = key.rpartition("_")
    return key in NAMES or (ending in ENDINGS and f"{stem}_q50" in NAMES)


@pytest.mark.parametrize("objective", ["sat-grpo", "asympo"])
def test_every_key_of_a_run_is_on_the_page(objective, tmp_path):
    overrides = [
        "steps=3",
        "rollout.prompts=4",
        "eval.every=2",
        "eval.prompts=8",
        "probe.every=2",
        "save.rollouts=false",
    ]
    train(
        Config.load(None, [*overrides, f"objective.name={objective}", f"run_dir={json.dumps(str(tmp_path / 'run'))}"])
    )
    keys = {key for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines() for key in json.loads(line)}
    assert len(keys) > 60 and not [key for key in sorted(keys - {"step"}) if not is_named(key)]


def test_every_alarm_threshold_and_column_is_on_the_page():
    assert set(RULES) <= NAMES
    keys = [f"alarm.{f.name}" for f in dataclasses.fields(AlarmConfig)]
    keys += [f"probe.{f.name}" for f in dataclasses.fields(ProbeConfig)]
    assert not [key for key in keys if f"`{key}" not in TEXT]
    columns = {name for trainer in TRAINERS for name in (trainer.policy, trainer.sampler)} | {
        n for names in OTHERS.values() for n in names
    }
    assert not sorted(columns - NAMES - {"response_id", "sample_id"})
    assert all(trainer.name in TEXT for trainer in TRAINERS if trainer.name != "lagproof")


def test_the_code_of_the_page_runs():
    parsed = doctest.DocTestParser().get_doctest(TEXT, {}, "metrics.md", str(PAGE), 0)
    assert len(parsed.examples) >= 3
    assert doctest.DocTestRunner().run(parsed).failed == 0
