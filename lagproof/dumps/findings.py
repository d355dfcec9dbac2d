"""What can be said of particular objectives on some tokens: whether SAT can act at all, how ASymPO scales responses."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from lagproof.data.metrics import Mean, Metric, Metrics, merge, values
from lagproof.data.slices import Key
from lagproof.data.tokens import TokenBatch
from lagproof.metrics.tail import Tail
from lagproof.objectives import Objective
from lagproof.objectives.clip import Clip, Gate, Level
from lagproof.objectives.current_policy import ASymPO
from lagproof.tensors.segments import segment_count, segment_sum

FACTOR_EDGES = np.logspace(-3, 5, 8 * 16 + 1)
"""Sixteen edges a decade for the factors ``1 / S`` of asympo."""


@dataclass(frozen=True)
class Finding:
    """A sentence, its numbers by name, and the tails of what it is about by name."""

    sentence: str
    numbers: Mapping[str, float]
    tails: Mapping[str, Tail] = field(default_factory=dict[str, Tail])


def finding(objective: Objective, batches: Sequence[TokenBatch], metrics: Sequence[Metrics]) -> Finding | None:
    """What can be said of an objective in particular; ``None`` where there is nothing.

    Args:
        batches: one a step.
        metrics: of the objective's weighting of each.
    """
    match objective:
        case Clip(gate=Gate() as gate):
            return _sat(objective, gate, metrics)
        case ASymPO():
            return _asympo(objective, batches)
        case _:
            return None


def limits(objective: Clip) -> tuple[float, float]:
    """The log-ratios at which a clip begins: ``log(1 + high)`` on the way up, ``-log(1 - low)`` on the way down."""
    return math.log1p(objective.high), -math.log1p(-objective.low) if objective.low < 1 else math.inf


def _sat(objective: Clip, gate: Gate, metrics: Sequence[Metrics]) -> Finding:
    """SAT changes a token only where ``q < |d|`` and the base has not clipped it: ``d < log(1 + high)`` on the way up,
    ``d > log(1 - low)`` on the way down.

    So with ``q`` at or beyond both it is its base. For the other risks ``q`` is not in nats and is not compared.
    """
    q = [value for part in metrics if (value := part[Key("sat/q")].value) is not None]
    names = [Key(f"sat/{name}") for name in ("changed", "removed", "gated")]
    merged = merge({key: part[key] for key in names} for part in metrics)
    pooled = {key.name.removeprefix("sat/"): value for key, value in values(merged).items()}
    middle, unit = statistics.median(q), "tokens" if objective.level is Level.TOKEN else "responses"
    numbers = {"q_median": middle, "q_min": min(q), "q_max": max(q), "steps": len(q), **pooled}
    spread = f" (median of {len(q)} steps, {min(q):.3g} to {max(q):.3g})" if len(q) > 1 else ""
    name, base = objective.name, objective.name.removeprefix("sat-")
    did = f"rejects {_did(merged[Key('sat/changed')], pooled)} that {base} keeps"
    if gate.risk != "log_ratio":
        return Finding(f"{name} {did}: q of {unit} is {middle:.3g}{spread} ({gate.risk})", numbers)
    up, down = limits(objective)
    sides = [_Side(what, x, sum(0 < value < x for value in q)) for what, x in ((HIGH, up), (LOW, down))]
    numbers |= {"limit_high": up, "can_act_high": sides[0].below / len(q), "can_act_low": sides[1].below / len(q)}
    numbers |= {"limit_low": down} if math.isfinite(down) else {}
    where, closed = f"q of {unit} is {middle:.3g} nats{spread}", q.count(0.0)
    if not any(side.below for side in sides):
        why = _never(len(q), closed, sides)
        return Finding(f"{name} cannot act on this data: {where}, {why}: it is {base} on every token", numbers)
    return Finding(f"{name} {did}: {where}, {_when(len(q), closed, sides)}", numbers)


HIGH, LOW = "log(1 + high)", "-log(1 - low)"


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


def _asympo(objective: ASymPO, batches: Sequence[TokenBatch]) -> Finding | None:
    """The factors ``1 / S_g`` that responses are scaled by, floored as the objective floors them."""
    parts = [_scales(batch) for batch in batches]
    scale, sign = (torch.cat(x) for x in zip(*parts, strict=True))
    if not len(scale):
        return None
    factor = 1.0 / scale.clamp(min=objective.min_scale)
    floored = int((scale < objective.min_scale).sum())
    numbers = {"largest": float(factor.max()), "median": float(factor.median()), "floored": floored}
    numbers |= {"responses": len(scale), "floor": 1.0 / objective.min_scale}
    medians: list[str] = []
    tails: dict[str, Tail] = {}
    for name, side in (("positive", 1.0), ("negative", -1.0)):
        if bool((sign == side).any()):
            words, own = f"A {'>' if side > 0 else '<'} 0", factor[sign == side]
            numbers[f"median_{name}"] = float(own.median())
            medians.append(f"{numbers[f'median_{name}']:.3g} where {words}")
            tails[words] = Tail.of(own.numpy(), edges=FACTOR_EDGES)
    return Finding(
        f"asympo multiplies responses by 1 / S: median {', '.join(medians) or format(numbers['median'], '.3g')}, "
        f"largest {numbers['largest']:.3g}; {floored} of {len(scale)} responses are at the floor of "
        f"{objective.min_scale:g} nats",
        numbers,
        tails,
    )


def _scales(tokens: TokenBatch) -> tuple[Tensor, Tensor]:
    """``S_g`` and the sign of the advantage of each response that has a scorable token."""
    ok = tokens.scorable(sampler=False)
    response = tokens.response[ok]
    lengths = segment_count(response, tokens.num_responses)
    total = segment_sum(-tokens.policy_logp.detach()[ok].double(), response, tokens.num_responses)
    sign = torch.sign(segment_sum(tokens.advantage[ok].double(), response, tokens.num_responses))
    return (total / lengths.clamp(min=1))[lengths > 0], sign[lengths > 0]
