# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""A run as it stands on disk: finished, still going, killed or damaged. This reads, and never writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lagproof.data.rows import Row
from lagproof.data.slices import Slice
from lagproof.errors import RunDirError
from lagproof.monitor.alarm import Alarm, Severity
from lagproof.runs import lags
from lagproof.runs.files import JsonLines, read_json, read_lines, read_toml, reading
from lagproof.runs.lags import LagName
from lagproof.runs.layout import RunLayout, is_run

if TYPE_CHECKING:
    import pyarrow as pa

    from lagproof.data.tokens import TokenBatch


@dataclass(frozen=True)
class RunResult:
    """What became of a run.

    Attributes:
        run_dir: its directory.
        reason: why it ended, in one word: ``finished``, ``data_ended``, ``no_signal``, ...
        success: whether it did what it was asked to do.
        steps: optimiser steps trained.
        metrics: those of the last row, and of the last evaluation, under flat keys.
        detail: the reason in words; may be empty.
    """

    run_dir: Path
    reason: str
    success: bool
    steps: int
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    detail: str = ""


@dataclass(frozen=True, eq=False)
class Run:
    """One run, read from its directory by :meth:`open`.

    Attributes:
        path: its directory.
        config: its configuration as plain values; empty where it cannot be read. ``Config.load`` reads it typed.
        history: every row as it was written, batches that made no step included.
        alarms: in the order in which they fired.
        result: how it ended; ``None`` while it has not, or was killed.
        notes: what could not be read, in sentences.
        damaged: the sentences among them about lines that are no rows; a truncated last line is none of these.
        name: what tables and curves call it; ``None``: its objective.
    """

    path: Path
    config: Mapping[str, Any]
    history: tuple[Row, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    result: RunResult | None = None
    notes: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    name: str | None = None

    @classmethod
    def open(cls, path: str | Path, name: str | None = None) -> Run:
        """Read a run directory as it stands now.

        Args:
            path: the directory.
            name: what to call it.

        Raises:
            RunDirError: no run there, or files that cannot be opened.
        """
        layout = RunLayout(Path(path))
        if not is_run(layout.path):
            raise RunDirError(f"{path}: is not a run directory (it has no {layout.config.name}); check the path")
        notes: list[str] = []
        config: Mapping[str, Any] = {}
        try:
            config = read_toml(layout.config)
        except RunDirError as error:
            notes.append(str(error))
        rows, damaged = _rows(read_lines(layout.metrics), layout.metrics.name, notes)
        alarms = _alarms(read_lines(layout.alarms), layout.alarms.name, notes)
        result = _result(layout, notes)
        return cls(layout.path, config, rows, alarms, result, tuple(notes), damaged, name)

    @property
    def layout(self) -> RunLayout:
        """Where its files lie."""
        return RunLayout(self.path)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The row of each step, in order; step 0 is the evaluation before training."""
        by_step = {row.step: row for row in self.history if row.outcome is None}
        return tuple(by_step[step] for step in sorted(by_step))

    @property
    def evaluations(self) -> tuple[Row, ...]:
        """The rows that hold an evaluation."""
        return tuple(row for row in self.rows if any(key.name.startswith("eval/") for key in row.values))

    @property
    def idle_batches(self) -> int:
        """Batches that made no step: every group had zero variance, or gradients were not finite."""
        return sum(row.outcome is not None for row in self.history)

    @property
    def last_step(self) -> int:
        """The last step that was written; 0 before the first."""
        return self.rows[-1].step if self.rows else 0

    @property
    def finished(self) -> bool:
        """Whether the run says that it has ended, well or not."""
        return self.result is not None

    @property
    def aborted(self) -> str | None:
        """Why the run ended without doing what it was asked to do; ``None`` where it did, or is still running."""
        return None if self.result is None or self.result.success else self.result.detail or self.result.reason

    @property
    def label(self) -> str:
        """What tables and curves call it.

        Raises:
            RunDirError: it has no name, and no configuration that names its objective; so do the following.
        """
        return self.name or str(self._setting("objective", "name"))

    @property
    def seed(self) -> int:
        return int(self._setting("seed"))

    @property
    def planned_steps(self) -> int:
        """Steps that the configuration asks for."""
        return int(self._setting("steps"))

    @property
    def lag(self) -> LagName:
        """The name of its schedule, see ``lags.py``."""
        schedule = self._setting("schedule")
        try:
            return lags.of_schedule(schedule)
        except (KeyError, TypeError, ValueError) as error:
            raise self._no_configuration(error) from error

    def series(self, name: str, of: Slice | None = None) -> tuple[list[int], list[float]]:
        """Steps and values of one metric; steps without it are left out.

        Args:
            name: of the metric, such as ``d_bar``.
            of: the part of the batch: an ``AgeBand``, a ``Sign``, an ``OfTask``; ``None`` is all of it.
        """
        found = [(row.step, value) for row in self.rows if (value := row.get(name, of)) is not None]
        return [step for step, _ in found], [value for _, value in found]

    @property
    def schedule(self) -> tuple[dict[str, Any], ...]:
        """The events of its scheduler as plain values, in order; a truncated last line is left out.

        Raises:
            RunDirError: it has none, or a line that is damaged.
        """
        lines = read_lines(self.layout.schedule)
        if lines.damaged or not lines.objects:
            what = lines.damaged[0] if lines.damaged else "it is missing or empty"
            raise RunDirError(f"{self.layout.schedule}: cannot be read: {what}")
        return tuple(value for _, value in lines.objects)

    @property
    def checkpoints(self) -> list[Path]:
        """Complete-looking checkpoints, oldest first; each is a Hugging Face folder."""
        return self.layout.saved()

    def rollouts(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Trained responses, one row a response, file by file in the order of their steps; see ``rollouts.py``.

        Args:
            columns: those to read; one that a file lacks is left out. ``None``: all.

        Raises:
            RunDirError: a file that cannot be read.
        """
        import pyarrow.parquet as pq

        for file in self.layout.rollout_files():
            with reading(file), pq.ParquetFile(file) as parquet:
                names = parquet.schema_arrow.names
                yield parquet.read(columns=[name for name in names if columns is None or name in columns])

    def token_batches(self) -> Iterator[tuple[int, TokenBatch]]:
        """Each step that has rollouts, and the tokens that it trained.

        Raises:
            RunDirError: a file that cannot be read.
        """
        from lagproof.runs.rollouts import COLUMNS_OF_TOKENS, token_batches

        for table in self.rollouts(COLUMNS_OF_TOKENS):
            yield from token_batches(table)

    def _setting(self, *keys: str) -> Any:
        found: Any = self.config
        try:
            for key in keys:
                found = found[key]
        except (KeyError, TypeError) as error:
            raise self._no_configuration(error) from error
        return found

    def _no_configuration(self, error: Exception) -> RunDirError:
        return RunDirError(f"{self.layout.config}: is not a run's configuration: {error!r}")


def _rows(lines: JsonLines, file: str, notes: list[str]) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    rows: list[Row] = []
    damaged = list(lines.damaged)
    for number, line in lines.objects:
        try:
            rows.append(Row.parse(line))
        except ValueError:
            damaged.append(f"{file}: line {number} has no step")
    notes += [f"{sentence}: left out" for sentence in damaged]
    notes += [lines.truncated] if lines.truncated else []
    trained = [row.step for row in rows if row.outcome is None]
    if repeated := len(trained) - len(set(trained)):
        notes.append(f"{file}: {repeated} rows repeat a step: left out")
    return tuple(rows), tuple(damaged)


def _alarms(lines: JsonLines, file: str, notes: list[str]) -> tuple[Alarm, ...]:
    alarms: list[Alarm] = []
    damaged = list(lines.damaged)
    for number, line in lines.objects:
        try:
            severity = Severity(line["severity"])
            alarms.append(Alarm(int(line["step"]), str(line["name"]), severity, str(line["sentence"])))
        except (KeyError, TypeError, ValueError):
            damaged.append(f"{file}: line {number} is not an alarm")
    notes += [f"{sentence}: left out" for sentence in damaged]
    notes += [lines.truncated] if lines.truncated else []
    return tuple(alarms)


def _result(layout: RunLayout, notes: list[str]) -> RunResult | None:
    if not layout.result.is_file():
        return None
    try:
        found = read_json(layout.result)
        return RunResult(
            layout.path,
            str(found["reason"]),
            bool(found["success"]),
            int(found.get("steps", 0)),
            dict(found.get("metrics", {})),
            str(found.get("detail", "")),
        )
    except (RunDirError, KeyError, TypeError, ValueError):
        notes.append(f"{layout.result.name} cannot be read: the run counts as unfinished")
        return None
