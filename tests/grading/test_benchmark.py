"""The collection that the rates of grading are counted on, and their intervals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.grading import ANSWERS, clopper_pearson

ROWS = [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]
PAGE = (Path(__file__).parents[2] / "docs" / "grading.md").read_text(encoding="utf-8")


def test_no_question_is_asked_twice_and_the_page_counts_the_collection_as_it_is() -> None:
    assert len({(row["gold"], row["answer"]) for row in ROWS}) == len(ROWS)
    assert f"{len(ROWS):,} answers" in PAGE
    assert f"{sum(row['made'] == 'by hand' for row in ROWS)} were written by hand" in PAGE
    counts = [str(sum(row["right"] is right for row in ROWS)) for right in (False, True)]
    assert re.findall(r"\*\*\d+ of (\d+)\*\*", PAGE) == counts


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [  # by the quantiles of the beta distribution
        (0, 100, 0.0, 0.0362167),
        (5, 100, 0.0164319, 0.1128349),
        (100, 100, 0.9637833, 1.0),
        (1, 2, 0.0125791, 0.9874209),
    ],
)
def test_intervals_of_clopper_and_pearson(count: int, of: int, low: float, high: float) -> None:
    assert clopper_pearson(count, of) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))
