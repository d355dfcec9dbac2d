"""How heavy a tail is: how many values lie above each of a row of edges, which adds up over files and steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

EDGES = np.logspace(-6, 2, 8 * 8 + 1)
"""Eight edges a decade, from 1e-6 to 100."""


@dataclass(frozen=True, eq=False)
class Tail:
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
    def of(cls, values: NDArray[Any], tokens: int | None = None, edges: NDArray[np.float64] = EDGES) -> Tail:
        """Of some values without NaN; ``tokens`` are as many as values if absent."""
        ordered = np.sort(values)
        above = len(ordered) - np.searchsorted(ordered, edges, side="left")
        return cls(above, len(ordered) if tokens is None else tokens, edges)

    def merge(self, other: Tail) -> Tail:
        """Both together; they have the same edges."""
        return Tail(self.above + other.above, self.tokens + other.tokens, self.edges)

    def points(self) -> list[tuple[float, float]]:
        """``(x, share of tokens with a value >= x)`` where one is left, from the last edge that all tokens exceed."""
        if not self.tokens:
            return []
        share = self.above / self.tokens
        first = max(int(np.searchsorted(-share, -1.0, side="right")) - 1, 0)
        return [(float(x), float(s)) for x, s in zip(self.edges[first:], share[first:], strict=True) if s > 0]


def merged(parts: Iterable[Tail]) -> Tail | None:
    """All of them together; ``None`` of none."""
    total = None
    for part in parts:
        total = part if total is None else total.merge(part)
    return total
