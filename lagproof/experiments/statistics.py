"""What a comparison says: numbers of a run, their means and intervals over seeds, paired differences to a baseline.

A number without data is absent, never 0. Intervals are t intervals over seeds, those of differences paired by seed;
they need two seeds that differ, and with fewer than ``CONFIRMING_SEEDS`` they are exploratory.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_high

import numpy as np

from lagproof.evaluation.statistics import CONFIRMING_SEEDS, Interval, t_interval
from lagproof.experiments.collapse import collapse
from lagproof.monitor.alarm import Severity
from lagproof.runs.lags import LagName, rank
from lagproof.runs.run import Run

ACCURACY = "eval/accuracy"
SECOND_HALF = {
    "accuracy": (ACCURACY,),
    "d_bar": ("d_bar",),
    "k3": ("k3",),
    "scale_positive": ("scale_positive",),
    "scale_negative": ("scale_negative",),
    "clipped": ("clipped_high", "clipped_low"),
    "changed": ("*/changed",),
}
"""Means over the second half of training: our name, and the metrics of a run that add up to it.

``*`` stands for an objective: ``changed`` is the share of tokens that it treats unlike its base.
"""

LAST_PART = {"d_bar_last": ("d_bar",), "k3_last": ("k3",)}
"""Means over the last :data:`LAST` of the steps, as large a part as the last epoch is whose mismatch the SAT paper
reports: 544 steps of 256 prompts over 30,712 problems are 4.5 epochs, and the last one is 22 % of the steps."""

LAST = 0.2

NUMBERS = (*SECOND_HALF, *LAST_PART, "minimum", "final", "second_half_share", "final_share")
"""Names of the numbers of a run."""


@dataclass(frozen=True)
class RunSummary:
    """The numbers of one run.

    Attributes:
        label, lag, seed: which run.
        values: by name: those of :data:`SECOND_HALF` and :data:`LAST_PART`; ``minimum`` and ``final``: lowest and last
            accuracy after step 0; ``second_half_share`` and ``final_share``: of the run's best, as in ``collapse.py``.
        collapsed: by ``collapse.RULE``; ``None`` without evaluations.
        steps: steps made.
        planned_steps: steps asked for.
        first_alarm, first_red: step at which the first alarm of any severity, and the first red one, fired; ``None``
            where none did.
        began: step at which the collapse began; ``None`` without one.
    """

    label: str
    lag: LagName
    seed: int
    values: Mapping[str, float]
    collapsed: bool | None
    steps: int
    planned_steps: int
    first_alarm: int | None = None
    first_red: int | None = None
    began: int | None = None


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: over the ``n`` seeds that have the number.
        interval: 95 % t interval over seeds; ``None`` with one seed, or where all have the same number.
        n: seeds.
    """

    mean: float
    interval: Interval | None
    n: int


@dataclass(frozen=True)
class CellSummary:
    """One objective at one lag, over its seeds.

    Attributes:
        label, lag: which.
        seeds: the seeds whose runs have ended.
        estimates: by name, as in :class:`RunSummary`; ``minimum`` here is still a mean over seeds.
        worst: the lowest accuracy of any seed after step 0.
        collapsed: how many seeds collapsed, of those that can be judged; ``None`` if none can.
        stopped: seeds that ended before their planned steps.
        first_alarm, first_red, began: as in :class:`RunSummary`, one per seed.
    """

    label: str
    lag: LagName
    seeds: tuple[int, ...]
    estimates: Mapping[str, Estimate]
    worst: float | None
    collapsed: int | None
    stopped: tuple[int, ...] = ()
    first_alarm: tuple[int | None, ...] = ()
    first_red: tuple[int | None, ...] = ()
    began: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class PairedDifference:
    """An objective minus its baseline at one lag, seed by seed.

    Attributes:
        label, baseline, lag: which.
        seeds: the seeds that both have.
        estimates: by name, of ``label - baseline``.
    """

    label: str
    baseline: str
    lag: LagName
    seeds: tuple[int, ...]
    estimates: Mapping[str, Estimate] = field(default_factory=dict)


def summarise(run: Run) -> RunSummary:
    """The numbers of one run; the second half is that of the steps it has made."""
    values: dict[str, float] = {}
    for numbers, after in ((SECOND_HALF, run.last_step / 2), (LAST_PART, (1 - LAST) * run.last_step)):
        values |= {name: v for name, parts in numbers.items() if (v := _mean_after(run, parts, after)) is not None}
    steps, accuracy = run.series(ACCURACY)
    trained = [a for step, a in zip(steps, accuracy, strict=True) if step > 0]
    if trained:
        values |= {"minimum": min(trained), "final": trained[-1]}
    fall = collapse(steps, accuracy, run.last_step)
    if fall is not None:
        values |= {"second_half_share": fall.second_half, "final_share": fall.final}
    return RunSummary(
        run.label,
        run.lag,
        run.seed,
        values,
        None if fall is None else fall.collapsed,
        run.last_step,
        run.planned_steps,
        min((alarm.step for alarm in run.alarms), default=None),
        min((alarm.step for alarm in run.alarms if alarm.severity is Severity.RED), default=None),
        None if fall is None else fall.began,
    )


def over_seeds(runs: Iterable[RunSummary]) -> list[CellSummary]:
    """One summary for each objective and lag, in the order in which they first appear."""
    cells: dict[tuple[str, LagName], list[RunSummary]] = {}
    for run in runs:
        cells.setdefault((run.label, run.lag), []).append(run)
    return [_cell(label, lag, members) for (label, lag), members in cells.items()]


def paired(runs: Sequence[RunSummary], baselines: Mapping[str, str]) -> list[PairedDifference]:
    """Differences over the seeds that an objective shares with its baseline.

    Args:
        runs: the runs.
        baselines: label of the baseline by label; labels without one have no difference.
    """
    by_key = {(run.label, run.lag, run.seed): run for run in runs}
    out: list[PairedDifference] = []
    for label, lag in dict.fromkeys((run.label, run.lag) for run in runs):
        baseline = baselines.get(label)
        if baseline is None:
            continue
        seeds = tuple(
            run.seed for run in runs if (run.label, run.lag) == (label, lag) and (baseline, lag, run.seed) in by_key
        )
        if seeds:
            found = {name: pairs(runs, label, baseline, lag, name) for name in NUMBERS}
            estimates = {name: estimate([a - b for a, b in both]) for name, both in found.items() if both}
            out.append(PairedDifference(label, baseline, lag, seeds, estimates))
    return out


def pairs(runs: Sequence[RunSummary], label: str, than: str, lag: LagName, name: str) -> list[tuple[float, float]]:
    """One number of two objectives at a lag, seed by seed: of each seed that has both."""
    ours, theirs = (
        {run.seed: run.values[name] for run in runs if (run.label, run.lag) == (who, lag) and name in run.values}
        for who in (label, than)
    )
    return [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and interval of one number over seeds; at least one value."""
    return Estimate(float(np.mean(values)), t_interval(values), len(values))


def verdicts(cells: Sequence[CellSummary]) -> list[str]:
    """One sentence per lag: which objectives collapsed there and which held."""
    out: list[str] = []
    for lag in dict.fromkeys(cell.lag for cell in cells):
        judged = [cell for cell in cells if cell.lag == lag and cell.collapsed is not None]
        failed = [cell for cell in judged if cell.collapsed]
        if failed:
            names = ", ".join(f"{c.label} ({c.collapsed} of {_seeds(c)}{_began(c)})" for c in failed)
            held = ", ".join(c.label for c in judged if not c.collapsed)
            out.append(f"Lag {lag}: collapsed: {names}." + (f" Held: {held}." if held else " None held."))
        elif judged:
            out.append(f"Lag {lag}: nothing collapsed.")
    few = sorted({cell.lag for cell in cells if len(cell.seeds) < CONFIRMING_SEEDS}, key=rank)
    if out and few:
        out.append(
            f"Exploratory at lag {', '.join(map(str, few))}: fewer than {CONFIRMING_SEEDS} seeds of an objective there."
        )
    return out


def _seeds(cell: CellSummary) -> str:
    n = cell.estimates["accuracy"].n
    return f"{n} seed{'s' if n > 1 else ''}"


def _began(cell: CellSummary) -> str:
    """From which step on: the median over the seeds that collapsed."""
    steps = sorted(step for step in cell.began if step is not None)
    if not steps:
        return ""
    return f", from step {median_high(steps)}" + (f" ({steps[0]}-{steps[-1]})" if steps[1:] else "")


def _cell(label: str, lag: LagName, runs: Sequence[RunSummary]) -> CellSummary:
    judged = [run.collapsed for run in runs if run.collapsed is not None]
    minima = [run.values["minimum"] for run in runs if "minimum" in run.values]
    return CellSummary(
        label,
        lag,
        tuple(run.seed for run in runs),
        _estimates([run.values for run in runs]),
        min(minima) if minima else None,
        sum(judged) if judged else None,
        tuple(run.seed for run in runs if run.steps < run.planned_steps),
        tuple(run.first_alarm for run in runs),
        tuple(run.first_red for run in runs),
        tuple(run.began for run in runs),
    )


def _estimates(rows: Sequence[Mapping[str, float]]) -> dict[str, Estimate]:
    found = {name: [row[name] for row in rows if name in row] for name in NUMBERS}
    return {name: estimate(values) for name, values in found.items() if values}


def _mean_after(run: Run, parts: Sequence[str], after: float) -> float | None:
    means: list[float] = []
    for name in [name for part in parts for name in _names(run, part)]:
        values = [v for step, v in zip(*run.series(name), strict=True) if step > after]
        if values:
            means.append(float(np.mean(values)))
    return sum(means) if means else None


def _names(run: Run, pattern: str) -> list[str]:
    """The metrics of a run that a pattern names; without a ``*`` it is a name."""
    if "*" not in pattern:
        return [pattern]
    return fnmatch.filter(sorted({key.name for row in run.rows for key in row.values}), pattern)
