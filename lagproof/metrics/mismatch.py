"""How far the policy being trained is from the policy that sampled: over the batch, by age and by sign.

``d = log pi - log mu`` of every token whose two log-probabilities and advantage are finite, nats; ``r = exp(d)`` with
``d`` clamped to +-20. Tokens were sampled from ``mu``, so ``k1`` and ``k3`` estimate KL(mu || pi).
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lagproof.data.distribution import Distribution
from lagproof.data.metrics import EffectiveSize, Maximum, Mean, Metric, Sum, flat, over
from lagproof.data.slices import Key, Sign
from lagproof.data.tokens import Counts, TokenBatch
from lagproof.errors import InputError
from lagproof.metrics.slices import NUM_CELLS, CellNumbers, Cells, cells, slices
from lagproof.objectives.reduction import Reduction
from lagproof.tensors.ratio import LOG_RATIO_BOUND, overflows
from lagproof.tensors.segments import segment_count

CHUNK_TOKENS = 1 << 16
"""Tokens looked at together: what a pass over them needs stays in the processor's cache."""


@dataclass(frozen=True, eq=False)
class Applied:
    """The weights that an objective gave to the tokens.

    Attributes:
        weight: reduction included, 0 for a token that cannot be scored, ``[N]``.
        scorable: tokens that the objective could score, ``[N]``.
        reduction, counts: how the weights were reduced, and the denominators of the whole optimiser batch.
    """

    weight: Tensor
    scorable: Tensor
    reduction: Reduction
    counts: Counts


def mismatch(tokens: TokenBatch, version: int | None = None) -> dict[str, float]:
    """The mismatch of some tokens as plain floats; every name, its formula and its healthy range: ``docs/metrics.md``.

    ``d_bar k1 k3 tv chi2 ess abs_d_q50 abs_d_q90 abs_d_q99 abs_d_q999 abs_d_max`` and the number of ``tokens`` they
    are over; the same under ``sign/positive/`` and ``sign/negative/`` for the sign of the advantage and,
    with ``version``, under ``age/0/``, ``age/1/``, ... A part without a token has no names.

    Args:
        tokens: of one optimiser step, or of many.
        version: the learner's version before the step; with it the tokens are told apart by age.

    Raises:
        InputError: there is no ``sampler_logp``, or a token is newer than ``version``.
    """
    if tokens.sampler_logp is None:
        raise InputError(
            "sampler_logp is missing: mismatch compares the policy with the sampler; "
            "pass the engine's log-probabilities of the sampled tokens"
        )
    return flat(mismatch_metrics(tokens, version))


def mismatch_metrics(
    tokens: TokenBatch, version: int | None = None, applied: Applied | None = None
) -> dict[Key, Metric]:
    """As :func:`mismatch`, as typed values that merge over micro-batches, ranks and steps.

    Args:
        tokens: with ``policy_logp``. Where ``sampler_logp`` is ``None`` there is no data about the sampler, and no
            value.
        version: the learner's version before the step.
        applied: adds ``ess_applied``, of the factor ``w / (A f)`` that the objective put in the place of ``r``, over
            tokens with ``A != 0`` (``f`` is the reduction's); and the gradient mass of each sign, by age too.
    """
    table = _Table()
    factor = None if applied is None else _factor(tokens, applied)
    for start in range(0, len(tokens), CHUNK_TOKENS):
        rows = slice(start, start + CHUNK_TOKENS)
        chunk = tokens.rows(rows)
        cell = cells(chunk, version)
        if chunk.sampler_logp is not None:
            _compare(table, chunk, cell)
        if applied is not None and factor is not None:
            _weigh(table, chunk, cell, (applied.weight[rows], applied.scorable[rows], factor))
    by_age = version is not None and tokens.version is not None
    out = _mass(table, by_age=by_age) if applied is not None else {}
    return out if tokens.sampler_logp is None else out | _mismatch(table, len(tokens), by_age=by_age)


@dataclass(eq=False)
class _Table:
    """Sums over each cell by name, and the values of ``|d|`` in each cell."""

    sums: dict[str, NDArray[np.float64]] = field(default_factory=lambda: defaultdict(lambda: np.zeros(NUM_CELLS)))
    size: dict[int, list[NDArray[np.float32]]] = field(default_factory=lambda: defaultdict(list))
    overflow: int = 0
    ratio_max: float = -np.inf

    def add(self, cell: Cells, **x: Tensor) -> None:
        """Add to the sums."""
        for name, value in x.items():
            self.sums[name] += cell.sums(value.cpu().numpy())

    def of(self, name: str, chosen: CellNumbers) -> float:
        return float(self.sums[name][chosen].sum())


def _compare(table: _Table, chunk: TokenBatch, cell: Cells) -> None:
    """Add the tokens whose two log-probabilities are known. All sums follow from those of d and of ``e = r - 1``."""
    assert chunk.sampler_logp is not None
    dtype = torch.promote_types(chunk.policy_logp.dtype, torch.float32)
    d = chunk.policy_logp.detach().to(dtype) - chunk.sampler_logp.detach().to(dtype)
    lowest, highest = _extremes(d)
    if not math.isfinite(lowest + highest + float(chunk.advantage.sum())):  # a missing number makes these missing
        known = chunk.scorable(sampler=True)
        d, cell = d[known], cell[known.cpu().numpy()]
        lowest, highest = _extremes(d)
    if not len(d):
        return
    size, e = d.abs(), torch.expm1(d.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND))
    table.sums["n"] += cell.counts
    table.add(cell, size=size, d=d, e=e, abs_e=e.abs(), square_e=e.square())
    for c, part in cell.split(size.float().cpu().numpy()).items():
        table.size[c].append(part)
    if max(-lowest, highest) > LOG_RATIO_BOUND:
        table.overflow += int(torch.count_nonzero(overflows(d)))
    table.ratio_max = max(table.ratio_max, 1.0 + float(e.max()))


def _extremes(d: Tensor) -> tuple[float, float]:
    """The smallest and the largest; NaN if one is, 0 without any."""
    if not len(d):
        return 0.0, 0.0
    lowest, highest = torch.aminmax(d)
    return float(lowest), float(highest)


def _factor(tokens: TokenBatch, applied: Applied) -> Tensor | float:
    """What the reduction multiplies the tokens of each response by, ``[R]``, or of all of them."""
    ok = applied.scorable
    lengths = segment_count(tokens.response if bool(ok.all()) else tokens.response[ok], tokens.num_responses)
    every = torch.arange(tokens.num_responses, device=lengths.device)
    return applied.reduction.factor(lengths, every, applied.counts, applied.weight)


def _weigh(table: _Table, chunk: TokenBatch, cell: Cells, given: tuple[Tensor, Tensor, Tensor | float]) -> None:
    """Add the gradient mass, and what each advantage was multiplied by."""
    weight, ok, factor = given
    of_token = factor.index_select(0, chunk.response) if isinstance(factor, Tensor) else factor
    unit = chunk.advantage.detach() * of_token
    has_sign = ok & (chunk.advantage != 0)
    used = torch.where(has_sign, weight / unit, 0.0)
    table.add(cell, mass=weight.abs(), used=used, used_square=used.square(), num_used=has_sign)


def _mass(table: _Table, *, by_age: bool) -> dict[Key, Metric]:
    """By sign, of all tokens and of each bin of ages."""
    out: dict[Key, Metric] = {}
    for part, chosen in slices(table.sums["mass"], by_age=by_age).items():
        negative, positive = (table.of("mass", chosen[chosen % 3 == sign]) for sign in (0, 2))
        if not isinstance(part, Sign):
            out |= over({"mass_positive": Sum(positive), "mass_negative": Sum(negative)}, part)
        if part is None:
            out |= over({"mass_ratio": Mean(negative, positive)})
    return out


def _mismatch(table: _Table, num_tokens: int, *, by_age: bool) -> dict[Key, Metric]:
    size = {c: np.concatenate(parts) for c, parts in table.size.items()}
    out: dict[Key, Metric] = {}
    for part, chosen in slices(table.sums["n"], by_age=by_age).items():
        n = int(table.of("n", chosen))
        size_sum, d, e, abs_e, square_e = (table.of(x, chosen) for x in ("size", "d", "e", "abs_e", "square_e"))
        named: dict[str, Metric] = {
            "tokens": Sum(n),
            "d_bar": Mean(size_sum, n),
            "k1": Mean(-d, n),
            "k3": Mean(e - d, n),
            "tv": Mean(0.5 * abs_e, n),
            "chi2": Mean(square_e + 2.0 * e, n),  # r^2 - 1 = e^2 + 2 e
            "ess": EffectiveSize(n + e, n + 2.0 * e + square_e, n),
            "abs_d": Distribution(tuple(size[c] for c in chosen.tolist() if c in size)),
        }
        if "used" in table.sums:
            used = [table.of(name, chosen) for name in ("used", "used_square", "num_used")]
            named["ess_applied"] = EffectiveSize(used[0], used[1], int(used[2]))
        out |= over(named, part)
    of_all: dict[str, Metric] = {
        "dropped_tokens": Sum(num_tokens - int(table.sums["n"].sum())),
        "ratio_overflow": Sum(table.overflow),
        "ratio_max": Maximum(table.ratio_max),
    }
    return out | over(of_all)
