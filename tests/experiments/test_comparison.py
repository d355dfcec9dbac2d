"""The directory of a comparison: what a second call with the same cells keeps, and what it reads anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lagproof.errors import RunDirError
from lagproof.experiments.comparison import find, open_or_create, read_comparison
from lagproof.experiments.grid import from_tree
from lagproof.experiments.tables import notes

sys.path.insert(0, str(Path(__file__).parent))
from made_runs import run_of

TREE: dict[str, Any] = {
    "title": "first",
    "command": "lagproof compare x.toml",
    "objectives": ["naive", "grpo", "spo"],
    "baseline": "grpo",
    "lags": [1, 8],
    "seeds": [0, 1],
    "claims": [{"text": "naive falls", "kind": "collapses", "entries": ["naive"], "lags": [8]}],
}
LATER: dict[str, Any] = TREE | {
    "title": "second",
    "command": "lagproof compare y.toml",
    "baseline": "spo",
    "claims": [{"text": "grpo holds", "kind": "holds", "entries": ["grpo"], "lags": [8]}],
}


def test_what_changes_no_run_is_read_anew(tmp_path: Path) -> None:
    open_or_create(tmp_path, from_tree(TREE, "x"))
    open_or_create(tmp_path, from_tree(LATER, "y"))
    found = read_comparison(tmp_path)
    assert found.grid.title == "second"
    assert [claim.text for claim in found.grid.claims] == ["grpo holds"]
    assert [judged.claim.text for judged in found.findings.claims] == ["grpo holds"]
    assert [entry.baseline for entry in found.grid.entries] == ["spo", "spo", None]
    assert found.grid.command == "lagproof compare x.toml"  # what its runs were begun with


def test_claims_that_are_gone_are_gone(tmp_path: Path) -> None:
    open_or_create(tmp_path, from_tree(TREE, "x"))
    open_or_create(tmp_path, from_tree({k: v for k, v in TREE.items() if k != "claims"}, "x"))
    assert read_comparison(tmp_path).grid.claims == ()


def test_other_cells_change_nothing(tmp_path: Path) -> None:
    open_or_create(tmp_path, from_tree(TREE, "x"))
    before = (tmp_path / "compare.toml").read_bytes()
    with pytest.raises(RunDirError, match=r"differs in lags\[0\]\.lag"):
        open_or_create(tmp_path, from_tree(LATER | {"lags": [2, 8]}, "x"))
    assert (tmp_path / "compare.toml").read_bytes() == before


def test_the_same_again_is_not_written(tmp_path: Path) -> None:
    open_or_create(tmp_path, from_tree(TREE, "x"))
    before = (tmp_path / "compare.toml").stat().st_mtime_ns
    open_or_create(tmp_path, from_tree(TREE, "renamed"))
    assert (tmp_path / "compare.toml").stat().st_mtime_ns == before


def test_it_says_which_objective_was_another_one() -> None:
    def rows(changed: float) -> list[dict[str, Any]]:
        return [{"step": 0}, *({"step": s, "sat/q": 0.4, "sat/changed": changed} for s in (1, 2))]

    acts = run_of(rows(0.02), "sat-grpo", lag=1, steps=2)
    silent = [run_of(rows(0.0), "sat-grpo", lag=8, seed=seed, steps=2) for seed in (0, 1)]
    found = find([acts, *silent, run_of([{"step": 1}], "grpo", lag=8)], {})
    (said,) = found.idle
    assert said.startswith("sat-grpo at lag 8: sat-grpo acts on nothing: it is grpo on every token of 4 steps.")
    assert said in notes(found)
