"""How heavy the tail of ``|d|`` is, ``d = log pi - log mu`` in nats, read from ``rollouts/*.parquet``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lagproof.metrics.tail import Tail, merged
from lagproof.runs.reading import RunData

COLUMNS = ("step", "policy_logp", "sampler_logp")


def tail(run: RunData) -> tuple[Tail | None, list[str]]:
    """The tail over the second half of the steps made, and sentences about files that could not be read.

    Returns:
        ``None`` where the run kept no log-probabilities.
    """
    found: list[Tail] = []
    problems: list[str] = []
    for file in sorted((run.path / "rollouts").glob("*.parquet")):
        try:
            found += _of_file(file, run.last_step / 2)
        except (OSError, pa.ArrowException) as error:
            problems.append(f"{file}: cannot be read: {str(error).splitlines()[0]}: left out of the tails")
    return merged(found), problems


def _of_file(file: Path, after_step: float) -> list[Tail]:
    with pq.ParquetFile(file) as parquet:
        if not set(COLUMNS) <= set(parquet.schema_arrow.names):
            return []
        return [_of_batch(batch, after_step) for batch in parquet.iter_batches(columns=list(COLUMNS))]


def _of_batch(batch: pa.RecordBatch, after_step: float) -> Tail:
    step, policy, sampler = (batch.column(name) for name in COLUMNS)
    # a missing list or step is NaN here, and no comparison with NaN holds
    same_length = _numbers(policy.value_lengths()) == _numbers(sampler.value_lengths())
    kept = batch.filter(pa.array(same_length & (_numbers(step) > after_step)))
    size = np.abs(_numbers(kept.column("policy_logp").flatten()) - _numbers(kept.column("sampler_logp").flatten()))
    return Tail.of(size[np.isfinite(size)])


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    return column.to_numpy(zero_copy_only=False).astype(np.float64)
