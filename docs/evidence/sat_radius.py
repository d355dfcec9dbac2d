"""The one radius that SAT takes in each batch, and in how many batches it can act: a table for the text beside it.

    lagproof compare docs/evidence/sat-narrow.toml
    python docs/evidence/sat_radius.py runs/sat-narrow

SAT's radius falls as ``u = |d|`` grows, and ``|d|`` is what is clipped. So in a batch with quantile ``q`` exactly the
tokens (responses) with ``d > d_high`` are rejected where A > 0, and those with ``d < -d_low`` where A < 0::

    d_high = min(log(1 + high), max(q, u*)),    u* = log(1 + high psi(u*; q))

and the gradient is that of the base with the radius ``exp(d_high) - 1`` above and ``1 - exp(-d_low)`` below. SAT can
act where ``q`` is below ``log(1 + high)``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

from scipy.optimize import brentq

from lagproof.experiments.comparison import read_comparison
from lagproof.objectives import objective
from lagproof.objectives.sat import Gate
from lagproof.runs.run import Run

KERNELS: dict[str, Callable[[float], float]] = {
    "hill": lambda x: 1.0 / (1.0 + x * x),
    "exp": lambda x: math.exp(1.0 - x),
    "reciprocal": lambda x: 1.0 / x,
}


def start(q: float, limit: Callable[[float], float], kernel: str) -> float:
    """Where rejection starts, nats; ``limit(c)`` is the limit of a radius that was multiplied by ``c``."""
    if q <= 0.0 or q >= limit(1.0):
        return limit(1.0)

    def beyond(u: float) -> float:
        return u - limit(KERNELS[kernel](u / q))

    return q if beyond(q) >= 0.0 else float(brentq(beyond, q, limit(1.0)))


def radii(rule: Gate, q: float) -> tuple[float, float]:
    """Radius below and above 1 in a batch with the quantile ``q``."""
    low, high = rule.low, rule.high  # type: ignore[attr-defined]
    down = start(q, lambda c: -math.log1p(-low * c), rule.kernel)
    up = start(q, lambda c: math.log1p(high * c), rule.kernel)
    return -math.expm1(-down), math.expm1(up)


def line(label: str, runs: Sequence[Run], rule: Gate) -> str:
    """Of all batches of all seeds of an entry."""
    limit = math.log1p(rule.high)  # type: ignore[attr-defined]
    series = [run.series("sat/q")[1] for run in runs]
    q = [value for values in series for value in values]
    pairs = [radii(rule, value) for value in q]
    changed = mean(value for run in runs for value in run.series("sat/changed")[1])
    moves = [math.log(b[1] / a[1]) for values in series for a, b in pairwise([radii(rule, x) for x in values])]
    cells = (
        f"{median(q):.3f} ({min(q):.3f}-{max(q):.3f})",
        f"{limit:.3f}",
        f"{sum(0 < value < limit for value in q)} of {len(q)} ({min(_share(v, limit) for v in series):.0%} at least)",
        f"{changed:.2%}",
        f"{mean(p[0] for p in pairs):.3f}, {mean(p[1] for p in pairs):.3f}",
        f"{mean(map(abs, moves)):.0%}",
        f"{len(runs)}",
    )
    return f"| {label} | {' | '.join(cells)} |"


def _share(values: Sequence[float], limit: float) -> float:
    return mean(0 < value < limit for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", type=Path, help="directory of a comparison")
    found = read_comparison(parser.parse_args().comparison)
    head = ("", "median q (range)", "log(1 + high)", "batches with q below it", "changed", "mean radius below, above")
    print(f"| {' | '.join((*head, 'change from batch to batch', 'seeds'))} |", "|---" * 8 + "|", sep="\n")
    for entry in found.grid.entries:
        rule = objective(entry.name, **entry.options)
        runs = [run for run in found.runs if run.label == entry.label and run.finished]
        if isinstance(rule, Gate) and runs:
            print(line(entry.label, runs, rule))


if __name__ == "__main__":
    main()
