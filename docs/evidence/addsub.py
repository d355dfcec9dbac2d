"""What a run on word problems learns: to write a sum, to choose the right one, to work it out.

    lagproof train docs/evidence/addsub.toml --set task.path=addsub.jsonl
    python docs/evidence/addsub.py runs/addsub addsub.jsonl

Prints, for every ten steps, the share of responses that are correct, that begin with a sum ``a + b = c`` or
``a - b = c``, of these sums the share that is the one to be done, and of those the share that is worked out right.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import lagproof as lp

STEPS = 10
NUMBER = r"(-?\d+(?:\.\d+)?)"
SUM = re.compile(rf"\s*{NUMBER}\s*([-+])\s*{NUMBER}\s*=\s*{NUMBER}")


def main(run: Path, data: Path) -> None:
    golds = {row["id"]: Fraction(row["answer"]) for row in map(json.loads, data.open(encoding="utf-8"))}
    rows = [row for table in lp.Run.open(run).rollouts(COLUMNS) for row in table.to_pylist()]
    print("| steps | responses | correct | begin with a sum | the right one | worked out right | cut off |")
    print("|---|---|---|---|---|---|---|")
    for first in range(1, max(row["step"] for row in rows) + 1, STEPS):
        part = [row for row in rows if first <= row["step"] < first + STEPS]
        print(f"| {first}-{first + STEPS - 1} | {len(part)} | " + " | ".join(shares(part, golds)) + " |")


COLUMNS = ["step", "problem_id", "reward", "finish", "text"]


def shares(rows: list[Mapping[str, Any]], golds: Mapping[str, Fraction]) -> Iterator[str]:
    sums = [(row, match) for row in rows if (match := SUM.match(row["text"]))]
    right = [match for row, match in sums if value(match) == golds[row["problem_id"]]]
    added = [match for match in right if value(match) == Fraction(match[4])]
    yield percent(sum(row["reward"] for row in rows), len(rows))
    yield percent(len(sums), len(rows))
    yield percent(len(right), len(sums))
    yield percent(len(added), len(right))
    yield percent(sum(row["finish"] == "length" for row in rows), len(rows))


def value(match: re.Match[str]) -> Fraction:
    """What the sum is."""
    a, b = Fraction(match[1]), Fraction(match[3])
    return a + b if match[2] == "+" else a - b


def percent(part: float, whole: int) -> str:
    return f"{part / whole:.0%} ({part:.0f} of {whole})" if whole else "-"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
