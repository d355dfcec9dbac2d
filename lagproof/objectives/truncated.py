"""Objectives that truncate or mask the importance ratio: CISPO, TIS, IcePop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from lagproof.errors import ConfigError
from lagproof.objectives.base import Objective
from lagproof.objectives.options import option
from lagproof.objectives.scorable import ScorableTokens, TokenWeights


def _limit(default: float, side: str) -> Any:
    return option(default, f"{side} limit of the ratio itself, dimensionless")


def _require_interval(low: float, high: float) -> None:
    if not 0.0 <= low < high:
        raise ConfigError(
            f"objective.low = {low}, objective.high = {high}: limits of the ratio, must be 0 <= low < high; "
            "for no upper limit use inf"
        )


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

    name: ClassVar[str] = "cispo"
    remedies: ClassVar[Mapping[str, str]] = {"effective_size": "cispo"}
    low: float = _limit(0.0, "lower")
    high: float = _limit(5.0, "upper")

    def check(self) -> None:
        _require_interval(self.low, self.high)

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        r = tokens.ratio.value
        weight = r.clamp(self.low, self.high) * tokens.advantage
        flags = {"clipped_high": r > self.high, "clipped_low": r < self.low}
        return TokenWeights(weight, weight * tokens.policy_logp, flags)


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

    name: ClassVar[str] = "tis"
    remedies: ClassVar[Mapping[str, str]] = {"effective_size": "tis"}
    cap: float = option(2.0, "upper limit of the ratio, dimensionless", above=0.0, hint="for no limit use inf")

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        r = tokens.ratio.value
        weight = r.clamp(max=self.cap) * tokens.advantage
        return TokenWeights(weight, weight * tokens.policy_logp, {"clipped_high": r > self.cap})


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

    name: ClassVar[str] = "icepop"
    remedies: ClassVar[Mapping[str, str]] = {"heavy_tail": "icepop", "effective_size": "icepop"}
    low: float = _limit(0.5, "lower")
    high: float = _limit(5.0, "upper")

    def check(self) -> None:
        _require_interval(self.low, self.high)

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        r = tokens.ratio.value
        above, below = r > self.high, r < self.low
        dropped, a = above | below, tokens.advantage
        weight, value = (torch.where(dropped, 0.0, x * a) for x in (tokens.ratio.slope, r))
        return TokenWeights(weight, value, {"clipped_high": above, "clipped_low": below})
