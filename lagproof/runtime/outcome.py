"""How a run has ended: in ``result.json``, in a value, and in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lagproof.config import Config
from lagproof.errors import RunStoppedError
from lagproof.runs.run_dir import RunDir
from lagproof.runtime.schedule import Stop


@dataclass(frozen=True)
class Result:
    """What became of a run.

    Attributes:
        run_dir: its directory.
        reason: why it ended, in one word: ``finished``, ``data_ended``, ``no_signal``, ...
        success: whether it did what it was asked to do.
        steps: optimiser steps trained.
        metrics: those of the last row, and of the last evaluation.
    """

    run_dir: Path
    reason: str
    success: bool
    steps: int
    metrics: Mapping[str, float]


def finished(path: Path) -> Result | None:
    """What became of a run that has ended already; one that was given up is told again as it was then."""
    file = path / "result.json"
    if not file.is_file():
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    if not found["success"]:
        raise RunStoppedError(f"{found['detail']} (run {path}, which has ended after step {found['steps']})")
    return Result(path, found["reason"], found["success"], found["steps"], found["metrics"])


def finish(config: Config, run_dir: RunDir, stop: Stop) -> Result:
    last: dict[str, float] = {}
    evaluated: dict[str, float] = {}
    with run_dir.metrics.open(encoding="utf-8") as rows:
        for row in map(json.loads, rows):
            last = {k: v for k, v in row.items() if isinstance(v, int | float)}
            evaluated = {k: v for k, v in last.items() if k.startswith("eval/")} or evaluated
    steps, metrics = int(last["step"]), last | evaluated
    result = Result(run_dir.path, str(stop.reason), stop.reason.success, steps, metrics)
    detail = stop.detail + (_why_no_signal(last) if result.reason == "no_signal" else "")
    run_dir.finish(
        {
            "reason": result.reason,
            "success": result.success,
            "detail": detail,
            "steps": steps,
            "metrics": metrics,
        }
    )
    if not result.success:
        raise RunStoppedError(f"{detail} (run {run_dir.path}, after step {steps} of {config.steps})")
    return result


def _why_no_signal(last: Mapping[str, float]) -> str:
    """What to look at: the right answers where none could be read, else what became of the last batch."""
    if not last.get("samples"):
        return ""
    samples = int(last["samples"])
    if last.get("unscored") == samples:
        return (
            f"; none of the {samples} responses of the last batch got a reward, since the right answers cannot be "
            "read: correct them, or name their column with task.gold_column"
        )
    return (
        f"; of the {samples} responses of the last batch {last.get('truncated', 0.0):.0%} were cut off, "
        f"{int(last.get('graded/unparsed', 0))} had no answer that could be read, and the mean reward was "
        f"{last.get('reward', 0.0):.3f}: raise rollout.max_tokens or rollout.samples, give worked examples "
        "(task.shots), or take problems that this model sometimes solves"
    )
