"""Objectives weighed by the ratio of a whole response, a product over its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from lagproof.objectives.base import Objective
from lagproof.objectives.options import option
from lagproof.objectives.scorable import Scope, ScorableTokens, TokenWeights

LEVELS = ("response", "token")


@dataclass(frozen=True)
class SeqTIS(Objective):
    """Truncated importance sampling by the response: every token of it has the same bounded weight.

    Formula:     W_g = exp(sum_t d);   f = min(W_g, cap) (truncate) or W_g where floor <= W_g <= cap, else 0 (mask)
                 J_t = sg(f / Z) A log pi;   Z = 1, or the mean of f over the responses of the batch
    Weight:      f / Z A, the same for each token of a response
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     cap: > 0; form: truncate | mask; floor: for mask, >= 0; normalise: none | batch;
                 mean: Z, if it was computed elsewhere
    Invariants:  responses of one token: tis. Normalised, the mean factor over the responses is 1. W is exponential in
                 the length: a constant log-ratio gives exp(m d); the sum is clamped to +-20
    Source:      verl's rollout correction, cap = 2; TRL's sequence_mask (form = mask, cap = 3). Not on top of an
                 objective that has the ratio in it: the mismatch would be counted twice
    Raises:      ConfigError for an option out of range; UnknownNameError for an unknown form
    """

    name: ClassVar[str] = "seq-tis"
    unit: ClassVar[Scope] = Scope.RESPONSE
    caveats: ClassVar[tuple[str, ...]] = ("the ratio of a response is exponential in its length",)
    remedies: ClassVar[Mapping[str, str]] = {"effective_size": "seq-tis"}
    cap: float = option(2.0, "upper limit of W, dimensionless", above=0.0, hint="for no limit use inf")
    form: str = option(
        "truncate", "what becomes of W: its minimum with cap, or 0 outside", choices=("truncate", "mask")
    )
    floor: float = option(0.0, "lower limit of W, for mask", minimum=0.0)
    normalise: str = option("none", "whether to divide by the mean over the batch", choices=("none", "batch"))
    mean: float | None = option(None, "that mean, if it was computed elsewhere (whole batch)", above=0.0)

    @property
    def rule_scope(self) -> Scope:
        return Scope.BATCH if self.normalise == "batch" and self.mean is None else self.unit

    def factor(self, w: Tensor) -> Tensor:
        """``f``."""
        return w.clamp(max=self.cap) if self.form == "truncate" else torch.where(self._outside(w), 0.0, w)

    def _outside(self, w: Tensor) -> Tensor:
        return (w > self.cap) | (w < self.floor)

    def fitted(self, tokens: ScorableTokens) -> Self:
        if self.rule_scope is not Scope.BATCH:
            return self
        g = tokens.responses
        w = torch.exp(g.sum_log_ratio[g.lengths > 0].double().clamp(-20.0, 20.0))
        mean = float(self.factor(w).mean()) if len(w) else 1.0
        return replace(self, mean=mean or 1.0)

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        w = tokens.sequence_ratio.value
        weight = self.factor(w) / (self.mean or 1.0) * tokens.advantage
        outside = w > self.cap if self.form == "truncate" else self._outside(w)
        return TokenWeights(weight, weight * tokens.policy_logp, {"clipped_high": outside})


@dataclass(frozen=True)
class TOPR(Objective):
    """Positive responses as they are, negative ones faded as the policy leaves them: no ratio amplifies anything.

    Formula:     J_t = A log pi where A >= 0;   sg(min(W, cap)) A log pi where A < 0
                 W = exp(sum_t d) of the response (level = response), or r of the token (level = token)
    Weight:      A;   min(W, cap) A
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     level: response | token; cap: > 0
    Invariants:  d = 0: naive. |weight| <= max(1, cap) |A|
    Source:      Tapered off-policy REINFORCE, arXiv:2503.14286. ROLL takes the ratio of the token, and the sign of the
                 score
    Raises:      ConfigError if cap is not > 0; UnknownNameError for an unknown level
    """

    name: ClassVar[str] = "topr"
    unit: ClassVar[Scope] = Scope.RESPONSE
    remedies: ClassVar[Mapping[str, str]] = {"negative_side": "topr"}
    level: str = option("response", "whose ratio fades a negative token", choices=LEVELS)
    cap: float = option(1.0, "upper limit of the ratio of negatives, dimensionless", above=0.0)

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        a = tokens.advantage
        ratio = tokens.sequence_ratio if self.level == "response" else tokens.ratio
        weight = torch.where(a < 0, ratio.value.clamp(max=self.cap) * a, a)
        return TokenWeights(weight, weight * tokens.policy_logp, {"clipped_high": (a < 0) & (ratio.value > self.cap)})


@dataclass(frozen=True)
class VESPO(Objective):
    """A smooth kernel of the ratio of a response: it fades on both sides, and rejects no token of it alone.

    Formula:     W_g = exp(sum_t d);  F(W) = W^k exp(lambda (1 - W));   J_t = sg(F(W_g)) A log pi
    Weight:      F(W_g) A, with k and lambda by the sign of A
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     k_positive, lambda_positive: for A >= 0; k_negative, lambda_negative: for A < 0; > 0
    Invariants:  F(1) = 1; F is largest at W = k / lambda, so |weight| <= F(k / lambda) |A| (1.208 and 1.242); F -> 0 on
                 both sides
    Source:      VESPO, arXiv:2602.10693, with the defaults of its code (those of its docstring differ). The sum is
                 clamped to +-20, as there; responses that have faded below 1e-6 are counted (vespo/faded)
    Raises:      ConfigError for an option that is not > 0
    """

    name: ClassVar[str] = "vespo"
    unit: ClassVar[Scope] = Scope.RESPONSE
    default_reduction: ClassVar[str] = "token_mean"
    caveats: ClassVar[tuple[str, ...]] = ("the ratio of a response is exponential in its length",)
    k_positive: float = option(2.0, "exponent of W for A >= 0", above=0.0)
    lambda_positive: float = option(3.0, "decay in W for A >= 0", above=0.0)
    k_negative: float = option(3.0, "exponent of W for A < 0", above=0.0)
    lambda_negative: float = option(2.0, "decay in W for A < 0", above=0.0)

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        a, ratio = tokens.advantage, tokens.sequence_ratio
        k = torch.where(a < 0, a.new_tensor(self.k_negative), a.new_tensor(self.k_positive))
        decay = torch.where(a < 0, a.new_tensor(self.lambda_negative), a.new_tensor(self.lambda_positive))
        factor = torch.exp(k * ratio.log.clamp(-20.0, 20.0) + decay * (1.0 - ratio.value))
        weight = factor * a
        return TokenWeights(weight, weight * tokens.policy_logp, {"vespo/faded": factor < 1e-6})


@dataclass(frozen=True)
class PMD(Objective):
    """Policy mirror descent: a squared log-ratio holds the policy near its sampler; no ratio, no clip.

    Formula:     J_t = A log pi - beta / 2 d^2            (level = token)
                 J_g = A sum_t log pi - beta / 2 S_g^2,  S_g = sum_t d      (level = response; reduction response_sum)
    Weight:      A - beta d;   A - beta S_g, the same for each token
    Inputs:      policy_logp, sampler_logp [N] nats; advantage x - mean
    Options:     beta: reward units per nat, >= 0; level: token | response
    Invariants:  beta = 0: naive. Linear in d, 0 at d = A / beta: the push ends at a finite ratio, also for negatives. A
                 = 0 is pulled back to the sampler
    Source:      Kimi k1.5, arXiv:2501.12599 (response level); verl's dro and ROLL's kimi15, whose 0.1 is the default
                 here (token level)
    Raises:      ConfigError if beta is negative; UnknownNameError for an unknown level
    """

    name: ClassVar[str] = "pmd"
    unit: ClassVar[Scope] = Scope.RESPONSE
    default_advantage: ClassVar[str] = "group_center"
    beta: float = option(0.1, "strength of the squared log-ratio, reward units per nat", minimum=0.0)
    level: str = option("token", "whose log-ratio is squared", choices=LEVELS)

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        a, logp = tokens.advantage, tokens.policy_logp
        if self.level == "token":
            d = tokens.log_ratio
            return TokenWeights(a - self.beta * d, a * logp - 0.5 * self.beta * d.square())
        total, length = (x[tokens.response] for x in (tokens.responses.sum_log_ratio, tokens.responses.lengths))
        return TokenWeights(a - self.beta * total, a * logp - 0.5 * self.beta * total.square() / length)


@dataclass(frozen=True)
class OAPL(Objective):
    """Regression of the log-ratio of a response on its optimal advantage: no ratio at all, at any lag.

    Formula:     J_g = -(beta S_g - A_g)^2,  S_g = sum_t d,  A = x - V,  V = log mean exp(x) over the group
    Weight:      2 beta (A - beta S_g), the same for each token
    Inputs:      policy_logp, sampler_logp [N] nats; advantage: optimal, x - V
    Options:     beta: > 0; the step is proportional to it, so the learning rate must be larger by about 1 / (2 beta)
    Invariants:  d = 0: naive's gradient times 2 beta. The weights of a group do not add up to 0; equal rewards give A =
                 0 and pull S to 0
    Source:      LLMs can learn to reason via off-policy RL, arXiv:2602.19362, as restated by a port: beta is its
                 beta_2, and its beta_1 = 1 is in the advantage
    Raises:      ConfigError if beta is not > 0
    """

    name: ClassVar[str] = "oapl"
    unit: ClassVar[Scope] = Scope.RESPONSE
    default_reduction: ClassVar[str] = "response_sum"
    default_advantage: ClassVar[str] = "optimal"
    caveats: ClassVar[tuple[str, ...]] = ("the step is proportional to beta: raise the learning rate",)
    beta: float = option(1e-3, "strength of the log-ratio, reward units per nat", above=0.0)

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        total, length = (x[tokens.response] for x in (tokens.responses.sum_log_ratio, tokens.responses.lengths))
        missing = tokens.advantage - self.beta * total
        return TokenWeights(2.0 * self.beta * missing, -missing.square() / length)
