"""Scales and masses of the two signs, what SAT's gate takes away, and what responses are like."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lagproof as lp
from lagproof.data.metrics import Spread, flat, merge
from lagproof.data.samples import Finish, Sample
from lagproof.metrics.balance import balance
from lagproof.metrics.responses import responses


def tokens_of(rows, advantage, sampler=None):
    response = torch.tensor([i for i, row in enumerate(rows) for _ in row])
    flat = torch.tensor([x for row in rows for x in row], dtype=torch.float64)
    return lp.TokenBatch(
        flat,
        torch.tensor(advantage, dtype=torch.float64)[response],
        response,
        len(rows),
        None if sampler is None else torch.tensor([x for row in sampler for x in row], dtype=torch.float64),
    )


def test_worked_example():
    # S = .1 (A = 1), 5 (A = -1), 2 (A = -2), and 3 (A = 0), which counts on neither side but among the R = 4
    tokens = tokens_of([[-0.05, -0.15], [-4.0, -6.0, -5.0], [-2.0], [-3.0]], [1.0, -1.0, -2.0, 0.0])
    got = flat(balance(tokens))
    assert got == pytest.approx(
        {
            "scale_positive": 0.1,
            "scale_negative": 3.5,
            "loss_mass_positive": 0.1 / 4,
            "loss_mass_negative": (5 + 2 * 2) / 4,
            "loss_mass_ratio": 90.0,
        }
    )


def test_parts_merge_and_a_side_without_a_response_has_no_value():
    a, b = tokens_of([[-1.0], [-2.0]], [1.0, 1.0]), tokens_of([[-3.0]], [-1.0])
    assert "scale_negative" not in flat(balance(a))
    got = flat(merge([balance(a), balance(b)]))
    assert got["scale_positive"] == 1.5 and got["loss_mass_ratio"] == 1.0
    assert got["loss_mass_positive"] == pytest.approx(1.0)
    assert "loss_mass_ratio" not in flat(balance(b))


def test_tokens_that_cannot_be_scored_leave_the_scale():
    got = flat(balance(tokens_of([[-1.0, -math.inf, -3.0], [math.nan]], [1.0, 1.0])))
    assert got["scale_positive"] == 2.0 and got["loss_mass_positive"] == 2.0


def test_a_response_counts_by_the_sum_of_its_advantages():
    tokens = lp.TokenBatch(torch.tensor([-1.0, -3.0]), torch.tensor([-2.0, 1.0]), torch.tensor([0, 0]), 1)
    got = flat(balance(tokens))
    assert got["scale_negative"] == 2.0 and got["loss_mass_negative"] == 1.0  # |mean A| = .5 times S = 2


def test_what_the_gate_of_sat_took_away():
    """d = .01 .02 .03 .04 .05 .1 .12 .14 .15 .16, A = 1, high = .2, hill: q = .151, and only the last token is gated.

    c = 1 / (1 + (.16 / .151)^2) = .4711, so its limit is 1.0942 and its ratio exp(.16) = 1.1735 exceeds it: it is
    clipped, although GRPO would have kept it.
    """
    d = [0.01, 0.02, 0.03, 0.04, 0.05, 0.1, 0.12, 0.14, 0.15, 0.16]
    tokens = tokens_of([[x - 2.0 for x in d]], [1.0], [[-2.0] * 10])
    sat, base = (lp.objective(name).weigh(tokens) for name in ("sat-grpo", "grpo"))
    assert sat.stats["sat/q"] == pytest.approx(0.151)
    c = 1 / (1 + (0.16 / 0.151) ** 2)
    assert sat.stats["sat/shrink_max"] == sat.stats["sat/shrink_q50"] == pytest.approx(1 - c, rel=1e-6)
    assert sat.stats["sat/changed"] == pytest.approx(0.1)
    assert sat.stats["sat/removed"] == pytest.approx(math.exp(0.16) / sum(math.exp(x) for x in d))
    lost = float(base.weight.abs().sum() - sat.weight.abs().sum())
    assert sat.stats["sat/removed"] == pytest.approx(lost / float(base.weight.abs().sum()))


@pytest.mark.parametrize("name", ["sat-grpo", "sat-gspo"])
@pytest.mark.parametrize("reduction", ["response_mean", "token_mean"])
def test_what_the_gate_took_away_is_the_difference_to_the_base(name, reduction):
    generator = torch.Generator().manual_seed(3)
    policy = -torch.rand(4000, generator=generator, dtype=torch.float64) * 3
    response = torch.sort(torch.randint(0, 400, (4000,), generator=generator)).values
    advantage = torch.randn(400, generator=generator, dtype=torch.float64)[response]
    noise = 0.12 * torch.randn(4000, generator=generator, dtype=torch.float64)
    tokens = lp.TokenBatch(policy, advantage, response, 400, policy + noise)
    options = {"low": 0.2, "high": 0.2}
    sat = lp.objective(name, alpha=0.5, **options).weigh(tokens, reduction=reduction)
    base = lp.objective(name.removeprefix("sat-"), **options).weigh(tokens, reduction=reduction)
    before, after = float(base.weight.abs().sum()), float(sat.weight.abs().sum())
    assert before > after and sat.stats["sat/removed"] == pytest.approx(1 - after / before, rel=1e-9)


def sample(length, finish, reward):
    return Sample([1], [2] * length, [0] * length, finish, reward=reward)


def test_lengths_are_of_all_responses_and_rewards_of_the_scored():
    # one ended after 4 tokens, one was cut off after 8, one has no reward
    samples = [sample(4, Finish.STOP, 1.0), sample(8, Finish.LENGTH, 0.0), sample(6, Finish.STOP, math.nan)]
    got = flat(responses(samples))
    assert got == {"samples": 3, "response_tokens": 6.0, "truncated": pytest.approx(1 / 3), "reward_std": 0.5}
    assert flat(merge(responses([s]) for s in samples)) == pytest.approx(got)
    assert flat(responses([])) == {"samples": 0}


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), st.integers(0, 30))
def test_a_spread_merges_to_that_of_all_values(xs, cut):
    merged = Spread.of(xs[:cut]).merge(Spread.of(xs[cut:]))
    assert merged.value == pytest.approx(float(np.std(xs)), rel=1e-9, abs=1e-9)


def test_a_small_spread_of_large_values_keeps_its_digits():
    parts = [Spread.of([1e8 + 0.1, 1e8 - 0.1]), Spread.of([1e8 + 0.1, 1e8 - 0.1])]
    assert parts[0].merge(parts[1]).value == pytest.approx(0.1, rel=1e-6)
