"""The distribution of a non-negative quantity over tokens, from which any quantile can be read exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

QUANTILES = {"q50": 0.5, "q90": 0.9, "q99": 0.99, "q999": 0.999, "max": 1.0}
"""The quantiles that a distribution reports, by the ending of their name."""

_CHUNK = 1 << 16  # stays in the processor's cache
_FEW = 1 << 14  # sorting is quicker than counting
_KEYS = 1 << 15


@dataclass(frozen=True, eq=False)
class Distribution:
    """Keeps every value, in the parts it came in: merging is exact, and costs no copy.

    A quantile cannot be merged from quantiles, and a sketch would be off exactly in the tail that is of interest. Four
    bytes a token are kept until the step is written, 256 MB for 2^26 tokens.

    Attributes:
        parts: finite values >= 0, float32, each ``[n]``.
    """

    parts: tuple[NDArray[np.float32], ...]

    def merge(self, other: Distribution) -> Distribution:
        return Distribution(self.parts + other.parts)

    @property
    def count(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def value(self) -> float | None:
        """The median: its one number, where only one is wanted."""
        return quantiles(self.parts, [0.5])[0] if self.count else None

    def named(self, name: str) -> dict[str, float]:
        """``{name}_q50``, ``_q90``, ``_q99``, ``_q999`` and ``_max``; nothing where there is no value."""
        if not self.count:
            return {}
        found = quantiles(self.parts, list(QUANTILES.values()))
        return {f"{name}_{ending}": v for ending, v in zip(QUANTILES, found, strict=True)}


def quantiles(parts: Sequence[NDArray[np.float32]], wanted: Sequence[float]) -> list[float]:
    """Quantiles with linear interpolation between order statistics, as ``numpy.quantile`` defines them.

    The bit patterns of non-negative floats are ordered as the floats are, so counting by their upper half tells in
    which narrow interval each order statistic lies, and only the values in those few intervals are sorted.

    Args:
        parts: values >= 0, at least one in all of them together.
        wanted: each in [0, 1].
    """
    if sum(len(part) for part in parts) <= _FEW:
        return _read(np.sort(np.concatenate(parts)), wanted)
    counts = np.zeros(_KEYS, dtype=np.int64)
    chunks = [part[i : i + _CHUNK] for part in parts for i in range(0, len(part), _CHUNK)]
    for chunk in chunks:
        counts += np.bincount(_key(chunk), minlength=_KEYS)
    below = np.cumsum(counts) - counts  # values in lower intervals
    n = int(counts.sum())
    low, high, fraction = _ranks(n, wanted)
    ranks = np.concatenate([low, high])
    interval = np.searchsorted(below, ranks, side="right") - 1
    chosen = np.zeros(_KEYS, dtype=np.bool_)
    chosen[interval] = True
    candidates = np.sort(np.concatenate([chunk[chosen.take(_key(chunk))] for chunk in chunks]))
    kept = np.where(chosen, counts, 0)
    kept_below = np.cumsum(kept) - kept  # candidates in lower intervals
    at = candidates[kept_below[interval] + ranks - below[interval]].astype(np.float64)
    first, second = at[: len(low)], at[len(low) :]
    return [float(v) for v in first + (second - first) * fraction]


def _read(ordered: NDArray[np.float32], wanted: Sequence[float]) -> list[float]:
    low, high, fraction = _ranks(len(ordered), wanted)
    first, second = ordered[low].astype(np.float64), ordered[high].astype(np.float64)
    return [float(v) for v in first + (second - first) * fraction]


def _ranks(n: int, wanted: Sequence[float]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The two order statistics around each quantile, counted from 0, and how far between them it lies."""
    position = np.asarray(wanted, dtype=np.float64) * (n - 1)
    low = position.astype(np.int64)
    return low, np.minimum(low + 1, n - 1), position - low


def _key(values: NDArray[np.float32]) -> NDArray[np.intp]:
    """The upper 15 bits below the sign: an interval of relative width 2^-7. ``-0.0`` is 0."""
    keys = (values.view(np.uint32) & np.uint32(0x7FFFFFFF)) >> np.uint32(16)
    return keys.astype(np.intp)  # counting and looking up are quicker at this width
