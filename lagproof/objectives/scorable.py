"""What a rule sees, the tokens that can be scored, and what it says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lagproof.data.metrics import Metric
from lagproof.data.tokens import TokenBatch
from lagproof.tensors.ratio import Ratio
from lagproof.tensors.segments import segment_count, segment_mean

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class Responses:
    """What is known of each response, over all of its tokens that can be scored; ``R`` of them, ``M`` tokens."""

    index: Int[Tensor, " M"]
    lengths: Int[Tensor, " R"]
    policy_logp: Float[Tensor, " M"]
    sampler_logp: Float[Tensor, " M"] | None

    @cached_property
    def mean_log_ratio(self) -> Float[Tensor, " R"]:
        """``mean_t d_t``, nats; 0 for a response without a token."""
        assert self.sampler_logp is not None, NEEDS_SAMPLER
        return segment_mean(self.policy_logp - self.sampler_logp, self.index, self.lengths)

    @cached_property
    def mean_nll(self) -> Float[Tensor, " R"]:
        """``mean_t -log pi(a_t)``, nats; 0 for a response without a token."""
        return segment_mean(-self.policy_logp, self.index, self.lengths)


@dataclass(frozen=True, eq=False)
class ScorableTokens:
    """Tokens that can be scored, everything detached: what a rule sees. ``M`` of a batch's ``N`` tokens.

    Attributes:
        policy_logp, sampler_logp: nats.
        advantage: reward units.
        response: which response a token belongs to, in ``[0, R)``.
        responses: what is known of each response, also over tokens of it that are not among these.
    """

    policy_logp: Float[Tensor, " M"]
    sampler_logp: Float[Tensor, " M"] | None
    advantage: Float[Tensor, " M"]
    response: Int[Tensor, " M"]
    responses: Responses

    @classmethod
    def of(cls, tokens: TokenBatch, index: Int[Tensor, " M"] | None) -> ScorableTokens:
        """Select by ``index``; ``None`` takes every token. Half precision is widened to float32."""
        dtype = torch.promote_types(tokens.policy_logp.dtype, torch.float32)

        def take(x: Tensor) -> Tensor:
            x = x.detach().to(dtype)
            return x if index is None else x[index]

        response = tokens.response if index is None else tokens.response[index]
        policy, sampler = take(tokens.policy_logp), None if tokens.sampler_logp is None else take(tokens.sampler_logp)
        responses = Responses(response, segment_count(response, tokens.num_responses), policy, sampler)
        return cls(policy, sampler, take(tokens.advantage), response, responses)

    def __len__(self) -> int:
        return self.policy_logp.shape[0]

    def rows(self, rows: slice) -> ScorableTokens:
        """Some of the tokens; what is known of their responses stays."""
        sampler = None if self.sampler_logp is None else self.sampler_logp[rows]
        return ScorableTokens(
            self.policy_logp[rows], sampler, self.advantage[rows], self.response[rows], self.responses
        )

    @cached_property
    def log_ratio(self) -> Float[Tensor, " M"]:
        """``d_t = log pi(a_t) - log mu(a_t)``, nats."""
        assert self.sampler_logp is not None, NEEDS_SAMPLER
        return self.policy_logp - self.sampler_logp

    @cached_property
    def ratio(self) -> Ratio:
        """``r_t = exp(d_t)`` of each token, with ``d_t`` clamped to +-20."""
        return Ratio(self.log_ratio)

    @cached_property
    def response_ratio(self) -> Ratio:
        """``rho_g = exp(mean_t d_t)`` of the response that a token belongs to, clamped likewise; ``[M]``."""
        return Ratio(self.responses.mean_log_ratio[self.response])


NEEDS_SAMPLER = "a rule that reads log-ratios must declare needs_sampler_logp"


@dataclass(frozen=True, eq=False)
class TokenWeights:
    """What a rule says of each token, before the reduction.

    Attributes:
        weight: d J_t / d log pi(a_t), ``[M]``.
        value: J_t, ``[M]``, maximised.
        flags: masks ``[M]`` whose share among the tokens is reported under their name.
        stats: further metrics of the objective's own over these tokens.
        removed: by name, weights ``[M]`` that a part of the rule took away; reported as a share of the gradient mass
            there was before.
    """

    weight: Float[Tensor, " M"]
    value: Float[Tensor, " M"]
    flags: Mapping[str, Bool[Tensor, " M"]] = field(default_factory=dict[str, Tensor])
    stats: Mapping[str, Metric] = field(default_factory=dict[str, Metric])
    removed: Mapping[str, Float[Tensor, " M"]] = field(default_factory=dict[str, Tensor])
