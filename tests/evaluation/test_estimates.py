"""Estimators against enumeration and against worked numbers (F66)."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagproof.evaluation.estimates import bootstrap, majority, pass_at_k


@pytest.mark.parametrize(
    ("n", "c", "k", "value"), [(8, 2, 4, 0.785714), (4, 1, 4, 1.0), (8, 2, 1, 0.25), (5, 0, 3, 0.0)]
)
def test_pass_at_k_worked(n: int, c: int, k: int, value: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(value, abs=1e-6)


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(case: tuple[int, int, int]) -> None:
    n, c, k = case
    subsets = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, 1, 5), (4, 1, 0), (4, -1, 1)])
def test_pass_at_k_of_what_cannot_be(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="need right <= samples"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("keys", "rewards", "value"),
    [
        (["5", "5", "7"], [1, 1, 0], 1.0),
        (["5", "7", "7"], [1, 0, 0], 0.0),
        (["5", "7"], [1, 0], 0.5),  # a tie is worth its mean, whatever the order
        (["7", "5"], [0, 1], 0.5),
        ([None, None, "5"], [0, 0, 1], 1.0),  # saying nothing is no vote
        ([None], [0], 0.0),
        ([], [], 0.0),
    ],
)
def test_majority(keys: list[str | None], rewards: list[float], value: float) -> None:
    assert majority(keys, rewards) == value


def test_bootstrap_agrees_with_the_normal_interval_for_many_problems() -> None:
    values = np.random.default_rng(0).integers(0, 2, size=2000).astype(float)
    interval = bootstrap(values.tolist(), seed=1)
    assert interval is not None
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_bootstrap_at_the_edges() -> None:
    assert bootstrap([]) is None
    assert bootstrap([0.5]) is None
    for alike in (0.0, 0.1, 1.0):  # no spread to draw from, which is not certainty
        assert bootstrap([alike] * 9) is None
    assert bootstrap([0.1] * 8 + [0.2]) is not None
    assert bootstrap([0, 1, 1], seed=3) == bootstrap([0, 1, 1], seed=3)
    narrow, wide = bootstrap([0, 1] * 20, level=0.5), bootstrap([0, 1] * 20, level=0.99)
    assert narrow is not None
    assert wide is not None
    assert wide.low < narrow.low < narrow.high < wide.high
