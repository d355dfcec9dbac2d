"""What a comparison says: numbers of a run, their means and intervals over seeds, paired differences to a baseline.

A number without data is absent, never 0. Intervals are t intervals over seeds, those of differences paired by seed;
they need two seeds that differ, and with fewer than ``CONFIRMING_SEEDS`` they are exploratory.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lagproof.evaluation.statistics import Interval, t_interval
from lagproof.monitor.alarm import Severity
from lagproof.runs.lags import LagName
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

NUMBERS = (*SECOND_HALF, "minimum", "final")
"""Names of the numbers of a run."""

COLLAPSE_SHARE = 0.75
COLLAPSE_WINDOW = 3
COLLAPSE_RULE = (
    f"collapsed: the mean accuracy of the second half is below {COLLAPSE_SHARE:g} of the run's own best mean over "
    f"{COLLAPSE_WINDOW} evaluations in a row"
)


@dataclass(frozen=True)
class RunSummary:
    """The numbers of one run.

    Attributes:
        label, lag, seed: which run.
        values: by name: those of :data:`SECOND_HALF`, and ``minimum`` and ``final``: lowest and last accuracy after
            step 0.
        collapsed: by :data:`COLLAPSE_RULE`; ``None`` without evaluations.
        steps: steps made.
        planned_steps: steps asked for.
        first_alarm, first_red: step at which the first alarm of any severity, and the first red one, fired; ``None``
            where none did.
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
        first_alarm, first_red: as in :class:`RunSummary`, one per seed.
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
    half = run.last_step / 2
    values = {name: v for name, parts in SECOND_HALF.items() if (v := _second_half(run, parts, half)) is not None}
    steps, accuracy = run.series(ACCURACY)
    trained = [a for step, a in zip(steps, accuracy, strict=True) if step > 0]
    if trained:
        values |= {"minimum": min(trained), "final": trained[-1]}
    return RunSummary(
        run.label,
        run.lag,
        run.seed,
        values,
        has_collapsed(accuracy, values["accuracy"]) if "accuracy" in values else None,
        run.last_step,
        run.planned_steps,
        min((alarm.step for alarm in run.alarms), default=None),
        min((alarm.step for alarm in run.alarms if alarm.severity is Severity.RED), default=None),
    )


def has_collapsed(accuracy: Sequence[float], second_half: float) -> bool:
    """:data:`COLLAPSE_RULE`. Judged against the run's own best, so that it does not depend on the task.

    Args:
        accuracy: every evaluation in the order of steps, the one before training included.
        second_half: mean over those of the second half.
    """
    window = min(COLLAPSE_WINDOW, len(accuracy))
    best = float(np.convolve(accuracy, np.full(window, 1.0 / window), mode="valid").max())
    return second_half < COLLAPSE_SHARE * best


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
            pairs = [(by_key[label, lag, seed].values, by_key[baseline, lag, seed].values) for seed in seeds]
            estimates = _estimates([{k: ours[k] - theirs[k] for k in ours.keys() & theirs} for ours, theirs in pairs])
            out.append(PairedDifference(label, baseline, lag, seeds, estimates))
    return out


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
            names = ", ".join(f"{c.label} ({c.collapsed} of {_seeds(c)})" for c in failed)
            held = ", ".join(c.label for c in judged if not c.collapsed)
            out.append(f"Lag {lag}: collapsed: {names}." + (f" Held: {held}." if held else " None held."))
        elif judged:
            out.append(f"Lag {lag}: nothing collapsed.")
    return out


def _seeds(cell: CellSummary) -> str:
    n = cell.estimates["accuracy"].n
    return f"{n} seed{'s' if n > 1 else ''}"


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
    )


def _estimates(rows: Sequence[Mapping[str, float]]) -> dict[str, Estimate]:
    found = {name: [row[name] for row in rows if name in row] for name in NUMBERS}
    return {name: estimate(values) for name, values in found.items() if values}


def _second_half(run: Run, parts: Sequence[str], half: float) -> float | None:
    means: list[float] = []
    for name in [name for part in parts for name in _names(run, part)]:
        values = [v for step, v in zip(*run.series(name), strict=True) if step > half]
        if values:
            means.append(float(np.mean(values)))
    return sum(means) if means else None


def _names(run: Run, pattern: str) -> list[str]:
    """The metrics of a run that a pattern names; without a ``*`` it is a name."""
    if "*" not in pattern:
        return [pattern]
    return fnmatch.filter(sorted({key.name for row in run.rows for key in row.values}), pattern)
