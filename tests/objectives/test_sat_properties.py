"""Proposition 4.1 of the SAT paper, and what follows for the class, over random batches."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from lagproof.data.tokens import TokenBatch
from lagproof.objectives import objective

D = st.floats(-3, 3).map(lambda x: float(np.float32(x)))
NEAR = st.lists(st.floats(-0.5, 0.5), min_size=10, max_size=40)
TOKENS = st.lists(st.tuples(D, st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0])), min_size=1, max_size=40)
RADIUS = st.floats(0.01, 0.9)
ALPHA = st.floats(0, 1)


def batch(tokens) -> TokenBatch:
    d, a = (torch.tensor(x, dtype=torch.float64) for x in zip(*tokens, strict=True))
    return TokenBatch(d - 2.0, a, torch.arange(len(d)) // 3, (len(d) + 2) // 3, torch.full_like(d, -2.0))


def per_token(weighting):
    n = len(weighting.weight)
    return weighting.weight * n, weighting.contribution * n


def weigh(name, tokens, **options):
    return objective(name, **options).weigh(batch(tokens), reduction="token_mean")


@given(TOKENS, RADIUS, RADIUS, ALPHA, st.sampled_from(["hill", "exp", "reciprocal"]))
def test_never_above_the_base_and_changed_only_in_the_new_bands(tokens, low, high, alpha, kernel):
    base = weigh("grpo", tokens, low=low, high=high)
    sat = weigh("sat-grpo", tokens, low=low, high=high, alpha=alpha, kernel=kernel)
    w_base, s_base = per_token(base)
    w_sat, s_sat = per_token(sat)
    assert bool((s_sat <= s_base + 1e-12).all())
    q = sat.stats["sat/q"]
    psi = {
        "hill": lambda x: 1 / (1 + x * x),
        "exp": lambda x: math.exp(1 - x),
        "reciprocal": lambda x: 1 / x,
    }[kernel]
    share = 0
    for i, (d, a) in enumerate(tokens):
        d = float(torch.tensor(d - 2.0, dtype=torch.float64) + 2.0)
        r, c = math.exp(d), psi(abs(d) / q) if q > 0 and abs(d) > q else 1.0
        in_band = (a > 0 and d > 0 and 1 + high * c < r <= 1 + high) or (a < 0 and d < 0 and 1 - low <= r < 1 - low * c)
        share += in_band
        if in_band:
            assert float(w_sat[i]) == 0.0
            assert math.isclose(float(w_base[i]), r * a, rel_tol=1e-9)
        else:
            assert float(w_sat[i]) == float(w_base[i])
            assert float(s_sat[i]) <= float(s_base[i])
        if (a > 0 and r < 1) or (a < 0 and r > 1):  # on its way back to the sampler
            assert float(s_sat[i]) == float(s_base[i])
    assert math.isclose(sat.stats["sat/changed"], share / len(tokens), abs_tol=1e-12)


@given(TOKENS, RADIUS, st.sampled_from(["grpo", "gspo"]))
def test_closed_gate_is_bit_identical(tokens, radius, name):
    base = weigh(name, tokens, low=radius, high=radius)
    for options in ({"alpha": 1.0}, {"q": 0.0}, {"q": 10.0}):
        sat = weigh(f"sat-{name}", tokens, low=radius, high=radius, **options)
        assert torch.equal(sat.weight, base.weight)
        assert torch.equal(sat.contribution, base.contribution)
        assert sat.stats["sat/gated"] == 0.0


@given(NEAR, RADIUS, RADIUS, ALPHA, st.sampled_from(["hill", "exp", "reciprocal"]), st.sampled_from(["grpo", "gspo"]))
def test_what_it_rejects_is_beyond_one_radius_for_the_whole_batch(d, low, high, alpha, kernel, name):
    """The radius falls as |d| grows, and |d| is what is clipped: on each side whatever is kept moved less than whatever
    is rejected, as under a clip with a fixed radius."""
    moved = torch.tensor(d, dtype=torch.float64)
    moved = moved if name == "grpo" else of_response(moved)
    found = batch([(x, 1.0 if m > 0 else -1.0) for x, m in zip(d, moved, strict=True)])
    weight = objective(f"sat-{name}", low=low, high=high, alpha=alpha, kernel=kernel).weigh(found).weight
    for side in (moved > 0, moved < 0):
        kept, rejected = moved[side & (weight != 0)].abs(), moved[side & (weight == 0)].abs()
        assert not len(kept) or not len(rejected) or float(kept.max()) < float(rejected.min())


def test_by_probability_mass_there_is_no_such_radius():
    """The rarer token moved further and is kept: its mass is below the quantile."""
    d, sampler = torch.tensor([0.15, 0.12, 0.01]), torch.tensor([-5.0, -0.2, -1.0])
    tokens = TokenBatch(d + sampler, torch.ones(3), torch.arange(3), 3, sampler)
    weight = objective("sat-grpo", low=0.2, high=0.2, alpha=0.5, risk="probability_mass").weigh(tokens).weight
    assert weight[0] > 0 and weight[1] == 0 and weight[2] > 0


def of_response(x: torch.Tensor) -> torch.Tensor:
    """The mean of each three tokens, as many times as there are tokens."""
    return torch.cat([part.mean().expand(len(part)) for part in x.split(3)])


@given(TOKENS, st.floats(0.01, 2.0))
def test_it_cannot_act_once_the_quantile_is_beyond_both_ends(tokens, high):
    """Only tokens with q < |d| < log(1 + high) (or -log(1 - low)) can change at all."""
    low = min(high, 0.9)
    q = max(math.log1p(high), -math.log1p(-low))
    assert weigh("sat-grpo", tokens, low=low, high=high, q=q).stats["sat/changed"] == 0.0


@given(TOKENS, ALPHA)
def test_quantile_is_numpys(tokens, alpha):
    d = (batch(tokens).policy_logp + 2.0).abs().numpy()
    assert math.isclose(weigh("sat-grpo", tokens, alpha=alpha).stats["sat/q"], np.quantile(d, alpha), abs_tol=1e-12)


@given(TOKENS, ALPHA)
def test_interval_moves_only_on_the_side_the_token_has_moved_to(tokens, alpha):
    """With A of both signs the two ends are read off J: the end on the other side of 1 stays where it was."""
    d = [(abs(x), 1.0) for x, _ in tokens]
    fitted = objective("sat-grpo", alpha=alpha).fit(batch(d))
    far_below = [(-x, 1.0) for x, _ in d]  # below 1 with A > 0: the upper end is not in play
    assert torch.equal(
        fitted.weigh(batch(far_below)).contribution, objective("grpo").weigh(batch(far_below)).contribution
    )
