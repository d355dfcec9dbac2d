"""Reading what a run has written so far: finished, still running, interrupted or cut off in the middle of a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagproof.data.rows import Row
from lagproof.data.slices import Slice
from lagproof.errors import RunDirError
from lagproof.runs import lags
from lagproof.runs.lags import LagName
from lagproof.settings.toml import read_toml


@dataclass(frozen=True)
class RunData:
    """One run as it stands on disk.

    Attributes:
        path: its directory.
        label: what tables and curves call it: the entry of the comparison, or the name of the objective.
        lag: the name of its schedule, see ``lags.py``.
        seed: its seed.
        config: ``config.toml`` as plain values; old runs may hold keys that no longer exist.
        rows: ``metrics.jsonl``, one row a step, in the order of steps; step 0 is the evaluation before training.
        idle_batches: batches that made no step, because no group had a signal or gradients were not finite.
        alarms: ``alarms.jsonl``.
        result: ``result.json``, or ``None`` while the run has not finished.
        notes: what could not be read, in sentences.
    """

    path: Path
    label: str
    lag: LagName
    seed: int
    config: Mapping[str, Any]
    rows: tuple[Row, ...]
    idle_batches: int = 0
    alarms: tuple[Mapping[str, Any], ...] = ()
    result: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def planned_steps(self) -> int:
        """Steps that the configuration asks for."""
        return int(self.config["steps"])

    @property
    def last_step(self) -> int:
        """The last step that was written; 0 before the first."""
        return self.rows[-1].step if self.rows else 0

    @property
    def finished(self) -> bool:
        """Whether the run says that it has ended."""
        return self.result is not None

    def series(self, name: str, of: Slice | None = None) -> tuple[list[int], list[float]]:
        """Steps and values of one metric; steps without it are left out."""
        found = [(row.step, value) for row in self.rows if (value := row.get(name, of)) is not None]
        return [step for step, _ in found], [value for _, value in found]


def is_run(path: Path) -> bool:
    """Whether a directory holds a run that has started."""
    return (path / "config.toml").is_file()


def read_run(path: Path, label: str | None = None) -> RunData:
    """Read a run directory.

    Args:
        path: the directory.
        label: what to call it; its objective's name if absent.

    Raises:
        RunDirError: no run there, or files that cannot be opened.
    """
    if not is_run(path):
        raise RunDirError(f"{path}: is not a run directory (it has no config.toml); check the path")
    config = read_toml(path / "config.toml")
    rows, notes = read_jsonl(path / "metrics.jsonl")
    alarms, alarm_notes = read_jsonl(path / "alarms.jsonl")
    result, result_notes = _result(path / "result.json")
    trained = [row for row in rows if "outcome" not in row]
    by_step = {row["step"]: Row.parse(row) for row in trained if _is_step(row.get("step"))}
    if len(by_step) < len(trained):
        doubtful = len(trained) - len(by_step)
        notes.append(f"{path / 'metrics.jsonl'}: {doubtful} rows repeat a step or name none: left out")
    try:
        schedule, objective = config["schedule"], config["objective"]["name"]
        lag = lags.of_schedule(schedule)
        seed, _ = int(config["seed"]), int(config["steps"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunDirError(f"{path / 'config.toml'}: is not a run's configuration: {error!r}") from error
    return RunData(
        path=path,
        label=label or objective,
        lag=lag,
        seed=seed,
        config=config,
        rows=tuple(by_step[step] for step in sorted(by_step)),
        idle_batches=len(rows) - len(trained),
        alarms=tuple(a for a in alarms if _is_step(a.get("step"))),
        result=result,
        notes=tuple(notes + alarm_notes + result_notes),
    )


def read_jsonl(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The objects of a JSON-lines file, and a sentence for each line that is none; a missing file has no lines.

    A process that is killed leaves its last line cut off: that line is dropped and said.

    Raises:
        RunDirError: the file exists and cannot be opened.
    """
    if not path.exists():
        return [], []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RunDirError(f"{path}: cannot be read: {error.strerror or error}") from error
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            where = "is cut off" if number == len(lines) else "is not a JSON object"
            notes.append(f"{path}: line {number} {where}: left out")
    return rows, notes


def _result(path: Path) -> tuple[dict[str, Any] | None, list[str]]:
    if not path.is_file():
        return None, []
    try:
        result = json.loads(path.read_bytes())
    except (OSError, ValueError):
        result = None
    if isinstance(result, dict):
        return result, []
    return None, [f"{path}: cannot be read: the run counts as unfinished"]


def _is_step(value: object) -> bool:
    return type(value) is int and value >= 0
