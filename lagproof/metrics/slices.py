"""Tokens by sign of the advantage and by age: a small table of cells, of which every part of a batch is a union."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lagproof.data.slices import AgeBand, Sign, Slice
from lagproof.data.tokens import TokenBatch
from lagproof.errors import InputError
from lagproof.tensors.segments import segment_count

EXACT_AGES = 32
"""Ages below this have a bin each; above, a bin spans a factor of two (32-63, 64-127, ...)."""

_AGE_BINS = EXACT_AGES + 32
NUM_CELLS = 3 * _AGE_BINS
_SIGNS = {0: Sign.NEGATIVE, 2: Sign.POSITIVE}
_EVERY = np.arange(NUM_CELLS)
_FEW_RUNS = 1 / 16
"""Runs a token below which whole runs are copied, and not tokens one by one."""

CellNumbers = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Cells:
    """The cell of each token, and sums over each cell.

    Tokens of a response nearly always share a cell, and adding up neighbours is ten times quicker than adding them to
    their cells one by one.

    Attributes:
        of_token: 3 a bin of ages, for A < 0, for A = 0 (or no number), and for A > 0, ``[N]``.
    """

    of_token: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.of_token)

    def __getitem__(self, chosen: Any) -> Cells:
        return Cells(self.of_token[chosen])

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where a run of equal cells begins."""
        return starts(self.of_token)

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        """Tokens of each cell."""
        return self._by_cell(np.diff(self.starts, append=len(self)).astype(np.float64))

    def sums(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """The sum of ``x`` over each cell, in float64."""
        return self._by_cell(run_sums(x, self.starts))

    def split(self, x: NDArray[Any]) -> dict[int, NDArray[Any]]:
        """The values of each cell that has any."""
        occupied = np.flatnonzero(self.counts).tolist()
        if len(occupied) <= 1:
            return dict.fromkeys(occupied, x)
        if len(self.starts) > _FEW_RUNS * len(x):
            order = np.argsort(self.of_token, kind="stable")  # a radix sort at this width
            ends = np.cumsum(self.counts[occupied]).astype(np.intp)
            return dict(zip(occupied, np.split(x[order], ends[:-1]), strict=True))
        runs: dict[int, list[NDArray[Any]]] = {c: [] for c in occupied}
        bounds = [*self.starts.tolist(), len(x)]
        for cell, start, end in zip(self._of_run.tolist(), bounds[:-1], bounds[1:], strict=True):
            runs[cell].append(x[start:end])
        return {cell: np.concatenate(parts) for cell, parts in runs.items()}

    @cached_property
    def _of_run(self) -> NDArray[np.intp]:
        return self.of_token[self.starts].astype(np.intp)

    def _by_cell(self, of_run: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(self._of_run, weights=of_run, minlength=NUM_CELLS).astype(np.float64)


def cells(tokens: TokenBatch, version: int | None) -> Cells:
    """The cell of each token.

    Args:
        tokens: any number of them.
        version: the learner's before the step; ``None`` where ages are of no interest.

    Raises:
        InputError: a token is newer than the learner.
    """
    advantage = tokens.advantage.detach()
    cell = (advantage > 0).to(torch.uint8).add_(1).sub_((advantage < 0).to(torch.uint8))
    if version is None or tokens.version is None or not len(tokens):
        return Cells(cell.cpu().numpy())
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
    return Cells(cell.add_(age.to(torch.uint8), alpha=3).cpu().numpy())


def slices(counts: NDArray[Any], *, by_age: bool) -> Mapping[Slice | None, CellNumbers]:
    """The cells of each part of the tokens: all of them, each sign, each bin of ages.

    Args:
        counts: tokens of each cell; a part without any is left out, but for all of them.
        by_age: whether ages were known when the cells were assigned.
    """
    table = _EVERY.reshape(_AGE_BINS, 3)
    has = counts.reshape(_AGE_BINS, 3) != 0
    out: dict[Slice | None, CellNumbers] = {None: _EVERY}
    out |= {sign: table[:, column] for column, sign in _SIGNS.items() if has[:, column].any()}
    if by_age:
        out |= {age_band(b): table[b] for b in np.flatnonzero(has.any(axis=1)).tolist()}
    return out


def age_band(number: int) -> AgeBand:
    """The ages in the bin with this number."""
    if number < EXACT_AGES:
        return AgeBand(number, number)
    first = EXACT_AGES << (number - EXACT_AGES)
    return AgeBand(first, 2 * first - 1)


def wider(ages: Sequence[AgeBand], at_most: int) -> dict[AgeBand, list[AgeBand]]:
    """Neighbouring ages together where there are many: the bands and what each is made of.

    Args:
        ages: the youngest first.
        at_most: so many bands.
    """
    size = -(-len(ages) // at_most)
    parts = [list(ages[i : i + size]) for i in range(0, len(ages), size)]
    return {AgeBand(part[0].first, part[-1].last): part for part in parts}


def starts(x: NDArray[Any]) -> NDArray[np.intp]:
    """Where a run of equal values begins."""
    return np.flatnonzero(np.concatenate([x[:1] == x[:1], x[1:] != x[:-1]]))


def run_sums(x: NDArray[Any], first: NDArray[np.intp]) -> NDArray[np.float64]:
    """The sum of ``x`` over each run, in float64.

    Args:
        first: where a run begins, as :func:`starts` gives it.
    """
    return np.add.reduceat(x, first, dtype=np.float64) if len(x) else np.zeros(0)


PIECE_TOKENS = 1 << 20
"""Tokens of a piece, about; bounds the memory, and changes no number."""


def pieces(tokens: TokenBatch) -> Iterator[slice]:
    """The rows of whole responses, one or more; responses lie end to end, as those of a dump do."""
    ends = np.cumsum(segment_count(tokens.response, tokens.num_responses).cpu().numpy())
    start = 0
    while start < len(tokens):
        last = int(np.searchsorted(ends, start + PIECE_TOKENS, side="right")) - 1
        next_ = int(np.searchsorted(ends, start, side="right"))
        end = int(ends[max(last, next_)])
        yield slice(start, end)
        start = end
