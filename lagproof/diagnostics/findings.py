"""What can be said of particular objectives on some tokens: whether SAT can act at all, how ASymPO scales responses."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lagproof.data.metrics import Metric, merge, values
from lagproof.data.tokens import TokenBatch
from lagproof.rules import Objective
from lagproof.rules.clip import Clip, Gate, Level
from lagproof.rules.current_policy import ASymPO
from lagproof.tensors.segments import segment_count, segment_sum


@dataclass(frozen=True)
class Finding:
    """A sentence, and its numbers by name."""

    sentence: str
    numbers: Mapping[str, float]


def finding(
    objective: Objective, batches: Sequence[TokenBatch], metrics: Sequence[Mapping[str, Metric]]
) -> Finding | None:
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


def _sat(objective: Clip, gate: Gate, metrics: Sequence[Mapping[str, Metric]]) -> Finding:
    """SAT changes a token only where ``q < |d|`` and the base has not clipped it: ``d < log(1 + high)`` on the way up,
    ``d > log(1 - low)`` on the way down.

    So with ``q`` at or beyond both it is its base. For the other risks ``q`` is not in nats and is not compared.
    """
    q = [value for part in metrics if (value := part["sat/q"].value) is not None]
    pooled = values(merge({n: part[n] for n in ("sat/changed", "sat/removed", "sat/gated")} for part in metrics))
    up = math.log1p(objective.high)
    down = -math.log1p(-objective.low) if objective.low < 1 else math.inf
    numbers = {"q_median": statistics.median(q), "q_min": min(q), "q_max": max(q)}
    numbers |= {name.removeprefix("sat/"): value for name, value in pooled.items()}
    did = f"it changed {numbers.get('changed', 0.0):.2%} of the tokens"
    if "removed" in numbers:
        did += f" and took {numbers['removed']:.2%} of the gradient mass"
    middle, unit = numbers["q_median"], "tokens" if objective.level is Level.TOKEN else "responses"
    spread = f" (median of {len(q)} steps, {min(q):.3g} to {max(q):.3g})" if len(q) > 1 else ""
    where = f"q of {unit} is {middle:.3g} nats{spread}"
    if gate.risk != "log_ratio":
        return Finding(f"{objective.name}: q of {unit} is {middle:.3g} ({gate.risk}); {did}", numbers)
    limits = f"log(1 + high) = {up:.3g} and -log(1 - low) = {down:.3g}"
    can_up, can_down = (sum(0 < x < limit for x in q) for limit in (up, down))
    numbers |= {"limit_high": up, "can_act_high": can_up / len(q), "can_act_low": can_down / len(q)}
    numbers |= {"limit_low": down} if math.isfinite(down) else {}
    base = objective.name.removeprefix("sat-")
    never, always = ("never", "always ") if len(q) > 1 else ("not", "")
    if can_up == can_down == 0:
        why = "0, so the gate stays closed" if max(q) == 0 else f"{never} below {limits}"
        return Finding(
            f"{objective.name} cannot act on this data: {where}, {why}: it is {base} on every token", numbers
        )
    if can_up == can_down == len(q):
        return Finding(f"{objective.name} can act: {where}, {always}below {limits}; {did}", numbers)
    steps = (
        f"below log(1 + high) = {up:.3g} in {can_up} and below -log(1 - low) = {down:.3g} in {can_down} of the steps"
    )
    if not numbers.get("changed"):
        did = f"no token lay between: it is {base} on every token"
    return Finding(f"{objective.name} can act in some steps: {where}, {steps}; {did}", numbers)


def _asympo(objective: ASymPO, batches: Sequence[TokenBatch]) -> Finding | None:
    """The factors ``1 / S_g`` that responses are scaled by, floored as the objective floors them."""
    parts = [_scales(batch) for batch in batches]
    scale, sign = (torch.cat(x) for x in zip(*parts, strict=True))
    if not len(scale):
        return None
    factor = 1.0 / scale.clamp(min=objective.min_scale)
    floored = int((scale < objective.min_scale).sum())
    numbers = {"largest": float(factor.max()), "median": float(factor.median()), "floored": floored}
    numbers |= {"responses": len(scale)}
    medians: list[str] = []
    for name, side in (("positive", 1.0), ("negative", -1.0)):
        if bool((sign == side).any()):
            numbers[f"median_{name}"] = float(factor[sign == side].median())
            medians.append(f"{numbers[f'median_{name}']:.3g} where A {'>' if side > 0 else '<'} 0")
    return Finding(
        f"asympo multiplies responses by 1 / S: median {', '.join(medians) or format(numbers['median'], '.3g')}, "
        f"largest {numbers['largest']:.3g}; {floored} of {len(scale)} responses are at the floor of "
        f"{objective.min_scale:g} nats",
        numbers,
    )


def _scales(tokens: TokenBatch) -> tuple[Tensor, Tensor]:
    """``S_g`` and the sign of the advantage of each response that has a scorable token."""
    ok = tokens.scorable(sampler=False)
    response = tokens.response[ok]
    lengths = segment_count(response, tokens.num_responses)
    total = segment_sum(-tokens.policy_logp.detach()[ok].double(), response, tokens.num_responses)
    sign = torch.sign(segment_sum(tokens.advantage[ok].double(), response, tokens.num_responses))
    return (total / lengths.clamp(min=1))[lengths > 0], sign[lengths > 0]
