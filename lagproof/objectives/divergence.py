"""DPPO: tokens are dropped by how much probability has moved, not by their ratio."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from lagproof.objectives.base import Objective
from lagproof.objectives.options import option
from lagproof.objectives.scorable import ScorableTokens, TokenWeights
from lagproof.tensors.divergence import binary_kl, binary_total_variation

if TYPE_CHECKING:
    from jaxtyping import Float


def _delta(default: float, unit: str) -> Any:
    return option(
        default, f"largest distance, {unit}: one number, or a pair (low, high)", above=0.0, hint="for no limit use inf"
    )


@dataclass(frozen=True)
class DPPO(Objective):
    """Divergence proximal policy optimisation, whatever the distance."""

    delta: float | tuple[float, float] = option(0.15, "largest distance", above=0.0)
    cap: float | None = option(
        None, "upper limit of the ratio, dimensionless; none by default", above=0.0, hint="for no limit leave it out"
    )

    @abstractmethod
    def distance(self, policy_logp: Tensor, sampler_logp: Tensor, moved: Tensor) -> Float[Tensor, " M"]:
        """How far the probability of each token has moved, ``moved`` with its sign."""

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        assert tokens.sampler_logp is not None
        a, r, (low, high) = tokens.advantage, tokens.ratio.value, _pair(self.delta)
        moved = binary_total_variation(tokens.policy_logp, tokens.sampler_logp)
        size = self.distance(tokens.policy_logp, tokens.sampler_logp, moved)
        above, below = (a > 0) & (moved > 0) & (size > high), (a < 0) & (moved < 0) & (size > low)
        weight = torch.where(above | below, 0.0, (r if self.cap is None else r.clamp(max=self.cap)) * a)
        return TokenWeights(weight, weight * tokens.policy_logp, {"clipped_high": above, "clipped_low": below})


@dataclass(frozen=True)
class DPPOTotalVariation(DPPO):
    """Drops tokens whose probability has moved too far; a rare token may have any ratio.

    Formula:     D = pi(a) - mu(a);   J_t = sg(min(r, cap)) A log pi(a_t),
                 or 0 where (A > 0 and D > delta_high) or (A < 0 and D < -delta_low)
    Weight:      min(r, cap) A, or 0 where dropped
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     delta: probability, > 0, one number or a pair (low, high), inf for none;
                 cap: > 0, bounds the ratio; none by default
    Invariants:  r = 1 gives the REINFORCE gradient; a token on its way back to the sampler is never dropped
    Source:      DPPO, arXiv:2602.04879, binary total variation
    Raises:      ConfigError if delta or cap is not > 0
    """

    name: ClassVar[str] = "dppo-tv"
    colour: ClassVar[int | None] = 2
    remedies: ClassVar[Mapping[str, str]] = {"heavy_tail": "dppo-tv"}
    delta: float | tuple[float, float] = _delta(0.15, "probability")

    def distance(self, policy_logp: Tensor, sampler_logp: Tensor, moved: Tensor) -> Tensor:
        return moved.abs()


@dataclass(frozen=True)
class DPPOKL(DPPO):
    """As dppo-tv, with the distance measured by the KL between "this token" and "any other".

    Formula:     K = mu (log mu - log pi) + (1 - mu) log((1 - mu) / (1 - pi))
                 J_t = sg(min(r, cap)) A log pi(a_t),
                 or 0 where (A > 0, pi > mu, K > delta_high) or (A < 0, pi < mu, K > delta_low)
    Weight:      min(r, cap) A, or 0 where dropped
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     delta: nats, > 0, one number or a pair (low, high), inf for none; cap as in dppo-tv
    Invariants:  those of dppo-tv
    Source:      DPPO, arXiv:2602.04879, binary KL
    Raises:      ConfigError if delta or cap is not > 0
    """

    name: ClassVar[str] = "dppo-kl"
    colour: ClassVar[int | None] = 7
    delta: float | tuple[float, float] = _delta(0.05, "nats")

    def distance(self, policy_logp: Tensor, sampler_logp: Tensor, moved: Tensor) -> Tensor:
        return binary_kl(policy_logp, sampler_logp)


def _pair(delta: float | tuple[float, float]) -> tuple[float, float]:
    return (delta, delta) if isinstance(delta, int | float) else delta
