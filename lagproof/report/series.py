"""From the rows and rollouts of runs to the few points that a chart needs; nothing here is drawn.

Long runs are thinned: a point stands for several steps in a row. Sums (mass, seconds) become their mean over them, and
a step without a part counts as 0 there; a mean over tokens (``d_bar``) becomes the mean over all the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lagproof.data.rows import Row
from lagproof.data.slices import AgeBand, Key
from lagproof.metrics.ccdf import CCDF, merged
from lagproof.metrics.slices import wider
from lagproof.runs.lags import LagName
from lagproof.runs.layout import RunLayout
from lagproof.runs.run import Run

MAX_POINTS = 12_000
"""Points of one figure at most, all its curves together; keeps a page of many runs below 2 MB."""
MAX_CURVE_POINTS = 160
MIN_CURVE_POINTS = 24
MAX_STACK_POINTS = 100
MAX_COLUMNS = 80
MAX_BANDS = 8

TIME = {
    "sampling": ("time/sample_s",),
    "learning": ("time/learn_s",),
    "grading": ("time/grade_s",),
    "evaluating": ("time/eval_s",),
    "publishing": ("time/publish_s",),
    "probing": ("time/probe_s",),
    "waiting": ("time/learner_wait_s", "time/rollout_wait_s"),
}
STEP_TIME = "time/step_s"
OTHER = "other"
SIDES = ("mass_positive", "mass_negative")
SOURCES = {"policy update": ("probe/policy",), "engine": ("probe/engine",)}
TAIL_COLUMNS = ("step", "policy_logp", "sampler_logp")


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


@dataclass(frozen=True)
class Layer:
    """One part.

    Attributes:
        label: what it is called.
        values: at each step of its :class:`Stack`.
    """

    label: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Stack:
    """Parts that add up.

    Attributes:
        steps: where the values are.
        layers: the parts, from the bottom.
    """

    steps: tuple[float, ...]
    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class HeatCell:
    """Mean ``|d|`` of the tokens of one age over a few steps.

    Attributes:
        first, last: steps, both included.
        age: of the tokens.
        d_bar: nats.
        tokens: behind it; 0 where the run did not count them.
    """

    first: int
    last: int
    age: AgeBand
    d_bar: float
    tokens: int


def curves(runs: Sequence[Run], metric: str, max_curve_points: int = MAX_CURVE_POINTS) -> Curves:
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


def sources(run: Run) -> Stack | None:
    """What policy update and engine add to ``d_bar`` at the steps with a probe; ``None`` without probes."""
    return _stack(run, _of_all(SOURCES), lambda row: row.get("probe/policy") is not None)


def time_spent(run: Run) -> Stack | None:
    """Seconds per step by what they went into, ``other`` being what is left of the step; ``None`` without times."""
    members = _of_all(TIME | {STEP_TIME: (STEP_TIME,)})
    found = _stack(run, members, lambda row: row.step > 0 and row.get(STEP_TIME) is not None)
    if found is None:
        return None
    layers = [layer for layer in found.layers if layer.label != STEP_TIME]
    whole = np.array([layer.values for layer in found.layers if layer.label == STEP_TIME]).sum(axis=0)
    rest = np.maximum(whole - np.sum([layer.values for layer in layers], axis=0), 0.0) if layers else whole
    return Stack(found.steps, (*layers, Layer(OTHER, tuple(rest.tolist()))))


def mass_by_age(run: Run) -> tuple[Stack, Stack] | None:
    """Gradient mass of the tokens with positive and with negative advantage by bands of ages, the same bands in both.

    A band holds equally many of the ages that occur, so that a schedule with ages from 8 to 15 shows more than one.
    """
    ages = sorted({age for row in run.rows for side in SIDES for age in row.slices(AgeBand, side)})
    if not ages:
        return None
    bands = wider(ages, MAX_BANDS)
    sides: list[Stack] = []
    for side in SIDES:
        members = {f"age {band.label}": [Key(side, age) for age in parts] for band, parts in bands.items()}
        stack = _stack(run, members, lambda row: any(row.get(side) is not None for side in SIDES), keep_empty=True)
        if stack is None:
            return None
        sides.append(stack)
    return sides[0], sides[1]


def d_bar_by_age(run: Run) -> list[HeatCell]:
    """``d_bar`` by age over steps, in the order of steps and ages."""
    rows = [row for row in run.rows if row.step > 0]
    size = max(1, -(-len(rows) // MAX_COLUMNS))
    cells: list[HeatCell] = []
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        found: dict[AgeBand, list[tuple[float, int]]] = {}
        for row in block:
            for age in row.slices(AgeBand, "d_bar"):
                d_bar, tokens = row.get("d_bar", age), int(row.get("tokens", age) or 0)
                assert d_bar is not None
                found.setdefault(age, []).append((d_bar, tokens))
        for age in sorted(found):
            d_bars, counts = zip(*found[age], strict=True)
            mean = float(np.average(d_bars, weights=counts if sum(counts) else None))
            cells.append(HeatCell(block[0].step, block[-1].step, age, mean, sum(counts)))
    return cells


def _stack(
    run: Run,
    members: Mapping[str, Sequence[Key]],
    has: Callable[[Row], bool],
    *,
    keep_empty: bool = False,
) -> Stack | None:
    """Sums of metrics over the rows that have them, thinned; layers that no row has are left out."""
    rows = [row for row in run.rows if has(row)]
    if not rows:
        return None
    size = max(1, -(-len(rows) // MAX_STACK_POINTS))
    starts = np.arange(0, len(rows), size)
    counts = np.diff(np.append(starts, len(rows)))
    layers: list[Layer] = []
    for label, names in members.items():
        if keep_empty or any(key in row.values for row in rows for key in names):
            values = np.array([sum(row.values.get(key, 0.0) for key in names) for row in rows], dtype=np.float64)
            layers.append(Layer(label, tuple((np.add.reduceat(values, starts) / counts).tolist())))
    steps = np.array([row.step for row in rows], dtype=np.float64)
    return Stack(tuple((np.add.reduceat(steps, starts) / counts).tolist()), tuple(layers))


def _of_all(members: Mapping[str, Sequence[str]]) -> dict[str, list[Key]]:
    return {label: [Key(name) for name in names] for label, names in members.items()}


def tail(run: Run) -> tuple[CCDF | None, list[str]]:
    """The tail over the second half of the steps made, and sentences about files that could not be read.

    Returns:
        ``None`` where the run kept no log-probabilities.
    """
    found: list[CCDF] = []
    problems: list[str] = []
    for file in RunLayout(run.path).rollout_files():
        try:
            found += _tail_of_file(file, run.last_step / 2)
        except (OSError, pa.ArrowException) as error:
            problems.append(f"{file}: cannot be read: {str(error).splitlines()[0]}: left out of the tails")
    return merged(found), problems


def _tail_of_file(file: Path, after_step: float) -> list[CCDF]:
    with pq.ParquetFile(file) as parquet:
        if not set(TAIL_COLUMNS) <= set(parquet.schema_arrow.names):
            return []
        return [_tail_of_batch(batch, after_step) for batch in parquet.iter_batches(columns=list(TAIL_COLUMNS))]


def _tail_of_batch(batch: pa.RecordBatch, after_step: float) -> CCDF:
    step, policy, sampler = (batch.column(name) for name in TAIL_COLUMNS)
    # a missing list or step is NaN here, and no comparison with NaN holds
    same_length = _column(policy.value_lengths()) == _column(sampler.value_lengths())
    kept = batch.filter(pa.array(same_length & (_column(step) > after_step)))
    size = np.abs(_column(kept.column("policy_logp").flatten()) - _column(kept.column("sampler_logp").flatten()))
    return CCDF.of(size[np.isfinite(size)])


def _column(column: pa.Array) -> NDArray[np.float64]:
    return column.to_numpy(zero_copy_only=False).astype(np.float64)
