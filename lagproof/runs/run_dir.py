"""The directory of a run: what is in it, and what happens when it cannot be written."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
from safetensors import SafetensorError

from lagproof.data.batch import Batch
from lagproof.data.rows import Row
from lagproof.errors import CheckpointError, RunDirError
from lagproof.monitor.alarm import Alarm, Monitor
from lagproof.runs import rollouts as record
from lagproof.settings.toml import read_toml

KEPT = "everything up to the last checkpoint is kept: make room or fix the permissions, then continue with --resume"
"""What to do when a run that has begun cannot go on writing."""

ROLLOUT_PART_TOKENS = 1_000_000
"""Trained tokens that are held before they are written as one parquet file."""


class RunDir:
    """Files of one run. ``metrics.jsonl`` is flushed at every row; everything else is written beside and renamed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.alarms = path / "alarms.jsonl"
        self.rollouts = path / "rollouts"
        self.checkpoints = path / "checkpoints"
        self.result = path / "result.json"
        self.data = path / "data.json"
        self._trained: list[Any] = []  # tables
        self._tokens = 0

    @classmethod
    def create(cls, run_dir: str, config: Mapping[str, Any], data: Mapping[str, Any] | None) -> RunDir:
        """A new directory with the resolved configuration, as TOML values, and with what the files of its task were.

        Raises:
            RunDirError: it exists and holds anything, or cannot be written.
        """
        cls.check_free(run_dir)
        run = cls(Path(run_dir))
        with writing(run.path, "choose another place with --set run_dir=..., or fix its permissions"):
            run.rollouts.mkdir(parents=True)
            run.checkpoints.mkdir()
            if data is not None:
                write_text(json.dumps(data, indent=1) + "\n", run.data)
            (run.path / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
        return run

    def check_data(self, now: Mapping[str, Any] | None) -> None:
        """Refuse to go on with other data than the run was begun with.

        Raises:
            RunDirError: they changed; says how many problems there were and are.
        """
        if not self.data.is_file():
            return
        before = json.loads(self.data.read_text(encoding="utf-8"))
        if before != now:
            raise RunDirError(
                f"--resume {self.path}: its problems are not those that it was begun with (then {_sizes(before)}, now "
                f"{_sizes(now)}); a run goes on as it began: put the data set back, or start a new run_dir"
            )

    @staticmethod
    def check_free(run_dir: str) -> None:
        """Refuse a directory that holds anything.

        Raises:
            RunDirError: it does, or is no directory.
        """
        path = Path(run_dir)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunDirError(
                f"run_dir = {run_dir!r}: exists already; choose another with --set run_dir=..., "
                f"or continue it with --resume {run_dir}"
            )

    @classmethod
    def open(cls, path: Path) -> tuple[RunDir, dict[str, Any]]:
        """An existing run and its configuration, as TOML values.

        Raises:
            RunDirError: there is no run.
        """
        if not (path / "config.toml").is_file():
            raise RunDirError(f"{path}: is not a run directory (it has no config.toml); check the path after --resume")
        return cls(path), read_toml(path / "config.toml")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the directory; the lock dies with this process.

        Raises:
            RunDirError: another process is running it.
        """
        with writing(self.path):
            file = (self.path / "lock").open("a+", encoding="utf-8")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise RunDirError(
                    f"{self.path}: process {file.read().strip() or '(unknown)'} is running it; wait for it, or stop it"
                ) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    def append(self, row: Row) -> None:
        """One row of metrics."""
        with writing(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row.flat) + "\n")

    def rows(self) -> list[Row]:
        """The rows that are written, in order."""
        lines = self.metrics.read_text(encoding="utf-8").splitlines() if self.metrics.exists() else []
        return [Row.parse(json.loads(line)) for line in lines]

    def alarm(self, alarm: Alarm) -> None:
        """One alarm."""
        with writing(self.alarms), self.alarms.open("a", encoding="utf-8") as file:
            file.write(json.dumps(alarm.to_dict()) + "\n")

    def replay(self, monitor: Monitor) -> None:
        """Show the rows that are there to a monitor; its alarms take the place of those that are written."""
        rung = [alarm.to_dict() for row in self.rows() for alarm in monitor.observe(row)]
        if rung or self.alarms.exists():
            with writing(self.alarms):
                write_text("".join(json.dumps(alarm) + "\n" for alarm in rung), self.alarms)

    def record(self, batch: Batch, step: int) -> None:
        """Keep trained responses for the next parquet file, and write it when there are many."""
        self._trained.append(record.table(batch, step))
        self._tokens += batch.num_tokens
        if self._tokens >= ROLLOUT_PART_TOKENS:
            self.flush(step)

    def flush(self, step: int) -> None:
        """Write what is kept, up to and including ``step``."""
        if not self._trained:
            return
        name = self.rollouts / f"step-{step:06d}.parquet"
        with writing(name):
            write_parquet(pa.concat_tables(self._trained), name)
        self._trained, self._tokens = [], 0

    def rewind(self, step: int, metrics_bytes: int) -> None:
        """Forget what was written after a checkpoint; it will be written again."""
        with writing(self.path):
            size = self.metrics.stat().st_size if self.metrics.exists() else 0
            if size < metrics_bytes:
                raise CheckpointError(
                    f"{self.metrics}: has {size} bytes, the checkpoint of step {step} had seen {metrics_bytes}: "
                    "it was cut or replaced; restore it, or start a new run_dir"
                )
            if self.metrics.exists():
                os.truncate(self.metrics, metrics_bytes)
            for file in self.rollouts.glob("step-*.parquet"):
                if int(file.stem.removeprefix("step-")) > step:
                    file.unlink()

    def note(self, text: str) -> None:
        """Tell the person who runs it, and keep it: one line on stderr and in ``notes.txt``."""
        print(text, file=sys.stderr)
        with writing(self.path), (self.path / "notes.txt").open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write ``result.json``; a run without it has not finished."""
        with writing(self.result):
            write_text(json.dumps(result, indent=1) + "\n", self.result)


def _sizes(data: Mapping[str, Any] | None) -> str:
    """How many problems there are to train and to evaluate on, of each task of a mixture."""
    if not data:
        return "none"
    if "digest" in data:
        return f"{data['problems']} and {data['evaluated']} to evaluate on, digest {data['digest'][:8]}"
    return "; ".join(f"{name}: {_sizes(part)}" for name, part in data.items())


def write_text(text: str, path: Path) -> None:
    """Write beside and rename, so that a reader sees all of it or nothing."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def write_parquet(table: Any, path: Path) -> None:
    """As :func:`write_text`, for an arrow table."""
    beside = path.with_name(f".{path.name}.tmp")
    pq.write_table(table, beside, compression="zstd")
    beside.replace(path)


@contextlib.contextmanager
def writing(path: Path, advice: str = KEPT) -> Iterator[None]:
    """Turn whatever says that the disk is full or closed into one error that says what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise RunDirError(f"{path}: cannot be written: {reason}; {advice}") from error
