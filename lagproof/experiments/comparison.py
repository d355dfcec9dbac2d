"""A comparison read back: its grid, its runs, and what they say so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lagproof.errors import RunDirError
from lagproof.experiments.claims import Claim, Judged, judge
from lagproof.experiments.grid import Cell, Grid, from_tree
from lagproof.experiments.statistics import CellSummary, PairedDifference, RunSummary, over_seeds, paired, summarise
from lagproof.runs.comparison import ComparisonDir
from lagproof.runs.lags import LagName, rank
from lagproof.runs.run import Run

MAX_NAMED = 4
"""Differing keys that a message lists."""


@dataclass(frozen=True)
class Findings:
    """What some runs say.

    Attributes:
        runs: numbers of each run that has ended.
        cells: over seeds, lag by lag.
        differences: to each objective's baseline.
        unfinished: names of the runs without a result.
        claims: what the runs say of each claim of the comparison.
        idle: objectives that were another one on most of their runs, in sentences.
    """

    runs: tuple[RunSummary, ...]
    cells: tuple[CellSummary, ...]
    differences: tuple[PairedDifference, ...]
    unfinished: tuple[str, ...]
    claims: tuple[Judged, ...] = ()
    idle: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """A comparison as it stands on disk.

    Attributes:
        path: its directory.
        grid: what it runs.
        runs: the runs that have started, in the order of the grid.
    """

    path: Path
    grid: Grid
    runs: tuple[Run, ...]

    @property
    def findings(self) -> Findings:
        """What its runs say so far."""
        started = {(run.label, run.lag, run.seed): run for run in self.runs}
        missing = [c.name for c in self.grid.cells() if (c.entry.label, c.lag, c.seed) not in started]
        order = {entry.label: i for i, entry in enumerate(self.grid.entries)}
        runs = sorted(self.runs, key=lambda run: (rank(run.lag), order[run.label], run.seed))
        baselines = {e.label: e.baseline for e in self.grid.entries if e.baseline is not None}
        return find(runs, baselines, missing, self.grid.claims)

    @property
    def unfinished(self) -> list[Cell]:
        """Cells without a result, in the order of the grid."""
        ended = {(run.label, run.lag, run.seed) for run in self.runs if run.finished}
        return [cell for cell in self.grid.cells() if (cell.entry.label, cell.lag, cell.seed) not in ended]


def find(
    runs: Sequence[Run],
    baselines: Mapping[str, str],
    missing: Sequence[str] = (),
    claims: Sequence[Claim] = (),
) -> Findings:
    """The statistics of some runs; a run that is half done says nothing about its second half and is left out.

    Args:
        runs: in the order of tables.
        baselines: label of the baseline by label.
        missing: names of runs that have not started.
        claims: to be judged.
    """
    ended = [run for run in runs if run.finished]
    summaries = tuple(map(summarise, ended))
    running = [run.path.name for run in runs if not run.finished]
    cells, differences = tuple(over_seeds(summaries)), tuple(paired(summaries, baselines))
    return Findings(summaries, cells, differences, (*running, *missing), judge(claims, ended, summaries), idle(ended))


def idle(runs: Sequence[Run]) -> tuple[str, ...]:
    """What each objective says of having been another one on its rows at one lag, those of all seeds together."""
    from lagproof.objectives import OBJECTIVES, objective  # here: most readers of a comparison need no torch

    cells: dict[tuple[str, LagName], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.label, run.lag), []).append(run)
    out: list[str] = []
    for (label, lag), members in cells.items():
        options = dict(members[0].config["objective"])
        name = options.pop("name")
        if name not in OBJECTIVES:
            continue
        found = objective(name, **options).idle([row for run in members for row in run.rows if row.step > 0])
        if found is not None:
            out.append(f"{label} at lag {lag}: {found}.")
    return tuple(out)


def cell_dir(out: Path, cell: Cell) -> Path:
    """The run directory of a cell."""
    return ComparisonDir(out).cell(cell.name)


def is_comparison(path: Path) -> bool:
    """Whether a directory holds a comparison."""
    return ComparisonDir(path).exists


def read_comparison(path: Path) -> Comparison:
    """Read a comparison with the runs that have started.

    Raises:
        RunDirError: no comparison there, or one that cannot be read.
        ConfigError: its grid is not allowed.
    """
    where = ComparisonDir(path)
    grid = from_tree(where.read_grid(), path.name)
    cells = [cell for cell in grid.cells() if where.has_run(cell.name)]
    return Comparison(path, grid, tuple(Run.open(where.cell(cell.name), cell.entry.label) for cell in cells))


def open_or_create(out: Path, grid: Grid) -> None:
    """Make the directory of a comparison, or check that the one there is of the same grid.

    What changes no run is taken from the new one: title, baselines and claims. The command stays that of the beginning.

    Raises:
        RunDirError: it holds something else, or a comparison of a different grid, or cannot be written.
    """
    where = ComparisonDir(out)
    if not where.exists:
        where.check_free()
        where.write_grid(grid.to_toml())
        return
    before = from_tree(where.read_grid(), grid.name)
    _check_same(where, before, grid)
    kept = replace(grid, command=before.command)
    if kept != before:
        where.write_grid(kept.to_toml())


def pooled(runs: Sequence[Run]) -> list[Run]:
    """Runs from anywhere, lag by lag, under labels that tell them apart: the same cell twice is named by directory."""
    keys = [(run.label, run.lag, run.seed) for run in runs]
    named = [
        run if keys.count(key) == 1 else replace(run, name=f"{run.label} ({run.path.name})")
        for run, key in zip(runs, keys, strict=True)
    ]
    return sorted(named, key=lambda run: rank(run.lag))


def _check_same(where: ComparisonDir, before: Grid, grid: Grid) -> None:
    changed = grid.differences(before)
    if changed:
        shown = ", ".join(changed[:MAX_NAMED]) + (
            f" and {len(changed) - MAX_NAMED} more" if changed[MAX_NAMED:] else ""
        )
        raise RunDirError(
            f"{where.path}: holds a comparison of a different grid (differs in {shown}); "
            f"choose another directory with --out, or run {where.grid_file} to continue that one"
        )
