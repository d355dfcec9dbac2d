"""One comparison from its source to its table: what ``lagproof compare`` does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from lagproof.errors import ConfigError
from lagproof.experiments import grid as grids
from lagproof.experiments import tables
from lagproof.experiments.comparison import Comparison, cell_dir, open_or_create, read_comparison
from lagproof.experiments.grid import Cell, Grid
from lagproof.experiments.pool import TRAIN, CellOutcome, run_jobs
from lagproof.experiments.progress import watching
from lagproof.experiments.worker import Ending, Job
from lagproof.runs.reading import is_run

INTERRUPTED = 130


def compare(
    source: str,
    out: Path | None = None,
    *,
    overrides: Iterable[str] = (),
    seeds: Sequence[int] | None = None,
    jobs: int | None = None,
    command: str | None = None,
    report: Callable[[Comparison], Path] | None = None,
    console: Console | None = None,
    train: str = TRAIN,
) -> int:
    """Run what is missing of a comparison, print its table, save it, and write its page.

    Args:
        source: a preset, or a TOML file (see ``grid.py``).
        out: directory; ``runs/<name>`` if absent. One that holds the same comparison is continued.
        overrides: ``key=value`` on the keys of the source.
        seeds: replace the source's seeds.
        jobs: processes; one per core if absent.
        command: what the user typed, for the page.
        report: writes the page and returns its path; called when every cell has ended.
        console: where to print; standard output if absent.
        train: the single run, ``module:function``.

    Returns:
        Exit code: 0, also when a run could not go on, for that is a finding; 1 if a cell failed; 130 if it was asked to
        stop (the same call continues it).

    Raises:
        ConfigError: a source, an override or a number of jobs that is not allowed.
        RunDirError: ``out`` holds something else, or cannot be written.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: must be at least 1; leave it out for one per core")
    console = console or Console()
    grid = replace(grids.load(source, overrides, seeds), command=command)
    out = out or Path("runs") / grid.name
    open_or_create(out, grid)
    outcomes, names = _run_missing(grid, out, jobs or cores(), console, train)
    ended = [names[outcome.job] for outcome in outcomes if outcome.ending is not Ending.INTERRUPTED]
    if len(ended) < len(names):
        console.print(
            f"interrupted; everything is saved under {out}; the same command continues",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return INTERRUPTED
    comparison = read_comparison(out)
    tables.save(comparison, out / "table.json")
    tables.show(comparison.findings, console)
    if report is not None:
        console.print(f"report: {report(comparison)}", markup=False, highlight=False, soft_wrap=True)
    return _say_failures(outcomes, names, out, console)


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux knows
        return os.cpu_count() or 1


def _run_missing(
    grid: Grid, out: Path, num_workers: int, console: Console, train: str
) -> tuple[list[CellOutcome], list[str]]:
    unfinished = read_comparison(out).unfinished
    started = [cell for cell in unfinished if is_run(cell_dir(out, cell))]
    fresh = [cell for cell in unfinished if cell not in started]
    todo = [_job(grid, out, cell) for cell in [*started, *fresh]]  # those that were interrupted first
    num_cells = len(grid.cells())
    if len(todo) < num_cells:
        console.print(f"{num_cells - len(todo)} of {num_cells} cells have ended before", highlight=False)
    if not todo:
        return [], []
    with watching(console, todo, num_cells) as view:
        outcomes = run_jobs(todo, num_workers, out / "logs", view, train)
    return outcomes, [job.name for job in todo]


def _job(grid: Grid, out: Path, cell: Cell) -> Job:
    where = cell_dir(out, cell)
    resume = is_run(where)
    if not resume and where.is_dir() and not any(p.is_file() for p in where.rglob("*")):
        shutil.rmtree(where)  # killed before its first file: empty folders, nothing to continue
    return Job(cell.name, grid.config(cell, where), resume)


def _say_failures(outcomes: Sequence[CellOutcome], names: Sequence[str], out: Path, console: Console) -> int:
    failed: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.ending is Ending.FAILED:
            failed.setdefault(outcome.reason, []).append(names[outcome.job])
    for reason, cells in failed.items():
        text = f"failed: {', '.join(cells)}: {reason} (printed output: {out / 'logs'})"
        console.print(text, style="bold red", markup=False, highlight=False, soft_wrap=True)
    return 1 if failed else 0
