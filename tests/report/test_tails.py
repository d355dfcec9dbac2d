"""The tail of |d| against counting by hand, over files that are whole, partial and broken."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lagproof.metrics.ccdf import CCDF, EDGES
from lagproof.report.series import tail
from lagproof.runs.run import Run

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from made_runs import run_of


def run(path: Path, rows: list[dict[str, Any]], steps: int = 2, name: str = "step-000002.parquet") -> Run:
    (path / "rollouts").mkdir(exist_ok=True)
    kinds = {"step": pa.int64(), "policy_logp": pa.list_(pa.float32()), "sampler_logp": pa.list_(pa.float32())}
    names = [k for k in kinds if any(k in row for row in rows)]
    columns = {k: pa.array([row.get(k) for row in rows], kinds[k]) for k in names}
    pq.write_table(pa.table(columns), path / "rollouts" / name)
    return run_of([{"step": steps}], steps=steps, path=path)


def test_it_counts_the_tokens_above_each_edge(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    d = rng.standard_t(2, size=3000) * 0.05
    sampler = -rng.exponential(0.5, size=3000)
    rows = [
        {"step": 2, "policy_logp": (sampler + d)[i : i + 10].tolist(), "sampler_logp": sampler[i : i + 10].tolist()}
        for i in range(0, 3000, 10)
    ]
    found, problems = tail(run(tmp_path, rows))
    assert found is not None and problems == []
    real = np.abs(np.float32(sampler + d).astype(float) - np.float32(sampler).astype(float))
    assert found.tokens == 3000
    assert found.above.tolist() == [int((real >= edge).sum()) for edge in EDGES]
    points = found.points()
    assert points[0][1] <= 1.0 and points[-1][1] > 0 and points[-1][0] <= real.max()
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)


def test_only_the_second_half_counts(tmp_path: Path) -> None:
    rows = [{"step": step, "policy_logp": [-1.0], "sampler_logp": [-1.0 - 10.0**-step]} for step in (1, 2, 3, 4)]
    found, _ = tail(run(tmp_path, rows, steps=4))
    assert found is not None and found.tokens == 2 and found.points()[-1][0] < 2e-3


def test_what_cannot_be_compared_is_left_out(tmp_path: Path) -> None:
    rows = [
        {"step": 2, "policy_logp": [-1.0, float("nan"), -1.0], "sampler_logp": [-1.5, -1.0, float("-inf")]},
        {"step": 2, "policy_logp": [-1.0, -1.0], "sampler_logp": [-1.0]},
        {"step": 2, "policy_logp": None, "sampler_logp": [-1.0]},
        {"step": 2, "policy_logp": [-1.0], "sampler_logp": None},
        {"step": None, "policy_logp": [-1.0], "sampler_logp": [-1.0]},
        {"step": 2, "policy_logp": [], "sampler_logp": []},
    ]
    found, problems = tail(run(tmp_path, rows))
    assert found is not None and (found.tokens, problems) == (1, [])
    assert found.points()[-1] == (pytest.approx(EDGES[EDGES <= 0.5][-1]), 1.0)


def test_no_log_probabilities_is_no_tail(tmp_path: Path) -> None:
    assert tail(run(tmp_path, [{"step": 2, "policy_logp": [-1.0]}])) == (None, [])
    assert tail(run_of([], steps=2, path=tmp_path / "none")) == (None, [])


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    data = run(tmp_path, [{"step": 2, "policy_logp": [-1.0], "sampler_logp": [-2.0]}])
    (tmp_path / "rollouts" / "step-000003.parquet").write_bytes(b"PAR1 and then nothing")
    found, (problem,) = tail(data)
    assert found is not None and found.tokens == 1
    assert "step-000003.parquet: cannot be read" in problem and "left out of the tails" in problem


def test_tails_of_several_files_add_up(tmp_path: Path) -> None:
    row = {"step": 2, "policy_logp": [-1.0, -1.0], "sampler_logp": [-2.0, -1.0]}
    run(tmp_path, [row], name="step-000001.parquet")
    found, _ = tail(run(tmp_path, [row]))
    assert found is not None and found.tokens == 4 and found.points()[0][1] == 0.5
    assert found.points()[-1] == (1.0, 0.5)  # |d| = 1 is not below the edge at 1


def test_no_token_has_no_points() -> None:
    assert CCDF(np.zeros(len(EDGES), dtype=np.int64), 0).points() == []
