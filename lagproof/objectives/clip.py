"""PPO's clip with a fixed radius: GRPO by the token, GSPO by the response."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from lagproof.objectives.base import Objective
from lagproof.objectives.options import option
from lagproof.objectives.scorable import Scope, ScorableTokens, TokenWeights
from lagproof.tensors.ratio import Ratio

if TYPE_CHECKING:
    from jaxtyping import Float

HIGH, LOW = "log(1 + high)", "-log(1 - low)"
"""Where a clip begins, on the way up and on the way down; the numbers are ``Objective.limits``."""


def clip(
    ratio: Ratio, a: Float[Tensor, " M"], low: float | Tensor, high: float | Tensor, dual: float | None = None
) -> TokenWeights:
    """``J = min(r A, clip(r, low, high) A)``, for ``A < 0`` not below ``dual A``; weight ``dJ / dd``.

    Args:
        ratio, a: of each token.
        low, high: limits of the ratio: one, or one of each token.
    """
    r = ratio.value
    above, below = (a > 0) & (r > high), (a < 0) & (r < low)
    value = torch.where(above, high, torch.where(below, low, r)) * a
    weight = torch.where(above | below, 0.0, ratio.slope * a)
    flags = {"clipped_high": above, "clipped_low": below}
    if dual is None:
        return TokenWeights(weight, value, flags)
    beyond = (a < 0) & (r > dual)
    weight, value = torch.where(beyond, 0.0, weight), torch.where(beyond, dual * a, value)
    return TokenWeights(weight, value, {"clipped_dual": beyond, **flags})


def radius(default: float, side: str) -> Any:
    """The option ``low`` or ``high``."""
    return option(default, f"radius {side} 1, dimensionless; inf for none", above=0.0, hint="for no limit use inf")


def dual_clip() -> Any:
    """The option ``dual``."""
    return option(
        None,
        "bounds J_t below by dual * A for A < 0; none by default",
        above=1.0,
        hint="for no dual clip leave it out",
    )


def limits(low: float, high: float) -> tuple[float, float]:
    """``log(1 + high)`` and ``-log(1 - low)``, nats; the latter is inf where nothing is clipped on the way down."""
    return math.log1p(high), -math.log1p(-low) if low < 1 else math.inf


@dataclass(frozen=True)
class TokenClip(Objective):
    """What the objectives that clip the ratio of each token have in common: its radius."""

    low: float = radius(0.2, "below")
    high: float = radius(0.2, "above")
    dual: float | None = dual_clip()

    @property
    def limits(self) -> tuple[float, float] | None:
        return limits(self.low, self.high)


@dataclass(frozen=True)
class ResponseClip(Objective):
    """What the objectives that clip one ratio a response have in common: its radius."""

    unit: ClassVar[Scope] = Scope.RESPONSE
    low: float = radius(3e-4, "below")
    high: float = radius(4e-4, "above")
    dual: float | None = dual_clip()

    @property
    def limits(self) -> tuple[float, float]:
        return limits(self.low, self.high)


@dataclass(frozen=True)
class GRPO(TokenClip):
    """Clips each token's ratio, so that one batch cannot push the policy far from its sampler on the sampled tokens.

    Formula:     J_t = min(r A, clip(r, 1 - low, 1 + high) A),   r = exp(log pi - log mu)
    Weight:      r A;  0 where (A > 0 and r > 1 + high) or (A < 0 and r < 1 - low)
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high: radius below and above 1, dimensionless, > 0, inf for none (high = 0.28 is clip-higher);
                 dual: > 1, bounds J_t below by dual * A for A < 0; none by default
    Invariants:  r = 1 gives the REINFORCE gradient; |weight| <= (1 + high) |A| for A > 0; unbounded for A < 0
    Source:      DeepSeekMath (GRPO), arXiv:2402.03300; PPO, arXiv:1707.06347; dual clip, arXiv:1912.09729;
                 clip-higher, arXiv:2503.14476. Departure: the sampler takes the place of the anchor, so the ratio
                 also holds what the rollout engine computes differently
    Raises:      ConfigError if low or high is not > 0, or dual is not > 1
    """

    name: ClassVar[str] = "grpo"
    known_as: ClassVar[tuple[str, ...]] = ("ppo",)
    colour: ClassVar[int | None] = 0
    caveats: ClassVar = ("without dual the weight of a token with A < 0 grows with its ratio, without bound",)
    remedies: ClassVar = {"mismatch": "grpo"}

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        return clip(tokens.ratio, tokens.advantage, 1.0 - self.low, 1.0 + self.high, self.dual)


@dataclass(frozen=True)
class GSPO(ResponseClip):
    """Clips one length-normalised ratio a response, so that a response is trusted or rejected whole.

    Formula:     rho_g = exp(mean_t (log pi - log mu));   J_t = min(rho A, clip(rho, 1 - low, 1 + high) A)
    Weight:      rho_g A;  0 where (A > 0 and rho > 1 + high) or (A < 0 and rho < 1 - low)
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high: radius below and above 1, dimensionless, > 0, inf for none;
                 dual: > 1, bounds J_t below by dual * A for A < 0; none by default
    Invariants:  rho does not depend on the length for a constant log-ratio; rho = 1 gives the REINFORCE gradient
    Source:      Group Sequence Policy Optimization, arXiv:2507.18071, with its radii
    Raises:      ConfigError if low or high is not > 0, or dual is not > 1
    """

    name: ClassVar[str] = "gspo"
    colour: ClassVar[int | None] = 6
    caveats: ClassVar = ("without dual the weight of a response with A < 0 grows with its ratio, without bound",)

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        return clip(tokens.response_ratio, tokens.advantage, 1.0 - self.low, 1.0 + self.high, self.dual)
