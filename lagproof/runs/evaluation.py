# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""The folder of an evaluation: models times tasks, the samples of each.

::

    <model>/<task>/settings.json     what the samples depend on
    <model>/<task>/part-*.parquet    batches, while they are sampled
    <model>/<task>/samples.parquet   all of them, at the end
    <model>/<task>/problems.jsonl    a row for each problem
    result.json                      every number
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lagproof.errors import RunDirError
from lagproof.runs.files import read_json, write_json, write_lines, write_parquet, writing
from lagproof.runs.layout import is_run

SCHEMA = pa.schema(
    [
        pa.field("problem_id", pa.string(), nullable=False),
        pa.field("task", pa.string(), nullable=False),
        pa.field("sample", pa.int32(), nullable=False),
        pa.field("reward", pa.float64()),  # null: the task's own answer cannot be read
        pa.field("reason", pa.string(), nullable=False),
        pa.field("key", pa.string()),  # null: the response says nothing
        pa.field("tokens", pa.int32(), nullable=False),
        pa.field("finish", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("gold", pa.string(), nullable=False),
    ],
    metadata={"lagproof_eval_version": "1"},
)
"""A row is a graded response."""

ELSEWHERE = "make room, fix its permissions, or choose another with --out"


@dataclass(frozen=True)
class EvaluationDir:
    """One model on one task.

    Attributes:
        path: its folder; it need not exist.
    """

    path: Path

    def create(self) -> None:
        with writing(self.path, ELSEWHERE):
            self.path.mkdir(parents=True, exist_ok=True)

    def settings(self) -> dict[str, Any] | None:
        """What the samples depend on; ``None`` where there is no sample yet."""
        return read_json(self._settings) if self._settings.is_file() and self._files() else None

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        with writing(self._settings, ELSEWHERE):
            write_json(settings, self._settings)

    def rows(self) -> list[dict[str, Any]]:
        """Every sample so far; one that was copied when the process was killed may be there twice.

        Raises:
            RunDirError: a file that cannot be read.
        """
        return [row for file in self._files() for row in _read(file)]

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a batch: all of it or nothing."""
        self._write(self.path / f"part-{len(self._parts()):06d}.parquet", rows)

    def join(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put the rows of all batches into one file."""
        parts = self._parts()
        if parts:
            self._write(self._samples, rows)
            for part in parts:
                part.unlink()

    def write_problems(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The table of problems."""
        file = self.path / "problems.jsonl"
        with writing(file, ELSEWHERE):
            write_lines(rows, file)

    @property
    def _settings(self) -> Path:
        return self.path / "settings.json"

    @property
    def _samples(self) -> Path:
        return self.path / "samples.parquet"

    def _parts(self) -> list[Path]:
        return sorted(self.path.glob("part-*.parquet"))

    def _files(self) -> list[Path]:
        return ([self._samples] if self._samples.exists() else []) + self._parts()

    def _write(self, file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        with writing(file, ELSEWHERE):
            write_parquet(pa.Table.from_pylist(list(rows), schema=SCHEMA), file)


def write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Every number of an evaluation."""
    with writing(folder, ELSEWHERE):
        write_json(result, result_file(folder))


def is_evaluation(folder: Path) -> bool:
    """Whether a folder holds the result of an evaluation, and no run."""
    return result_file(folder).is_file() and not is_run(folder)


def result_file(folder: Path) -> Path:
    """Where an evaluation has every number."""
    return folder / "result.json"


def _read(file: Path) -> list[dict[str, Any]]:
    try:
        return pq.read_table(file).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise RunDirError(f"{file}: cannot be read: {error}; take it away to ask its problems again") from error
