"""Answers that were graded wrongly once; the cases are data, in ``answers.jsonl`` beside this file.

A row has the right answer, a response, its form, and whether it is right; null where the right answer is none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lagproof.grading.extract import Form
from lagproof.grading.golds import is_missing, written_once
from lagproof.grading.grader import Grader
from lagproof.grading.pool import Limits

LINES = (Path(__file__).parent / "answers.jsonl").read_text(encoding="utf-8").splitlines()
CASES = [json.loads(line) for line in LINES]


@pytest.fixture(scope="module")
def graders() -> Iterator[dict[str, Grader]]:
    graders = {form.value: Grader(form, Limits(time_s=60, workers=1)) for form in Form}
    yield graders
    for grader in graders.values():
        grader.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["kind"])
def test_an_answer_is_worth_what_it_says(graders: dict[str, Grader], case: dict[str, Any]) -> None:
    (grade,) = graders[case["form"]].grade([(case["gold"], case["response"])])
    if case["right"] is None:
        assert math.isnan(grade.reward) and grade.reason == "bad_gold"
    else:
        assert grade.reward == float(case["right"]), (case, grade)


@pytest.mark.parametrize(
    ("written", "gold"),
    [
        (r'["\\frac{1}{2}"]', r"\frac{1}{2}"),
        ('["1", "2"]', '["1", "2"]'),
        ("[1, 2]", "[1, 2]"),
        (r"\\frac{1}{2}", r"\frac{1}{2}"),
        (r"\begin{matrix}a\\bc\end{matrix}", r"\begin{matrix}a\\bc\end{matrix}"),
        (" 5 ", "5"),
    ],
)
def test_what_stored_a_right_answer_is_taken_away(written: str, gold: str) -> None:
    assert written_once(written) == gold


@pytest.mark.parametrize("word", ["Proof", "notfound", "N/A", " none.", "NaN", "null", "Unknown"])
def test_words_for_nothing(word: str) -> None:
    assert is_missing(word)
    assert not is_missing(word + " x")
