# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""What a running run writes into its directory, see ``layout.py``; ``run.py`` reads it back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa

from lagproof.data.batch import Batch
from lagproof.data.rows import Row
from lagproof.errors import CheckpointError, RunDirError
from lagproof.monitor.alarm import Alarm
from lagproof.runs import rollouts
from lagproof.runs.files import (
    append_lines,
    locked,
    read_json,
    read_toml,
    reading,
    replace_folder,
    write_json,
    write_lines,
    write_parquet,
    write_text,
    writing,
)
from lagproof.runs.layout import RunLayout
from lagproof.runs.run import RunResult

KEPT = "everything up to the last checkpoint is kept: make room or fix the permissions, then continue with --resume"
"""What to do when a run that has begun cannot continue writing."""

ROLLOUT_PART_TOKENS = 100_000
"""Trained tokens that are held before they are written as one parquet file: about 80 MB."""


class RunWriter:
    """Writes one run: a row is flushed at once, everything else is written whole or not at all.

    Args:
        path: its directory.
        on_note: called with what a person should know.
    """

    def __init__(self, path: Path, on_note: Callable[[str], None] = lambda text: None) -> None:
        self.layout = RunLayout(path)
        self._on_note = on_note
        self._trained: list[pa.Table] = []
        self._tokens = 0

    @property
    def path(self) -> Path:
        return self.layout.path

    @classmethod
    def create(
        cls,
        path: Path,
        config: Mapping[str, Any],
        data: Mapping[str, Any] | None,
        on_note: Callable[[str], None] = lambda text: None,
    ) -> RunWriter:
        """A new directory, which is there whole or not at all.

        Args:
            path: the directory.
            config: the resolved configuration, as TOML values.
            data: what the files of the task were.
            on_note: see :class:`RunWriter`.

        Raises:
            RunDirError: it exists and holds anything, or cannot be written.
        """
        import tomli_w

        check_free(path)
        run = cls(path, on_note)
        beside = RunLayout(path.with_name(f".{path.name}.tmp"))
        with writing(path, "choose another place with --set run_dir=..., make room, or fix its permissions"):
            try:
                shutil.rmtree(beside.path, ignore_errors=True)
                beside.rollouts.mkdir(parents=True)
                beside.checkpoints.mkdir()
                if data is not None:
                    write_json(data, beside.data)
                write_text(tomli_w.dumps(config), beside.config)
                replace_folder(beside.path, path)
            finally:
                shutil.rmtree(beside.path, ignore_errors=True)
        return run

    @classmethod
    def open(cls, path: Path, on_note: Callable[[str], None] = lambda text: None) -> RunWriter:
        """An existing run, to resume.

        Raises:
            RunDirError: there is no run.
        """
        run = cls(path, on_note)
        if not run.layout.config.is_file():
            name = run.layout.config.name
            raise RunDirError(f"{path}: is not a run directory (it has no {name}); check the path")
        return run

    def config(self) -> dict[str, Any]:
        """The configuration that the run was begun with, as TOML values.

        Raises:
            RunDirError: it cannot be read.
        """
        return read_toml(self.layout.config)

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes out of the directory; the lock dies with this process.

        Raises:
            RunDirError: another process is running it.
        """
        return locked(self.layout.lock)

    def learner_locked(self, wait_s: float = 30.0) -> AbstractContextManager[None]:
        """Be the one process that writes rollouts and checkpoints; one of a killed driver may outlive it a little.

        Raises:
            RunDirError: another process still is, after ``wait_s``.
        """
        return locked(self.layout.learner_lock, wait_s)

    def check_data(self, now: Mapping[str, Any] | None) -> None:
        """Refuse to resume with other data than the run was begun with.

        Raises:
            RunDirError: they changed; says how many problems there were and are.
        """
        if not self.layout.data.is_file():
            return
        before = read_json(self.layout.data)
        if before != now:
            raise RunDirError(
                f"--resume {self.path}: its problems are not those that it was begun with (then {_sizes(before)}, now "
                f"{_sizes(now)}); a run resumes as it began: put the data set back, or start a new run_dir"
            )

    def rows(self) -> list[Row]:
        """The rows that are written, in order.

        Raises:
            RunDirError: a line that is none.
        """
        file = self.layout.metrics
        if not file.exists():
            return []
        with reading(file):
            return [Row.parse(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]

    @property
    def written(self) -> dict[str, int]:
        """Bytes of the files that grow by lines: what a checkpoint has seen."""
        return {name: file.stat().st_size if file.exists() else 0 for name, file in self._growing.items()}

    @property
    def _growing(self) -> dict[str, Path]:
        return {"metrics": self.layout.metrics, "schedule": self.layout.schedule}

    def schedule(self, records: Sequence[Mapping[str, Any]]) -> None:
        """What happened, for the scheduler's record."""
        if records:
            with writing(self.layout.schedule, KEPT):
                append_lines(records, self.layout.schedule)

    def append(self, row: Row) -> None:
        """One row of metrics."""
        with writing(self.layout.metrics, KEPT):
            append_lines([row.flat], self.layout.metrics)

    def alarm(self, alarm: Alarm) -> None:
        """One alarm."""
        with writing(self.layout.alarms, KEPT):
            append_lines([alarm.to_dict()], self.layout.alarms)

    def replay(self, observe: Callable[[Row], Iterable[Alarm]]) -> None:
        """Show the rows that are there to a monitor; its alarms take the place of those that are written."""
        fired = [alarm.to_dict() for row in self.rows() for alarm in observe(row)]
        if fired or self.layout.alarms.exists():
            with writing(self.layout.alarms, KEPT):
                write_lines(fired, self.layout.alarms)

    def record(self, batch: Batch, step: int) -> None:
        """Keep trained responses for the next file of rollouts, and write it when there are many."""
        self._trained.append(rollouts.table(batch, step))
        self._tokens += batch.num_tokens
        if self._tokens >= ROLLOUT_PART_TOKENS:
            self.flush(step)

    def flush(self, step: int) -> None:
        """Write what is kept, up to and including ``step``."""
        if not self._trained:
            return
        file = self.layout.rollouts_of(step)
        with writing(file, KEPT):
            write_parquet(pa.concat_tables(self._trained), file)
        self._trained, self._tokens = [], 0

    def rewind(self, step: int, written: Mapping[str, int]) -> None:
        """Forget what was written after a checkpoint; it will be written again.

        Args:
            step: of the checkpoint.
            written: what it had seen, see :attr:`written`; nothing where it is empty.

        Raises:
            CheckpointError: less is there than the checkpoint had seen.
        """
        if lacks := self.lacks(step, written):
            raise CheckpointError(f"{lacks}; restore it, or start a new run_dir")
        with writing(self.path, KEPT):
            for name, file in self._growing.items():
                if file.exists():
                    os.truncate(file, written.get(name, 0))
            for file in self.layout.rollouts.glob("step-*.parquet"):
                if int(file.stem.removeprefix("step-")) > step:
                    file.unlink()

    def lacks(self, step: int, written: Mapping[str, int]) -> str | None:
        """What a checkpoint had seen of the growing files and is no longer there, in words; ``None`` for nothing."""
        there = self.written
        for name, file in self._growing.items():
            if there[name] < written.get(name, 0):
                return (
                    f"{file}: has {there[name]} bytes, the checkpoint of step {step} had seen {written[name]}: "
                    "it was truncated or replaced"
                )
        return None

    def note(self, text: str) -> None:
        """Tell the person who runs it, and keep it."""
        self._on_note(text)
        with writing(self.layout.notes, KEPT), self.layout.notes.open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def finish(self, result: RunResult) -> None:
        """Say that the run has ended."""
        content = {
            "reason": result.reason,
            "success": result.success,
            "detail": result.detail,
            "steps": result.steps,
            "metrics": dict(result.metrics),
        }
        with writing(self.layout.result, KEPT):
            write_json(content, self.layout.result)


def check_free(path: Path) -> None:
    """Refuse a directory that holds anything.

    Raises:
        RunDirError: it does, or is no directory.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunDirError(
            f"run_dir = {str(path)!r}: exists already; choose another with --set run_dir=..., "
            f"or continue it with --resume {path}"
        )


def _sizes(data: Mapping[str, Any] | None) -> str:
    """How many problems there are to train and to evaluate on, of each task of a mixture."""
    if not data:
        return "none"
    if "digest" in data:
        return f"{data['problems']} and {data['evaluated']} to evaluate on, digest {data['digest'][:8]}"
    return "; ".join(f"{name}: {_sizes(part)}" for name, part in data.items())
