"""Objectives that truncate, mask or soften the importance ratio of a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from lagproof.errors import ConfigError
from lagproof.objectives.base import Objective
from lagproof.objectives.clip import radius
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
class DIS(Objective):
    """Direct double-sided importance sampling: tokens whose ratio leaves an interval are dropped, for either sign of A.

    Formula:     J_t = sg(r 1[1 - low < r < 1 + high]) A log pi(a_t)
    Weight:      r A inside the open interval, else 0
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high: radius below and above 1, dimensionless, > 0, inf for none
    Invariants:  |weight| < (1 + high) |A|; r = 1 gives the REINFORCE gradient
    Source:      GLM-5, arXiv:2602.15763, equations 3 to 5, which do not give the radii; those here are reported for the
                 reasoning runs of SAO, arXiv:2607.07508 (0.8 and 3 for coding). The same mask on the engine part alone
                 is IcePop's: see icepop
    Raises:      ConfigError if low or high is not > 0
    """

    name: ClassVar[str] = "dis"
    remedies: ClassVar[Mapping[str, str]] = {"heavy_tail": "dis", "effective_size": "dis"}
    low: float = radius(0.3, "below")
    high: float = radius(5.0, "above")

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        r = tokens.ratio.value
        above, below = r >= 1.0 + self.high, r <= 1.0 - self.low
        weight = torch.where(above | below, 0.0, r * tokens.advantage)
        return TokenWeights(weight, weight * tokens.policy_logp, {"clipped_high": above, "clipped_low": below})


@dataclass(frozen=True)
class SAPO(Objective):
    """Soft adaptive policy optimisation: a sigmoid in the place of the clip, so that no token is ever quite dropped.

    Formula:     s = sigmoid(tau (r - 1));   J_t = (4 / tau) s A,   tau by the sign of A
    Weight:      4 s (1 - s) r A
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     tau_positive, tau_negative: dimensionless, > 0
    Invariants:  r = 1 gives the REINFORCE gradient; |weight| <= r |A|; tau -> 0: r A
    Source:      SAPO, arXiv:2511.20347. Published on the ratio to an earlier pass of the trainer, that is on u; on the
                 ratio to the sampler it also gates the engine's noise. ms-swift leaves out 4 / tau
    Raises:      ConfigError if a temperature is not > 0
    """

    name: ClassVar[str] = "sapo"
    tau_positive: float = option(1.0, "steepness of the gate for A >= 0, dimensionless", above=0.0)
    tau_negative: float = option(1.05, "steepness of the gate for A < 0, dimensionless", above=0.0)

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        a, ratio = tokens.advantage, tokens.ratio
        tau = torch.where(a < 0, a.new_tensor(self.tau_negative), a.new_tensor(self.tau_positive))
        s = torch.sigmoid(tau * (ratio.value - 1.0))
        return TokenWeights(4.0 * s * (1.0 - s) * ratio.slope * a, 4.0 / tau * s * a)
