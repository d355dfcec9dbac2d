"""How early the alarms ring before a collapse, and whether they keep quiet otherwise: writes ``alarms.md`` beside it.

    lagproof compare asympo
    lagproof compare docs/evidence/alarms.toml
    python docs/evidence/alarms.py

Reads the ``metrics.jsonl`` of every run of the two comparisons with the default thresholds; the alarms of a run depend
on nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagproof.config import AlarmConfig
from lagproof.experiments.comparison import read_comparison
from lagproof.monitor.alarm import Alarm, Severity, alarms

CALIBRATION, JUDGED = (0, 1), (2, 3, 4)
COLLAPSING = [(name, lag) for name in ("naive", "gpg") for lag in (8, 16)]
HOLDING = [(name, lag) for name in ("grpo", "spo-0.2", "asympo", "sat-grpo") for lag in (1, 4, 8)]


@dataclass(frozen=True)
class Run:
    """One run, read.

    Attributes:
        halved: first evaluation whose accuracy is below half of the best before it, a step.
        worst: accuracy at the lowest evaluation over the best before it.
    """

    name: str
    lag: int
    seed: int
    alarms: Sequence[Alarm]
    halved: int | None
    worst: float

    def first(self, severity: Severity | None = None) -> Alarm | None:
        return next((a for a in self.alarms if severity in (None, a.severity)), None)


def load(folders: Sequence[Path]) -> list[Run]:
    """The finished runs of some comparisons that this page speaks of, in its order."""
    found = {(r.label, r.lag, r.seed): r for folder in folders for r in read_comparison(folder).runs if r.finished}
    runs: list[Run] = []
    for name, lag in (*COLLAPSING, *HOLDING):
        for seed in (*CALIBRATION, *JUDGED):
            run = found.get((name, lag, seed))
            if run is None:
                raise SystemExit(f"{name} at lag {lag}, seed {seed}: not in {', '.join(map(str, folders))}")
            halved, worst = collapse(run.rows)
            runs.append(Run(name, lag, seed, alarms(run.rows, AlarmConfig()), halved, worst))
    return runs


def collapse(rows: Sequence[Mapping[str, Any]]) -> tuple[int | None, float]:
    best, halved, worst = 0.0, None, 1.0
    for row in rows:
        if "eval/accuracy" in row:
            best = max(best, row["eval/accuracy"])
            worst = min(worst, row["eval/accuracy"] / best)
            if row["eval/accuracy"] < best / 2 and halved is None:
                halved = row["step"]
    return halved, worst


def lead(run: Run, alarm: Alarm | None) -> str:
    if alarm is None or run.halved is None:
        return "-"
    return f"{run.halved - alarm.step} ({alarm.name}, step {alarm.step})"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(str(cell) for cell in line)} |" for line in lines]


def seed_name(seed: int) -> str:
    return f"{seed} (calibration)" if seed in CALIBRATION else str(seed)


def page(runs: Sequence[Run]) -> str:
    collapsing = [r for r in runs if (r.name, r.lag) in COLLAPSING]
    holding = [r for r in runs if (r.name, r.lag) in HOLDING]
    out = [
        "# Alarms: how early, and how often for nothing",
        "",
        "Made by `python docs/evidence/alarms.py` from the runs of `lagproof compare asympo` and `lagproof compare",
        "docs/evidence/alarms.toml`: the embedded reference run (tiny-dense, 240 steps, lr 1e-4, `batches_ahead =",
        "broadcast_every = lag`). Thresholds (`[alarm]`, the defaults) were set on",
        f"seeds {' and '.join(map(str, CALIBRATION))} and are judged on seeds {', '.join(map(str, JUDGED))}.",
        "*Halved* is the first evaluation (every 10 steps, 256 problems) whose accuracy is below half of the best",
        "before it; *lead* is the number of steps from an alarm to it.",
        "They were set on earlier runs; seed 1 has other problems since then, so only seed 0 is what it was.",
        "",
        "## Runs that collapse",
        "",
        *table(
            ("objective", "lag", "seed", "halved at", "lead of the first alarm", "lead of the first red alarm"),
            [
                (
                    r.name,
                    r.lag,
                    seed_name(r.seed),
                    r.halved or "never",
                    lead(r, r.first()),
                    lead(r, r.first(Severity.RED)),
                )
                for r in collapsing
            ],
        ),
        "",
        "## Runs that hold",
        "",
        *table(
            ("objective", "lag", "seed", "lowest accuracy / best before it", "yellow (step)", "red (step)"),
            [
                (r.name, r.lag, seed_name(r.seed), f"{r.worst:.2f}", rang(r, Severity.YELLOW), rang(r, Severity.RED))
                for r in holding
            ],
        ),
        "",
        "## Right and wrong",
        "",
        "A collapse is *missed* by alarms of a colour if none rings before the accuracy has halved; an alarm is",
        "*false* if it rings in a run that never halves. Counts of runs.",
        "",
        *table(
            (
                "seeds",
                "collapses",
                "missed by any alarm",
                "missed by red",
                "runs that hold",
                "false yellow",
                "false red",
            ),
            [tally("calibration", runs, CALIBRATION), tally("judged", runs, JUDGED)],
        ),
        "",
    ]
    return "\n".join(out)


def rang(run: Run, severity: Severity) -> str:
    return ", ".join(f"{a.name} ({a.step})" for a in run.alarms if a.severity is severity) or "none"


def tally(label: str, runs: Sequence[Run], seeds: Sequence[int]) -> list[object]:
    mine = [r for r in runs if r.seed in seeds]
    collapsed, held = [r for r in mine if r.halved], [r for r in mine if not r.halved]

    def missed(severity: Severity | None) -> int:
        firsts = [(r.halved, r.first(severity)) for r in collapsed]
        return sum(a is None or halved is None or a.step >= halved for halved, a in firsts)

    def false(severity: Severity) -> int:
        return sum(r.first(severity) is not None for r in held)

    counts = (
        len(collapsed),
        missed(None),
        missed(Severity.RED),
        len(held),
        false(Severity.YELLOW),
        false(Severity.RED),
    )
    return [f"{', '.join(map(str, seeds))} ({label})", *counts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs = [Path("runs/asympo"), Path("runs/alarms")]
    parser.add_argument("runs", type=Path, nargs="*", default=runs, help="directories of the two comparisons")
    Path(__file__).with_suffix(".md").write_text(page(load(parser.parse_args().runs)), encoding="utf-8")


if __name__ == "__main__":
    main()
