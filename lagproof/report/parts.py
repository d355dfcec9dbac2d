"""What a quantity of a single run is made of, step by step: by age, by source, by what the time went into.

Long runs are thinned: a point stands for several steps in a row. A sum (mass, seconds) becomes its mean over them, and
a step without a part counts as 0 there; a mean over tokens (``d_bar``) becomes the mean over the tokens of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lagproof.runs.reading import RunData

MAX_POINTS = 100
MAX_COLUMNS = 80
MAX_BANDS = 8
AGE = re.compile(r"age_(\d+(?:-\d+)?)/(.+)")

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
        age: as ``metrics.jsonl`` names it: ``7``, ``32-63``.
        d_bar: nats.
        tokens: behind it; 0 where the run did not count them.
    """

    first: int
    last: int
    age: str
    d_bar: float
    tokens: int


def sources(run: RunData) -> Stack | None:
    """What policy update and engine add to ``d_bar`` at the steps with a probe; ``None`` without probes."""
    return _stack(run, SOURCES, lambda row: "probe/policy" in row)


def time_spent(run: RunData) -> Stack | None:
    """Seconds a step by what they went into, ``other`` being what is left of the step; ``None`` without times."""
    found = _stack(run, TIME | {STEP_TIME: (STEP_TIME,)}, lambda row: row["step"] > 0 and STEP_TIME in row)
    if found is None:
        return None
    layers = [layer for layer in found.layers if layer.label != STEP_TIME]
    whole = np.array([layer.values for layer in found.layers if layer.label == STEP_TIME]).sum(axis=0)
    rest = np.maximum(whole - np.sum([layer.values for layer in layers], axis=0), 0.0) if layers else whole
    return Stack(found.steps, (*layers, Layer(OTHER, tuple(rest.tolist()))))


def mass_by_age(run: RunData) -> tuple[Stack, Stack] | None:
    """Gradient mass of the tokens with positive and with negative advantage by bands of ages, the same bands in both.

    A band holds equally many of the ages that occur, so that a schedule with ages from 8 to 15 shows more than one.
    """
    names = {name for row in run.rows for name in row}
    ages = sorted({m[1] for name in names if (m := AGE.fullmatch(name)) and m[2] in SIDES}, key=_youngest)
    if not ages:
        return None
    size = -(-len(ages) // MAX_BANDS)
    bands = [ages[start : start + size] for start in range(0, len(ages), size)]
    sides: list[Stack] = []
    for side in SIDES:
        members = {_band(band): [f"age_{age}/{side}" for age in band] for band in bands}
        stack = _stack(run, members, lambda row: any(side in row for side in SIDES), keep_empty=True)
        if stack is None:
            return None
        sides.append(stack)
    return sides[0], sides[1]


def d_bar_by_age(run: RunData) -> list[HeatCell]:
    """``d_bar`` by age over steps, in the order of steps and ages."""
    rows = [row for row in run.rows if row["step"] > 0]
    size = max(1, -(-len(rows) // MAX_COLUMNS))
    cells: list[HeatCell] = []
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        found: dict[tuple[int, str], list[tuple[float, int]]] = {}
        for row in block:
            for name, value in row.items():
                match = AGE.fullmatch(name)
                if match and match[2] == "d_bar" and np.isfinite(value):
                    tokens = int(row.get(f"age_{match[1]}/tokens", 0))
                    found.setdefault((_youngest(match[1]), match[1]), []).append((value, tokens))
        for youngest, age in sorted(found):
            d_bars, counts = zip(*found[youngest, age], strict=True)
            mean = float(np.average(d_bars, weights=counts if sum(counts) else None))
            cells.append(HeatCell(block[0]["step"], block[-1]["step"], age, mean, sum(counts)))
    return cells


def _stack(
    run: RunData,
    members: Mapping[str, Sequence[str]],
    has: Callable[[Mapping[str, Any]], bool],
    *,
    keep_empty: bool = False,
) -> Stack | None:
    """Sums of metrics over the rows that have them, thinned; layers that no row has are left out."""
    rows = [row for row in run.rows if has(row)]
    if not rows:
        return None
    size = max(1, -(-len(rows) // MAX_POINTS))
    starts = np.arange(0, len(rows), size)
    counts = np.diff(np.append(starts, len(rows)))
    layers: list[Layer] = []
    for label, names in members.items():
        if keep_empty or any(name in row for row in rows for name in names):
            values = np.array([sum(_number(row.get(name)) for name in names) for row in rows], dtype=np.float64)
            layers.append(Layer(label, tuple((np.add.reduceat(values, starts) / counts).tolist())))
    steps = np.array([row["step"] for row in rows], dtype=np.float64)
    return Stack(tuple((np.add.reduceat(steps, starts) / counts).tolist()), tuple(layers))


def _number(value: object) -> float:
    """0 for what is absent or not finite."""
    return float(value) if isinstance(value, int | float) and np.isfinite(value) else 0.0


def _youngest(age: str) -> int:
    """The lower end of ``7`` or ``32-63``."""
    return int(age.partition("-")[0])


def _band(ages: Sequence[str]) -> str:
    """What several ages are called: ``age 8-9``, ``age 7``."""
    low, high = ages[0].partition("-")[0], ages[-1].rpartition("-")[2]
    return f"age {low}" if low == high else f"age {low}-{high}"
