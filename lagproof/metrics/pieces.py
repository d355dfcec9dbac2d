"""A large batch a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lagproof.data.tokens import TokenBatch
from lagproof.tensors.segments import segment_count

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
