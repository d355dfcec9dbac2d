"""Objectives of three policies: they decide on what the updates did, and weigh what the engine did.

``d = u + e``: ``u = log pi - log pi_anchor`` is the update part, ``e = log pi_anchor - log mu`` the engine part. What
they mean depends on the anchor; where it is the learner at the version that sampled, ``u`` is all updates since and
``e`` the engine alone. With one optimiser step a batch and the anchor taken at its start, ``u`` is 0, no clip acts, and
every objective here is ``tis``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from lagproof.data.tokens import Needs
from lagproof.errors import ConfigError
from lagproof.objectives.base import Objective
from lagproof.objectives.clip import ResponseClip, TokenClip, clip, radius
from lagproof.objectives.options import option
from lagproof.objectives.scorable import ScorableTokens, TokenWeights
from lagproof.tensors.ratio import Ratio

if TYPE_CHECKING:
    from jaxtyping import Float

CORRECTIONS: Mapping[str, Callable[[Tensor, float, float], Tensor]] = {
    "truncate": lambda x, low, high: x.clamp(max=high),
    "clamp": lambda x, low, high: x.clamp(low, high),
    "mask": lambda x, low, high: torch.where((x >= low) & (x <= high), x, 0.0),
    "gate": lambda x, low, high: ((x >= low) & (x <= high)).to(x.dtype),
    "none": lambda x, low, high: torch.ones_like(x),
}
"""``f``: what becomes of the engine's ratio ``exp(e)``, with its lower and upper limit."""


def scaled(said: TokenWeights, c: Float[Tensor, " M"]) -> TokenWeights:
    """A rule's weights and values times a detached factor."""
    flags = {**said.flags, "engine/rejected": c == 0}
    return replace(said, weight=said.weight * c, value=said.value * c, flags=flags)


@dataclass(frozen=True)
class EngineFactor(Objective):
    """What the objectives that weigh the engine part have in common: the factor ``c = f(exp e)``."""

    rule_needs: ClassVar[Needs] = Needs(sampler=True, anchor=True)
    correction: str = option(
        "truncate",
        "what becomes of the engine's ratio: its minimum with cap, clamped to [floor, cap], 0 outside, 1 inside and 0 "
        "outside, or 1",
        choices=tuple(CORRECTIONS),
    )
    floor: float = option(0.5, "lower limit of the engine's ratio, for clamp, mask and gate", minimum=0.0)
    cap: float = option(2.0, "upper limit of the engine's ratio", above=0.0, hint="for no limit use inf")

    def check(self) -> None:
        if self.correction in ("clamp", "mask", "gate") and not self.floor < self.cap:
            raise ConfigError(f"objective.floor = {self.floor}, objective.cap = {self.cap}: must be floor < cap")

    def factor(self, engine: Ratio) -> Float[Tensor, " M"]:
        """``c``."""
        return CORRECTIONS[self.correction](engine.value, self.floor, self.cap)


@dataclass(frozen=True)
class DecoupledGRPO(EngineFactor, TokenClip):
    """GRPO that clips what the updates did and weighs what the engine did: engine noise rejects no token.

    Formula:     r~ = exp(u),  c = sg f(e);   J_t = c min(r~ A, clip(r~, 1 - low, 1 + high) A)
                 f: truncate min(exp e, cap) | clamp clip(exp e, floor, cap) | mask exp(e) where floor <= exp e <= cap,
                 else 0 |
                 gate 1 there, else 0 | none 1
    Weight:      c r~ A;  0 where (A > 0 and r~ > 1 + high) or (A < 0 and r~ < 1 - low)
    Inputs:      policy_logp, anchor_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high, dual as in grpo; correction; cap, floor: limits of exp(e)
    Invariants:  anchor = sampler: grpo; anchor = policy: tis with the same cap; cap = inf: every kept weight is r A.
                 Which weights are 0 depends on u and the sign of A alone. 0 <= weight <= cap (1 + high) A for A > 0
    Source:      batch-size invariance for policy optimisation, arXiv:2110.00641; AReaL, arXiv:2505.24298. cap = 2 as
                 verl and slime have it. AReaL multiplies by exp(e) only with a rejection section; verl adds a dual clip
                 of 3, off here
    Raises:      ConfigError for an option out of range; UnknownNameError for an unknown correction
    """

    name: ClassVar[str] = "decoupled-grpo"
    remedies: ClassVar[Mapping[str, str]] = {"mismatch": "decoupled-grpo"}

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        clipped = clip(tokens.update, tokens.advantage, 1.0 - self.low, 1.0 + self.high, self.dual)
        return scaled(clipped, self.factor(tokens.engine))


@dataclass(frozen=True)
class DecoupledGSPO(EngineFactor, ResponseClip):
    """GSPO that clips what the updates did to a response, and weighs what the engine did to it.

    Formula:     rho~_g = exp(mean_t u),  c_g = sg f(mean_t e);   J_t = c_g min(rho~ A, clip(rho~, 1 - low, 1 + high) A)
    Weight:      c_g rho~_g A;  0 where (A > 0 and rho~ > 1 + high) or (A < 0 and rho~ < 1 - low)
    Inputs:      policy_logp, anchor_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high, dual as in gspo; correction, cap, floor as in decoupled-grpo
    Invariants:  those of decoupled-grpo, against gspo; anchor = policy: min(rho_g, cap) A
    Source:      as decoupled-grpo. verl puts a factor of each token on the ratio of the response; here both are of the
                 response
    Raises:      ConfigError for an option out of range; UnknownNameError for an unknown correction
    """

    name: ClassVar[str] = "decoupled-gspo"

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        clipped = clip(tokens.response_update, tokens.advantage, 1.0 - self.low, 1.0 + self.high, self.dual)
        return scaled(clipped, self.factor(tokens.response_engine))


@dataclass(frozen=True)
class IcePop(DecoupledGRPO):
    """PPO's clip on what the updates did, without the tokens on which engine and learner disagree.

    Formula:     J_t = 1[floor <= exp e <= cap] min(r~ A, clip(r~, 1 - low, 1 + high) A):  decoupled-grpo with
                 correction = gate
    Weight:      r~ A, or 0 where exp(e) leaves the interval or the clip acts
    Inputs:      policy_logp, anchor_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     floor, cap: the interval of exp(e); low, high, dual as in grpo; correction: gate
    Invariants:  those of decoupled-grpo; no engine ratio is in any weight
    Source:      Every Step Evolves (Ring-1T), arXiv:2510.18855, with its interval [0.5, 5]; arXiv:2606.15079, equation
                 5. The same interval on the ratio to the sampler, without an anchor, is GLM-5's: see dis
    Raises:      ConfigError for an option out of range
    """

    name: ClassVar[str] = "icepop"
    remedies: ClassVar[Mapping[str, str]] = {"heavy_tail": "icepop"}
    correction: str = option("gate", "1 inside the interval and 0 outside", choices=("gate",))
    cap: float = option(5.0, "upper limit of the engine's ratio", above=0.0, hint="for no limit use inf")


@dataclass(frozen=True)
class MiniRL(Objective):
    """REINFORCE with a truncated ratio to the sampler, masked where the updates have moved a token too far.

    Formula:     J_t = sg(M min(r, cap)) A log pi,   M = 0 where (A > 0 and r~ > 1 + high) or (A < 0 and r~ < 1 - low),
                 else 1
    Weight:      M min(r, cap) A
    Inputs:      policy_logp, anchor_logp, sampler_logp [N] nats; advantage x - mean, not divided by its spread
    Options:     low, high: radius of r~ below and above 1, dimensionless, > 0, inf for none; cap: upper limit of r, > 0
    Invariants:  anchor = policy: tis with this cap; where r <= cap: the weights of decoupled-grpo with cap = inf; which
                 weights are 0 depends on u and the sign of A alone (and on A = 0)
    Source:      Stabilizing reinforcement learning with LLMs: formulation and practices, arXiv:2512.01374, equation 7.
                 Its surrogate is a sum over tokens: response_sum; with response_mean it is another method
    Raises:      ConfigError for an option out of range
    """

    name: ClassVar[str] = "minirl"
    rule_needs: ClassVar[Needs] = Needs(sampler=True, anchor=True)
    default_reduction: ClassVar[str] = "response_sum"
    default_advantage: ClassVar[str] = "group_center"
    low: float = radius(0.2, "below")
    high: float = radius(0.27, "above")
    cap: float = option(5.0, "upper limit of the ratio, dimensionless", above=0.0, hint="for no limit use inf")

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        a, moved = tokens.advantage, tokens.update.value
        above, below = (a > 0) & (moved > 1.0 + self.high), (a < 0) & (moved < 1.0 - self.low)
        weight = torch.where(above | below, 0.0, tokens.ratio.value.clamp(max=self.cap) * a)
        return TokenWeights(weight, weight * tokens.policy_logp, {"clipped_high": above, "clipped_low": below})


def _no_cap() -> Any:
    return option(None, "upper limit of the factor c; none by default", above=0.0, hint="for no limit leave it out")


@dataclass(frozen=True)
class A3PO(TokenClip):
    """GRPO whose radius grows with the age of a token: the opposite of SAT.

    Formula:     k = max(age, 1);  r~ = r^(1/k),  c = sg min(r^((k-1)/k), cap)
                 J_t = c min(r~ A, clip(r~, 1 - low, 1 + high) A)
    Weight:      r A;  0 where (A > 0 and r > (1 + high)^k) or (A < 0 and r < (1 - low)^k)      (for cap = none)
    Inputs:      policy_logp, sampler_logp [N] nats; age [N] updates; advantage [N] reward units
    Options:     low, high, dual as in grpo; cap: > 0, bounds c; none by default
    Invariants:  ages 0 and 1: grpo; above, the weights of grpo with the radii above, and no token less is kept
    Source:      A-3PO, arXiv:2512.06547: decoupled-grpo whose anchor is interpolated, log mu + (k-1)/k d. That anchor
                 says nothing of the engine: its noise is spread over the updates
    Raises:      ConfigError for an option out of range
    """

    name: ClassVar[str] = "a3po"
    rule_needs: ClassVar[Needs] = Needs(sampler=True, age=True)
    cap: float | None = _no_cap()

    @property
    def limits(self) -> None:
        """None that holds for every token: they grow with age."""
        return None

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        assert tokens.age is not None
        d = tokens.log_ratio
        update = d / tokens.age.clamp(min=1)
        clipped = clip(Ratio(update), tokens.advantage, 1.0 - self.low, 1.0 + self.high, self.dual)
        c = Ratio(d - update).value
        return scaled(clipped, c if self.cap is None else c.clamp(max=self.cap))
