"""How far tokens, and whole responses, have moved from their sampler, and which way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lagproof.data.tokens import TokenBatch
from lagproof.metrics.pieces import pieces
from lagproof.metrics.tail import Tail
from lagproof.tensors.segments import segment_count, segment_sum


@dataclass(frozen=True, eq=False)
class Moves:
    """Tails of the log-ratios of some units, as shares of all of them.

    Attributes:
        up: of those above 0, where the policy has become likelier.
        down: of the size of those below 0.
    """

    up: Tail
    down: Tail

    @classmethod
    def of(cls, log_ratio: NDArray[np.float32]) -> Moves:
        n = len(log_ratio)
        return cls(Tail.of(log_ratio[log_ratio > 0], n), Tail.of(-log_ratio[log_ratio < 0], n))

    def merge(self, other: Moves) -> Moves:
        return Moves(self.up.merge(other.up), self.down.merge(other.down))


def moves(batches: Iterable[TokenBatch]) -> Mapping[str, Moves]:
    """``tokens``: of ``d``; ``responses``: of its mean over each response, ``log rho``; nothing without tokens.

    Over the tokens whose two log-probabilities and advantage are known.
    """
    out: dict[str, Moves] = {}
    for part in (batch.rows(rows) for batch in batches for rows in pieces(batch)):
        ok = part.scorable(sampler=True)
        assert part.sampler_logp is not None
        d, response = (part.policy_logp - part.sampler_logp)[ok], part.response[ok]
        lengths = segment_count(response, part.num_responses)
        mean = segment_sum(d.double(), response, part.num_responses) / lengths
        for unit, x in (("tokens", d), ("responses", mean[lengths > 0])):
            found = Moves.of(x.float().numpy())
            out[unit] = out[unit].merge(found) if unit in out else found
    return out
