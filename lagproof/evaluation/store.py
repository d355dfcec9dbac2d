# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""Samples of an evaluation as parquet, written batch by batch so that an interrupted one resumes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lagproof.data.samples import Finish
from lagproof.errors import RunDirError
from lagproof.evaluation.identity import Fingerprints, changes, differences, fingerprints
from lagproof.evaluation.result import GradedResponse
from lagproof.tasks.task import Problem

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


class Store:
    """The folder of one evaluation: ``settings.json``, ``part-*.parquet``; at the end ``samples.parquet``, tables.

    Args:
        folder: made if it is not there.
        settings: what the samples depend on, but for the problems; those of a folder without a sample are replaced.
        problems: those that are asked now.
        all_problems: those of the task, at least as many as were asked; called only where fewer are asked now.

    Raises:
        RunDirError: the folder holds an evaluation with other settings or of other problems, or cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        problems: Sequence[Problem],
        all_problems: Callable[[int], Sequence[Problem]],
    ) -> None:
        self._folder = folder
        file = folder / "settings.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            before = json.loads(file.read_text(encoding="utf-8")) if file.exists() and self._files() else None
            if before is not None:
                _check_settings(folder, before, settings)
            asked, now = {} if before is None else before["problems"], fingerprints(problems)
            fewer = asked.keys() - now.keys()
            _check_problems(folder, asked, fingerprints(all_problems(len(asked))) if fewer else now)
            kept = {**settings, "problems": {**asked, **now}}
            if kept != before:
                _write_text(file, json.dumps(kept, indent=1) + "\n")
        except (OSError, json.JSONDecodeError) as error:
            raise RunDirError(f"{folder}: cannot be used: {error}") from error

    def read(self) -> list[GradedResponse]:
        """Every sample so far, each once: what :meth:`finish` had copied when it was killed may lie in two files.

        Raises:
            RunDirError: a file that cannot be read.
        """
        found = [_response(row) for file in self._files() for row in _read(file)]
        return list({(r.task, r.problem_id, r.sample): r for r in found}.values())

    def append(self, responses: Sequence[GradedResponse]) -> None:
        """Write a batch: all of it or nothing."""
        number = len(list(self._folder.glob("part-*.parquet")))
        self._write(self._folder / f"part-{number:06d}.parquet", responses)

    def finish(self) -> None:
        """Put all batches into one file."""
        parts = sorted(self._folder.glob("part-*.parquet"))
        if parts:
            self._write(self._folder / "samples.parquet", self.read())
            for part in parts:
                part.unlink()

    def write_problems(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The per-problem table, ``problems.jsonl``."""
        file = self._folder / "problems.jsonl"
        try:
            _write_text(file, "".join(json.dumps(row) + "\n" for row in rows))
        except OSError as error:
            raise RunDirError(f"{file}: cannot be written: {error}") from error

    def _files(self) -> list[Path]:
        whole = self._folder / "samples.parquet"
        return ([whole] if whole.exists() else []) + sorted(self._folder.glob("part-*.parquet"))

    def _write(self, file: Path, responses: Sequence[GradedResponse]) -> None:
        temporary = file.with_suffix(".tmp")
        try:
            pq.write_table(pa.Table.from_pylist([_row(r) for r in responses], schema=SCHEMA), temporary)
            os.replace(temporary, file)
        except OSError as error:
            raise RunDirError(f"{file}: cannot be written: {error}") from error


def _check_settings(folder: Path, before: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    found = differences({key: value for key, value in before.items() if key != "problems"}, settings)
    if found:
        raise RunDirError(
            f"{folder}: holds an evaluation with other settings: {'; '.join(found)}; "
            "give the same ones to resume, or another --out"
        )


def _check_problems(folder: Path, asked: Fingerprints, now: Fingerprints) -> None:
    if found := changes(asked, now):
        others = f", and {len(found) - 3} more problems differ" if len(found) > 3 else ""
        raise RunDirError(
            f"{folder}: the data has changed since its problems were asked: {', '.join(found[:3])}{others}; "
            "give the same data to resume, or another --out"
        )


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """A JSON file, all of it or nothing.

    Raises:
        RunDirError: it cannot be written.
    """
    try:
        _write_text(file, json.dumps(value, indent=1) + "\n")
    except OSError as error:
        raise RunDirError(f"{file}: cannot be written: {error}") from error


def _write_text(file: Path, text: str) -> None:
    temporary = file.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, file)


def _read(file: Path) -> list[dict[str, Any]]:
    try:
        return pq.read_table(file).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise RunDirError(f"{file}: cannot be read: {error}; take it away to ask its problems again") from error


def _row(response: GradedResponse) -> dict[str, Any]:
    return {**vars(response), "reward": None if math.isnan(response.reward) else response.reward}


def _response(row: Mapping[str, Any]) -> GradedResponse:
    reward = math.nan if row["reward"] is None else row["reward"]
    return GradedResponse(**{**row, "reward": reward, "finish": Finish(row["finish"])})
