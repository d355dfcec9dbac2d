"""The page of a comparison, or of several runs side by side: tables, then a row of panels for each question."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace

from lagproof.data.table import Style
from lagproof.experiments import tables
from lagproof.experiments.claims import ClaimVerdict, Judged
from lagproof.experiments.comparison import Comparison, Findings, find
from lagproof.experiments.statistics import CellSummary, verdicts
from lagproof.monitor.alarm import Alarm, Severity
from lagproof.report import charts, colours
from lagproof.report.figures import (
    D_BAR,
    Keys,
    age_figure,
    alarms_of,
    by_lag,
    listed,
    read_tails,
    setting,
    tail_figure,
    toml,
)
from lagproof.report.page import Alarms, Claims, Figure, JudgedClaim, Numbers, Page, Panel, Section
from lagproof.report.series import Curves, curves
from lagproof.runs.comparison import ComparisonDir
from lagproof.runs.lags import LagName, in_order
from lagproof.runs.run import Run

MAX_CONFIGS = 12
"""Runs whose configurations a page of runs from anywhere holds."""

STYLES = {
    ClaimVerdict.HOLDS: Style.GOOD,
    ClaimVerdict.FAILS: Style.BAD,
    ClaimVerdict.UNDECIDED: Style.MUTED,
    ClaimVerdict.EXPLORATORY: Style.MUTED,
}


def of_comparison(comparison: Comparison, command: str | None = None) -> Page:
    """The page of a comparison as it stands."""
    grid = comparison.grid
    entries = grid.entries
    keys = colours.assign([e.label for e in entries], [e.name for e in entries])
    lead = f"{len(entries)} objectives × lags {listed(in_order(lag.lag for lag in grid.lags))}, {_seeds(comparison)}. "
    grid_file = ComparisonDir(comparison.path).grid_file
    again = shlex.join(["lagproof", "compare", str(grid_file), "--out", str(comparison.path)])
    return _page(
        title=grid.title,
        lead=lead + setting(grid.tree()),
        runs=comparison.runs,
        findings=comparison.findings,
        keys=keys,
        files=[(f"Configuration ({grid_file.name})", grid.to_toml())],
        command=command or grid.command or again,
    )


def of_runs(runs: Sequence[Run], title: str | None = None, command: str | None = None) -> Page:
    """The page of several runs side by side, under labels that tell them apart."""
    labels = list(dict.fromkeys(run.label for run in runs))
    names = {run.label: str(run.config["objective"]["name"]) for run in runs}
    return _page(
        title=title or f"{len(runs)} runs",
        lead=f"Objectives: {listed(labels)}. Lags: {listed(in_order(run.lag for run in runs))}.",
        runs=runs,
        findings=find(runs, {}),
        keys=colours.assign(labels, [names[label] for label in labels]),
        files=[(f"Configuration of {run.path}", toml(run.config)) for run in runs[:MAX_CONFIGS]],
        command=command,
    )


def _page(
    *,
    title: str,
    lead: str,
    runs: Sequence[Run],
    findings: Findings,
    keys: Keys,
    files: Sequence[tuple[str, str]],
    command: str | None,
) -> Page:
    (summary, *over_steps), problems = _figures(runs, findings, keys)
    cells, alarms = findings.cells, _first_alarms(runs)
    sections: list[Section] = []
    if findings.claims:
        sections.append(Claims([_claim(judged) for judged in findings.claims]))
    if cells:
        results = tables.results(cells)
        sections.append(Numbers(replace(results, notes=tables.notes(findings)), keys))
    if tables.any_alarm(cells):
        sections.append(Numbers(tables.alarms(cells), keys))
    if alarms:
        sections.append(Alarms(alarms))
    sections.append(summary)
    if findings.differences:
        sections.append(Numbers(tables.differences(findings), keys))
    return Page(
        title=title,
        lead=lead,
        verdict=[("", sentence) for sentence in verdicts(cells)],
        bad=any(cell.collapsed for cell in cells),
        sections=[*sections, *over_steps],
        files=files,
        command=command,
        problems=[f"{run.path}: {note}" for run in runs for note in run.notes] + problems,
    )


def _claim(judged: Judged) -> JudgedClaim:
    lines = [part.line for part in judged.parts]
    return JudgedClaim(judged.claim.text, str(judged.verdict), STYLES[judged.verdict], lines)


def _figures(runs: Sequence[Run], findings: Findings, keys: Keys) -> tuple[list[Figure], list[str]]:
    """The figures of many runs, and sentences about what could not be read."""
    tails, problems = read_tails(runs)
    asked = "Evaluation on the same prompts."
    if len({json.dumps([run.config["task"], run.config["eval"]], sort_keys=True) for run in runs}) > 1:
        asked = "Each run is evaluated as its own [task] and [eval] say: heights do not compare."
        problems = [*problems, "The runs differ in their task or in how they are evaluated: accuracies do not compare."]
    figures = [
        _summary(findings.cells, keys),
        _over_steps(runs, keys, "eval/accuracy", "Accuracy over steps", asked, (0.0, 1.0)),
        _over_steps(runs, keys, "d_bar", "Mismatch over steps", D_BAR, log=True),
        tail_figure(tails, keys),
        age_figure(runs, charts.LOW_HEIGHT),
    ]
    return figures, problems


def _summary(cells: Sequence[CellSummary], keys: Keys) -> Figure:
    judged = [cell for cell in cells if "accuracy" in cell.estimates]
    if not judged:
        return Figure("By lag", "No run with an evaluation has ended yet.", {}, ())
    caption = "Means over the second half of training"
    if any(cell.estimates["accuracy"].interval for cell in judged):
        caption += ", with their 95 % intervals over seeds"
    shown = {cell.label: keys[cell.label] for cell in judged}
    order = [str(lag) for lag in in_order(cell.lag for cell in judged)]
    accuracy = charts.by_lag(_estimates(judged, "accuracy"), shown, order, "accuracy", domain=(0.0, 1.0))
    panels = [Panel("Accuracy", accuracy)]
    sizes = _estimates(judged, "d_bar")
    domain = charts.log_domain([found.mean for found in sizes], 0.0)
    if domain is not None:
        spec = charts.by_lag(sizes, shown, order, "d_bar", domain=domain, log=True, form=".3~g")
        panels.append(Panel("mean |log-ratio| (d_bar), nats", spec))
    return Figure("By lag", f"{caption}.", shown, panels)


def _estimates(cells: Sequence[CellSummary], name: str) -> list[charts.LagEstimate]:
    return [
        charts.LagEstimate(cell.label, str(cell.lag), cell.estimates[name].mean, cell.estimates[name].interval)
        for cell in cells
        if name in cell.estimates
    ]


def _over_steps(
    runs: Sequence[Run],
    keys: Keys,
    metric: str,
    title: str,
    caption: str,
    domain: tuple[float, float] | None = None,
    *,
    log: bool = False,
) -> Figure:
    found = curves(runs, metric)
    if not found.single:
        return Figure(title, f"No run has recorded {metric}.", {}, ())
    shown = {label: keys[label] for label in keys if any(c.label == label for c in found.single)}
    domain = domain or (charts.log_domain(found.values) if log else charts.linear_domain(found.values))
    last = max(run.last_step for run in runs)
    panels = [
        Panel(
            f"Lag {lag}",
            charts.over_steps(part, shown, last_step=last, domain=domain, log=log, alarms=_lag_alarms(runs, lag)),
        )
        for lag, part in by_lag(found).items()
    ]
    fired = "Dashed: the first alarm of a run." if any(run.alarms for run in runs) else ""
    return Figure(title, f"{caption} {_how_drawn(found)} {fired}".strip(), shown, panels)


def _lag_alarms(runs: Sequence[Run], lag: LagName) -> list[tuple[int, str, str]]:
    """The first alarm of each run; all of them would hide the curves."""
    out: list[tuple[int, str, str]] = []
    for run in runs:
        if run.lag == lag and run.alarms:
            step, severity, sentence = min(alarms_of(run))
            out.append((step, severity, f"{run.label}, seed {run.seed}: {sentence}"))
    return out


def _how_drawn(found: Curves) -> str:
    seeds = "Thin: each seed; thick: their mean." if found.mean else ""
    window = f"Each point is the mean over {found.window} steps." if found.window > 1 else ""
    return f"{seeds} {window}".strip()


def _first_alarms(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """When the first alarm of each run fired, a line for each objective and lag."""
    firsts: dict[tuple[str, LagName], list[tuple[Run, Alarm]]] = {}
    for run in runs:
        if run.alarms:
            firsts.setdefault((run.label, run.lag), []).append((run, min(run.alarms, key=lambda alarm: alarm.step)))
    out: list[tuple[str, str]] = []
    for (label, lag), found in firsts.items():
        steps = listed(f"{alarm.step} (seed {run.seed})" for run, alarm in found)
        said = f"{label}, lag {lag}: first alarm at step {steps}: {found[0][1].sentence}"
        out.append((max((alarm.severity for _, alarm in found), key=lambda s: s is Severity.RED), said))
    return out


def _seeds(comparison: Comparison) -> str:
    seeds = sorted({seed for lag in comparison.grid.lags for seed in lag.seeds})
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {listed(seeds)}"
