"""Complementary CDFs: how many values lie above each of a row of edges, which adds up over files and steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagproof.data.tokens import TokenBatch
from lagproof.metrics.slices import pieces
from lagproof.tensors.segments import segment_count, segment_sum

EDGES = np.logspace(-6, 2, 8 * 8 + 1)
"""Eight edges a decade, from 1e-6 to 100."""


@dataclass(frozen=True, eq=False)
class CCDF:
    """How many values lie above each edge.

    Attributes:
        above: values ``>= edge``, ``[E]``.
        tokens: all that the values are a part of: the whole of the shares.
        edges: rising, ``[E]``.
    """

    above: NDArray[np.int64]
    tokens: int
    edges: NDArray[np.float64] = field(default_factory=lambda: EDGES)

    @classmethod
    def of(cls, values: NDArray[Any], tokens: int | None = None, edges: NDArray[np.float64] = EDGES) -> CCDF:
        """Of some values without NaN; ``tokens`` are as many as values if absent."""
        ordered = np.sort(values)
        above = len(ordered) - np.searchsorted(ordered, edges, side="left")
        return cls(above, len(ordered) if tokens is None else tokens, edges)

    def merge(self, other: CCDF) -> CCDF:
        """Both together; they have the same edges."""
        return CCDF(self.above + other.above, self.tokens + other.tokens, self.edges)

    def points(self) -> list[tuple[float, float]]:
        """``(x, share of tokens with a value >= x)`` where one is left, from the last edge that all tokens exceed."""
        if not self.tokens:
            return []
        share = self.above / self.tokens
        first = max(int(np.searchsorted(-share, -1.0, side="right")) - 1, 0)
        return [(float(x), float(s)) for x, s in zip(self.edges[first:], share[first:], strict=True) if s > 0]


def merged(parts: Iterable[CCDF]) -> CCDF | None:
    """All of them together; ``None`` of none."""
    total = None
    for part in parts:
        total = part if total is None else total.merge(part)
    return total


@dataclass(frozen=True, eq=False)
class LogRatioCCDF:
    """Tails of the log-ratios of some units, as shares of all of them.

    Attributes:
        up: of those above 0, whose probability went up.
        down: of the size of those below 0.
    """

    up: CCDF
    down: CCDF

    @classmethod
    def of(cls, log_ratio: NDArray[np.float32]) -> LogRatioCCDF:
        n = len(log_ratio)
        return cls(CCDF.of(log_ratio[log_ratio > 0], n), CCDF.of(-log_ratio[log_ratio < 0], n))

    def merge(self, other: LogRatioCCDF) -> LogRatioCCDF:
        return LogRatioCCDF(self.up.merge(other.up), self.down.merge(other.down))


def log_ratio_ccdf(batches: Iterable[TokenBatch]) -> Mapping[str, LogRatioCCDF]:
    """``tokens``: of ``d``; ``responses``: of its mean over each response, ``log rho``; nothing without tokens.

    Over the tokens whose two log-probabilities and advantage are known.
    """
    out: dict[str, LogRatioCCDF] = {}
    for part in (batch.rows(rows) for batch in batches for rows in pieces(batch)):
        ok = part.scorable(sampler=True)
        assert part.sampler_logp is not None
        d, response = (part.policy_logp - part.sampler_logp)[ok], part.response[ok]
        lengths = segment_count(response, part.num_responses)
        mean = segment_sum(d.double(), response, part.num_responses) / lengths
        for unit, x in (("tokens", d), ("responses", mean[lengths > 0])):
            found = LogRatioCCDF.of(x.float().numpy())
            out[unit] = out[unit].merge(found) if unit in out else found
    return out
