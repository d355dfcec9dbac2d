"""What moves while the naive loss collapses: tables for ``naive-collapse.md``.

    lagproof compare docs/evidence/naive-collapse.toml
    python docs/evidence/naive_collapse.py runs/naive-collapse

The *fall* of a run is its first evaluation below three quarters of the one before training. Every quantity is a mean
over five steps, then over seeds; the last column is that of another objective, same seeds, at the steps of the fall.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from lagproof.experiments.comparison import read_comparison
from lagproof.runs.run import Run

Row = Mapping[str, float]
WINDOW = 5
BEFORE = (-10, -5, 0, 5, 10, 20, 30)
QUANTITIES: dict[str, Callable[[Row], float]] = {
    "S+": lambda r: r["scale_positive"],
    "S-": lambda r: r["scale_negative"],
    "S-/S+": lambda r: r["scale_negative"] / r["scale_positive"],
    "loss mass, negative / positive": lambda r: r["loss_mass_ratio"],
    "entropy, nats": lambda r: r["entropy"],
    "response tokens": lambda r: r["response_tokens"],
    "d_bar": lambda r: r["d_bar"],
    "mean d where A > 0": lambda r: -r["sign/positive/k1"],
    "mean d where A < 0": lambda r: -r["sign/negative/k1"],
    "99 % quantile of abs d where A > 0": lambda r: r["sign/positive/abs_d_q99"],
    "99 % quantile of abs d where A < 0": lambda r: r["sign/negative/abs_d_q99"],
    "gradient norm": lambda r: r["grad_norm"],
    "reward": lambda r: r["reward"],
}


def windows(run: Run, of: Callable[[Row], float]) -> np.ndarray:
    """Element ``t`` is the mean over the five steps up to ``t + 1``; nan for the first four."""
    x = np.array([of(row) for row in trained(run)])
    means = np.convolve(x, np.full(WINDOW, 1.0 / WINDOW), mode="valid")
    return np.concatenate([np.full(WINDOW - 1, np.nan), means])


def trained(run: Run) -> list[Row]:
    """A row for each step, under flat keys."""
    return [row.flat for row in run.rows if row.get("d_bar") is not None]


def fall(run: Run) -> int | None:
    """Step of the first evaluation below three quarters of the first one."""
    steps, accuracy = run.series("eval/accuracy")
    return next((s for s, a in zip(steps, accuracy, strict=True) if a < 0.75 * accuracy[0]), None)


def at(values: np.ndarray, step: int) -> float:
    return float(values[step - 1]) if WINDOW <= step <= len(values) else np.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", type=Path)
    parser.add_argument("--beside", default="tis-1", help="label of the other objective")
    args = parser.parse_args()
    runs = [run for run in read_comparison(args.comparison).runs if run.finished]
    outcomes(runs)
    beside = {run.seed: run for run in runs if run.label == args.beside}
    falls = {run: step for run in runs if run.label == "naive" and (step := fall(run)) is not None}
    times = [f"{t:+d}" if t else "fall" for t in BEFORE]
    print(f"\nnaive falls at {', '.join(map(str, falls.values()))}\n")
    print(f"| | {' | '.join(times)} | {args.beside} |", "|---" * (len(BEFORE) + 2) + "|", sep="\n")
    for name, of in QUANTITIES.items():
        means = [np.nanmean([at(windows(run, of), step + t) for run, step in falls.items()]) for t in BEFORE]
        other = [at(windows(beside[run.seed], of), step) for run, step in falls.items() if run.seed in beside]
        print(f"| {name} | {' | '.join(f'{m:.2f}' for m in (*means, np.nanmean(other)))} |")


def outcomes(runs: Sequence[Run]) -> None:
    """Of each objective: who fell, and the balance of its loss over the first half, before and after."""
    print(
        "| | fell | at | S-/S+ steps 1-8 | steps 9-40 | last 40 | loss mass applied, 9-40 |", "|---" * 7 + "|", sep="\n"
    )
    for label in dict.fromkeys(run.label for run in runs):
        mine = [run for run in runs if run.label == label]
        falls = [step for run in mine if (step := fall(run)) is not None]
        ratio = [[r["scale_negative"] / r["scale_positive"] for r in trained(run)] for run in mine]
        mass = [[r["loss_mass_ratio"] for r in trained(run)] for run in mine]
        factor = float(label.removeprefix("spo-")) if label.startswith("spo-") else 1.0
        applied = "1, by construction" if label == "asympo" else f"{factor * np.mean([m[8:40] for m in mass]):.2f}"
        parts = [np.mean([r[a:b] for r in ratio]) for a, b in ((0, 8), (8, 40), (-40, None))]
        when = f"{median(falls):g} ({min(falls)}-{max(falls)})" if falls else ""
        numbers = " | ".join(f"{x:.2f}" for x in parts)
        print(f"| {label} | {len(falls)} of {len(mine)} | {when} | {numbers} | {applied} |")


if __name__ == "__main__":
    main()
