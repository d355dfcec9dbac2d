"""Objectives that need only the policy being trained: no sampler log-probability, no version tag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lagproof.data.metrics import Metric, Metrics, Sum
from lagproof.data.tokens import Needs, TokenBatch
from lagproof.objectives.base import Finding, Objective
from lagproof.objectives.options import option
from lagproof.objectives.scorable import Responses, Scope, ScorableTokens, TokenWeights
from lagproof.tensors.segments import segment_mean, segment_sum

_UNBOUNDED = {
    "mismatch": "puts no bound on stale negative responses: use {mismatch}, which compare with the sampler; without "
    "its log-probabilities, {negative_side}"
}
_BLIND = {"mismatch": "does not look at the sampler: {mismatch} reject tokens that have moved far"}


@dataclass(frozen=True)
class Naive(Objective):
    """The likelihood of each response, weighed by its advantage; the baseline that collapses on stale data.

    Formula:     J = 1/R sum_g 1/m_g sum_t A log pi(a_t)
    Weight:      A
    Inputs:      policy_logp [N] nats; advantage [N] reward units
    Options:     none
    Invariants:  on fresh samples this is REINFORCE; on stale ones nothing bounds the push on negative responses
    Source:      the naive loss of ASymPO: Asymmetric-Scale Policy Optimization for asynchronous LLM post-training
    Raises:      nothing
    """

    name: ClassVar[str] = "naive"
    rule_needs: ClassVar[Needs] = Needs()
    colour: ClassVar[int | None] = 1
    caveats: ClassVar[tuple[str, ...]] = ("nothing bounds the push on stale negative responses",)
    advice: ClassVar[Mapping[str, str]] = _UNBOUNDED

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        return TokenWeights(tokens.advantage, tokens.advantage * tokens.policy_logp)


@dataclass(frozen=True)
class GPG(Objective):
    """Group policy gradient: naive with GPG's advantage and the mean over tokens.

    Formula:     J = 1/N sum_t A log pi(a_t),   A = alpha (x - mean),   alpha = B / (B - M)
    Weight:      A
    Inputs:      policy_logp [N] nats; advantage [N] reward units, made with advantage = "gpg"
    Options:     none; alpha belongs to the advantage (M: responses in groups whose rewards are all equal)
    Invariants:  as naive
    Source:      GPG, arXiv:2504.02546, with F_norm = 1
    Raises:      nothing
    """

    name: ClassVar[str] = "gpg"
    rule_needs: ClassVar[Needs] = Needs()
    colour: ClassVar[int | None] = 5
    caveats: ClassVar[tuple[str, ...]] = ("nothing bounds the push on stale negative responses",)
    advice: ClassVar[Mapping[str, str]] = _UNBOUNDED
    default_reduction: ClassVar[str] = "token_mean"
    default_advantage: ClassVar[str] = "gpg"

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        return TokenWeights(tokens.advantage, tokens.advantage * tokens.policy_logp)


@dataclass(frozen=True)
class SPO(Objective):
    """Scaled policy optimisation: negative responses are scaled down by one fixed number.

    Formula:     J = 1/R sum_g 1/m_g sum_t A~ log pi(a_t),   A~ = A if A >= 0 else alpha A
    Weight:      A~
    Inputs:      policy_logp [N] nats; advantage [N] reward units
    Options:     alpha: dimensionless, in [0, 1]; 1 is naive, 0 is fine-tuning on the good answers
    Invariants:  positive responses have naive's weight
    Source:      ASymPO: Asymmetric-Scale Policy Optimization for asynchronous LLM post-training, its SPO
    Raises:      ConfigError if alpha is outside [0, 1]
    """

    name: ClassVar[str] = "spo"
    rule_needs: ClassVar[Needs] = Needs()
    colour: ClassVar[int | None] = 2
    advice: ClassVar[Mapping[str, str]] = _BLIND
    remedies: ClassVar[Mapping[str, str]] = {"negative_side": "spo (alpha = 0.2)"}
    alpha: float = option(
        0.2,
        "factor on the advantage of negative responses, dimensionless",
        minimum=0.0,
        maximum=1.0,
        hint="1 is naive, 0 drops the negatives",
    )

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        a = tokens.advantage
        weight = torch.where(a >= 0, a, self.alpha * a)
        return TokenWeights(weight, weight * tokens.policy_logp)


@dataclass(frozen=True)
class ASymPO(Objective):
    """Divides each response by its own mean negative log-probability, so that positive and negative ones balance.

    Formula:     L = -J = 1/R sum_g A_g S_g / sg(S_g),   S_g = 1/m_g sum_t -log pi(a_t)
    Weight:      A / S_g
    Inputs:      policy_logp [N] nats; advantage [N] reward units, one value a response
    Options:     min_scale: floor of S_g, nats, > 0; each response it is used on is counted (asympo/floored)
    Invariants:  with response_mean L = 1/R sum_g A_g: 0 for groups whose advantages add up to 0, whatever the scales
                 are (Theorem 2), so the loss says nothing; look at the mass of each sign. For a constant advantage a
                 response's weight times S_g is A
    Source:      ASymPO: Asymmetric-Scale Policy Optimization for asynchronous LLM post-training. The floor is ours:
                 a response of probability 1 would have an unbounded weight
    Raises:      ConfigError if min_scale is not > 0
    """

    name: ClassVar[str] = "asympo"
    unit: ClassVar[Scope] = Scope.RESPONSE
    rule_needs: ClassVar[Needs] = Needs()
    colour: ClassVar[int | None] = 3
    caveats: ClassVar[tuple[str, ...]] = ("with response_mean the loss says nothing: look at the mass of each sign",)
    advice: ClassVar[Mapping[str, str]] = _BLIND
    remedies: ClassVar[Mapping[str, str]] = {"negative_side": "asympo, which gives each response the same loss"}
    min_scale: float = option(0.01, "floor of S_g, nats", above=0.0, hint="in nats")

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        scale = tokens.responses.mean_nll.clamp(min=self.min_scale)
        weight = tokens.advantage / scale[tokens.response]
        return TokenWeights(weight, weight * tokens.policy_logp)

    def response_stats(self, responses: Responses) -> Mapping[str, Metric]:
        floored = (responses.mean_nll < self.min_scale) & (responses.lengths > 0)
        return {"asympo/floored": Sum(int(torch.count_nonzero(floored)))}

    def finding(self, batches: Sequence[TokenBatch], metrics: Sequence[Metrics]) -> Finding | None:
        """The factors ``1 / S_g`` that responses are scaled by, floored as the objective floors them."""
        parts = [_scales(self.scorable(batch)) for batch in batches]
        scale, sign = (torch.cat(x) for x in zip(*parts, strict=True))
        if not len(scale):
            return None
        factor = 1.0 / scale.clamp(min=self.min_scale)
        floored = int((scale < self.min_scale).sum())
        numbers = {"largest": float(factor.max()), "median": float(factor.median()), "floored": floored}
        numbers |= {"responses": len(scale), "floor": 1.0 / self.min_scale}
        medians: list[str] = []
        samples: dict[str, Tensor] = {}
        for name, side in (("positive", 1.0), ("negative", -1.0)):
            if bool((sign == side).any()):
                words, own = f"A {'>' if side > 0 else '<'} 0", factor[sign == side]
                numbers[f"median_{name}"] = float(own.median())
                medians.append(f"{numbers[f'median_{name}']:.3g} where {words}")
                samples[words] = own
        return Finding(
            f"asympo multiplies responses by 1 / S: median {', '.join(medians) or format(numbers['median'], '.3g')}, "
            f"largest {numbers['largest']:.3g}; {floored} of {len(scale)} responses are at the floor of "
            f"{self.min_scale:g} nats",
            numbers,
            samples,
        )


def _scales(tokens: ScorableTokens) -> tuple[Tensor, Tensor]:
    """``S_g`` and the sign of the advantage of each response that has a token, in float64."""
    lengths = tokens.responses.lengths
    scale = segment_mean(-tokens.policy_logp.double(), tokens.response, lengths)
    sign = torch.sign(segment_sum(tokens.advantage.double(), tokens.response, len(lengths)))
    return scale[lengths > 0], sign[lengths > 0]
