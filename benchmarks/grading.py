"""How often grading is wrong, on answers of known worth by kind, and answers graded a second on one core.

The answers are in ``answers.jsonl``: right answer, answer, and whether it is right, which was decided without the
grader; ``made`` says whether somebody wrote the row or a template with its truth built in.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

import numpy as np

from lagproof.grading.grader import Grader
from lagproof.grading.pool import Limits

Pairs = list[tuple[str, str]]
TARGET_PER_S = 200


ANSWERS = Path(__file__).parent / "answers.jsonl"


def main() -> None:
    rates()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # inherited by the grading process: everything shares one core
    try:
        _report()
    finally:
        os.sched_setaffinity(0, cores)


def rates() -> None:
    """Print false rewards and false refusals by kind, with intervals of Clopper and Pearson, and every mistake."""
    rows = [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]
    with Grader(limits=Limits(time_s=60, workers=1)) as grader:
        grades = grader.grade([(row["gold"], rf"\boxed{{{row['answer']}}}") for row in rows])
    print("\ngrading against answers of known worth, mistakes of all, 95 % (Clopper-Pearson)")
    print(f"  {'kind':<16}{'false rewards':>30}{'false refusals':>30}")
    for kind in (*dict.fromkeys(row["kind"] for row in rows), "by hand", "all"):
        cells = []
        for right in (False, True):
            mistaken = [
                bool(grade.reward) != right
                for row, grade in zip(rows, grades, strict=True)
                if row["right"] is right and kind in (row["kind"], row["made"], "all")
            ]
            low, high = clopper_pearson(sum(mistaken), len(mistaken))
            cells.append(f"{sum(mistaken):>4} of {len(mistaken):<4} {low:6.2%} to {high:6.2%}")
        print(f"  {kind:<16}{cells[0]:>30}{cells[1]:>30}")
    for row, grade in zip(rows, grades, strict=True):
        if (grade.reward == 1.0) is not row["right"]:
            print(f"  {grade.reason}: {row['gold']} | {row['answer']}")


def clopper_pearson(count: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a share, by bisection of the binomial distribution."""

    def beyond(p: float, upwards: bool) -> float:
        whole = math.lgamma(of + 1)
        terms = (
            math.exp(whole - math.lgamma(k + 1) - math.lgamma(of - k + 1) + k * math.log(p) + (of - k) * math.log1p(-p))
            for k in range(count + (not upwards))
        )
        return 1 - math.fsum(terms) if upwards else math.fsum(terms)

    def bisected(upwards: bool) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            too_low = beyond(middle, upwards) < (1 - level) / 2
            low, high = (middle, high) if too_low is upwards else (low, middle)
        return low

    return (0.0 if count == 0 else bisected(True)), (1.0 if count == of else bisected(False))


def _report() -> None:
    rng = np.random.default_rng(0)
    with Grader(limits=Limits(workers=1)) as grader:
        began = time.perf_counter()
        grader.grade([("2x", r"\boxed{x+x}")])
        started_s = time.perf_counter() - began
        print(f"\ngrading, one core, every answer different\n  {'start of the process':<28}{started_s:>9.2f} s")
        for name, pairs in (
            ("plain numbers", _numbers(rng, 20_000)),
            ("algebra", _algebra(rng, 600)),
            ("algebra, warm", _algebra(rng, 600)),
            ("65 % numbers, 35 % algebra", _mixed(rng, 1500)),
        ):
            began = time.perf_counter()
            grades = grader.grade(pairs)
            rate = len(pairs) / (time.perf_counter() - began)
            right = sum(grade.reward for grade in grades) / len(grades)
            print(f"  {name:<28}{rate:>9.0f} answers/s{rate / TARGET_PER_S:>8.1f} x the target, {right:.2f} right")


def _response(answer: str) -> str:
    return "We look at the terms one after the other and add them up. " * 8 + f"So the answer is $\\boxed{{{answer}}}$."


def _numbers(rng: np.random.Generator, count: int) -> Pairs:
    golds = rng.integers(-5000, 5000, size=(count, 2))
    return [(str(a), _response(str(a if b % 2 else b))) for a, b in golds.tolist()]


def _algebra(rng: np.random.Generator, count: int) -> Pairs:
    """Half of the answers right and written in another way, half of them wrong."""
    out: Pairs = []
    for i, (a, b, c) in enumerate(rng.integers(2, 60, size=(count, 3)).tolist()):
        other = a + i % 2  # the wrong half
        forms = (
            (rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{other * other * b}}}"),
            (rf"\frac{{{a}\pi}}{{{c}}}", rf"\pi \cdot \frac{{{other}}}{{{c}}}"),
            (f"({a},{a + b})", rf"\left({other}, {a + b}\right)"),
            (f"x^2+{a}x+{b}", f"{b}+{other}x+x^2"),
            (rf"[{a},\infty)", rf"[{other}, \infty)"),
            (f"{a},{b},{c}", f"{b}, {c}, {other}"),
            (rf"\frac{{{a}+\sqrt{{{b}}}}}{{{c}}}", rf"\frac{{\sqrt{{{b}}}+{other}}}{{{c}}}"),
            (f"y={a}x-{b}", f"y = {other}x - {b}"),
            (rf"\begin{{pmatrix}} {a} \\ {b} \end{{pmatrix}}", rf"\begin{{pmatrix}} {other} \\ {b} \end{{pmatrix}}"),
            (f"{a}+{b}i", f"{b}i+{other}"),
        )
        gold, answer = forms[i // 2 % len(forms)]
        out.append((gold, _response(answer)))
    return out


def _mixed(rng: np.random.Generator, count: int) -> Pairs:
    pairs = _numbers(rng, count * 65 // 100) + _algebra(rng, count - count * 65 // 100)
    return [pairs[i] for i in rng.permutation(len(pairs))]


if __name__ == "__main__":
    main()
