"""PPO's clip: GRPO and GSPO, each with a fixed or a staleness-adaptive radius. One class, two choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from lagproof.data.distribution import Distribution
from lagproof.data.metrics import Metric, Same
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.objectives.base import Objective, Ruling, Scope, Scored
from lagproof.tensors.quantile import quantile
from lagproof.tensors.ratio import bounded_ratio

if TYPE_CHECKING:
    from jaxtyping import Float


class Level(StrEnum):
    """What has a ratio of its own."""

    TOKEN = "token"
    RESPONSE = "response"


KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "hill": lambda x: 1.0 / (1.0 + x * x),  # the paper's; 1/2 at q, so the radius jumps there
    "exp": lambda x: torch.exp(1.0 - x),  # continuous at q
    "reciprocal": lambda x: 1.0 / x,  # continuous at q
}
"""``psi(u; q)`` as a function of ``x = u / q > 1``."""

RISKS = ("log_ratio", "probability_mass")


@dataclass(frozen=True)
class Gate:
    """Where and how much the radius shrinks (SAT).

    Options:
        alpha: quantile of the risk above which a token is in the tail, in [0, 1]
        kernel: hill | exp | reciprocal
        risk: log_ratio, ``|d|`` (the paper) | probability_mass, ``1/2 mu(a) |r - 1|`` (token level only)
        q: the quantile itself, if it was computed elsewhere (whole batch, previous step); nats for log_ratio
    """

    alpha: float = 0.9
    kernel: str = "hill"
    risk: str = "log_ratio"
    q: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise ConfigError(f"objective.alpha = {self.alpha}: must be in [0, 1]; 1 never opens the gate")
        if self.kernel not in KERNELS:
            raise UnknownNameError("objective.kernel", self.kernel, KERNELS)
        if self.risk not in RISKS:
            raise UnknownNameError("objective.risk", self.risk, RISKS)
        if self.q is not None and not self.q >= 0.0:
            raise ConfigError(f"objective.q = {self.q}: must be >= 0")


@dataclass(frozen=True)
class Clip(Objective):
    """The clipped surrogate; see :func:`grpo`, :func:`gspo`, :func:`sat_grpo` and :func:`sat_gspo`."""

    level: Level
    low: float
    high: float
    dual: float | None = None
    gate: Gate | None = None

    def __post_init__(self) -> None:
        for name, value in (("low", self.low), ("high", self.high)):
            if not value > 0.0:
                raise ConfigError(f"objective.{name} = {value}: must be > 0; for no limit use inf")
        if self.dual is not None and not self.dual > 1.0:
            raise ConfigError(f"objective.dual = {self.dual}: must be > 1; for no dual clip leave it out")
        if self.gate is not None and self.gate.risk == "probability_mass" and self.level is Level.RESPONSE:
            raise ConfigError(
                "objective.risk = 'probability_mass': a response has no probability mass of its own; use log_ratio"
            )

    @property
    def name(self) -> str:
        return ("sat-" if self.gate else "") + ("grpo" if self.level is Level.TOKEN else "gspo")

    @property
    def scope(self) -> Scope:  # type: ignore[override]
        """The batch while the quantile is still to be read off it; then a token or a response."""
        if self.gate is not None and self.gate.q is None:
            return Scope.BATCH
        return Scope.TOKEN if self.level is Level.TOKEN else Scope.RESPONSE

    def fit_scored(self, scored: Scored) -> Self:
        """The same objective with ``q`` read off these tokens."""
        if self.gate is None or self.gate.q is not None:
            return self
        return replace(self, gate=replace(self.gate, q=self._quantile(scored, self._log_ratio(scored))))

    def rule(self, tokens: Scored) -> Ruling:
        unit = self._log_ratio(tokens)
        d = unit if self.level is Level.TOKEN else unit[tokens.response]
        r = tokens.ratio if self.level is Level.TOKEN else bounded_ratio(d)
        a = tokens.advantage
        up, down = a > 0, a < 0
        clipped_high, clipped_low = up & (r > 1.0 + self.high), down & (r < 1.0 - self.low)
        limit_high, limit_low = 1.0 + self.high, 1.0 - self.low
        bound = torch.where(clipped_high, limit_high, torch.where(clipped_low, limit_low, r))
        flags: dict[str, Tensor] = {}
        stats: dict[str, Metric] = {}
        removed: dict[str, Tensor] = {}
        if self.gate is not None:
            q = self.gate.q if self.gate.q is not None else self._quantile(tokens, unit)
            gated, changed, shrink = self._shrink(tokens, d, r, q, (clipped_high, clipped_low, bound))
            flags |= {"sat/gated": gated, "sat/changed": changed}
            stats |= {"sat/q": Same(q), "sat/shrink": shrink}
            removed["sat/removed"] = torch.where(tokens.rejected(~changed, d), 0.0, r * a)
        weight = torch.where(tokens.rejected(clipped_high | clipped_low, d), 0.0, r * a)
        value = bound * a
        if self.dual is not None:
            dual = down & (r > self.dual)
            weight, value = torch.where(dual, 0.0, weight), torch.where(dual, self.dual * a, value)
            flags["clipped_dual"] = dual
        flags |= {"clipped_high": clipped_high, "clipped_low": clipped_low}
        return Ruling(weight, value, flags, stats, removed)

    def _log_ratio(self, tokens: Scored) -> Float[Tensor, " U"]:
        """``d`` of each token, or the mean ``d`` of each response (0 for one without tokens)."""
        return tokens.log_ratio if self.level is Level.TOKEN else tokens.response_log_ratio

    def _risk(self, tokens: Scored, d: Tensor) -> Tensor:
        assert self.gate is not None
        if self.gate.risk == "log_ratio":
            return d.abs()
        assert tokens.sampler_logp is not None
        return 0.5 * (torch.exp(tokens.sampler_logp) * (tokens.ratio - 1.0)).abs()

    def _quantile(self, tokens: Scored, unit: Tensor) -> float:
        """``q`` over the tokens, or over the responses that have a token; 0 (gate closed) where there are none."""
        assert self.gate is not None
        units = unit if self.level is Level.TOKEN else unit[tokens.lengths > 0]
        q = quantile(self._risk(tokens, units), self.gate.alpha)
        return 0.0 if q is None else q

    def _shrink(
        self, tokens: Scored, d: Tensor, r: Tensor, q: float, clip: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Distribution]:
        """Shrink the radius of the tokens in the tail, in place in ``clip`` (clipped high, clipped low, bound).

        Only the tail is touched, so that everything else stays bit-identical to the fixed radius.

        Returns:
            Which tokens are gated, which of them were not clipped before and now are, and what share of its radius
            each gated one lost, ``1 - c``.
        """
        assert self.gate is not None
        clipped_high, clipped_low, bound = clip
        risk = self._risk(tokens, d)
        gated = risk > q if q > 0.0 else torch.zeros_like(clipped_high)
        tail = gated.nonzero().squeeze(1)
        c = KERNELS[self.gate.kernel](risk[tail] / q)
        r_tail, a, above = r[tail], tokens.advantage[tail], d[tail] > 0
        new_high, new_low = 1.0 + self.high * c, 1.0 - self.low * c
        high = above & (a > 0) & (r_tail > new_high)
        low = ~above & (a < 0) & (r_tail < new_low)
        changed = torch.zeros_like(gated)
        changed[tail] = (high & ~clipped_high[tail]) | (low & ~clipped_low[tail])
        clipped_high[tail], clipped_low[tail] = high, low
        bound[tail] = torch.where(high, new_high, torch.where(low, new_low, r_tail))
        return gated, changed, Distribution(((1.0 - c).float().cpu().numpy(),))


def grpo(low: float = 0.2, high: float = 0.2, dual: float | None = None) -> Clip:
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
    return Clip(Level.TOKEN, low, high, dual)


def gspo(low: float = 3e-4, high: float = 4e-4, dual: float | None = None) -> Clip:
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
    return Clip(Level.RESPONSE, low, high, dual)


def sat_grpo(
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = None,
    alpha: float = 0.9,
    kernel: str = "hill",
    risk: str = "log_ratio",
    q: float | None = None,
) -> Clip:
    """GRPO whose radius shrinks on the stale tail of the batch, and only on the side the token has moved to.

    Formula:     q = alpha-quantile of |d| over the batch;  c = psi(|d|; q) where q > 0 and |d| > q, else 1
                 J_t = min(r A, clip(r, 1 - low c_-, 1 + high c_+) A),  c_+ = c where d > 0, c_- = c where d < 0
                 psi(u; q) = 1 / (1 + (u / q)^2)
    Weight:      that of GRPO; 0 also where (A > 0 and r > 1 + high c_+) or (A < 0 and r < 1 - low c_-)
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high, dual as in grpo; alpha in [0, 1]; kernel: hill (the paper) | exp | reciprocal;
                 risk: log_ratio (the paper) | probability_mass, 1/2 mu |r - 1|;
                 q: the quantile, nats, if it was computed elsewhere
    Invariants:  inside GRPO's interval; J_t <= GRPO's J_t; identical to GRPO where the gate is closed, for q = 0 and
                 for alpha = 1; tokens on their way back to the sampler are never touched;
                 q >= log(1 + high) and q >= -log(1 - low): nothing can change at all
    Source:      Stale but Stable: Staleness-Adaptive Trust Regions for Stabilizing Asynchronous Reinforcement
                 Learning, Proposition 4.1. The kernels exp and reciprocal and the risk probability_mass are ours
    Raises:      ConfigError for a radius or alpha out of range; UnknownNameError for an unknown kernel or risk
    """
    return Clip(Level.TOKEN, low, high, dual, Gate(alpha, kernel, risk, q))


def sat_gspo(
    low: float = 3e-4,
    high: float = 4e-4,
    dual: float | None = None,
    alpha: float = 0.9,
    kernel: str = "hill",
    q: float | None = None,
) -> Clip:
    """GSPO whose radius shrinks on the stale tail of the responses, and only on the side they have moved to.

    Formula:     as sat-grpo with log rho_g = mean_t d in the place of d, and q over the responses
    Weight:      that of GSPO; 0 also where (A > 0 and rho > 1 + high c_+) or (A < 0 and rho < 1 - low c_-)
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high, dual as in gspo; alpha, kernel, q as in sat-grpo
    Invariants:  those of sat-grpo, against GSPO
    Source:      as sat-grpo
    Raises:      ConfigError for a radius or alpha out of range; UnknownNameError for an unknown kernel
    """
    return Clip(Level.RESPONSE, low, high, dual, Gate(alpha, kernel, "log_ratio", q))
