"""Estimators against enumeration, worked numbers (F66) and simulation."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lagproof.evaluation.statistics import (
    bootstrap,
    holm,
    majority,
    pass_at_k,
    share_interval,
    t_interval,
    t_test,
)


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


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.2, 0.5, 0.9], [0.61, 0.58, 0.571, 0.643, 0.553]])
def test_bootstrap_is_the_interval_of_all_resamples(values: list[float]) -> None:
    everything = [np.mean(chosen) for chosen in product(values, repeat=len(values))]
    exact = np.quantile(everything, [0.025, 0.975], method="inverted_cdf")
    assert bootstrap(values) == pytest.approx(tuple(exact), abs=0.006)


def test_bootstrap_in_several_batches_is_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).random(30).tolist()
    whole = bootstrap(values, seed=1)
    monkeypatch.setattr("lagproof.evaluation.statistics._NUMBERS_AT_ONCE", 4000)
    assert bootstrap(values, seed=1) == whole != bootstrap(values, seed=2)


def test_t_interval_worked() -> None:
    # mean 2, s = 1, t(.975, 2) = 4.302653; 4.302653 / sqrt 3 = 2.484138
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx((-0.484138, 4.484138), abs=1e-6)
    # t(.75, 1) = tan(pi / 4) = 1, s / sqrt 2 = .5
    assert t_interval([0.0, 1.0], level=0.5) == pytest.approx((0.0, 1.0))


def test_t_interval_at_the_edges() -> None:
    assert t_interval([]) is None
    assert t_interval([0.5]) is None
    assert t_interval([0.1] * 5) is None
    assert t_interval([0.1] * 4 + [0.2]) is not None


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8), st.floats(-3, 3))
def test_t_interval_moves_with_the_values(values: list[float], shift: float) -> None:
    found, moved = t_interval(values), t_interval([v + shift for v in values])
    if found is not None and moved is not None:
        assert moved == pytest.approx((found.low + shift, found.high + shift), abs=1e-6)
        assert found.low - 1e-12 <= np.mean(values) <= found.high + 1e-12


@pytest.mark.parametrize("n", [3, 5])
def test_t_interval_holds_the_mean_as_often_as_it_says(n: int) -> None:
    """Over 2000 sets of seeds a share of .95 has a standard error of .005; a bootstrap of five seeds holds .83."""
    draws = np.random.default_rng(n).normal(0.3, 0.02, size=(2000, n))
    found = [t_interval(row.tolist()) for row in draws]
    held = np.mean([interval is not None and interval.low <= 0.3 <= interval.high for interval in found])
    assert held == pytest.approx(0.95, abs=0.015)


def test_differences_paired_by_seed_see_what_separate_intervals_do_not() -> None:
    rng = np.random.default_rng(0)
    seeds = rng.normal(0.0, 0.1, size=6)  # a good seed is good for both
    ours, theirs = 0.52 + seeds + rng.normal(0, 0.003, 6), 0.50 + seeds
    gap = t_interval((ours - theirs).tolist())
    assert gap is not None and gap.low > 0.0
    apart = [t_interval(values.tolist()) for values in (ours, theirs)]
    assert apart[0] is not None and apart[1] is not None and apart[0].low < apart[1].high


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=8), st.floats(-1.5, 1.5))
def test_t_test_is_scipys(values: list[int], than: float) -> None:
    found = t_test([v / 1000 for v in values], than)
    if found is not None:
        theirs = [
            stats.ttest_1samp([v / 1000 for v in values], than, alternative=a).pvalue for a in ("greater", "less")
        ]
        assert found == pytest.approx(theirs, abs=1e-9)


def test_t_test_worked() -> None:
    # mean 2, s = 1, n = 3: t = 2 sqrt 3 = 3.4641, 2 degrees of freedom: 1/2 - t / (2 sqrt(t^2 + 2)) = .037087
    assert t_test([1.0, 2.0, 3.0]) == pytest.approx((0.037090, 0.962910), abs=1e-6)
    assert t_test([1.0, 2.0, 3.0], than=2.0) == pytest.approx((0.5, 0.5))
    assert t_test([0.1] * 5) is None
    assert t_test([0.1]) is None


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=8), st.integers(-1500, 1500))
def test_t_test_decides_as_the_interval(values: list[int], than: int) -> None:
    interval, tests = t_interval([v / 1000 for v in values]), t_test([v / 1000 for v in values], than / 1000)
    assert (interval is None) == (tests is None)
    if interval is not None and tests is not None and min(abs(x - than / 1000) for x in interval) > 1e-9:
        assert (2 * min(tests) <= 0.05) == (not interval.low <= than / 1000 <= interval.high)


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(5, 5, 0.025**0.2, 1.0), (0, 8, 0.0, 1 - 0.025**0.125), (8, 8, 0.025**0.125, 1.0)],  # low^n = .025
)
def test_share_interval_worked(count: int, of: int, low: float, high: float) -> None:
    assert share_interval(count, of) == pytest.approx((low, high), abs=1e-9)


def test_holm_worked() -> None:
    # sorted .01 .02 .03 .04 times 4 3 2 1 = .04 .06 .06 .04, and none below the one before it
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.5))
def test_holm_rejects_what_its_steps_reject(p_values: list[float], level: float) -> None:
    """The procedure as Holm wrote it: from the smallest on, until one exceeds level / (those that are left)."""
    order, rejected = sorted(range(len(p_values)), key=p_values.__getitem__), set()
    for done, index in enumerate(order):
        if p_values[index] * (len(p_values) - done) > level:
            break
        rejected.add(index)
    assert {i for i, p in enumerate(holm(p_values)) if p <= level} == rejected
