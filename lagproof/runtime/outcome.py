"""How a run has ended: in ``result.json``, in a value, and in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lagproof.config import Config
from lagproof.data.rows import Row
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
    rows = run_dir.rows()
    last, steps = rows[-1], rows[-1].step
    evaluated = next((row for row in reversed(rows) if row.get("eval/accuracy") is not None), None)
    metrics = {name: value for name, value in last.flat.items() if name != "outcome"}
    if evaluated is not None:
        metrics |= {key.flat: value for key, value in evaluated.values.items() if key.name.startswith("eval/")}
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


def _why_no_signal(last: Row) -> str:
    """What to look at: the right answers where none could be read, else what became of the last batch."""
    samples = int(last.get("samples") or 0)
    if not samples:
        return ""
    if last.get("unscored") == samples:
        return (
            f"; none of the {samples} responses of the last batch got a reward, since the right answers cannot be "
            "read: correct them, or name their column with task.gold_column"
        )
    return (
        f"; of the {samples} responses of the last batch {last.get('truncated') or 0.0:.0%} were cut off, "
        f"{int(last.get('graded/unparsed') or 0)} had no answer that could be read, and the mean reward was "
        f"{last.get('reward') or 0.0:.3f}: raise rollout.max_tokens or rollout.samples, give worked examples "
        "(task.shots), or take problems that this model sometimes solves"
    )
