"""Run directories with numbers as real runs have them, without training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lagproof.config import Config, Named, ScheduleConfig
from lagproof.data.rows import Row
from lagproof.runs.lags import LagName, to_schedule
from lagproof.runs.run import Run, RunResult


def make_run(
    path: Path,
    objective: str = "grpo",
    *,
    lag: int = 1,
    seed: int = 0,
    steps: int = 40,
    options: dict[str, Any] | None = None,
    stop_at: int | None = None,
    evaluate: bool = True,
    rollouts: bool = True,
    alarms: Sequence[tuple[int, str, str]] = (),
) -> Path:
    """A run that ends at ``stop_at`` without a result, or finished if that is absent."""
    config = Config(
        run_dir=str(path),
        seed=seed,
        steps=steps,
        objective=Named(objective, options or {}),
        schedule=ScheduleConfig(max(lag, 1), lag),
    )
    rng = np.random.default_rng([seed, lag, sum(map(ord, objective))])
    path.mkdir(parents=True)
    config.save_toml(path / "config.toml")
    fails = objective in ("naive", "gpg") and lag >= 4
    last = steps if stop_at is None else stop_at
    rows: list[dict[str, Any]] = [{"step": 0} | ({"eval/accuracy": 0.5} if evaluate else {})]
    for step in range(1, last + 1):
        level = 0.25 + 0.15 * np.sin(step / 6) if fails and step > steps / 8 else 0.62 - 0.12 * np.exp(-step / 30)
        row = {"step": step, **_training(rng, step, lag, fails, level)}
        if objective.startswith("sat"):
            row |= {"sat/q": 0.1, "sat/gated": 0.1, "sat/changed": float(0.01 + 0.005 * rng.random())}
        if evaluate and step % 10 == 0:
            row["eval/accuracy"] = float(np.clip(level + 0.02 * rng.standard_normal(), 0, 1))
        rows.append(row)
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if rollouts:
        write_rollouts(path / "rollouts" / f"step-{last:06d}.parquet", rng, last, 0.01 * lag * (8 if fails else 1))
    if alarms:
        lines = [{"step": s, "name": "x", "severity": severity, "sentence": text} for s, severity, text in alarms]
        (path / "alarms.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if stop_at is None:
        result = {"reason": "finished", "success": True, "steps": steps, "metrics": {}}
        (path / "result.json").write_text(json.dumps(result))
    return path


def run_of(
    rows: Iterable[Mapping[str, Any]],
    label: str = "grpo",
    *,
    lag: LagName = 1,
    seed: int = 0,
    steps: int = 4,
    path: Path = Path("x"),
) -> Run:
    """A finished run as it is read back, from rows under flat keys, without a directory."""
    config = {"steps": steps, "seed": seed, "schedule": to_schedule(lag), "objective": {"name": label}}
    return Run(path, config, tuple(map(Row.parse, rows)), result=RunResult(path, "finished", True, steps), name=label)


def write_rollouts(file: Path, rng: np.random.Generator, steps: int, scale: float) -> None:
    """Eight responses a step with heavy-tailed ``d``."""
    file.parent.mkdir(exist_ok=True)
    rows: dict[str, list[Any]] = {"step": [], "policy_logp": [], "sampler_logp": []}
    for step in range(1, steps + 1):
        for _ in range(8):
            sampler = -rng.exponential(0.3, size=8)
            rows["step"].append(step)
            rows["sampler_logp"].append(sampler.tolist())
            rows["policy_logp"].append((sampler + scale * rng.standard_t(2, size=8)).tolist())
    kinds = {"step": pa.int64(), "policy_logp": pa.list_(pa.float32()), "sampler_logp": pa.list_(pa.float32())}
    pq.write_table(pa.table({name: pa.array(rows[name], kind) for name, kind in kinds.items()}), file)


def _training(rng: np.random.Generator, step: int, lag: int, fails: bool, level: float) -> dict[str, float]:
    d_bar = 0.007 * lag * (6 if fails else 1) * float(np.exp(0.2 * rng.standard_normal())) if step > 1 else 4e-7
    age = float(min(step - 1, lag + (step - 1 - lag) % max(lag, 1)))
    return {
        "reward": float(np.clip(level + 0.05 * rng.standard_normal(), 0, 1)),
        "d_bar": d_bar,
        "k3": d_bar**2 * 2,
        "scale_positive": 0.2 + 0.01 * float(rng.random()),
        "scale_negative": 0.35 + 0.01 * float(rng.random()),
        "mass_positive": 0.3,
        "mass_negative": 0.31,
        "clipped_high": 0.01 * float(rng.random()),
        "clipped_low": 0.02 * float(rng.random()),
        "entropy": 0.25,
        "grad_norm": 3.0 + float(rng.random()),
        "response_tokens": 7.8,
        "truncated": 0.0,
        "zero_variance_groups": 0.125,
        "age_mean": age,
        "age_max": age,
        "time/sample_s": 0.02,
        "time/learn_s": 0.04,
        "time/tokens_per_s": 16000.0,
    }
