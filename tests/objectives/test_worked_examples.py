"""Numbers worked by hand; the arithmetic stands beside each."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

import lagproof as lp
from lagproof.data.tokens import Counts, TokenBatch


def one_response(pi, mu, a, dtype=torch.float64) -> TokenBatch:
    pi, mu = torch.tensor(pi, dtype=dtype), torch.tensor(mu, dtype=dtype)
    a = torch.as_tensor(a, dtype=dtype).expand(len(pi))
    return TokenBatch(pi, a, torch.zeros(len(pi), dtype=torch.long), 1, mu)


def weights(name, pi, mu, a, **options):
    """Weights before the reduction: the mean over N tokens, times N."""
    tokens = one_response(pi, mu, a)
    return lp.objective(name, **options).weigh(tokens, reduction="token_mean").weight * len(pi)


TAIL = [0.01, 0.02, 0.03, 0.04, 0.05, 0.1, 0.2, 0.3, 0.4, 1.0]


class TestSAT:
    def test_ten_tokens(self, close):
        # position .9 * 9 = 8.1: q = .4 + .1 (1.0 - .4) = .46; only d = 1 is above;
        # c = 1 / (1 + (1 / .46)^2) = 1 / 5.725898 = .174650; upper limit 1 + .2 c = 1.034930
        tokens = one_response(TAIL, [0.0] * 10, 1.0)
        weighting = lp.objective("sat-grpo").weigh(tokens, reduction="token_mean")
        close(weighting.stats["sat/q"], 0.46, 1e-12)
        assert weighting.stats["sat/gated"] == pytest.approx(0.1)
        assert weighting.stats["sat/changed"] == 0.0  # r = e is beyond 1.2 as well
        close(10 * weighting.contribution[-1], 1.034930, 1e-6)
        assert float(weighting.weight[-1]) == 0.0

    def test_padding_does_not_move_the_quantile(self, close):
        pi = torch.zeros(3, 8, dtype=torch.float64)
        mask = torch.zeros(3, 8, dtype=torch.bool)
        pi[0, :5], pi[1, :5] = torch.tensor(TAIL, dtype=torch.float64).split(5)
        mask[:2, :5] = True
        _, stats = lp.loss(
            "sat-grpo",
            policy_logp=pi - 3.0,
            sampler_logp=torch.full_like(pi, -3.0),
            advantage=torch.ones(3, dtype=torch.float64),
            mask=mask,
        )
        close(stats["sat/q"], 0.46, 1e-12)
        assert stats["tokens"] == 10

    def test_any_split_gives_the_same_weights(self, close):
        tokens = TokenBatch(tensor(TAIL), torch.ones(10), torch.arange(10) // 2, 5, torch.zeros(10))
        whole = lp.objective("sat-grpo").weigh(tokens)
        fitted = lp.objective("sat-grpo").fit(tokens)
        assert fitted == lp.objective("sat-grpo", q=fitted.q)
        parts = [fitted.weigh(tokens.rows(slice(i, i + 2)), counts=Counts(5, 10)).weight for i in range(0, 10, 2)]
        assert torch.equal(torch.cat(parts), whole.weight)
        # the fault it guards against: a micro-batch that reads a quantile off its own tokens
        alone = lp.objective("sat-grpo").weigh(tokens.rows(slice(8, 10)), counts=Counts(5, 10))
        assert alone.stats["sat/q"] != pytest.approx(0.46)

    def test_a_changed_token(self, close):
        # d = .15, q = .05: c = 1 / (1 + 9) = .1, limit 1.02 < r = e^.15 = 1.1618 < 1.2
        w = weights("sat-grpo", [0.15], [0.0], 1.0, q=0.05)
        assert float(w) == 0.0
        close(weights("grpo", [0.15], [0.0], 1.0), [math.exp(0.15)], 1e-12)
        # the same on the other side: 1 - .2 c = .98 > r = e^-.15 = .8607 > .8
        assert float(weights("sat-grpo", [-0.15], [0.0], -1.0, q=0.05)) == 0.0
        # pull-back moves are not touched
        close(weights("sat-grpo", [0.15], [0.0], -1.0, q=0.05), [-math.exp(0.15)], 1e-12)
        close(weights("sat-grpo", [-0.15], [0.0], 1.0, q=0.05), [math.exp(-0.15)], 1e-12)

    def test_kernels_at_twice_the_quantile(self, close):
        # limits 1 + .2 psi(2): hill 1/5 -> 1.04, exp e^-1 -> 1.0735759, reciprocal 1/2 -> 1.1
        for kernel, limit in (("hill", 1.04), ("exp", 1 + 0.2 * math.exp(-1)), ("reciprocal", 1.1)):
            tokens = one_response([0.16], [0.0], 1.0)
            weighting = lp.objective("sat-grpo", kernel=kernel, q=0.08).weigh(tokens)
            close(weighting.value, limit, 1e-12)

    def test_probability_mass_is_the_risk(self, close):
        # the second token has the larger |d| and hardly any mass: risks .5 * .5 * .2 = .05 and .5 * e^-9 * 1 = 6.2e-5
        pi, mu = [math.log(0.6), -9 + math.log(2)], [math.log(0.5), -9.0]
        tokens = one_response(pi, mu, 1.0)
        fitted = lp.objective("sat-grpo", risk="probability_mass", alpha=0.0).fit(tokens)
        close(fitted.q, 0.5 * math.exp(-9), 1e-12)
        fitted = lp.objective("sat-grpo", risk="probability_mass", alpha=1.0).fit(tokens)
        close(fitted.q, 0.05, 1e-12)

    def test_sequence_level_reads_its_quantile_off_the_responses(self, close):
        # means .1 (8 tokens) and .3 (1 token); over responses q(.5) = .2, over tokens it would be .1
        d = torch.tensor([0.1] * 8 + [0.3], dtype=torch.float64)
        tokens = TokenBatch(d, torch.ones(9).double(), tensor([0] * 8 + [2]), 3, torch.zeros(9).double())
        close(lp.objective("sat-gspo", alpha=0.5).weigh(tokens).stats["sat/q"], 0.2, 1e-12)

    def test_detached(self, close):
        # d = 1, q = .46, A = 1: S = 1.03493 and no gradient; with d in c not detached it would be .0577
        pi = tensor([0.0], dtype=torch.float64, requires_grad=True)
        loss, _ = lp.loss(
            "sat-grpo",
            policy_logp=pi[None],
            sampler_logp=tensor([[-1.0]]).double(),
            advantage=torch.ones(1).double(),
            mask=torch.ones(1, 1).bool(),
            q=0.46,
        )
        loss.backward()
        close(loss.detach(), -1.034930, 1e-6)
        assert float(pi.grad) == 0.0


class TestClip:
    def test_stale_token_beyond_the_radius(self, close):
        # r = e, A = 1: S = 1.2, gradient 0
        tokens = one_response([-1.0], [-2.0], 1.0)
        weighting = lp.objective("grpo").weigh(tokens)
        close(weighting.value, 1.2, 1e-12)
        assert float(weighting.weight) == 0.0

    def test_only_the_binding_side_counts_as_clipped(self):
        r = torch.tensor([1.5, 1.5, 0.5, 0.5])
        tokens = one_response(r.log().tolist(), [0.0] * 4, [1.0, -1.0, 1.0, -1.0])
        stats = lp.objective("grpo").weigh(tokens).stats
        assert (stats["clipped_high"], stats["clipped_low"]) == (0.25, 0.25)

    def test_dual_clip_is_for_negative_advantages_only(self, close):
        tokens = one_response([0.0, math.log(10), math.log(10)], [0.0] * 3, [1.0, 1.0, -1.0])
        weighting = lp.objective("grpo", dual=3.0).weigh(tokens, reduction="token_mean")
        close(3 * weighting.contribution, [1.0, 1.2, -3.0], 1e-12)
        close(3 * weighting.weight, [1.0, 0.0, 0.0], 1e-12)

    @pytest.mark.parametrize("length", [300, 2000])
    def test_sequence_ratio_does_not_depend_on_the_length(self, length, close):
        w = weights("gspo", [0.005 - 1.0] * length, [-1.0] * length, 1.0, high=1.0)
        close(w, [1.0050125] * length, 1e-6)  # e^.005; the product would be 4.48 and 22026

    def test_sequence_ratio_ignores_padding(self, close):
        pi, mask = torch.zeros(1, 8), torch.zeros(1, 8).bool()
        pi[0, :2], mask[0, :2] = 0.2, True
        loss, _ = lp.loss(
            "gspo",
            policy_logp=pi - 3.0,
            sampler_logp=torch.full((1, 8), -3.0),
            advantage=torch.ones(1),
            mask=mask,
            high=1.0,
        )
        close(-loss, math.exp(0.2), 1e-6)


class TestDPPO:
    @pytest.mark.parametrize(
        ("mu", "pi", "a", "kept"),
        [
            (0.9, 0.65, -1, False),
            (0.9, 0.65, 1, True),
            (0.65, 0.9, 1, False),
            (0.65, 0.9, -1, True),
            (0.01, 0.02, 1, True),
        ],
    )
    @pytest.mark.parametrize(("name", "delta"), [("dppo-tv", 0.15), ("dppo-tv", 0.2), ("dppo-kl", 0.05)])
    def test_directional_and_on_probability(self, name, delta, mu, pi, a, kept, close):
        w = weights(name, [math.log(pi)], [math.log(mu)], float(a), delta=delta)
        close(w, [pi / mu * a if kept else 0.0], 1e-12)

    def test_cap_bounds_the_factor(self, close):
        close(weights("dppo-tv", [math.log(0.04)], [math.log(0.01)], 1.0, cap=3.0), [3.0], 1e-12)


class TestCurrentPolicy:
    PI = tensor([[-0.05, -0.15, 0.0], [-4.0, -6.0, -5.0]], dtype=torch.float64)
    MASK = tensor([[1, 1, 0], [1, 1, 1]]).bool()
    A = tensor([1.0, -1.0], dtype=torch.float64)

    def test_asympo(self, close):
        # S = .1 and 5; weights A / S / (R m) = 10 / 4 and -.2 / 6; loss (1 - 1) / 2
        pi = self.PI.clone().requires_grad_()
        loss, stats = lp.loss("asympo", policy_logp=pi, advantage=self.A, mask=self.MASK)
        loss.backward()
        close(loss.detach(), 0.0, 1e-12)
        close(pi.grad[self.MASK], [-2.5, -2.5, 1 / 30, 1 / 30, 1 / 30], 1e-12)
        assert stats["asympo/floored"] == 0

    def test_asympo_floor_is_counted(self, close):
        pi = tensor([[-0.001, -0.003]], dtype=torch.float64)
        args = {"policy_logp": pi, "advantage": torch.ones(1).double(), "mask": torch.ones(1, 2).bool()}
        loss, stats = lp.loss("asympo", **args)
        close(loss, 0.2, 1e-12)  # S = .002 over the floor .01
        assert stats["asympo/floored"] == 1
        loss, stats = lp.loss("asympo", min_scale=0.001, **args)
        close(loss, 1.0, 1e-12)
        assert stats["asympo/floored"] == 0

    def test_naive_is_dominated_by_the_negative_response(self, close):
        # L = -(1 * -.1 - 1 * -5) / 2 = (.1 - 5) / 2
        loss, _ = lp.loss("naive", policy_logp=self.PI, advantage=self.A, mask=self.MASK)
        close(loss, -2.45, 1e-12)

    def test_spo_scales_the_negative_response(self, close):
        loss, _ = lp.loss("spo", policy_logp=self.PI, advantage=self.A, mask=self.MASK)
        close(loss, (0.1 - 0.2 * 5) / 2, 1e-12)
        for alpha, expected in ((1.0, -2.45), (0.0, 0.05)):
            loss, _ = lp.loss("spo", policy_logp=self.PI, advantage=self.A, mask=self.MASK, alpha=alpha)
            close(loss, expected, 1e-12)

    def test_gpg_is_a_mean_over_tokens(self, close):
        loss, _ = lp.loss("gpg", policy_logp=self.PI, advantage=self.A, mask=self.MASK)
        close(loss, (0.2 - 15) / 5, 1e-12)


class TestTruncated:
    def test_detached_factor(self, close):
        # w = e^.5; undetached the gradient would be 0
        close(weights("tis", [-1.0], [-1.5], 1.0), [1.6487213], 1e-6)

    def test_limits(self, close):
        r = [0.25, 1.0, 3.0, 8.0]
        pi = [math.log(x) for x in r]
        close(weights("tis", pi, [0.0] * 4, 1.0), [0.25, 1.0, 2.0, 2.0], 1e-12)
        close(weights("cispo", pi, [0.0] * 4, -1.0), [-0.25, -1.0, -3.0, -5.0], 1e-12)
        close(weights("dis", pi, [0.0] * 4, -1.0), [0.0, -1.0, -3.0, 0.0], 1e-12)  # inside (0.7, 6)

    def test_diagnostics_show_the_ratio_before_truncation(self, close):
        tokens = one_response([math.log(0.6), math.log(12), math.log(0.8)], [0.0] * 3, 1.0)
        assert lp.objective("tis").weigh(tokens).stats["ratio_max"] == pytest.approx(12.0)


class TestReductions:
    def test_fixed_length_in_one_batch_or_two(self, close):
        # token losses 1, lengths 2 and 4, L = 4: (2 + 4) / 2 / 4 = .75
        pi = torch.full((2, 4), -1.0)
        mask = tensor([[1, 1, 0, 0], [1, 1, 1, 1]]).bool()
        args = {"reduction": "constant", "max_tokens": 4}
        loss, _ = lp.loss("naive", policy_logp=pi, advantage=torch.ones(2), mask=mask, **args)
        close(loss, 0.75)
        parts = [
            lp.loss(
                "naive",
                policy_logp=pi[b : b + 1],
                advantage=torch.ones(1),
                mask=mask[b : b + 1],
                num_responses=2,
                **args,
            )[0]
            for b in range(2)
        ]
        close(sum(parts), 0.75)

    def test_token_mean_over_uneven_micro_batches(self, close):
        # one token of loss 4, three of 0: mean 1, gradient of the first -A / 4
        pi = tensor([[-4.0]], requires_grad=True)
        first, _ = lp.loss("gpg", policy_logp=pi, advantage=torch.ones(1), mask=torch.ones(1, 1).bool(), num_tokens=4)
        second, _ = lp.loss(
            "gpg",
            policy_logp=torch.zeros(1, 3),
            advantage=torch.ones(1),
            mask=torch.ones(1, 3).bool(),
            num_tokens=4,
        )
        (first + second).backward()
        close((first + second).detach(), 1.0)
        close(pi.grad, [[-0.25]])

    def test_a_rejected_token_keeps_its_place(self, close):
        # two of four tokens clipped: the others keep their 1/4 each
        w = weights("grpo", [0.0, 0.0, 1.0, 1.0], [0.0] * 4, 1.0)
        close(w, [1.0, 1.0, 0.0, 0.0], 1e-12)

    def test_loss_does_not_depend_on_the_size_of_micro_batches(self, close):
        pi = torch.full((8, 3), -0.5)
        for size in (8, 4, 2, 1):
            parts = [
                lp.loss(
                    "naive",
                    policy_logp=pi[i : i + size],
                    advantage=torch.ones(size),
                    mask=torch.ones(size, 3).bool(),
                    num_responses=8,
                )[0]
                for i in range(0, 8, size)
            ]
            close(sum(parts), 0.5)


class TestNonFinite:
    @pytest.mark.parametrize("name", [e.name for e in lp.OBJECTIVES.values()])
    @pytest.mark.parametrize(
        ("pi", "mu"), [(-1.0, -100.0), (-1.0, -math.inf), (-math.inf, -math.inf), (-math.inf, -1.0)]
    )
    def test_a_masked_slot_never_matters(self, name, pi, mu, close):
        policy = tensor([[-1.0, pi]], requires_grad=True)
        loss, _ = lp.loss(
            name,
            policy_logp=policy,
            sampler_logp=tensor([[-1.0, mu]]),
            anchor_logp=tensor([[-1.0, mu]]),
            age=tensor([1]),
            advantage=torch.ones(1),
            mask=tensor([[True, False]]),
            reduction="token_mean",
        )
        loss.backward()
        close(policy.grad, [[-2e-3 if name == "oapl" else -1.0, 0.0]])  # oapl: 2 beta A
        if name in ("grpo", "gspo", "sat-grpo", "sat-gspo", "icepop"):
            close(loss.detach(), -1.0)

    def test_a_token_outside_the_learners_support(self, close):
        policy = tensor([[-0.5, -math.inf, -0.2]], requires_grad=True)
        loss, stats = lp.loss(
            "grpo",
            policy_logp=policy,
            sampler_logp=tensor([[-0.5, -0.7, -0.2]]),
            advantage=torch.ones(1),
            mask=torch.ones(1, 3).bool(),
        )
        loss.backward()
        assert stats["d_bar"] == 0.0
        assert stats["dropped_tokens"] == 1
        close(policy.grad, [[-0.5, 0.0, -0.5]])

    def test_k3_of_two_valid_tokens(self, close):
        # e^.1 - 1.1 = .0051709, e^-.1 - .9 = .0048374
        policy = tensor([[-1.0, -1.2, -1e10]])
        _, stats = lp.loss(
            "grpo",
            policy_logp=policy,
            sampler_logp=tensor([[-1.1, -1.1, 0.0]]),
            advantage=torch.ones(1),
            mask=tensor([[True, True, False]]),
        )
        close(stats["k3"], 0.0050042, 1e-6)


class TestNames:
    def test_unknown_objective_names_the_nearest(self):
        with pytest.raises(lp.LagproofError, match="did you mean 'sat-grpo'"):
            lp.objective("sat-grop")

    def test_unknown_option_names_the_nearest(self):
        with pytest.raises(lp.LagproofError, match=r"did you mean 'objective\.alpha'"):
            lp.objective("sat-grpo", alhpa=0.5)

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("grpo", {"high": -0.1}),
            ("grpo", {"low": 0.0}),
            ("grpo", {"dual": 1.0}),
            ("grpo", {"low": float("nan")}),
            ("sat-grpo", {"alpha": 1.1}),
            ("sat-grpo", {"kernel": "hil"}),
            ("sat-grpo", {"risk": "ratio"}),
            ("sat-grpo", {"q": -1.0}),
            ("spo", {"alpha": -0.1}),
            ("asympo", {"min_scale": 0.0}),
            ("dppo-tv", {"delta": 0.0}),
            ("dppo-tv", {"delta": [0.1]}),
            ("tis", {"cap": 0.0}),
            ("cispo", {"low": 5.0}),
            ("icepop", {"cap": 0.1}),
            ("grpo", {"high": "wide"}),
            ("grpo", {"high": True}),
        ],
    )
    def test_a_value_that_is_not_allowed_is_refused(self, name, options):
        with pytest.raises(lp.LagproofError, match=r"objective\."):
            lp.objective(name, **options)
