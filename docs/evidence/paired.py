"""Differences between the objectives of a comparison, seed by seed, as a table for the text beside it.

    python docs/evidence/paired.py docs/evidence/sat-narrow.json sat-gspo:gspo gspo-fixed:gspo --metric d_bar k3

Reads the runs in the ``.json`` of a comparison. Each line is the mean over seeds of first minus second with its 95 %
interval and p-value (paired t); Holm's correction is over all lines of one call.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lagproof.evaluation.statistics import holm, t_interval, t_test


def numbers(runs: Sequence[Mapping[str, Any]], label: str, lag: object, metric: str) -> dict[int, float]:
    """A number of each run by its seed; ``scale_ratio`` is ``S- / S+``."""
    mine = [run for run in runs if (run["label"], str(run["lag"])) == (label, str(lag))]
    if metric == "scale_ratio":
        return {run["seed"]: run["values"]["scale_negative"] / run["values"]["scale_positive"] for run in mine}
    return {run["seed"]: run["values"][metric] for run in mine if metric in run["values"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", type=Path, help=".json of a comparison")
    parser.add_argument("pairs", nargs="+", help="LABEL:BASELINE")
    parser.add_argument("--metric", nargs="+", default=["accuracy"])
    parser.add_argument("--lag", default="8")
    args = parser.parse_args()
    runs = json.loads(args.numbers.read_text(encoding="utf-8"))["runs"]
    lines: list[tuple[str, list[float]]] = []
    for metric in args.metric:
        for pair in args.pairs:
            ours, theirs = (numbers(runs, label, args.lag, metric) for label in pair.split(":"))
            differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs)]
            if not differences:
                raise SystemExit(f"{pair}: no seed at lag {args.lag} has {metric} of both")
            lines.append((f"{pair.replace(':', ' - ')} | {metric}", differences))
    p = {i: min(1.0, 2 * min(tests)) for i, (_, values) in enumerate(lines) if (tests := t_test(values)) is not None}
    adjusted = dict(zip(p, holm(list(p.values())), strict=True))
    print("| difference | of | mean | 95 % | p | p, Holm | seeds |", "|---|---|---|---|---|---|---|", sep="\n")
    for i, (name, values) in enumerate(lines):
        interval = t_interval(values)
        said = "all alike | | |" if interval is None else f"[{interval.low:+.4f}, {interval.high:+.4f}] "
        said += "" if interval is None else f"| {p[i]:.2g} | {adjusted[i]:.2g} |"
        print(f"| {name} | {sum(values) / len(values):+.4f} | {said} {len(values)} |")


if __name__ == "__main__":
    main()
