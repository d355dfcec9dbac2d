"""One comparison from its source to its numbers: what ``lagproof compare`` does before it prints them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lagproof.errors import ConfigError
from lagproof.experiments import grid as grids
from lagproof.experiments import tables
from lagproof.experiments.comparison import Comparison, open_or_create, read_comparison
from lagproof.experiments.grid import Grid
from lagproof.experiments.pool import TRAIN, Watch, run_jobs, unwatched
from lagproof.experiments.worker import Ending, Job
from lagproof.runs.comparison import ComparisonDir


@dataclass(frozen=True)
class Compared:
    """What :func:`compare` has done.

    Attributes:
        out: the directory.
        comparison: as it stands on disk, or ``None`` if it was asked to stop before every cell had ended.
        failures: the cells of each error.
    """

    out: Path
    comparison: Comparison | None
    failures: Mapping[str, Sequence[str]]


def compare(
    source: str,
    out: Path | None = None,
    *,
    overrides: Iterable[str] = (),
    seeds: Sequence[int] | None = None,
    jobs: int | None = None,
    command: str | None = None,
    watch: Watch = unwatched,
    train: str = TRAIN,
) -> Compared:
    """Run what is missing of a comparison, and save its numbers.

    Args:
        source: a preset, or a TOML file (see ``grid.py``).
        out: directory; ``runs/<name>`` if absent. One that holds the same comparison is continued.
        overrides: ``key=value`` on the keys of the source.
        seeds: replace the source's seeds.
        jobs: processes; one per core if absent.
        command: what the user typed, for the page.
        watch: called with the cells that are left and the number of all; who watches them.
        train: the single run, ``module:function``.

    Raises:
        ConfigError: a source, an override or a number of jobs that is not allowed.
        RunDirError: ``out`` holds something else, or cannot be written.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: must be at least 1; leave it out for one per core")
    grid = replace(grids.load(source, overrides, seeds), command=command)
    out = out or Path("runs") / grid.name
    open_or_create(out, grid)
    todo = _todo(grid, out)
    with watch(todo, len(grid.cells())) as view:
        outcomes = run_jobs(todo, jobs or cores(), ComparisonDir(out).logs, view, train) if todo else []
    if sum(outcome.ending is not Ending.INTERRUPTED for outcome in outcomes) < len(todo):
        return Compared(out, None, {})
    comparison = read_comparison(out)
    tables.save(comparison)
    failures: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.ending is Ending.FAILED:
            failures.setdefault(outcome.reason, []).append(todo[outcome.job].name)
    return Compared(out, comparison, failures)


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux knows
        return os.cpu_count() or 1


def _todo(grid: Grid, out: Path) -> list[Job]:
    """The cells without a result, those that were interrupted first."""
    where = ComparisonDir(out)
    unfinished = read_comparison(out).unfinished
    started = [cell for cell in unfinished if where.has_run(cell.name)]
    fresh = [cell for cell in unfinished if cell not in started]
    for cell in fresh:
        where.clear(cell.name)
    return [Job(cell.name, grid.config(cell, where.cell(cell.name)), cell in started) for cell in [*started, *fresh]]
