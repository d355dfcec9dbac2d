"""A rule applied to the tokens of a batch: selection, blocks, reduction and the numbers that are common to all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor

from lagproof.data.metrics import Maximum, Mean, Metric, Sum, merge
from lagproof.data.tokens import Counts
from lagproof.objectives.reduction import Reduction
from lagproof.objectives.scorable import ScorableTokens, TokenWeights
from lagproof.tensors.divergence import k3
from lagproof.tensors.ratio import LOG_RATIO_BOUND, bounded_ratio, overflows

BLOCK_TOKENS = 1 << 16
"""Tokens that a rule is applied to at a time on a CPU: what it needs on the way stays in the processor's cache."""

Rule = Callable[[ScorableTokens], TokenWeights]


def apply(
    rule: Rule, tokens: ScorableTokens, how: Reduction, counts: Counts
) -> tuple[Tensor, Tensor, dict[str, Metric]]:
    """Weight ``[M]``, contribution ``[M]`` and metrics, block by block where that changes nothing but the speed."""
    if len(tokens) <= BLOCK_TOKENS or tokens.policy_logp.device.type != "cpu":
        return _apply(rule, tokens, how, counts)
    weight, contribution = torch.empty_like(tokens.policy_logp), torch.empty_like(tokens.policy_logp)
    parts: list[dict[str, Metric]] = []
    for start in range(0, len(tokens), BLOCK_TOKENS):
        rows = slice(start, start + BLOCK_TOKENS)
        weight[rows], contribution[rows], metrics = _apply(rule, tokens.rows(rows), how, counts)
        parts.append(metrics)
    return weight, contribution, merge(parts)


def _apply(
    rule: Rule, tokens: ScorableTokens, how: Reduction, counts: Counts
) -> tuple[Tensor, Tensor, dict[str, Metric]]:
    said = rule(tokens)
    factor = how.factor(tokens.responses.lengths, tokens.response, counts, tokens.policy_logp)
    weight = said.weight * factor
    return weight, said.value * factor, _metrics(tokens, said, weight) | _removed(said.removed, weight, factor)


def _removed(removed: Mapping[str, Tensor], weight: Tensor, factor: Tensor | float) -> dict[str, Metric]:
    if not removed:
        return {}
    left = float(_l1(weight))
    gone = {name: float(_l1(x * factor)) for name, x in removed.items()}
    return {name: Mean(mass, left + mass) for name, mass in gone.items()}


def _metrics(tokens: ScorableTokens, said: TokenWeights, weight: Tensor) -> dict[str, Metric]:
    """The numbers every objective reports; those about the sampler only where its log-probabilities are known."""
    mass = _l1(weight)
    positive = _l1(torch.where(tokens.advantage > 0, weight, 0.0))
    sums = {name: torch.count_nonzero(flag) for name, flag in said.flags.items()}
    sums |= {"mass_positive": positive, "mass_negative": mass - positive}
    known, farthest = _known_log_ratio(tokens)
    if known is not None:
        sums |= {"d_bar": _l1(known), "k1": -known.sum(dtype=torch.float64), "k3": k3(known).sum(dtype=torch.float64)}
    # one transfer for all of them, so that a GPU is waited for once
    totals = cast(list[float], torch.stack([x.double() for x in sums.values()]).tolist())  # pyright: ignore
    numbers = dict(zip(sums, totals, strict=True))
    out: dict[str, Metric] = {"tokens": Sum(len(tokens))}
    out |= {name: Mean(numbers[name], len(tokens)) for name in said.flags}
    out |= {name: Sum(numbers[name]) for name in ("mass_positive", "mass_negative")}
    if known is not None:
        out |= {name: Mean(numbers[name], len(known)) for name in ("d_bar", "k1", "k3")}
        too_far = int(torch.count_nonzero(overflows(known))) if farthest > LOG_RATIO_BOUND else 0
        out["ratio_overflow"] = Sum(too_far)
        if len(known):
            out["ratio_max"] = Maximum(float(bounded_ratio(known.max())))
    return out | dict(said.stats)


def _known_log_ratio(tokens: ScorableTokens) -> tuple[Tensor | None, float]:
    """``d_t`` of the tokens whose sampler log-probability is known, and the largest ``|d_t|``; ``None`` without any.

    Objectives of the current policy keep tokens that have no sampler log-probability in the loss, and out of every
    number about the mismatch.
    """
    if tokens.sampler_logp is None:
        return None, 0.0
    d = tokens.log_ratio
    if not len(d):
        return d, 0.0
    lowest, highest = cast(list[float], torch.stack(torch.aminmax(d)).tolist())  # pyright: ignore
    if math.isfinite(lowest) and math.isfinite(highest):
        return d, max(-lowest, highest)
    return d[torch.isfinite(d)], math.inf


def _l1(x: Tensor) -> Tensor:
    """``sum |x|``, in float64."""
    return x.abs().sum(dtype=torch.float64)
