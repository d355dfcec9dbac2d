"""Which problems a run trains on follows from its seed, also behind an interruption, unless the task has its own."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lagproof.config import Config
from lagproof.data.rows import Row
from lagproof.runtime.train import train

PARTS = 'task.tasks=[{name = "arithmetic", label = "a", seed = 0}, {name = "arithmetic", label = "b", seed = 0}]'
MIXTURE = ("task.name=mixture", PARTS)


def config(path: Path, *overrides: str) -> Config:
    small = ("rollout.prompts=4", "rollout.samples=2", "steps=3", "eval.every=0", "save.every=1", "learner.lr=2e-4")
    return Config.load(None, [*small, f"run_dir={json.dumps(str(path))}", *overrides])


def prompts(path: Path) -> list[str]:
    return [
        row["problem_id"] + str(row["prompt_ids"])
        for file in sorted((path / "rollouts").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]


@pytest.mark.parametrize("task", [(), MIXTURE], ids=["generator", "mixture"])
def test_the_runs_seed_orders_the_problems(tmp_path: Path, task: tuple[str, ...]) -> None:
    runs = {"one": ("seed=1",), "two": ("seed=2",), "own": ("seed=2", "task.seed=1")}
    for name, overrides in runs.items():
        train(config(tmp_path / name, *task, *overrides))
    one, two, own = (prompts(tmp_path / name) for name in runs)
    assert one == prompts(tmp_path / "one") and len(one) == 24
    assert one != two
    assert one[:8] == own[:8]  # of the first step; which batches are tied depends on the samples


def test_an_interrupted_run_goes_on_in_its_own_order(tmp_path: Path) -> None:
    def stop(row: Row) -> None:
        if row.step == 2:
            raise KeyboardInterrupt

    train(config(tmp_path / "whole", *MIXTURE, "seed=3"))
    cut = config(tmp_path / "cut", *MIXTURE, "seed=3")
    with pytest.raises(KeyboardInterrupt):
        train(cut, on_step=stop)
    train(cut, resume=True)
    assert prompts(tmp_path / "cut") == prompts(tmp_path / "whole")
