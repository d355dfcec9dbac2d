"""DPPO: tokens are dropped by how much probability has moved, not by their ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from lagproof.errors import ConfigError
from lagproof.objectives.base import Objective, Ruling, Scored
from lagproof.tensors.divergence import binary_kl, binary_total_variation


class Measure(StrEnum):
    """How far the sampled token's probability has moved."""

    TV = "tv"
    KL = "kl"


@dataclass(frozen=True)
class DPPO(Objective):
    """Divergence proximal policy optimisation; see :func:`dppo_tv` and :func:`dppo_kl`."""

    measure: Measure
    low: float
    high: float
    cap: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("delta (low)", self.low), ("delta (high)", self.high), ("cap", self.cap)):
            if value is not None and not value > 0.0:
                raise ConfigError(f"objective.{name} = {value}: must be > 0; for no limit use inf")

    @property
    def name(self) -> str:
        return f"dppo-{self.measure}"

    def rule(self, tokens: Scored) -> Ruling:
        high, low = self._too_far(tokens)
        r = tokens.ratio if self.cap is None else tokens.ratio.clamp(max=self.cap)
        weight = torch.where(tokens.rejected(high | low, tokens.log_ratio), 0.0, r * tokens.advantage)
        return Ruling(weight, weight * tokens.policy_logp, {"clipped_high": high, "clipped_low": low})

    def _too_far(self, tokens: Scored) -> tuple[Tensor, Tensor]:
        """Tokens that moved too far in the direction their advantage pushes them: up, and down."""
        assert tokens.sampler_logp is not None
        moved = binary_total_variation(tokens.policy_logp, tokens.sampler_logp)
        size = moved.abs() if self.measure is Measure.TV else binary_kl(tokens.policy_logp, tokens.sampler_logp)
        a = tokens.advantage
        return (a > 0) & (moved > 0) & (size > self.high), (a < 0) & (moved < 0) & (size > self.low)


def dppo_tv(delta: float | Sequence[float] = 0.15, cap: float | None = None) -> DPPO:
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
    return DPPO(Measure.TV, *_pair(delta), cap)


def dppo_kl(delta: float | Sequence[float] = 0.05, cap: float | None = None) -> DPPO:
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
    return DPPO(Measure.KL, *_pair(delta), cap)


def _pair(delta: float | Sequence[float]) -> tuple[float, float]:
    if isinstance(delta, int | float):
        return float(delta), float(delta)
    if len(delta) != 2:
        raise ConfigError(f"objective.delta = {list(delta)}: must be one number, or a pair (low, high)")
    return float(delta[0]), float(delta[1])
