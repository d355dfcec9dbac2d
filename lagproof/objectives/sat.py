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
from lagproof.data.rows import Row
from lagproof.data.slices import Key
from lagproof.data.tokens import Needs, TokenBatch
from lagproof.errors import ConfigError
from lagproof.objectives.base import Finding, Objective
from lagproof.objectives.clip import HIGH, LOW, ResponseClip, TokenClip, clip
from lagproof.objectives.decoupled import scaled
from lagproof.objectives.options import option
from lagproof.objectives.scorable import Scope, ScorableTokens, TokenWeights
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
    "staleness": lambda tokens: tokens.update.log.abs(),  # the part that updates made, without the engine's
}
"""``x``: how stale a token is."""
FORMS = ("drop-in", "decoupled")

NEVER_ACTS = "it is its base, and nothing changes, where q is at or beyond both log(1 + high) and -log(1 - low)"


@dataclass(frozen=True)
class Gate(Objective):
    """Where and how much a radius shrinks.

    With ``q`` the ``alpha``-quantile of the risk ``x`` over the batch, the radius is multiplied by ``psi(x; q)`` where
    ``x > q > 0``, on the side that the token has moved to. A part of the tokens cannot know ``q``: fit the objective
    on the whole batch, or give ``q``.
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

    form: str = option(
        "drop-in",
        "which ratio is clipped: that to the sampler, or that to the anchor with the engine's as a weight (staleness)",
        choices=FORMS,
    )
    floor: float = option(
        0.0, "least q, for example the quantile of |d| over tokens of age 0, which is the engine's", minimum=0.0
    )
    cap: float = option(
        2.0, "upper limit of the engine's ratio as a weight (form = decoupled)", above=0.0, hint="for no limit use inf"
    )
    risk: str = option(
        "log_ratio",
        "what makes a token or response stale: |d|, nats (the paper), or |u|, what updates made of it",
        choices=("log_ratio", "staleness"),
    )

    def check(self) -> None:
        if self.form == "decoupled" and self.risk != "staleness":
            raise ConfigError(
                f"objective.form = 'decoupled' with objective.risk = {self.risk!r}: needs risk = 'staleness', which "
                "has the anchor that the ratio is taken to"
            )

    def reads(self) -> Needs:
        return Needs(sampler=True, anchor=self.risk == "staleness")

    @property
    def rule_scope(self) -> Scope:
        """The batch while the quantile is still to be read off it; then a token or a response."""
        return Scope.BATCH if self.q is None else self.unit

    @property
    def meets_limits(self) -> bool:
        """Whether ``q`` and the limits of the clip are of one log-ratio, so that one can lie beyond the other."""
        return self.risk == "log_ratio" or self.form == "decoupled"

    @abstractmethod
    def unit_risk(self, tokens: ScorableTokens) -> Float[Tensor, " U"]:
        """``|x|`` of each token, or of each response that has a token: what the quantile is of."""

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
        return replace(self, q=max(quantile(self.unit_risk(tokens), self.alpha) or 0.0, self.floor))

    def finding(self, batches: Sequence[TokenBatch], metrics: Sequence[Metrics]) -> Finding:
        """Whether it can act at all, and on how much it did."""
        return _finding(self, metrics)

    def idle(self, rows: Sequence[Row]) -> str | None:
        """Where it rejected no token that its base keeps, in more than half of the steps."""
        return _idle(self, rows)

    def clip(
        self, ratio: Ratio, a: Float[Tensor, " M"], x: Float[Tensor, " M"], low: float, high: float, dual: float | None
    ) -> TokenWeights:
        """The clip whose radius is ``c`` times smaller where the gate is open, on the side of the signed risk ``x``."""
        assert self.q is not None, "a rule is that of an objective that was fitted"
        q, size = max(self.q, self.floor), x.abs()
        gated = (size > q) & (q > 0.0)
        c = KERNELS[self.kernel](size / q)
        lower = torch.where(gated & (x < 0), 1.0 - low * c, 1.0 - low)
        upper = torch.where(gated & (x > 0), 1.0 + high * c, 1.0 + high)
        fixed, shrunk = clip(ratio, a, 1.0 - low, 1.0 + high, dual), clip(ratio, a, lower, upper, dual)
        changed = _clipped(shrunk) & ~_clipped(fixed)
        return TokenWeights(
            shrunk.weight,
            shrunk.value,
            flags={"sat/gated": gated, "sat/changed": changed, **shrunk.flags},
            stats={"sat/q": Same(q), "sat/shrink": Distribution(((1.0 - c[gated]).float().cpu().numpy(),))},
            removed={"sat/removed": torch.where(changed, fixed.weight, 0.0)},
        )


@dataclass(frozen=True)
class SatGRPO(Gate, TokenClip):
    """GRPO whose radius shrinks on the stale tail of the batch, and only on the side the token has moved to.

    Formula:     q = alpha-quantile of |x| over the batch;  c = psi(|x|; q) where q > 0 and |x| > q, else 1
                 J_t = min(r A, clip(r, 1 - low c_-, 1 + high c_+) A),  c_+ = c where x > 0, c_- = c where x < 0
                 psi(u; q) = 1 / (1 + (u / q)^2);   x = d (risk = log_ratio) or u = log pi - log pi_anchor (staleness)
                 form = decoupled: exp(u) in the place of r, and J_t times min(exp(e), cap), e = log pi_anchor - log mu
    Weight:      that of GRPO; 0 also where (A > 0 and r > 1 + high c_+) or (A < 0 and r < 1 - low c_-)
    Inputs:      policy_logp, sampler_logp [N] nats, for staleness anchor_logp; advantage [N] reward units
    Options:     low, high, dual as in grpo; alpha in [0, 1]; kernel: hill (the paper) | exp | reciprocal;
                 q: the quantile, nats, if it was computed elsewhere; floor: least q, nats;
                 risk: log_ratio (the paper) | probability_mass, 1/2 mu |r - 1| | staleness, the part that updates made;
                 form: drop-in | decoupled (staleness only), with cap
    Invariants:  inside GRPO's interval; J_t <= GRPO's J_t; identical to GRPO where the gate is closed, for q = 0 and
                 for alpha = 1; tokens on their way back to the sampler are never touched;
                 q >= log(1 + high) and q >= -log(1 - low): nothing can change at all (not for staleness as a drop-in,
                 where a large u that the engine hides is clipped at a small r);
                 with risk log_ratio the weights are GRPO's with one radius for the whole batch: c falls as |d| grows,
                 so for A > 0 exactly the tokens with d > min(log(1 + high), max(q, d*)) are rejected, where
                 d* = log(1 + high psi(d*; q)); for A < 0 alike. Staleness: q and the gate do not depend on the engine;
                 anchor = sampler gives log_ratio; anchor = policy gives grpo, decoupled tis
    Source:      Stale but Stable: Staleness-Adaptive Trust Regions for Stabilizing Asynchronous Reinforcement
                 Learning, Proposition 4.1. The kernels exp and reciprocal, the risks probability_mass and
                 staleness, form and floor are ours
    Raises:      ConfigError for a radius or alpha out of range; UnknownNameError for an unknown kernel or risk
    """

    name: ClassVar[str] = "sat-grpo"
    colour: ClassVar[int | None] = 4
    caveats: ClassVar[tuple[str, ...]] = (NEVER_ACTS,)
    remedies: ClassVar[Mapping[str, str]] = {"mismatch": "sat-grpo", "heavy_tail": "sat-grpo"}
    risk: str = option(
        "log_ratio",
        "what makes a token stale: |d|, nats (the paper), 1/2 mu(a) |r - 1|, or |u|, what updates made of d",
        choices=tuple(RISKS),
    )

    def unit_risk(self, tokens: ScorableTokens) -> Float[Tensor, " M"]:
        return RISKS[self.risk](tokens)

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        ratio = tokens.update if self.form == "decoupled" else tokens.ratio
        moved = tokens.update.log if self.risk == "staleness" else tokens.log_ratio
        said = self.clip(
            ratio, tokens.advantage, torch.copysign(self.unit_risk(tokens), moved), self.low, self.high, self.dual
        )
        return scaled(said, tokens.engine.value.clamp(max=self.cap)) if self.form == "decoupled" else said


@dataclass(frozen=True)
class SatGSPO(Gate, ResponseClip):
    """GSPO whose radius shrinks on the stale tail of the responses, and only on the side they have moved to.

    Formula:     as sat-grpo with log rho_g = mean_t d in the place of d, mean_t u and mean_t e likewise, and q over the
                 responses
    Weight:      that of GSPO; 0 also where (A > 0 and rho > 1 + high c_+) or (A < 0 and rho < 1 - low c_-)
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     low, high, dual as in gspo; alpha, kernel, q, floor, form, cap as in sat-grpo; risk: log_ratio |
                 staleness
    Invariants:  those of sat-grpo, against GSPO
    Source:      as sat-grpo
    Raises:      ConfigError for a radius or alpha out of range; UnknownNameError for an unknown kernel
    """

    name: ClassVar[str] = "sat-gspo"
    colour: ClassVar[int | None] = 3
    caveats: ClassVar[tuple[str, ...]] = (NEVER_ACTS,)

    def unit_risk(self, tokens: ScorableTokens) -> Float[Tensor, " U"]:
        g = tokens.responses
        moved = g.mean(g.update) if self.risk == "staleness" else g.mean_log_ratio
        return moved[g.lengths > 0].abs()

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        rho = tokens.response_update if self.form == "decoupled" else tokens.response_ratio
        moved = tokens.response_update.log if self.risk == "staleness" else rho.log
        said = self.clip(rho, tokens.advantage, moved, self.low, self.high, self.dual)
        return scaled(said, tokens.response_engine.value.clamp(max=self.cap)) if self.form == "decoupled" else said


def _clipped(weights: TokenWeights) -> Tensor:
    return weights.flags["clipped_high"] | weights.flags["clipped_low"]


def _sampler(tokens: ScorableTokens) -> Tensor:
    assert tokens.sampler_logp is not None
    return tokens.sampler_logp


def _idle(objective: Gate, rows: Sequence[Row]) -> str | None:
    changed = [value for row in rows if (value := row.get("sat/changed")) is not None]
    acted, steps = sum(value > 0 for value in changed), len(changed)
    q = [value for row in rows if (value := row.get("sat/q")) is not None]
    if not q or 2 * acted > steps:
        return None
    name, base = objective.name, objective.name.removeprefix("sat-")
    said = f"{name} acts on nothing: it is {base} on every token of {steps} steps"
    if acted:
        said = f"{name} acts in {acted} of {steps} steps and is {base} on every token of the others"
    middle = f"q is {statistics.median(q):.3g}{_spread(q)}"
    if not objective.meets_limits:
        return f"{said}; {middle} ({objective.risk})"
    sides = _sides(objective, q)
    where = (_when if any(side.below for side in sides) else _never)(len(q), q.count(0.0), sides)
    return (
        f"{said}. It can reject only what lies between q and the limit, and {middle} nats, {where}. "
        "A lower lag or learning rate brings q down, a wider radius the limit up"
    )


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
    spread = _spread(q)
    name, base = objective.name, objective.name.removeprefix("sat-")
    did = f"rejects {_did(merged[Key('sat/changed')], pooled)} that {base} keeps"
    if not objective.meets_limits:
        return Finding(f"{name} {did}: q of {unit} is {middle:.3g}{spread} ({objective.risk})", numbers)
    assert objective.limits is not None
    up, down = objective.limits
    sides = _sides(objective, q)
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


def _sides(objective: Gate, q: Sequence[float]) -> list[_Side]:
    assert objective.limits is not None
    sides = zip((HIGH, LOW), objective.limits, strict=True)
    return [_Side(formula, limit, sum(0 < value < limit for value in q)) for formula, limit in sides]


def _spread(q: Sequence[float]) -> str:
    return f" (median of {len(q)} steps, {min(q):.3g} to {max(q):.3g})" if len(q) > 1 else ""


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
