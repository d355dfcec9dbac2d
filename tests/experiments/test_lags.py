"""Names of schedules: there and back, in the order of tables, and through a comparison from its file to its page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lagproof.config import Config
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.experiments.claims import ClaimVerdict
from lagproof.experiments.comparison import cell_dir, open_or_create, read_comparison
from lagproof.experiments.grid import from_tree, load
from lagproof.experiments.tables import notes
from lagproof.report import write
from lagproof.runs.lags import LagName, in_order, of_schedule, threshold, to_schedule

sys.path.insert(0, str(Path(__file__).parent))
from made_runs import make_run

TREE: dict[str, Any] = {
    "objectives": ["naive", "grpo"],
    "lags": [8, {"threshold": 0.5, "every": 8}, {"threshold": 1, "every": 2, "seeds": [3]}],
    "seeds": [0, 1],
    "steps": 40,
}


@pytest.mark.parametrize("name", [0, 1, 8, "s0.5n8", "s1.0n2", "s1e-05n3"])
def test_a_name_stands_for_one_schedule(name: LagName) -> None:
    schedule = to_schedule(name)
    assert of_schedule(schedule) == name or (name == 0 and schedule == {"broadcast_every": 1, "batches_ahead": 0})
    Config.load(None, [f"schedule.{key}={value}" for key, value in schedule.items()])


def test_a_run_without_batches_ahead_has_the_lag_of_its_broadcasts() -> None:
    assert of_schedule({"broadcast_every": 4}) == 4
    assert of_schedule({"broadcast_every": 4, "batches_ahead": 1}) == 1


def test_lags_come_first_and_by_size() -> None:
    assert in_order([16, "s0.5n8", 8, threshold(0.25, 16), 1, 8]) == [1, 8, 16, "s0.25n16", "s0.5n8"]


def test_a_threshold_reaches_the_run() -> None:
    grid = from_tree(TREE, "x")
    names = [cell.name for cell in grid.cells()]
    assert names[:4] == ["naive-lag8-seed0", "grpo-lag8-seed0", "naive-s0.5n8-seed0", "grpo-s0.5n8-seed0"]
    assert names[-2:] == ["naive-s1.0n2-seed3", "grpo-s1.0n2-seed3"]
    schedule = grid.config(grid.cells()[2], Path("d")).schedule
    assert (schedule.staleness_threshold, schedule.broadcast_every, schedule.batches_ahead) == (0.5, 8, None)


def test_a_threshold_survives_the_file() -> None:
    grid = from_tree(TREE, "x")
    assert from_tree(grid.tree(), "x") == grid
    assert {lag.seeds for lag in load("asympo", seeds=[7]).lags} == {(7,)}
    assert [lag.lag for lag in load("asympo", seeds=[7]).lags] == [1, 4, 8, 16, "s0.5n8"]


@pytest.mark.parametrize(
    ("lag", "error", "message"),
    [
        ({"threshold": 0.5}, ConfigError, r"lags\[0\]\.every = None"),
        ({"threshold": -1, "every": 2}, ConfigError, r"threshold = -1: must be a number >= 0"),
        ({"threshold": "a", "every": 2}, ConfigError, r"threshold = 'a'"),
        ({"threshold": 0.5, "every": 0}, ConfigError, r"every = 0: must be a whole number >= 1"),
        ({"threshold": 0.5, "lag": 8}, UnknownNameError, r"lags\[0\]\.lag"),
    ],
)
def test_what_is_refused(lag: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        from_tree(TREE | {"lags": [lag]}, "x")
    with pytest.raises(ConfigError, match="a comparison sets it itself"):
        from_tree(TREE | {"schedule": {"staleness_threshold": 0.5}}, "x")


def test_from_the_file_to_the_page(tmp_path: Path) -> None:
    claim = {"text": "It holds", "kind": "holds", "entries": ["grpo"], "lags": ["s0.5n8"]}
    grid = from_tree(TREE | {"claims": [claim]}, "x")
    open_or_create(tmp_path / "out", grid)
    for cell in grid.cells():
        where = make_run(cell_dir(tmp_path / "out", cell), cell.entry.name, lag=8, seed=cell.seed)
        grid.config(cell, where).save_toml(where / "config.toml")
    found = read_comparison(tmp_path / "out")
    assert found.unfinished == []
    findings = found.findings
    assert list(dict.fromkeys(cell.lag for cell in findings.cells)) == [8, "s0.5n8", "s1.0n2"]
    assert "Lag s0.5n8: staleness threshold 0.5, with a broadcast every 8 steps." in notes(findings)
    assert findings.claims[0].verdict is ClaimVerdict.EXPLORATORY and findings.claims[0].parts[0].seeds == 2
    page = write([tmp_path / "out"]).read_text(encoding="utf-8")
    assert "lags 8, s0.5n8, s1.0n2" in page and page.count("<h3>Lag s0.5n8</h3>") == 4
