"""What a rule sees, the tokens that can be scored, and what it says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lagproof.data.metrics import Metric
from lagproof.data.tokens import TokenBatch
from lagproof.tensors.ratio import Ratio
from lagproof.tensors.segments import segment_count, segment_mean, segment_sum

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


class Scope(StrEnum):
    """What a rule must see at once to be exact, from the least to the most."""

    TOKEN = "token"
    RESPONSE = "response"
    BATCH = "batch"


@dataclass(frozen=True, eq=False)
class Responses:
    """What is known of each response, over all of its tokens that can be scored; ``R`` of them, ``M`` tokens."""

    index: Int[Tensor, " M"]
    lengths: Int[Tensor, " R"]
    policy_logp: Float[Tensor, " M"]
    sampler_logp: Float[Tensor, " M"] | None
    anchor_logp: Float[Tensor, " M"] | None = None

    @cached_property
    def log_ratio(self) -> Float[Tensor, " M"]:
        """``d_t = log pi(a_t) - log mu(a_t)``, nats."""
        assert self.sampler_logp is not None, NEEDS_SAMPLER
        return self.policy_logp - self.sampler_logp

    @cached_property
    def update(self) -> Float[Tensor, " M"]:
        """``u_t = log pi(a_t) - log pi_anchor(a_t)``, nats."""
        assert self.anchor_logp is not None, NEEDS_ANCHOR
        return self.policy_logp - self.anchor_logp

    @cached_property
    def engine(self) -> Float[Tensor, " M"]:
        """``e_t = log pi_anchor(a_t) - log mu(a_t)``, nats."""
        assert self.anchor_logp is not None, NEEDS_ANCHOR
        assert self.sampler_logp is not None, NEEDS_SAMPLER
        return self.anchor_logp - self.sampler_logp

    def mean(self, x: Float[Tensor, " M"]) -> Float[Tensor, " R"]:
        """Of each response; 0 for one without a token."""
        return segment_mean(x, self.index, self.lengths)

    def sum(self, x: Float[Tensor, " M"]) -> Float[Tensor, " R"]:
        """Over the tokens of each response."""
        return segment_sum(x, self.index, len(self.lengths))

    @cached_property
    def sum_log_ratio(self) -> Float[Tensor, " R"]:
        """``S_g = sum_t d_t``, nats: the log-ratio of the whole response."""
        return self.sum(self.log_ratio)

    @cached_property
    def mean_log_ratio(self) -> Float[Tensor, " R"]:
        """``mean_t d_t``, nats; 0 for a response without a token."""
        return self.mean(self.log_ratio)

    @cached_property
    def mean_nll(self) -> Float[Tensor, " R"]:
        """``mean_t -log pi(a_t)``, nats; 0 for a response without a token."""
        return self.mean(-self.policy_logp)


@dataclass(frozen=True, eq=False)
class ScorableTokens:
    """Tokens that can be scored, everything detached: what a rule sees. ``M`` of a batch's ``N`` tokens.

    Attributes:
        policy_logp, sampler_logp, anchor_logp: nats.
        advantage: reward units.
        response: which response a token belongs to, in ``[0, R)``.
        responses: what is known of each response, also over tokens of it that are not among these.
        age: updates between the version that sampled a token and the policy.
    """

    policy_logp: Float[Tensor, " M"]
    sampler_logp: Float[Tensor, " M"] | None
    advantage: Float[Tensor, " M"]
    response: Int[Tensor, " M"]
    responses: Responses
    anchor_logp: Float[Tensor, " M"] | None = None
    age: Int[Tensor, " M"] | None = None

    @classmethod
    def of(cls, tokens: TokenBatch, index: Int[Tensor, " M"] | None) -> ScorableTokens:
        """Select by ``index``; ``None`` takes every token. Half precision is widened to float32."""
        dtype = torch.promote_types(tokens.policy_logp.dtype, torch.float32)

        def pick(x: Tensor) -> Tensor:
            return x if index is None else x[index]

        def take(x: Tensor | None) -> Tensor | None:
            return None if x is None else pick(x.detach().to(dtype))

        response, age = pick(tokens.response), tokens.age
        policy, sampler, anchor = (
            pick(tokens.policy_logp.detach().to(dtype)),
            take(tokens.sampler_logp),
            take(tokens.anchor_logp),
        )
        lengths = segment_count(response, tokens.num_responses)
        responses = Responses(response, lengths, policy, sampler, anchor)
        advantage = pick(tokens.advantage.detach().to(dtype))
        return cls(policy, sampler, advantage, response, responses, anchor, None if age is None else pick(age))

    def __len__(self) -> int:
        return self.policy_logp.shape[0]

    def rows(self, rows: slice) -> ScorableTokens:
        """Some of the tokens; what is known of their responses stays."""

        def take(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[rows]

        return replace(
            self,
            policy_logp=self.policy_logp[rows],
            sampler_logp=take(self.sampler_logp),
            advantage=self.advantage[rows],
            response=self.response[rows],
            anchor_logp=take(self.anchor_logp),
            age=take(self.age),
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

    @cached_property
    def update(self) -> Ratio:
        """``r~_t = exp(u_t)``, what the policy's updates did since the anchor, with ``u_t`` clamped to +-20."""
        assert self.anchor_logp is not None, NEEDS_ANCHOR
        return Ratio(self.policy_logp - self.anchor_logp)

    @cached_property
    def engine(self) -> Ratio:
        """``exp(e_t)``, what the engine computes differently from the learner, with ``e_t`` clamped to +-20."""
        assert self.anchor_logp is not None, NEEDS_ANCHOR
        assert self.sampler_logp is not None, NEEDS_SAMPLER
        return Ratio(self.anchor_logp - self.sampler_logp)

    @cached_property
    def response_update(self) -> Ratio:
        """``exp(mean_t u_t)`` of the response that a token belongs to; ``[M]``."""
        return Ratio(self.responses.mean(self.responses.update)[self.response])

    @cached_property
    def response_engine(self) -> Ratio:
        """``exp(mean_t e_t)`` of the response that a token belongs to; ``[M]``."""
        return Ratio(self.responses.mean(self.responses.engine)[self.response])

    @cached_property
    def sequence_ratio(self) -> Ratio:
        """``W_g = exp(sum_t d_t)`` of the response that a token belongs to, the sum clamped to +-20; ``[M]``."""
        return Ratio(self.responses.sum_log_ratio[self.response])


NEEDS_SAMPLER = "a rule that reads log-ratios must declare that it needs the sampler"
NEEDS_ANCHOR = "a rule that reads the anchor must declare that it needs it"


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
