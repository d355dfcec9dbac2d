"""Mismatch against plain loops in float64, its merging, and the cases that have gone wrong elsewhere."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lagproof as lp
from lagproof.data.distribution import Distribution, quantiles
from lagproof.data.metrics import flat, merge
from lagproof.errors import InputError
from lagproof.metrics import slices as bins
from lagproof.metrics.balance import balance
from lagproof.metrics.mismatch import Applied, mismatch_metrics
from lagproof.objectives.reduction import Constant, ResponseMean, TokenMean

REDUCTIONS = {"response_mean": ResponseMean(), "token_mean": TokenMean(), "constant": Constant(16)}


def batch(policy, sampler=None, advantage=None, response=None, version=None):
    n = len(policy)
    response = torch.tensor(response if response is not None else [0] * n)
    return lp.TokenBatch(
        policy_logp=torch.tensor(policy, dtype=torch.float64),
        advantage=torch.tensor([1.0] * n if advantage is None else advantage, dtype=torch.float64),
        response=response,
        num_responses=int(response.max()) + 1 if n else 0,
        sampler_logp=None if sampler is None else torch.tensor(sampler, dtype=torch.float64),
        version=None if version is None else torch.tensor(version),
    )


def random_batch(seed: int, num_responses: int = 12, spread: float = 0.4, versions=(3, 4, 5, 6)) -> lp.TokenBatch:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, num_responses)
    response = np.repeat(np.arange(num_responses), lengths)
    n = len(response)
    policy = -rng.exponential(1.0, n)
    sampler = policy + spread * rng.standard_normal(n)
    policy[rng.random(n) < 0.05] = -np.inf
    sampler[rng.random(n) < 0.05] = np.nan
    advantage = rng.choice([-1.5, -0.5, 0.0, 0.7, np.nan], num_responses, p=[0.3, 0.2, 0.1, 0.3, 0.1])[response]
    tokens = batch(policy, sampler, advantage, response, rng.choice(versions, n))
    return lp.TokenBatch(
        tokens.policy_logp, tokens.advantage, tokens.response, num_responses, tokens.sampler_logp, None, tokens.version
    )


def loop(tokens: lp.TokenBatch, version: int | None) -> dict[str, float]:
    """The definitions, token by token."""
    found: dict[str, list[float]] = defaultdict(list)
    for t in range(len(tokens)):
        p, s, a = (float(x[t]) for x in (tokens.policy_logp, tokens.sampler_logp, tokens.advantage))
        if not (math.isfinite(p) and math.isfinite(s) and math.isfinite(a)):
            continue
        names = [""] + (["sign/positive/"] if a > 0 else ["sign/negative/"] if a < 0 else [])
        if version is not None:
            names.append(f"age/{version - int(tokens.version[t])}/")
        for name in names:
            found[name].append(p - s)
    out: dict[str, float] = {}
    for name, ds in found.items():
        r = [math.exp(d) for d in ds]
        n = len(ds)
        out[f"{name}tokens"] = n
        out[f"{name}d_bar"] = sum(abs(d) for d in ds) / n
        out[f"{name}k1"] = -sum(ds) / n
        out[f"{name}k3"] = sum(math.exp(d) - 1 - d for d in ds) / n
        out[f"{name}tv"] = sum(abs(x - 1) for x in r) / n / 2
        out[f"{name}chi2"] = sum(x * x for x in r) / n - 1
        out[f"{name}ess"] = sum(r) ** 2 / (n * sum(x * x for x in r))
        for ending, q in (("q50", 0.5), ("q90", 0.9), ("q99", 0.99), ("q999", 0.999), ("max", 1.0)):
            out[f"{name}abs_d_{ending}"] = float(np.quantile([abs(d) for d in ds], q))
    return out


def test_worked_example():
    # d = ln 2, ln 1/2, 0: r = 2, 1/2, 1
    got = lp.mismatch(batch([math.log(0.4), math.log(0.2), -1.0], [math.log(0.2), math.log(0.4), -1.0]))
    assert got["d_bar"] == pytest.approx(2 * math.log(2) / 3)
    assert got["k1"] == pytest.approx(0.0, abs=1e-15)
    assert got["k3"] == pytest.approx((2 + 0.5 + 1 - 3) / 3)
    assert got["tv"] == pytest.approx((1 + 0.5 + 0) / 3 / 2)
    assert got["chi2"] == pytest.approx((4 + 0.25 + 1) / 3 - 1)
    assert got["ess"] == pytest.approx(3.5**2 / (3 * 5.25))
    assert got["abs_d_q50"] == pytest.approx(math.log(2), rel=1e-6)
    assert got["tokens"] == 3 and got["dropped_tokens"] == 0 and got["ratio_max"] == pytest.approx(2)
    assert not any(name.startswith("age/") for name in got)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("version", [6, 9, None])
def test_every_number_is_that_of_a_loop(seed, version):
    tokens = random_batch(seed)
    got, want = lp.mismatch(tokens, version), loop(tokens, version)
    assert want["tokens"] > 20 and set(got) - set(want) == {"dropped_tokens", "ratio_overflow", "ratio_max"}
    for name, x in want.items():
        assert got[name] == pytest.approx(x, rel=1e-6, abs=1e-12), name
    assert got["dropped_tokens"] == len(tokens) - want["tokens"]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), cuts=st.lists(st.integers(0, 96), max_size=6))
def test_parts_merge_to_the_whole_in_any_split(seed, cuts):
    tokens = random_batch(seed)
    edges = sorted({0, len(tokens), *(c for c in cuts if c < len(tokens))})
    parts = [mismatch_metrics(tokens.rows(slice(a, b)), 8) for a, b in itertools.pairwise(edges)]
    whole = lp.mismatch(tokens, 8)
    for merged in (flat(merge(parts)), flat(merge(parts[::-1]))):
        assert merged.keys() == whole.keys()
        for name, x in whole.items():
            assert merged[name] == pytest.approx(x, rel=1e-12, abs=1e-12), name


def test_parts_of_more_than_one_chunk_agree(monkeypatch):
    tokens = random_batch(1, num_responses=60)
    whole = lp.mismatch(tokens, 7)
    monkeypatch.setattr("lagproof.metrics.mismatch.CHUNK_TOKENS", 7)
    assert lp.mismatch(tokens, 7) == pytest.approx(whole, rel=1e-12)


def test_a_shard_without_a_token_has_no_say():
    # two shards with d_bar 1.0, two with nothing: 1.0, and not .5
    full, empty = batch([-1.0], [-2.0]), batch([-1.0], [math.nan])
    parts = [mismatch_metrics(x) for x in (full, empty, full, empty)]
    assert flat(merge(parts))["d_bar"] == 1.0
    alone = flat(parts[1])
    assert alone == {"tokens": 0, "dropped_tokens": 1, "ratio_overflow": 0}


def test_a_mean_of_means_would_be_wrong():
    one, nine = batch([-0.9], [0.0]), batch([-0.1] * 9, [0.0] * 9)
    assert flat(merge([mismatch_metrics(one), mismatch_metrics(nine)]))["d_bar"] == pytest.approx(0.18)


def test_huge_padding_and_missing_numbers_are_never_exponentiated():
    got = lp.mismatch(batch([-1.0, -1.0, -math.inf, -1e10], [-1.1, -0.9, -0.7, math.nan]))
    assert got["k3"] == pytest.approx((math.exp(0.1) - 1.1 + math.exp(-0.1) - 0.9) / 2)
    assert all(math.isfinite(x) for x in got.values()) and got["dropped_tokens"] == 2
    far = lp.mismatch(batch([-1.0, -1.0], [-1.0, -200.0]))
    assert all(math.isfinite(x) for x in far.values()) and far["ratio_overflow"] == 1


def test_a_small_mismatch_keeps_its_digits_in_float32():
    rng = np.random.default_rng(0)
    d = rng.choice([-1e-3, 1e-3], 4000).astype(np.float32)
    tokens = lp.TokenBatch(torch.from_numpy(d), torch.ones(4000), torch.zeros(4000).long(), 1, torch.zeros(4000))
    got = lp.mismatch(tokens)
    wide = d.astype(np.float64)
    assert got["k3"] == pytest.approx(float(np.mean(np.expm1(wide) - wide)), rel=1e-3)
    assert got["chi2"] == pytest.approx(float(np.mean(np.expm1(2 * wide))), rel=1e-4)


def test_the_same_weights_give_nothing_and_bfloat16_gives_its_rounding():
    logp = -torch.rand(20_000, generator=torch.Generator().manual_seed(0)) * 3
    response = torch.zeros(20_000).long()
    same = lp.mismatch(lp.TokenBatch(logp, torch.ones(20_000), response, 1, logp.clone()))
    assert same["d_bar"] < 1e-6
    rounded = lp.mismatch(lp.TokenBatch(logp, torch.ones(20_000), response, 1, logp.bfloat16()))
    assert rounded["d_bar"] == pytest.approx(0.0022, abs=2e-4)


def test_the_effective_size_is_reported_before_and_after_truncation():
    # ratios .6, 12, .8, truncated at 2
    tokens = batch([math.log(0.06), math.log(0.6), math.log(0.08)], [math.log(0.1), math.log(0.05), math.log(0.1)])
    weighting = lp.objective("tis", cap=2.0).weigh(tokens, reduction="token_mean")
    applied = Applied(weighting.weight, weighting.scorable, TokenMean(), weighting.counts)
    got = flat(mismatch_metrics(tokens, None, applied))
    assert got["ess"] == pytest.approx(13.4**2 / (3 * (0.36 + 144 + 0.64)))
    assert got["ess_applied"] == pytest.approx(3.4**2 / (3 * (0.36 + 4 + 0.64)))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_what_a_clip_applied(seed, reduction):
    tokens, how = random_batch(seed), REDUCTIONS[reduction]
    weighting = lp.objective("grpo").weigh(tokens, reduction=how)
    applied = Applied(weighting.weight, weighting.scorable, how, weighting.counts)
    got = flat(mismatch_metrics(tokens, 6, applied))
    used: dict[str, list[float]] = defaultdict(list)
    mass: dict[str, float] = defaultdict(float)
    for t in range(len(tokens)):
        p, s, a = (float(x[t]) for x in (tokens.policy_logp, tokens.sampler_logp, tokens.advantage))
        side, age = "positive" if a > 0 else "negative", 6 - int(tokens.version[t])
        mass[f"age/{age}/mass_{side}"] += abs(float(weighting.weight[t]))
        if math.isfinite(p - s) and a != 0 and math.isfinite(a):
            r = math.exp(p - s)
            kept = not ((a > 0 and r > 1.2) or (a < 0 and r < 0.8))
            for name in ("", f"sign/{side}/", f"age/{age}/"):
                used[name].append(r if kept else 0.0)
    for name, x in used.items():
        want = sum(x) ** 2 / (len(x) * sum(y * y for y in x))
        assert got[f"{name}ess_applied"] == pytest.approx(want, rel=1e-9), name
    for name, x in mass.items():
        assert got.get(name, 0.0) == pytest.approx(x, abs=1e-12), name
    assert got["mass_positive"] == pytest.approx(weighting.stats["mass_positive"])
    assert got["mass_negative"] == pytest.approx(weighting.stats["mass_negative"])


def test_sums_of_float32_weights_are_those_of_their_bins():
    """A float32 sum over this many tokens is off by about 1e-6."""
    rng = np.random.default_rng(0)
    n = 60_000
    logp = torch.from_numpy(-rng.exponential(1.0, n).astype(np.float32))
    tokens = lp.TokenBatch(
        logp,
        torch.from_numpy(rng.standard_normal(n).astype(np.float32)),
        torch.arange(n) // 100,
        n // 100,
        logp + torch.from_numpy(0.1 * rng.standard_normal(n).astype(np.float32)),
        version=torch.from_numpy(rng.integers(0, 5, n)),
    )
    weighting = lp.objective("grpo").weigh(tokens)
    applied = Applied(weighting.weight, weighting.scorable, ResponseMean(), weighting.counts)
    binned = flat(mismatch_metrics(tokens, 4, applied))
    for name, chosen in (("mass_positive", tokens.advantage > 0), ("mass_negative", tokens.advantage < 0)):
        exact = math.fsum(weighting.weight[chosen].abs().tolist())
        assert weighting.stats[name] == pytest.approx(exact, rel=1e-12)
        assert sum(binned[f"age/{age}/{name}"] for age in range(5)) == pytest.approx(exact, rel=1e-12)
    d = (tokens.policy_logp - tokens.sampler_logp).tolist()
    assert weighting.stats["d_bar"] == pytest.approx(math.fsum(map(abs, d)) / n, rel=1e-12)
    assert weighting.stats["k1"] == pytest.approx(-math.fsum(d) / n, rel=1e-10)


def test_nothing_is_applied_where_everything_is_rejected():
    tokens = batch([-0.5, -0.5], [-3.0, -3.0])  # r = 12, A = 1
    weighting = lp.objective("grpo").weigh(tokens)
    got = flat(
        mismatch_metrics(tokens, None, Applied(weighting.weight, weighting.scorable, ResponseMean(), weighting.counts))
    )
    assert "ess_applied" not in got and got["ess"] == pytest.approx(1.0)


def test_without_a_sampler_there_is_no_number_and_asking_for_one_is_an_error():
    tokens = batch([-1.0])
    assert mismatch_metrics(tokens, 3) == {}
    with pytest.raises(InputError, match="sampler_logp is missing"):
        lp.mismatch(tokens)


def test_a_token_from_the_future_is_an_error():
    with pytest.raises(InputError, match="version 7, and the learner has version 6"):
        lp.mismatch(batch([-1.0, -1.0], [-1.0, -1.0], version=[3, 7]), 6)


@pytest.mark.parametrize(
    ("age", "name"),
    [(0, "age/0"), (31, "age/31"), (32, "age/32-63"), (63, "age/32-63"), (64, "age/64-127"), (5000, "age/4096-8191")],
)
def test_old_ages_share_bins(age, name):
    got = lp.mismatch(batch([-1.0], [-1.5], version=[0]), age)
    assert got[f"{name}/d_bar"] == 0.5 and sum(key.endswith("d_bar") for key in got) == 3


def test_no_token_at_all():
    empty = lp.TokenBatch(torch.empty(0), torch.empty(0), torch.empty(0).long(), 0, torch.empty(0))
    assert lp.mismatch(empty, 3) == {"tokens": 0, "dropped_tokens": 0, "ratio_overflow": 0}
    assert flat(balance(empty)) == {}


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.sampled_from([0, 1, 2, 5, 300, 20_000]), min_size=1, max_size=4),
    ties=st.booleans(),
)
def test_quantiles_are_those_of_numpy(seed, sizes, ties):
    rng = np.random.default_rng(seed)
    parts = [np.abs(rng.standard_normal(n) ** 3).astype(np.float32) for n in sizes]
    if ties:
        parts = [np.round(p, 1) for p in parts]
    wanted = [0.0, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0, float(rng.random())]
    if not sum(sizes):
        assert Distribution(tuple(parts)).named("x") == {} and Distribution(tuple(parts)).value is None
        return
    want = np.quantile(np.concatenate(parts).astype(np.float64), wanted)
    np.testing.assert_allclose(quantiles(parts, wanted), want, rtol=1e-12)


def test_quantiles_beyond_the_limit_of_torch():
    n = 2**24 + 1
    x = torch.rand(n, generator=torch.Generator().manual_seed(0)).numpy()
    ordered = np.sort(x)
    position = 0.999 * (n - 1)
    low = int(position)
    below, above = float(ordered[low]), float(ordered[low + 1])
    assert quantiles([x], [0.999, 0.5]) == pytest.approx(
        [below + (position - low) * (above - below), float(ordered[n // 2])], rel=1e-12
    )


def as_cells(numbers):
    return bins.Cells(np.array(numbers, dtype=np.uint8))


@pytest.mark.parametrize("times", [1, 100])  # tokens one by one; whole runs
def test_bins_split_and_add_up_without_losing_a_token(times):
    cell = as_cells(np.repeat([4, 4, 3, 191, 4], times))
    x = np.arange(5 * times, dtype=np.float32)
    want = {
        3: x[2 * times : 3 * times],
        4: np.concatenate([x[: 2 * times], x[4 * times :]]),
        191: x[3 * times : 4 * times],
    }
    parts = cell.split(x)
    assert {c: p.tolist() for c, p in parts.items()} == {c: p.tolist() for c, p in want.items()}
    assert {c: cell.sums(x)[c] for c in want} == {c: float(p.sum(dtype=np.float64)) for c, p in want.items()}
    assert {c: cell.counts[c] for c in want} == {c: len(p) for c, p in want.items()}
    assert cell.counts.sum() == len(cell) and cell.sums(x).sum() == x.sum(dtype=np.float64)


def test_no_token_has_no_cell():
    assert as_cells([]).split(np.empty(0)) == {} and as_cells([]).counts.sum() == 0
    assert not as_cells([]).sums(np.empty(0)).any()
