"""The tables of a comparison for people, and the file of every number for machines."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from lagproof.data.table import NOTHING, Column, Style, Table, TableCell, TableRow, Value
from lagproof.evaluation.statistics import CONFIDENCE, CONFIRMING_SEEDS
from lagproof.experiments.claims import RULE
from lagproof.experiments.collapse import RULE as COLLAPSE_RULE
from lagproof.experiments.comparison import Comparison, Findings
from lagproof.experiments.statistics import CellSummary, Estimate, PairedDifference
from lagproof.runs.comparison import ComparisonDir
from lagproof.runs.lags import describe, in_order

ACCURACY, MISMATCH = "Accuracy", "Mismatch and scales"
NAME = Column("objective", align="left", wrap=True)
LAG = Column("lag")

SIZES = {
    "d_bar": Column("d_bar", format=".4f", group=MISMATCH, help="mean |log-ratio| (d_bar), nats"),
    "k3": Column("k3", format=".4f", group=MISMATCH, help="k3 estimate of KL(sampler, policy), nats"),
    "d_bar_last": Column(
        "last", format=".4f", group=MISMATCH, help="d_bar over the last fifth of the steps, nats", detail=True
    ),
    "scale_positive": Column(
        "S+", format=".3f", group=MISMATCH, help="mean negative log-probability of responses with advantage > 0, nats"
    ),
    "scale_negative": Column(
        "S-", format=".3f", group=MISMATCH, help="mean negative log-probability of responses with advantage < 0, nats"
    ),
    "clipped": Column("clipped", format=".2%", group=MISMATCH, help="share of tokens clipped"),
    "changed": Column(
        "changed",
        format=".2%",
        group=MISMATCH,
        help="share of tokens that the objective treats unlike its base",
    ),
}
"""A column for each number beside the accuracy."""

DIFFERENCES = {
    "accuracy": Column("acc", format="+.3f", help="accuracy"),
    "d_bar": Column("d_bar", format="+.4f", help="mean |log-ratio| (d_bar), nats"),
    "d_bar_last": Column("last", format="+.4f", help="d_bar over the last fifth of the steps, nats", detail=True),
    "k3": Column("k3", format="+.4f", help="k3 estimate of KL(sampler, policy), nats", detail=True),
}
"""The same for paired differences; the file holds those of every number."""


def results(cells: Sequence[CellSummary]) -> Table:
    """Accuracy, mismatch and scales of each objective at each lag."""
    with_interval = any(len(cell.seeds) > 1 for cell in cells)
    shown = [name for name in SIZES if any(name in cell.estimates for cell in cells)]
    accuracy = [
        Column("seeds", group=ACCURACY),
        Column("accuracy", format=".3f", group=ACCURACY),
        *([Column("95% interval", group=ACCURACY)] if with_interval else []),
        Column("min", format=".3f", group=ACCURACY, help="the lowest of any seed after step 0"),
        Column("final", format=".3f", group=ACCURACY, help="the last evaluation"),
        Column("collapsed", group=ACCURACY, help=COLLAPSE_RULE),
    ]

    def row(cell: CellSummary) -> TableRow:
        e, bad = cell.estimates, Style.BAD if cell.collapsed else None
        values: list[Value] = [cell.label, str(cell.lag), len(cell.seeds), mean(e, "accuracy")]
        values += [interval(e, "accuracy", ".3f")] if with_interval else []
        values += [cell.worst, mean(e, "final"), TableCell(collapsed(cell), bad), *(mean(e, name) for name in shown)]
        return TableRow(values, bad)

    columns = [NAME, LAG, *accuracy, *(SIZES[name] for name in shown)]
    return Table("Results", columns, _by_lag(cells, row))


def differences(findings: Findings) -> Table:
    """Each objective minus its baseline."""
    found = findings.differences
    with_interval = any(len(difference.seeds) > 1 for difference in found)
    columns = [NAME, Column("minus", align="left", wrap=True), LAG, Column("seeds", detail=True)]
    for column in DIFFERENCES.values():
        columns += [column, Column("95% interval", detail=column.detail)] if with_interval else [column]

    def row(difference: PairedDifference) -> TableRow:
        values: list[Value] = [difference.label, difference.baseline, str(difference.lag), len(difference.seeds)]
        for name, column in DIFFERENCES.items():
            values.append(mean(difference.estimates, name))
            values += [interval(difference.estimates, name, column.format)] if with_interval else []
        return TableRow(values)

    caption = "Each run minus the baseline's run of the same seed and lag, then the mean over seeds."
    return Table("Differences, seed by seed", columns, _by_lag(found, row), caption)


def alarms(cells: Sequence[CellSummary]) -> Table:
    """When the first alarm of each cell fired."""
    caption = "The step: median over the seeds in which one fired, range, and how many seeds."
    columns = [NAME, LAG, Column("any"), Column("red")]
    rows = _by_lag(cells, lambda c: TableRow([c.label, str(c.lag), fired(c.first_alarm), fired(c.first_red)]))
    return Table("First alarm, step", columns, rows, caption)


def mean(estimates: Mapping[str, Estimate], name: str) -> float | None:
    """A mean over seeds, where there is one."""
    return estimates[name].mean if name in estimates else None


def interval(estimates: Mapping[str, Estimate], name: str, form: str) -> TableCell:
    """An interval as text; nothing where there is none."""
    found = estimates[name].interval if name in estimates else None
    return TableCell("" if found is None else f"[{found[0]:{form}}, {found[1]:{form}}]", Style.MUTED)


def collapsed(cell: CellSummary) -> str:
    """``no``, ``yes``, or how many seeds."""
    if cell.collapsed is None:
        return NOTHING
    judged = cell.estimates["accuracy"].n
    if cell.collapsed in (0, judged):
        return "yes" if cell.collapsed else "no"
    return f"{cell.collapsed} of {judged}"


def fired(steps: Sequence[int | None]) -> str:
    """The step at which something first fired: the median over seeds, the range, and in how many seeds."""
    found = sorted(step for step in steps if step is not None)
    if not found:
        return NOTHING
    said = f"{statistics.median_high(found)}"
    if len(steps) == 1:
        return said
    return f"{said} ({found[0]}-{found[-1]}), {len(found)} of {len(steps)}"


def any_alarm(cells: Sequence[CellSummary]) -> bool:
    """Whether an alarm fired anywhere."""
    return any(step is not None for cell in cells for step in cell.first_alarm)


def notes(findings: Findings) -> list[str]:
    """What a reader of the numbers has to know."""
    out = [
        "Means over the second half of training; min: the lowest accuracy of any seed after step 0; changed: share of "
        "tokens that the objective treats otherwise than its base. "
        + COLLAPSE_RULE[0].upper()
        + COLLAPSE_RULE[1:]
        + "."
    ]
    out += findings.idle
    sizes = sorted({len(cell.seeds) for cell in findings.cells})
    if sizes and sizes[-1] > 1:
        out.append(
            f"Intervals: {CONFIDENCE:.0%} t over seeds, of differences paired by seed; fewer than {CONFIRMING_SEEDS} "
            "seeds are exploratory."
        )
    if 1 in sizes:
        out.append("One seed has no interval: read small differences as noise.")
    out += [describe(lag) for lag in in_order(cell.lag for cell in findings.cells) if isinstance(lag, str)]
    if findings.claims:
        out.append(f"{RULE}.")
    for cell in findings.cells:
        if cell.stopped:
            seeds = ", ".join(map(str, cell.stopped))
            out.append(f"{cell.label} at lag {cell.lag} ended before its planned steps (seed {seeds}).")
    if findings.unfinished:
        total = len(findings.unfinished) + len(findings.runs)
        out.append(f"{len(findings.unfinished)} of {total} runs have no result yet.")
    return out


def save(comparison: Comparison) -> Path:
    """Write every number, those of single runs included; the file.

    Raises:
        RunDirError: the file cannot be written.
    """
    return ComparisonDir(comparison.path).write_table(
        {
            "title": comparison.grid.title,
            "command": comparison.grid.command,
            "machine": machine(),
            "collapse_rule": COLLAPSE_RULE,
            **dataclasses.asdict(comparison.findings),
        }
    )


def machine() -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "lagproof")},
    }


def _by_lag(items: Sequence[Any], row: Callable[[Any], TableRow]) -> list[list[TableRow]]:
    """A row for each item; those of a lag, which stand together, are a section."""
    return [[row(item) for item in members] for _, members in groupby(items, lambda item: item.lag)]
