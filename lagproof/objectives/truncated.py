"""Objectives that truncate or mask the importance ratio: CISPO, TIS, IcePop."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lagproof.errors import ConfigError
from lagproof.objectives.base import Objective, Ruling, Scored


@dataclass(frozen=True)
class CISPO(Objective):
    """Clips the ratio as a detached factor, so that no token ever loses its gradient.

    Formula:     J_t = sg(clip(r, low, high)) A log pi(a_t)
    Weight:      clip(r, low, high) A
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high: limits of the ratio itself (not radii around 1), 0 <= low < high; inf for no upper limit
    Invariants:  |weight| <= high |A|; r = 1 gives the REINFORCE gradient (for low <= 1 <= high)
    Source:      MiniMax-M1, arXiv:2506.13585; the default clips to [0, 5]
    Raises:      ConfigError if the interval is empty
    """

    low: float = 0.0
    high: float = 5.0

    def __post_init__(self) -> None:
        _require_interval(self.low, self.high)

    @property
    def name(self) -> str:
        return "cispo"

    def rule(self, tokens: Scored) -> Ruling:
        r = tokens.ratio
        weight = r.clamp(self.low, self.high) * tokens.advantage
        flags = {"clipped_high": r > self.high, "clipped_low": r < self.low}
        return Ruling(weight, weight * tokens.policy_logp, flags)


@dataclass(frozen=True)
class TIS(Objective):
    """Truncated importance sampling: corrects for the sampler, with the correction bounded above.

    Formula:     J_t = sg(min(r, cap)) A log pi(a_t)
    Weight:      min(r, cap) A
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     cap: dimensionless, > 0
    Invariants:  |weight| <= cap |A|; r = 1 gives the REINFORCE gradient (for cap >= 1)
    Source:      truncated importance sampling for the mismatch between rollout and training engines, cap = 2
    Raises:      ConfigError if cap is not > 0
    """

    cap: float = 2.0

    def __post_init__(self) -> None:
        if not self.cap > 0.0:
            raise ConfigError(f"objective.cap = {self.cap}: must be > 0; for no limit use inf")

    @property
    def name(self) -> str:
        return "tis"

    def rule(self, tokens: Scored) -> Ruling:
        r = tokens.ratio
        weight = r.clamp(max=self.cap) * tokens.advantage
        return Ruling(weight, weight * tokens.policy_logp, {"clipped_high": r > self.cap})


@dataclass(frozen=True)
class IcePop(Objective):
    """Masked importance sampling: tokens whose ratio leaves an interval are dropped, for either sign of A.

    Formula:     J_t = r A where low <= r <= high, else 0
    Weight:      r A where low <= r <= high, else 0
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high: limits of the ratio itself, 0 <= low < high; inf for no upper limit
    Invariants:  |weight| <= high |A|; r = 1 gives the REINFORCE gradient (for low <= 1 <= high)
    Source:      Every Step Evolves (Ring-1T), arXiv:2510.18855, with its interval [0.5, 5]
    Raises:      ConfigError if the interval is empty
    """

    low: float = 0.5
    high: float = 5.0

    def __post_init__(self) -> None:
        _require_interval(self.low, self.high)

    @property
    def name(self) -> str:
        return "icepop"

    def rule(self, tokens: Scored) -> Ruling:
        r = tokens.ratio
        above, below = r > self.high, r < self.low
        kept = torch.where(above | below, 0.0, r * tokens.advantage)
        weight = torch.where(tokens.rejected(above | below, tokens.log_ratio), 0.0, kept)
        return Ruling(weight, kept, {"clipped_high": above, "clipped_low": below})


def _require_interval(low: float, high: float) -> None:
    if not 0.0 <= low < high:
        raise ConfigError(
            f"objective.low = {low}, objective.high = {high}: limits of the ratio, must be 0 <= low < high; "
            "for no upper limit use inf"
        )
