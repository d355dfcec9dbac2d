"""Tokens by sign of the advantage and by age: a small table of cells, of which every group of tokens is a union."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lagproof.data.tokens import TokenBatch
from lagproof.errors import InputError

EXACT_AGES = 32
"""Ages below this have a bin each; above, a bin spans a factor of two (32-63, 64-127, ...)."""

_AGE_BINS = EXACT_AGES + 32
NUM_CELLS = 3 * _AGE_BINS
_SIGNS = {0: "negative", 2: "positive"}
_EVERY = np.arange(NUM_CELLS)

Cells = NDArray[np.intp]


def cells(tokens: TokenBatch, version: int | None) -> Cells:
    """The cell of each token, ``[N]``: 3 a bin of ages, for A < 0, for A = 0 (or no number), and for A > 0.

    Args:
        tokens: any number of them.
        version: the learner's before the step; ``None`` where ages are of no interest.

    Raises:
        InputError: a token is newer than the learner.
    """
    advantage = tokens.advantage.detach()
    cell = (advantage > 0).long() - (advantage < 0).long() + 1
    if version is None or tokens.version is None or not len(tokens):
        return cell.cpu().numpy()
    age = version - tokens.version
    youngest, oldest = (int(x) for x in torch.aminmax(age))
    if youngest < 0:
        raise InputError(
            f"a token was sampled with version {version - youngest}, and the learner has version {version}: "
            "a sampler cannot be ahead of the learner; pass the learner's version before the step"
        )
    if oldest >= EXACT_AGES:
        doublings = torch.floor(torch.log2(age.clamp(min=EXACT_AGES).double() / EXACT_AGES)).long()
        age = torch.where(age < EXACT_AGES, age, EXACT_AGES + doublings)
    return cell.add_(age, alpha=3).cpu().numpy()


def groups(counts: NDArray[Any], *, by_age: bool) -> Mapping[str, Cells]:
    """The cells of each group of tokens by the prefix of its names: all of them, each sign, each bin of ages.

    Args:
        counts: tokens of each cell; a group without any is left out, but for the one of all tokens.
        by_age: whether ages were known when the cells were assigned.
    """
    table = _EVERY.reshape(_AGE_BINS, 3)
    has = counts.reshape(_AGE_BINS, 3) != 0
    out = {"": _EVERY}
    out |= {f"{name}/": table[:, sign] for sign, name in _SIGNS.items() if has[:, sign].any()}
    if by_age:
        out |= {f"{age_name(b)}/": table[b] for b in np.flatnonzero(has.any(axis=1)).tolist()}
    return out


def age_name(number: int) -> str:
    """``age_7`` or ``age_32-63``, by the number of the bin."""
    if number < EXACT_AGES:
        return f"age_{number}"
    first = EXACT_AGES << (number - EXACT_AGES)
    return f"age_{first}-{2 * first - 1}"


def sums(x: NDArray[Any], cell: Cells, runs: Cells) -> NDArray[np.float64]:
    """The sum of ``x`` over each cell, in float64.

    Tokens of a response nearly always share a cell, and adding up neighbours is ten times quicker than adding them to
    their cells one by one.

    Args:
        runs: ``starts(cell)``.
    """
    if not len(x):
        return np.zeros(NUM_CELLS)
    of_run = np.add.reduceat(x, runs, dtype=np.float64)
    return np.bincount(cell[runs], weights=of_run, minlength=NUM_CELLS).astype(np.float64)


def starts(cell: Cells) -> Cells:
    """Where a run of equal cells begins."""
    return np.flatnonzero(np.concatenate([cell[:1] == cell[:1], cell[1:] != cell[:-1]]))


def split(x: NDArray[Any], cell: Cells) -> dict[int, NDArray[Any]]:
    """The values of each cell that has any."""
    counts = np.bincount(cell, minlength=NUM_CELLS)
    occupied = np.flatnonzero(counts)
    if len(occupied) <= 1:
        return {int(c): x for c in occupied}
    order = np.argsort(cell.astype(np.uint8), kind="stable")  # a radix sort at this width
    parts = np.split(x[order], np.cumsum(counts[occupied])[:-1])
    return {int(c): part for c, part in zip(occupied, parts, strict=True)}
