"""The table of a comparison, for people (80 columns, plain when piped) and for machines (``table.json``)."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lagproof.errors import RunDirError
from lagproof.evaluation.statistics import CONFIDENCE, CONFIRMING_SEEDS
from lagproof.experiments.claims import RULE, Judged
from lagproof.experiments.comparison import Comparison, Findings
from lagproof.experiments.statistics import (
    COLLAPSE_RULE,
    CellSummary,
    Estimate,
    PairedDifference,
)
from lagproof.runs.lags import describe, in_order

NOTHING = "-"
"""What stands where there is no number."""

PLAIN = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""A rule below the heading and an empty line between lags: the same on a terminal and in a file."""

MISMATCH = {
    "d_bar": ("d_bar", ".4f"),
    "k3": ("k3", ".4f"),
    "scale_positive": ("S+", ".3f"),
    "scale_negative": ("S-", ".3f"),
    "clipped": ("clipped", ".2%"),
    "changed": ("SAT", ".2%"),
}
"""Name of a number, its heading and its format."""

DIFFERENCES = {"accuracy": ("acc", "+.3f"), "d_bar": ("d_bar", "+.4f")}
"""The same for paired differences; ``table.json`` holds those of every number."""


def number(estimates: Mapping[str, Estimate], name: str, form: str) -> str:
    """A mean as text."""
    return format(estimates[name].mean, form) if name in estimates else NOTHING


def interval(estimates: Mapping[str, Estimate], name: str, form: str) -> str:
    """An interval as text; nothing where there is none."""
    found = estimates[name].interval if name in estimates else None
    return "" if found is None else f"[{found[0]:{form}}, {found[1]:{form}}]"


def collapsed(cell: CellSummary) -> str:
    """``no``, ``yes``, or how many seeds."""
    if cell.collapsed is None:
        return NOTHING
    judged = cell.estimates["accuracy"].n
    if cell.collapsed in (0, judged):
        return "yes" if cell.collapsed else "no"
    return f"{cell.collapsed} of {judged}"


def rang(steps: Sequence[int | None]) -> str:
    """The step at which something first rang: the median over seeds and the range, and in how many seeds if not all."""
    found = sorted(step for step in steps if step is not None)
    if not found:
        return NOTHING
    said = f"{statistics.median_high(found)}"
    if len(steps) == 1:
        return said
    return f"{said} ({found[0]}-{found[-1]}), {len(found)} of {len(steps)}"


def any_alarm(cells: Sequence[CellSummary]) -> bool:
    """Whether an alarm rang anywhere."""
    return any(step is not None for cell in cells for step in cell.first_alarm)


def notes(findings: Findings) -> list[str]:
    """What a reader of the numbers has to know."""
    out = [
        "Means over the second half of training; min: the lowest accuracy of any seed after step 0; SAT: share of "
        "tokens that only the adaptive radius clipped. " + COLLAPSE_RULE[0].upper() + COLLAPSE_RULE[1:] + "."
    ]
    sizes = sorted({len(cell.seeds) for cell in findings.cells})
    if sizes and sizes[-1] > 1:
        out.append(
            f"Intervals: {CONFIDENCE:.0%} t over seeds, of differences paired by seed; fewer than {CONFIRMING_SEEDS} "
            "seeds are exploratory."
        )
    if 1 in sizes:
        out.append("One seed has no interval: read small differences as noise.")
    out += [describe(lag) for lag in in_order(cell.lag for cell in findings.cells) if isinstance(lag, str)]
    if any_alarm(findings.cells):
        out.append("First alarm: the step; the median over the seeds in which one rang, the range, and how many.")
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


def show(findings: Findings, console: Console) -> None:
    """Print the tables."""
    cells = findings.cells
    if not cells:
        console.print("no cell has a result yet", highlight=False)
        return
    found = [_accuracy_table(cells), _mismatch_table(cells)]
    if findings.differences:
        found.append(_difference_table(findings.differences))
    if any_alarm(cells):
        found.append(_alarm_table(cells))
    for table in found:
        console.print(table, "")
    for judged in findings.claims:
        _show_claim(judged, console)
    for note in notes(findings):
        console.print(note, markup=False, highlight=False, style="dim")


def save(comparison: Comparison, path: Path) -> None:
    """Write every number, those of single runs included.

    Raises:
        RunDirError: the file cannot be written.
    """
    findings = comparison.findings
    content = {
        "title": comparison.grid.title,
        "command": comparison.grid.command,
        "machine": machine(),
        "collapse_rule": COLLAPSE_RULE,
        **dataclasses.asdict(findings),
    }
    try:
        beside = path.with_name(f".{path.name}.tmp")
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise RunDirError(f"{path}: cannot be written: {error.strerror or error}") from error


def machine() -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "lagproof")},
    }


def _accuracy_table(cells: Sequence[CellSummary]) -> Table:
    with_interval = any(len(cell.seeds) > 1 for cell in cells)
    columns = ["lag", "seeds", "accuracy", *(["95% interval"] if with_interval else []), "min", "final", "collapsed"]
    table = _table("Accuracy", ["objective", *columns])
    for cell, first in _blocks(cells):
        e = cell.estimates
        row = [
            cell.label,
            str(cell.lag),
            str(len(cell.seeds)),
            number(e, "accuracy", ".3f"),
            *([interval(e, "accuracy", ".3f")] if with_interval else []),
            NOTHING if cell.worst is None else f"{cell.worst:.3f}",
            number(e, "final", ".3f"),
            collapsed(cell),
        ]
        _add(table, row, first, style="bold red" if cell.collapsed else None)
    return table


def _mismatch_table(cells: Sequence[CellSummary]) -> Table:
    shown = {name: head for name, head in MISMATCH.items() if any(name in cell.estimates for cell in cells)}
    table = _table("Mismatch and scales", ["objective", "lag", *(heading for heading, _ in shown.values())])
    for cell, first in _blocks(cells):
        numbers = [number(cell.estimates, name, form) for name, (_, form) in shown.items()]
        _add(table, [cell.label, str(cell.lag), *numbers], first)
    return table


def _difference_table(differences: Sequence[PairedDifference]) -> Table:
    with_interval = any(len(difference.seeds) > 1 for difference in differences)
    columns = ["objective", "minus", "lag"]
    for heading, _ in DIFFERENCES.values():
        columns += [heading, "95% interval"] if with_interval else [heading]
    table = _table("Differences, seed by seed", columns)
    for difference, first in _blocks(differences):
        row = [difference.label, difference.baseline, str(difference.lag)]
        for name, (_, form) in DIFFERENCES.items():
            row.append(number(difference.estimates, name, form))
            if with_interval:
                row.append(interval(difference.estimates, name, form))
        _add(table, row, first)
    return table


def _alarm_table(cells: Sequence[CellSummary]) -> Table:
    table = _table("First alarm, step", ["objective", "lag", "any", "red"])
    for cell, first in _blocks(cells):
        _add(table, [cell.label, str(cell.lag), rang(cell.first_alarm), rang(cell.first_red)], first)
    return table


def _show_claim(judged: Judged, console: Console) -> None:
    text = f"Claim: {judged.claim.text}: {judged.verdict}"
    console.print(text, markup=False, highlight=False, style="bold")
    for part in judged.parts:
        console.print(Padding(Text(part.line), (0, 0, 0, 2)))
    console.print("")


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=PLAIN, padding=(0, 1, 0, 0), show_edge=False)
    for column in columns:
        text = column in ("objective", "minus")
        table.add_column(column, justify="left" if text else "right", no_wrap=not text, overflow="fold")
    return table


def _add(table: Table, row: Sequence[str], first: bool, style: str | None = None) -> None:
    if first and table.row_count:
        table.add_section()
    table.add_row(*row, style=style)


def _blocks(items: Sequence[Any]) -> list[tuple[Any, bool]]:
    """Each item, and whether it is the first of its lag."""
    return [(item, i == 0 or items[i - 1].lag != item.lag) for i, item in enumerate(items)]
