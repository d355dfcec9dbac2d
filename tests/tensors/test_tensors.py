"""Quantiles, segments, ratios, divergences and advantages against numbers worked by hand or by numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

import lagproof as lp
from lagproof.tensors import advantage as adv
from lagproof.tensors import divergence as div
from lagproof.tensors.quantile import quantile
from lagproof.tensors.ratio import bounded_ratio, overflows
from lagproof.tensors.segments import segment_count, segment_sum

NAN = float("nan")


class TestQuantile:
    @given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=60), st.floats(0, 1))
    def test_is_numpys(self, values, q):
        got = quantile(tensor(values, dtype=torch.float64), q)
        assert math.isclose(got, np.quantile(np.array(values, dtype=np.float64), q), rel_tol=1e-12, abs_tol=1e-9)

    @pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.9, 0.999, 1.0])
    def test_ties_and_ends(self, q):
        values = tensor([2.0] * 5 + [1.0] * 4 + [7.0])
        assert quantile(values, q) == pytest.approx(float(np.quantile(values.numpy(), q)), abs=1e-6)

    def test_beyond_what_torch_takes(self):
        n = 2**24 + 1
        values = torch.arange(n, dtype=torch.float64)[torch.randperm(n, generator=torch.Generator().manual_seed(0))]
        assert quantile(values, 0.9) == pytest.approx(0.9 * (n - 1), rel=1e-12)

    def test_nothing_has_no_quantile(self):
        assert quantile(torch.empty(0), 0.5) is None

    def test_outside_is_refused(self):
        with pytest.raises(ValueError, match=r"q = 1\.5"):
            quantile(torch.ones(3), 1.5)

    def test_leaves_its_input_as_it_was(self):
        values = tensor([3.0, 1.0, 2.0])
        quantile(values, 0.5)
        assert values.tolist() == [3.0, 1.0, 2.0]

    def test_the_selection_used_on_other_devices_agrees(self, monkeypatch):
        from lagproof.tensors import quantile as module

        values = torch.randn(101, generator=torch.Generator().manual_seed(1)).round(decimals=1)

        class Elsewhere:
            type = "elsewhere"

        for low in range(100):
            expected = module._order_statistics(values, low, need_next=True)
            monkeypatch.setattr(torch.Tensor, "device", Elsewhere(), raising=False)
            got = module._order_statistics(values, low, need_next=True)
            monkeypatch.undo()
            assert got == expected


class TestSegments:
    SEGMENT = tensor([2, 0, 2, 2])

    def test_sum_and_count(self, close):
        x = tensor([1.0, 5.0, 2.0, 6.0])
        close(segment_sum(x, self.SEGMENT, 3), [5.0, 0.0, 9.0])
        close(segment_count(self.SEGMENT, 3), [1, 0, 3])


class TestRatio:
    def test_bounded(self, close):
        d = tensor([-80.0, -20.0, 0.0, 20.0, 80.0], dtype=torch.float64)
        close(bounded_ratio(d).log(), [-20.0, -20.0, 0.0, 20.0, 20.0], 1e-12)
        assert overflows(d).tolist() == [True, False, False, False, True]


class TestDivergence:
    def test_k3_estimates_kl_of_the_sampler_to_the_policy(self, close):
        # samples from mu: log mu = -1, log pi = -2: k3 = e^-1 + 1 - 1 = .36788
        d = tensor([-1.0], dtype=torch.float64)
        close(div.k3(d), [math.exp(-1)])

    def test_k3_keeps_its_digits_in_float32(self, close):
        d = tensor([7e-3])
        exact = math.expm1(float(d)) - float(d)
        assert float(div.k3(d)) == pytest.approx(exact, rel=1e-4)

    @given(st.floats(-50, 50))
    def test_k3_is_never_negative_and_finite(self, d):
        value = float(div.k3(tensor([d])))
        assert value >= 0.0
        assert math.isfinite(value)

    def test_total_variation_over_the_vocabulary(self, close):
        """Ten tokens drawn exactly in proportion to mu: the mean of |r - 1| / 2 is D_TV itself."""
        mu = tensor([0.5, 0.3, 0.2], dtype=torch.float64)
        pi = tensor([0.2, 0.3, 0.5], dtype=torch.float64)
        drawn = tensor([0] * 5 + [1] * 3 + [2] * 2)
        batch = lp.TokenBatch(pi.log()[drawn], torch.ones(10).double(), torch.arange(10), 10, mu.log()[drawn])
        close(lp.mismatch(batch)["tv"], 0.5 * (pi - mu).abs().sum(), 1e-12)

    @pytest.mark.parametrize(("mu", "pi"), [(0.9, 0.65), (0.65, 0.9), (0.01, 0.02), (0.999999, 0.5)])
    def test_binary_kl(self, mu, pi, close):
        expected = mu * math.log(mu / pi) + (1 - mu) * math.log((1 - mu) / (1 - pi))
        got = div.binary_kl(tensor([math.log(pi)], dtype=torch.float64), tensor([math.log(mu)], dtype=torch.float64))
        close(got, [expected], 1e-9)

    def test_binary_kl_at_certainty(self):
        zero, half = tensor([0.0]), tensor([math.log(0.5)])
        assert float(div.binary_kl(zero, half)) == math.inf
        assert float(div.binary_kl(half, zero)) == pytest.approx(math.log(2))
        assert float(div.binary_kl(zero, zero)) == 0.0


class TestAdvantage:
    def test_a_group_of_zero_sum(self, close):
        close(adv.group_center(tensor([1.0, 0.0, 0.0, 1.0]), tensor([4, 4, 4, 4])), [0.5, -0.5, -0.5, 0.5])

    def test_group_norm_has_the_sample_deviation(self, close):
        # std of [1, 0] is sqrt(.5)
        expected = 0.5 / (math.sqrt(0.5) + 1e-6)
        close(adv.group_norm(tensor([1.0, 0.0]), tensor([0, 0])), [expected, -expected])

    def test_small_spread_is_not_clamped(self, close):
        # 5e-6 / (7.07e-6 + 1e-6) = .6195
        got = adv.group_norm(tensor([1.0, 1.00001], dtype=torch.float64), tensor([0, 0]))
        close(got, [-0.61946, 0.61946], 1e-4)

    def test_unscored_is_left_out(self, close):
        got = adv.group_center(tensor([1.0, 0.0, NAN, 1.0]), tensor([0, 0, 0, 0]))
        close(got[[0, 1, 3]], [1 / 3, -2 / 3, 1 / 3])
        assert bool(got[2].isnan())

    @pytest.mark.parametrize("name", adv.ADVANTAGES)
    def test_ties_groups_of_one_and_all_but_one_unscored_give_exactly_zero(self, name):
        reward = torch.tensor([0.9] * 8 + [1.0] + [1.0, NAN, NAN] + [0.1, 0.1, 0.1])
        group = torch.tensor([7] * 8 + [3] + [5, 5, 5] + [1, 1, 1])
        got = adv.ADVANTAGES[name](reward, group)
        scored = ~reward.isnan()
        assert got[scored].tolist() == [0.0] * 13
        assert bool(got[~scored].isnan().all())

    @pytest.mark.parametrize("name", adv.ADVANTAGES)
    def test_groups_are_by_id_in_any_order(self, name, close):
        reward = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0])
        group = torch.tensor([9, 9, 9, 2, 2, 2, 2])
        expected = adv.ADVANTAGES[name](reward, group)
        order = torch.tensor([3, 0, 5, 1, 6, 2, 4])
        close(adv.ADVANTAGES[name](reward[order], group[order]), expected[order])

    def test_uneven_groups(self, close):
        reward = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0])
        got = adv.group_center(reward, torch.tensor([0, 0, 0, 1, 1, 1, 1]))
        close(got, [2 / 3, -1 / 3, -1 / 3, 0.5, 0.5, -0.5, -0.5])

    def test_leave_one_out(self, close):
        close(adv.leave_one_out(tensor([1.0, 0.0, 0.0]), tensor([0, 0, 0])), [1.0, -0.5, -0.5])

    def test_gpg_counts_responses_in_informative_groups(self, close):
        # groups [1, 0] and [1, 1]: alpha = 4 / 2 = 2; counting non-zero rewards would give 4 / 3
        close(adv.gpg(tensor([1.0, 0.0, 1.0, 1.0]), tensor([0, 0, 1, 1])), [1.0, -1.0, 0.0, 0.0])
        close(adv.gpg(tensor([1.0, 1.0]), tensor([0, 0])), [0.0, 0.0])

    def test_is_tied(self):
        reward = torch.tensor([0.5, 0.5, 0.0, 1.0, 1.0, NAN])
        assert adv.has_zero_variance(reward, torch.tensor([0, 0, 1, 1, 2, 2])).tolist() == [True, False, True]
