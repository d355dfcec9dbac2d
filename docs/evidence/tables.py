"""The tables of README.md from the numbers beside it: accuracies, and what the runs say of each claim.

    python docs/evidence/tables.py          # writes them between the marks in README.md
    python docs/evidence/tables.py --judge asympo sat sat-mid   # judges the runs of these .json again, and keeps that

Judging again reads the claims of the comparison as they stand today (the preset, or the .toml beside the numbers) and
the runs of the .json. A bound on every step cannot be judged again from them and stays as it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lagproof.evaluation.statistics import holm, t_interval, t_test
from lagproof.experiments.claims import BOUNDS, Claim, ClaimVerdict, judge, parse
from lagproof.experiments.grid import load, presets
from lagproof.experiments.statistics import RunSummary, over_seeds, paired, pairs
from lagproof.runs.lags import in_order

HERE = Path(__file__).parent
MARK = re.compile(r"(<!-- tables: (\w+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""``<!-- tables: accuracy sat -->`` begins the table of accuracies of ``sat.json``."""

AVERAGED = (("gspo", "grpo"), ("dppo-tv", "grpo"), ("dppo-kl", "grpo"), ("sat-gspo", "gspo"), ("sat-grpo", "grpo"))
Numbers = Mapping[str, Any]


def read(name: str) -> dict[str, Any]:
    """The numbers of a comparison."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def summaries(numbers: Numbers) -> list[RunSummary]:
    """Its runs."""
    known = {f.name for f in dataclasses.fields(RunSummary)}
    return [RunSummary(**{k: v for k, v in run.items() if k in known}) for run in numbers["runs"]]


def claims_of(numbers: Numbers) -> list[Claim]:
    """Its claims, as they were judged."""
    return [
        parse({k: v for k, v in item["claim"].items() if v is not None and (k, v) != ("margin", 0.0)}, item["verdict"])
        for item in numbers["claims"]
    ]


def judge_again(name: str) -> None:
    """Replace the cells, the differences and the claims by what today's statistics say of the same runs."""
    numbers = read(name)
    grid = load(name if name in presets() else str(HERE / f"{name}.toml"))
    runs = summaries(numbers)
    kept = {item["claim"]["text"]: item for item in numbers["claims"] if item["claim"]["kind"] in BOUNDS}
    judged = [dataclasses.asdict(found) for found in judge(grid.claims, [], runs)]
    baselines = {entry.label: entry.baseline for entry in grid.entries if entry.baseline is not None}
    numbers |= {
        "cells": [dataclasses.asdict(cell) for cell in over_seeds(runs)],
        "differences": [dataclasses.asdict(difference) for difference in paired(runs, baselines)],
        "claims": [kept.get(item["claim"]["text"], item) for item in judged],
        "judged_again": "intervals, tests and verdicts are newer than the runs and than the page",
    }
    (HERE / f"{name}.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def accuracy(name: str) -> Iterator[str]:
    """Mean over the second half, with half the width of its interval; bold where every seed collapsed."""
    runs = summaries(read(name))
    labels = list(dict.fromkeys(run.label for run in runs))
    cells = {(cell.label, cell.lag): cell for cell in over_seeds(runs)}
    yield f"| lag | {' | '.join(labels)} |"
    yield "|---" * (len(labels) + 1) + "|"
    for lag in in_order(run.lag for run in runs):
        found: list[str] = []
        for label in labels:
            cell = cells[label, lag]
            mean, interval = cell.estimates["accuracy"].mean, cell.estimates["accuracy"].interval
            said = _number(mean) + (f" ± {_number(interval.high - mean)}" if interval is not None else "")
            found.append(f"**{said}**" if cell.collapsed == len(cell.seeds) else said)
        yield f"| {lag} | {' | '.join(found)} |"


def claims(name: str) -> Iterator[str]:
    """Each line of each claim; those that do not hold in bold, as loud as any other."""
    yield "| verdict | claim | of | lag | seeds | effect | 95 % | p, Holm |"
    yield "|---|---|---|---|---|---|---|---|"
    for item in read(name)["claims"]:
        lines: dict[tuple[str, ...], tuple[dict[str, None], dict[str, None]]] = {}
        for part in item["parts"]:
            if part["value"] is None:
                continue
            verdict = part["verdict"] if part["verdict"] == ClaimVerdict.HOLDS else f"**{part['verdict']}**"
            of = part["label"] + (f" - {item['claim']['than']}" if item["claim"]["than"] else "")
            p = part.get("p")
            shown = "" if p is None else "< .0001" if p < 1e-4 else f"{p:.2g}"
            own = (verdict, str(part["seeds"]), *_effect(item["claim"], part), shown, "" if p is None else of)
            names, lags = lines.setdefault(own, ({}, {}))
            names[of], lags[str(part["lag"])] = None, None
        for (verdict, seeds, effect, interval, p, _), (names, lags) in lines.items():
            said = [verdict, item["claim"]["text"], ", ".join(names), ", ".join(lags), seeds, effect, interval, p]
            yield f"| {' | '.join(said)} |"


def differences(name: str) -> Iterator[str]:
    """Each objective minus its baseline, not corrected and without a verdict."""
    numbers = read(name)
    changed = {cell["label"]: cell["estimates"].get("changed") for cell in numbers["cells"]}
    yield "| | accuracy | 95 % | d_bar | 95 % | only SAT rejects | seeds |"
    yield "|---|---|---|---|---|---|---|"
    for item in numbers["differences"]:
        said = [f"{item['label']} - {item['baseline']}"]
        for metric, digits in (("accuracy", 3), ("d_bar", 4)):
            found = item["estimates"][metric]
            said += [_number(found["mean"], "+", digits), _interval(found["interval"], digits)]
        share = changed[item["label"]]
        said += ["" if share is None else f"{share['mean']:.1%}", str(len(item["seeds"]))]
        yield f"| {' | '.join(said)} |"


def averaged(names: str) -> Iterator[str]:
    """Differences in accuracy averaged over the lags of several comparisons, seed by seed: ``sat+sat-mid``."""
    runs = [run for name in names.split("+") for run in summaries(read(name))]
    lags = in_order(run.lag for run in runs)
    lines: list[tuple[str, list[float]]] = []
    for label, than in AVERAGED:
        by_lag = [[a - b for a, b in pairs(runs, label, than, lag, "accuracy")] for lag in lags]
        lines.append((f"{label} - {than}", [sum(seed) / len(lags) for seed in zip(*by_lag, strict=True)]))
    p = holm([2 * min(t_test(values) or (0.5, 0.5)) for _, values in lines])
    yield "| accuracy | mean | 95 % | p, Holm | seeds |"
    yield "|---|---|---|---|---|"
    for (said, values), one in zip(lines, p, strict=True):
        interval = t_interval(values)
        assert interval is not None
        mean = _number(sum(values) / len(values), "+")
        yield f"| {said} | {mean} | {_interval(interval, 3)} | {one:.2g} | {len(values)} |"


TABLES = {"accuracy": accuracy, "claims": claims, "differences": differences, "averaged": averaged}


def written(text: str) -> str:
    """The text with every table between its marks."""

    def table(match: re.Match[str]) -> str:
        return match[1] + "\n".join(TABLES[match[2]](match[3])) + "\n" + match[4]

    return MARK.sub(table, text)


def _effect(claim: Mapping[str, Any], part: Mapping[str, Any]) -> tuple[str, str]:
    value, interval = part["value"], part["interval"]
    if claim["kind"] in BOUNDS:
        return f"{claim['metric']} {value:.2g}", ""
    if claim["metric"] is None:
        return f"{round(value * part['seeds'])} of {part['seeds']}", f"[{interval[0]:.0%}, {interval[1]:.0%}]"
    digits = 4 if claim["metric"] in ("d_bar", "k3") else 3
    said = f"{claim['metric']} {_number(value, '+', digits)}"
    return said, _interval(interval, digits)


def _interval(found: Sequence[float] | None, digits: int) -> str:
    return "all alike" if found is None else f"[{', '.join(_number(x, '+', digits) for x in found)}]"


def _number(value: float, sign: str = "", digits: int = 3) -> str:
    return format(value, f"{sign}.{digits}f").replace("0.", ".", 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", nargs="+", default=[], metavar="NAME")
    for name in parser.parse_args(arguments).judge:
        judge_again(name)
    page = HERE / "README.md"
    page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
