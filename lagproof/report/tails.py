"""How heavy the tail of ``|d|`` is, ``d = log pi - log mu`` in nats, read from ``rollouts/*.parquet``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lagproof.experiments.rundata import RunData

COLUMNS = ("step", "policy_logp", "sampler_logp")
EDGES = np.logspace(-6, 2, 8 * 8 + 1)
"""Eight edges a decade, from 1e-6 to 100 nats."""


@dataclass(frozen=True, eq=False)
class Tail:
    """How many tokens lie above each of :data:`EDGES`.

    Attributes:
        above: tokens with ``|d| >= edge``, ``[len(EDGES)]``.
        tokens: all tokens with two finite log-probabilities.
    """

    above: NDArray[np.int64]
    tokens: int

    def merge(self, other: Tail) -> Tail:
        """Both together."""
        return Tail(self.above + other.above, self.tokens + other.tokens)

    def points(self) -> list[tuple[float, float]]:
        """``(x, share of tokens with |d| >= x)`` where a token is left, from the last edge that all tokens exceed."""
        if not self.tokens:
            return []
        share = self.above / self.tokens
        first = max(int(np.searchsorted(-share, -1.0, side="right")) - 1, 0)
        return [(float(x), float(s)) for x, s in zip(EDGES[first:], share[first:], strict=True) if s > 0]


def tail(run: RunData) -> tuple[Tail | None, list[str]]:
    """The tail over the second half of the steps made, and sentences about files that could not be read.

    Returns:
        ``None`` where the run kept no log-probabilities.
    """
    total, problems = None, list[str]()
    for file in sorted((run.path / "rollouts").glob("*.parquet")):
        try:
            found = _of_file(file, run.last_step / 2)
        except (OSError, pa.ArrowException) as error:
            problems.append(f"{file}: cannot be read: {str(error).splitlines()[0]}: left out of the tails")
            continue
        if found is not None:
            total = found if total is None else total.merge(found)
    return total, problems


def _of_file(file: Path, after_step: float) -> Tail | None:
    with pq.ParquetFile(file) as parquet:
        if not set(COLUMNS) <= set(parquet.schema_arrow.names):
            return None
        return _sum(_of_batch(batch, after_step) for batch in parquet.iter_batches(columns=list(COLUMNS)))


def _sum(parts: Iterable[Tail | None]) -> Tail | None:
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else total.merge(part)
    return total


def _of_batch(batch: pa.RecordBatch, after_step: float) -> Tail | None:
    step, policy, sampler = (batch.column(name) for name in COLUMNS)
    # a missing list or step is NaN here, and no comparison with NaN holds
    same_length = _numbers(policy.value_lengths()) == _numbers(sampler.value_lengths())
    kept = batch.filter(pa.array(same_length & (_numbers(step) > after_step)))
    if not len(kept):
        return None
    size = np.abs(_numbers(kept.column("policy_logp").flatten()) - _numbers(kept.column("sampler_logp").flatten()))
    size = np.sort(size[np.isfinite(size)])
    return Tail(len(size) - np.searchsorted(size, EDGES, side="left"), len(size))


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    return column.to_numpy(zero_copy_only=False).astype(np.float64)
