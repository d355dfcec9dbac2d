"""SAT: a clip whose radius shrinks on the stale tail of the batch, by the token or by the response."""

from __future__ import annotations

import math
import statistics
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

from lagproof.data.distribution import Distribution
from lagproof.data.metrics import Mean, Metric, Metrics, Same, merge, values
from lagproof.data.slices import Key
from lagproof.data.tokens import TokenBatch
from lagproof.objectives.base import Finding, Objective, Scope
from lagproof.objectives.clip import HIGH, LOW, ResponseClip, TokenClip, clip
from lagproof.objectives.options import option
from lagproof.objectives.scorable import ScorableTokens, TokenWeights
from lagproof.tensors.quantile import quantile
from lagproof.tensors.ratio import Ratio

if TYPE_CHECKING:
    from jaxtyping import Float

KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "hill": lambda x: 1.0 / (1.0 + x * x),  # the paper's; 1/2 at q, so the radius jumps there
    "exp": lambda x: torch.exp(1.0 - x),  # continuous at q
    "reciprocal": lambda x: 1.0 / x,  # continuous at q
}
"""``psi(u; q)`` as a function of ``x = u / q > 1``."""

RISKS: dict[str, Callable[[ScorableTokens], Tensor]] = {
    "log_ratio": lambda tokens: tokens.log_ratio.abs(),  # the paper's
    "probability_mass": lambda tokens: 0.5 * (torch.exp(_sampler(tokens)) * (tokens.ratio.value - 1.0)).abs(),
}
"""``u``: how stale a token is."""

NEVER_ACTS = "it is its base, and nothing changes, where q is at or beyond both log(1 + high) and -log(1 - low)"


@dataclass(frozen=True)
class Gate(Objective):
    """Where and how much a radius shrinks.

    With ``q`` the ``alpha``-quantile of the risk ``u`` over the batch, the radius is multiplied by ``psi(u; q)`` where
    ``u > q > 0``. A part of the tokens cannot know ``q``: fit the objective on the whole batch, or give ``q``.
    """

    alpha: float = option(
        0.9,
        "quantile of the risk above which a token, or response, is in the tail",
        minimum=0.0,
        maximum=1.0,
        hint="1 never opens the gate",
    )
    kernel: str = option("hill", "how the radius shrinks in the tail; hill is the paper's", choices=tuple(KERNELS))
    q: float | None = option(
        None, "the quantile itself, if it was computed elsewhere (whole batch, previous step)", minimum=0.0
    )

    @property
    def scope(self) -> Scope:
        """The batch while the quantile is still to be read off it; then a token or a response."""
        return Scope.BATCH if self.q is None else self.unit

    @property
    def risk_name(self) -> str:
        """``log_ratio`` if ``u``, and so ``q``, are in nats."""
        return "log_ratio"

    @abstractmethod
    def unit_risk(self, tokens: ScorableTokens) -> Float[Tensor, " U"]:
        """``u`` of each token, or of each response that has a token: what the quantile is of."""

    def risk_of(self, tokens: TokenBatch) -> Float[Tensor, " U"]:
        """The risks whose ``alpha``-quantile is ``q``: of each token, or each response, that can be scored.

        A trainer that shows an objective one micro-batch of whole responses at a time joins them over its parts and
        ranks, takes the quantile and passes it as ``q``.

        Raises:
            InputError: no ``sampler_logp``.
        """
        return self.unit_risk(self.scorable(tokens))

    def fitted(self, tokens: ScorableTokens) -> Self:
        """With ``q`` read off these tokens; 0, which closes the gate, where there are none."""
        if self.q is not None:
            return self
        return replace(self, q=quantile(self.unit_risk(tokens), self.alpha) or 0.0)

    def finding(self, batches: Sequence[TokenBatch], metrics: Sequence[Metrics]) -> Finding:
        """Whether it can act at all, and on how much it did."""
        return _finding(self, metrics)

    def clip(
        self, ratio: Ratio, a: Float[Tensor, " M"], u: Float[Tensor, " M"], low: float, high: float, dual: float | None
    ) -> TokenWeights:
        """The clip with radii ``low c`` and ``high c`` where the gate is open, and ``low`` and ``high`` elsewhere.

        Both sides shrink: the side that a token has not moved to is out of its reach whatever the radius.
        """
        assert self.q is not None, "a rule is that of an objective that was fitted"
        gated = (u > self.q) & (self.q > 0.0)
        c = KERNELS[self.kernel](u / self.q)
        lower, upper = torch.where(gated, 1.0 - low * c, 1.0 - low), torch.where(gated, 1.0 + high * c, 1.0 + high)
        fixed, shrunk = clip(ratio, a, 1.0 - low, 1.0 + high, dual), clip(ratio, a, lower, upper, dual)
        changed = _clipped(shrunk) & ~_clipped(fixed)
        return TokenWeights(
            shrunk.weight,
            shrunk.value,
            flags={"sat/gated": gated, "sat/changed": changed, **shrunk.flags},
            stats={"sat/q": Same(self.q), "sat/shrink": Distribution(((1.0 - c[gated]).float().cpu().numpy(),))},
            removed={"sat/removed": torch.where(changed, fixed.weight, 0.0)},
        )


@dataclass(frozen=True)
class SatGRPO(Gate, TokenClip):
    """GRPO whose radius shrinks on the stale tail of the batch, and only on the side the token has moved to.

    Formula:     q = alpha-quantile of |d| over the batch;  c = psi(|d|; q) where q > 0 and |d| > q, else 1
                 J_t = min(r A, clip(r, 1 - low c_-, 1 + high c_+) A),  c_+ = c where d > 0, c_- = c where d < 0
                 psi(u; q) = 1 / (1 + (u / q)^2)
    Weight:      that of GRPO; 0 also where (A > 0 and r > 1 + high c_+) or (A < 0 and r < 1 - low c_-)
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high, dual as in grpo; alpha in [0, 1]; kernel: hill (the paper) | exp | reciprocal;
                 q: the quantile, nats, if it was computed elsewhere;
                 risk: log_ratio (the paper) | probability_mass, 1/2 mu |r - 1|
    Invariants:  inside GRPO's interval; J_t <= GRPO's J_t; identical to GRPO where the gate is closed, for q = 0 and
                 for alpha = 1; tokens on their way back to the sampler are never touched;
                 q >= log(1 + high) and q >= -log(1 - low): nothing can change at all;
                 with risk log_ratio the weights are GRPO's with one radius for the whole batch: c falls as |d| grows,
                 so for A > 0 exactly the tokens with d > min(log(1 + high), max(q, d*)) are rejected, where
                 d* = log(1 + high psi(d*; q)); for A < 0 alike
    Source:      Stale but Stable: Staleness-Adaptive Trust Regions for Stabilizing Asynchronous Reinforcement
                 Learning, Proposition 4.1. The kernels exp and reciprocal and the risk probability_mass are ours
    Raises:      ConfigError for a radius or alpha out of range; UnknownNameError for an unknown kernel or risk
    """

    name: ClassVar[str] = "sat-grpo"
    colour: ClassVar[int | None] = 4
    caveats: ClassVar[tuple[str, ...]] = (NEVER_ACTS,)
    remedies: ClassVar[Mapping[str, str]] = {"mismatch": "sat-grpo", "heavy_tail": "sat-grpo"}
    risk: str = option(
        "log_ratio",
        "what makes a token stale: |d|, nats (the paper), or 1/2 mu(a) |r - 1|",
        choices=tuple(RISKS),
    )

    @property
    def risk_name(self) -> str:
        return self.risk

    def unit_risk(self, tokens: ScorableTokens) -> Float[Tensor, " M"]:
        return RISKS[self.risk](tokens)

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        return self.clip(tokens.ratio, tokens.advantage, self.unit_risk(tokens), self.low, self.high, self.dual)


@dataclass(frozen=True)
class SatGSPO(Gate, ResponseClip):
    """GSPO whose radius shrinks on the stale tail of the responses, and only on the side they have moved to.

    Formula:     as sat-grpo with log rho_g = mean_t d in the place of d, and q over the responses
    Weight:      that of GSPO; 0 also where (A > 0 and rho > 1 + high c_+) or (A < 0 and rho < 1 - low c_-)
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high, dual as in gspo; alpha, kernel, q as in sat-grpo
    Invariants:  those of sat-grpo, against GSPO
    Source:      as sat-grpo
    Raises:      ConfigError for a radius or alpha out of range; UnknownNameError for an unknown kernel
    """

    name: ClassVar[str] = "sat-gspo"
    colour: ClassVar[int | None] = 3
    caveats: ClassVar[tuple[str, ...]] = (NEVER_ACTS,)

    def unit_risk(self, tokens: ScorableTokens) -> Float[Tensor, " U"]:
        return tokens.responses.mean_log_ratio[tokens.responses.lengths > 0].abs()

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        rho = tokens.response_ratio
        return self.clip(rho, tokens.advantage, rho.log.abs(), self.low, self.high, self.dual)


def _clipped(weights: TokenWeights) -> Tensor:
    return weights.flags["clipped_high"] | weights.flags["clipped_low"]


def _sampler(tokens: ScorableTokens) -> Tensor:
    assert tokens.sampler_logp is not None
    return tokens.sampler_logp


def _finding(objective: Gate, metrics: Sequence[Metrics]) -> Finding:
    """SAT changes a token only where ``q < |d|`` and the base has not clipped it: ``d < log(1 + high)`` on the way up,
    ``d > log(1 - low)`` on the way down.

    So with ``q`` at or beyond both it is its base. For the other risks ``q`` is not in nats and is not compared.
    """
    q = [value for part in metrics if (value := part[Key("sat/q")].value) is not None]
    names = [Key(f"sat/{name}") for name in ("changed", "removed", "gated")]
    merged = merge({key: part[key] for key in names} for part in metrics)
    pooled = {key.name.removeprefix("sat/"): value for key, value in values(merged).items()}
    middle, unit = statistics.median(q), "tokens" if objective.unit is Scope.TOKEN else "responses"
    numbers = {"q_median": middle, "q_min": min(q), "q_max": max(q), "steps": len(q), **pooled}
    spread = f" (median of {len(q)} steps, {min(q):.3g} to {max(q):.3g})" if len(q) > 1 else ""
    name, base = objective.name, objective.name.removeprefix("sat-")
    did = f"rejects {_did(merged[Key('sat/changed')], pooled)} that {base} keeps"
    if objective.risk_name != "log_ratio":
        return Finding(f"{name} {did}: q of {unit} is {middle:.3g}{spread} ({objective.risk_name})", numbers)
    assert objective.limits is not None
    up, down = objective.limits
    sides = [_Side(what, x, sum(0 < value < x for value in q)) for what, x in ((HIGH, up), (LOW, down))]
    numbers |= {"limit_high": up, "can_act_high": sides[0].below / len(q), "can_act_low": sides[1].below / len(q)}
    numbers |= {"limit_low": down} if math.isfinite(down) else {}
    where, closed = f"q of {unit} is {middle:.3g} nats{spread}", q.count(0.0)
    if not any(side.below for side in sides):
        why = _never(len(q), closed, sides)
        return Finding(f"{name} cannot act on this data: {where}, {why}: it is {base} on every token", numbers)
    return Finding(f"{name} {did}: {where}, {_when(len(q), closed, sides)}", numbers)


@dataclass(frozen=True)
class _Side:
    """A limit by its formula, and the number of steps in which ``q`` was open and below it."""

    formula: str
    limit: float
    below: int


def _did(changed: Metric, pooled: Mapping[str, float]) -> str:
    assert isinstance(changed, Mean)
    if not changed.total:
        return f"none of {changed.count:.0f} tokens"
    took = f", {pooled['removed']:.2%} of the gradient mass" if "removed" in pooled else ""
    return f"{changed.total:.0f} of {changed.count:.0f} tokens ({pooled['changed']:.2%}{took})"


def _never(steps: int, closed: int, sides: Sequence[_Side]) -> str:
    if closed == steps:
        return "so the gate stays closed"
    reached = "at or above " + " and ".join(f"{side.formula} = {side.limit:.3g}" for side in sides)
    if steps == 1:
        return reached
    if closed:
        return f"{reached} in {steps - closed} of {steps} steps and 0, where the gate stays closed, in the others"
    return f"{reached} in all {steps} steps"


def _when(steps: int, closed: int, sides: Sequence[_Side]) -> str:
    """In how many steps ``q`` is below each limit; of one step, whether."""
    if steps == 1:
        return " and ".join(
            f"{'below' if side.below else 'not below'} {side.formula} = {side.limit:.3g}" for side in sides
        )
    often = [f"below {side.formula} = {side.limit:.3g} in {side.below} of {steps} steps" for side in sides]
    return " and ".join(often) + (f" (0 in {closed}, where the gate stays closed)" if closed else "")
