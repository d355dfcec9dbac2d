"""From directories to a page: what ``lagproof report`` does."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from lagproof.errors import RunDirError
from lagproof.experiments.comparison import (
    GRID_FILE,
    Comparison,
    Findings,
    find,
    is_comparison,
    pooled,
    read_comparison,
)
from lagproof.experiments.statistics import COLLAPSE_RULE, summarise, verdicts
from lagproof.experiments.tables import machine
from lagproof.report import colours, figures, html_tables, single
from lagproof.report.page import Page, alarm_list, save
from lagproof.runs.lags import LagName, in_order
from lagproof.runs.reading import RunData, read_run

FILE = "report.html"
MAX_CONFIGS = 12
"""Runs whose configurations a page of runs from anywhere holds."""


def write(sources: Sequence[Path], out: Path | None = None, *, command: str | None = None) -> Path:
    """Write the page of a run, of a comparison, or of several runs side by side.

    Args:
        sources: run directories, or directories of comparisons.
        out: the file; ``report.html`` inside the only source, or in the current directory for several.
        command: what made the data, for the page; read from the comparison if absent.

    Returns:
        The file that was written.

    Raises:
        RunDirError: a source that is neither, or a page that cannot be written.
    """
    if not sources:
        raise RunDirError("nothing to report on: name a run directory or the directory of a comparison")
    if len(sources) == 1:
        (source,) = sources
        out = out or source / FILE
        if is_comparison(source):
            return write_comparison(read_comparison(source), out, command=command)
        return write_report([read_run(source)], out, command=command)
    runs: list[RunData] = []
    for source in sources:
        runs += read_comparison(source).runs if is_comparison(source) else [read_run(source)]
    return write_report(pooled(runs), out or Path(FILE), command=command)


def write_comparison(comparison: Comparison, out: Path | None = None, *, command: str | None = None) -> Path:
    """Write the page of a comparison as it stands; ``report.html`` in its directory if no file is named."""
    grid = comparison.grid
    entries = grid.entries
    keys = colours.assign([e.label for e in entries], [e.name for e in entries])
    lead = f"{len(entries)} objectives × lags {_list(in_order(lag.lag for lag in grid.lags))}, {_seeds(comparison)}. "
    again = shlex.join(["lagproof", "compare", str(comparison.path / GRID_FILE), "--out", str(comparison.path)])
    page = _page_of_many(
        title=grid.title,
        lead=lead + _setting(grid.tree()),
        runs=comparison.runs,
        findings=comparison.findings,
        keys=keys,
        files=[("Configuration (compare.toml)", grid.to_toml())],
        command=command or grid.command or again,
    )
    return save(page, out or comparison.path / FILE)


def write_report(runs: Sequence[RunData], path: Path, title: str | None = None, *, command: str | None = None) -> Path:
    """Write the page of one run, or of several side by side.

    Args:
        runs: see :func:`lagproof.runs.reading.read_run`; several have labels that tell them apart.
        path: the file.
        title: heading; made from the runs if absent.
        command: what made the data, for a shell.
    """
    if len(runs) == 1:
        return save(_page_of_one(runs[0], title, command), path)
    labels = list(dict.fromkeys(run.label for run in runs))
    names = {run.label: str(run.config["objective"]["name"]) for run in runs}
    page = _page_of_many(
        title=title or f"{len(runs)} runs",
        lead=f"Objectives: {', '.join(labels)}. Lags: {_list(in_order(run.lag for run in runs))}.",
        runs=runs,
        findings=find(runs, {}),
        keys=colours.assign(labels, [names[label] for label in labels]),
        files=[(f"Configuration of {run.path}", _toml(run.config)) for run in runs[:MAX_CONFIGS]],
        command=command,
    )
    return save(page, path)


def _page_of_many(
    *,
    title: str,
    lead: str,
    runs: Sequence[RunData],
    findings: Findings,
    keys: Mapping[str, int],
    files: Sequence[tuple[str, str]],
    command: str | None,
) -> Page:
    (by_lag, *over_steps), problems = figures.of_many(runs, findings, keys)
    return Page(
        title=title,
        lead=lead,
        verdict=verdicts(findings.cells),
        bad=any(cell.collapsed for cell in findings.cells),
        sections=[
            html_tables.claims(findings),
            html_tables.results(findings, keys),
            html_tables.alarms(findings, keys),
            alarm_list(_first_alarms(runs)),
            by_lag,
            html_tables.differences(findings, keys),
            *over_steps,
        ],
        files=files,
        command=command,
        problems=[note for run in runs for note in run.notes] + problems,
        footer=footer(),
    )


def _page_of_one(run: RunData, title: str | None, command: str | None) -> Page:
    found, problems = single.of_one(run)
    verdict, bad = _verdict(run)
    alarms = [(str(a.get("severity", "")), f"Step {a['step']}: {_said(a)}") for a in run.alarms]
    return Page(
        title=title or f"{run.label} at lag {run.lag}",
        lead=f"{run.path.name}, seed {run.seed}. {_setting(run.config)}",
        verdict=verdict,
        bad=bad,
        sections=[alarm_list(alarms), *found],
        files=[("Configuration (config.toml)", _toml(run.config))],
        command=command or shlex.join(["lagproof", "train", str(run.path / "config.toml")]),
        problems=[*run.notes, *problems],
        footer=footer(),
    )


def _verdict(run: RunData) -> tuple[list[str], bool]:
    """How far a run is, and whether it held; one that is still running is not judged."""
    planned = run.planned_steps
    if run.result is None:
        said = [f"Not finished: step {run.last_step} of {planned}."]
    elif run.result.get("success", True):
        said = [f"Finished: {run.last_step} steps."]
    else:
        said = [
            f"Ended after step {run.last_step} of {planned}: {run.result.get('detail') or run.result.get('reason')}."
        ]
    if run.idle_batches:
        said.append(f"{run.idle_batches} batches made no step: no group had a signal, or gradients were not finite.")
    summary = summarise(run)
    values = summary.values
    if "accuracy" in values:
        extremes = f"lowest {values['minimum']:.3f}, last {values['final']:.3f}"
        said.append(f"Accuracy: {values['accuracy']:.3f} over the second half, {extremes}.")
    if summary.collapsed and run.finished:
        said.append(COLLAPSE_RULE[0].upper() + COLLAPSE_RULE[1:] + ".")
    return said, bool(summary.collapsed and run.finished) or bool(run.result and not run.result.get("success", True))


def _first_alarms(runs: Sequence[RunData]) -> list[tuple[str, str]]:
    """When the first alarm of each run rang, a line for each objective and lag."""
    firsts: dict[tuple[str, LagName], list[tuple[RunData, Mapping[str, Any]]]] = {}
    for run in runs:
        if run.alarms:
            firsts.setdefault((run.label, run.lag), []).append((run, min(run.alarms, key=lambda alarm: alarm["step"])))
    out: list[tuple[str, str]] = []
    for (label, lag), found in firsts.items():
        steps = _list(f"{alarm['step']} (seed {run.seed})" for run, alarm in found)
        severities = {str(alarm.get("severity", "")) for _, alarm in found}
        said = f"{label}, lag {lag}: first alarm at step {steps}: {_said(found[0][1])}"
        out.append(("red" if "red" in severities else "yellow", said))
    return out


def _setting(config: Mapping[str, Any]) -> str:
    """One line about what was trained; ``config`` may be of an old run."""
    rollout, learner = config.get("rollout", {}), config.get("learner", {})
    task = config.get("task", {})
    parts = [
        f"{config.get('model')} on {task.get('name') if isinstance(task, Mapping) else task}",
        f"{config.get('steps')} steps of {rollout.get('prompts')} prompts × {rollout.get('samples')} responses",
        f"learning rate {learner.get('lr')}",
    ]
    if rollout.get("precision", "float32") != "float32":
        parts.append(f"sampled in {rollout['precision']}")
    return ", ".join(parts) + "."


def _seeds(comparison: Comparison) -> str:
    seeds = sorted({seed for lag in comparison.grid.lags for seed in lag.seeds})
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {_list(seeds)}"


def _list(items: Any) -> str:
    return ", ".join(map(str, items))


def _said(alarm: Mapping[str, Any]) -> str:
    return str(alarm.get("sentence") or alarm.get("name") or "")


def _toml(config: Mapping[str, Any]) -> str:
    return tomli_w.dumps(config)


def footer() -> str:
    """Where and with what a page was made."""
    about = machine()
    return (
        f"Page made with lagproof {about['lagproof']} on {about['system']}, {about['cores']} cores, "
        f"Python {about['python']}, torch {about['torch']}."
    )
