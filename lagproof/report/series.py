"""From runs to the few points that a curve needs. Every point of a thinned curve is a mean over steps in a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lagproof.runs.lags import LagName
from lagproof.runs.reading import RunData

MAX_POINTS = 12_000
"""Points of one figure at most, all its curves together; keeps a page of many runs below 2 MB."""
MAX_CURVE_POINTS = 160
MIN_CURVE_POINTS = 24


@dataclass(frozen=True)
class Curve:
    """One metric over the steps of one run, or of several seeds.

    Attributes:
        label, lag: of the runs.
        seed: of the run; ``None`` for a mean over seeds.
        steps, values: the points, equally many.
    """

    label: str
    lag: LagName
    seed: int | None
    steps: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Curves:
    """One metric of some runs.

    Attributes:
        single: one curve a run that has the metric.
        mean: over seeds, for each label and lag with two runs or more; over the steps that all of them have.
        window: steps behind each point; 1 is every row as it was written.
    """

    single: tuple[Curve, ...]
    mean: tuple[Curve, ...]
    window: int

    @property
    def front(self) -> tuple[Curve, ...]:
        """What a reader follows: the mean where there is one, and the run where it is alone."""
        averaged = {(curve.label, curve.lag) for curve in self.mean}
        return self.mean + tuple(c for c in self.single if (c.label, c.lag) not in averaged)

    @property
    def values(self) -> list[float]:
        """Every value, for the axis."""
        return [v for curve in self.single for v in curve.values]


def curves(runs: Sequence[RunData], metric: str, max_curve_points: int = MAX_CURVE_POINTS) -> Curves:
    """One metric of some runs, thin enough to draw; runs without it are left out."""
    found = [(run, *run.series(metric)) for run in runs]
    found = [(run, steps, values) for run, steps, values in found if steps]
    longest = max((len(steps) for _, steps, _ in found), default=0)
    window = _window(longest, len(found), max_curve_points)
    single = tuple(Curve(run.label, run.lag, run.seed, *thinned(steps, values, window)) for run, steps, values in found)
    return Curves(single, tuple(_means(single)), window)


def thinned(
    steps: Sequence[float], values: Sequence[float], window: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means over ``window`` points in a row, of steps and of values; the last mean may be over fewer."""
    if window <= 1:
        return tuple(steps), tuple(values)
    starts = np.arange(0, len(steps), window)
    sizes = np.diff(np.append(starts, len(steps)))
    return (
        tuple((np.add.reduceat(np.asarray(steps, dtype=np.float64), starts) / sizes).tolist()),
        tuple((np.add.reduceat(np.asarray(values, dtype=np.float64), starts) / sizes).tolist()),
    )


def joined(parts: Iterable[tuple[str, Curves]]) -> Curves:
    """Several metrics as the curves of one chart, each under the label given."""
    found = [(label, part) for label, part in parts if part.single]
    single = tuple(replace(curve, label=label) for label, part in found for curve in part.single)
    return Curves(single, (), max((part.window for _, part in found), default=1))


def _window(longest: int, num_curves: int, max_curve_points: int) -> int:
    allowed = min(max_curve_points, max(MIN_CURVE_POINTS, MAX_POINTS // max(num_curves, 1)))
    return max(1, -(-longest // allowed))


def _means(single: Iterable[Curve]) -> Iterable[Curve]:
    groups: dict[tuple[str, LagName], list[Curve]] = {}
    for curve in single:
        groups.setdefault((curve.label, curve.lag), []).append(curve)
    for (label, lag), members in groups.items():
        if len(members) < 2:
            continue
        points = [dict(zip(curve.steps, curve.values, strict=True)) for curve in members]
        shared = sorted(set.intersection(*(set(p) for p in points)))
        if shared:
            means = tuple(float(np.mean([p[step] for p in points])) for step in shared)
            yield Curve(label, lag, None, tuple(shared), means)
