"""What a comparison file may say, what it becomes, and what is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from lagproof.config import Config
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.experiments.grid import from_tree, load, presets

SMALL: dict[str, Any] = {"objectives": ["naive", "grpo"], "lags": [1, 8], "seeds": [0, 1]}


def test_the_presets_load() -> None:
    assert presets() == ["asympo", "demo", "sat"]
    for name in presets():
        grid = load(name)
        assert grid.name == name and grid.title != name


def test_demo_is_the_reference_setting() -> None:
    grid = load("demo")
    assert [entry.label for entry in grid.entries] == ["naive", "spo", "asympo", "grpo", "sat-grpo"]
    assert [(lag.lag, lag.seeds) for lag in grid.lags] == [(1, (0,)), (8, (0,))]
    assert dict(grid.entries[-1].options) == {"low": 0.5, "high": 0.5}  # above q, so that SAT acts
    base = grid.base
    assert (base.model, base.steps, base.learner.lr) == ("tiny-dense", 240, 1e-4)
    assert (base.rollout.prompts, base.rollout.samples, base.rollout.max_tokens) == (16, 8, 12)
    assert (base.eval.every, base.eval.prompts) == (10, 256)


def test_sat_has_a_fair_setting() -> None:
    grid = load("sat")
    assert (grid.base.model, grid.base.rollout.precision) == ("tiny-moe", "int6")
    assert (grid.base.learner.lr, grid.base.steps) == (5e-5, 400)
    assert {lag.lag: len(lag.seeds) for lag in grid.lags} == {1: 8, 8: 8}
    radii = {e.label: (e.options.get("low"), e.options.get("high")) for e in grid.entries if "low" in e.options}
    assert radii == {"grpo": (0.2, 0.2), "sat-grpo": (0.2, 0.2), "gspo": (0.1, 0.1), "sat-gspo": (0.1, 0.1)}
    assert {e.label: e.baseline for e in grid.entries}["sat-gspo"] == "gspo"
    assert len(grid.cells()) == 6 * 2 * 8


def test_asympo_has_three_alphas() -> None:
    grid = load("asympo")
    assert {e.label: dict(e.options) for e in grid.entries if e.name == "spo"} == {
        "spo-0": {"alpha": 0.0},
        "spo-0.2": {"alpha": 0.2},
        "spo-1": {"alpha": 1.0},
    }
    assert [lag.lag for lag in grid.lags] == [1, 4, 8, 16, "s0.5n8"]
    assert len(grid.cells()) == 7 * 5 * 8


@pytest.mark.parametrize("name", ["asympo", "sat"])
def test_presets_that_judge_claims_draw_their_problems_by_seed(name: str) -> None:
    """Else no interval over seeds holds the error of having evaluated on these 256 problems."""
    assert load(name).base.eval.problems == "by_seed"


def test_cells_come_seed_by_seed() -> None:
    names = [cell.name for cell in from_tree(SMALL, "x").cells()]
    assert names[:4] == ["naive-lag1-seed0", "grpo-lag1-seed0", "naive-lag8-seed0", "grpo-lag8-seed0"]
    assert names[4:] == [name.replace("seed0", "seed1") for name in names[:4]]


def test_a_lag_may_have_seeds_of_its_own() -> None:
    grid = from_tree(SMALL | {"lags": [1, {"lag": 2, "seeds": [7]}]}, "x")
    assert {(cell.lag, cell.seed) for cell in grid.cells()} == {(1, 0), (1, 1), (2, 7)}


@pytest.mark.parametrize(("lag", "every", "ahead"), [(0, 1, 0), (1, 1, 1), (8, 8, 8)])
def test_a_lag_is_a_schedule(lag: int, every: int, ahead: int) -> None:
    grid = from_tree(SMALL | {"lags": [lag], "steps": 3}, "x")
    config = grid.config(grid.cells()[1], Path("somewhere"))
    assert (config.schedule.broadcast_every, config.schedule.batches_ahead) == (every, ahead)
    assert (config.run_dir, config.seed, config.steps, config.objective.name) == ("somewhere", 0, 3, "grpo")


def test_options_reach_the_run() -> None:
    entry = {"name": "grpo", "label": "wide", "options": {"high": 0.5}}
    grid = from_tree(SMALL | {"objectives": [entry]}, "x")
    config = grid.config(grid.cells()[0], Path("d"))
    assert config.objective.name == "grpo" and config.objective.options == {"high": 0.5}
    assert grid.cells()[0].name == "wide-lag1-seed0"


def test_a_grid_survives_its_file() -> None:
    for name in presets():
        grid = load(name)
        assert from_tree(tomllib.loads(grid.to_toml()), name) == grid


def test_the_saved_grid_names_every_default() -> None:
    saved = tomllib.loads(from_tree(SMALL, "x").to_toml())
    assert saved["learner"]["lr"] == Config().learner.lr and saved["steps"] == 240
    assert "seed" not in saved and "run_dir" not in saved and "broadcast_every" not in saved["schedule"]


def test_differences_are_those_that_change_a_run() -> None:
    grid = from_tree(SMALL, "x")
    assert grid.differences(from_tree(SMALL | {"title": "t", "command": "c", "baseline": "grpo"}, "y")) == []
    assert grid.differences(from_tree(SMALL | {"learner": {"lr": 2e-4}}, "x")) == ["learner.lr"]
    assert grid.differences(from_tree(SMALL | {"seeds": [0]}, "x")) == ["lags[0].seeds", "lags[1].seeds"]


def test_overrides_reach_every_key() -> None:
    grid = load("demo", ["steps=7", "learner.lr=0.5", 'objectives=["gspo"]', "lags=[4]", "baseline=gspo"])
    assert (grid.base.steps, grid.base.learner.lr) == (7, 0.5)
    assert [cell.name for cell in grid.cells()] == ["gspo-lag4-seed0"]


def test_given_seeds_replace_all_others() -> None:
    assert {lag.seeds for lag in load("sat", seeds=[5, 6]).lags} == {(5, 6)}


def test_the_baseline_has_no_baseline() -> None:
    entries = from_tree(SMALL | {"baseline": "grpo"}, "x").entries
    assert {entry.label: entry.baseline for entry in entries} == {"naive": "grpo", "grpo": None}


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('objectives = ["grpo"]\nlags = [1]\nseeds = [3]\n')
    assert load(str(file)).name == "mine"


@pytest.mark.parametrize(
    ("source", "kind", "nearest"),
    [("demmo", "preset", "demo"), ("asimpo", "preset", "asympo")],
)
def test_an_unknown_preset_names_the_nearest(source: str, kind: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        load(source)
    assert (error.value.kind, error.value.nearest) == (kind, nearest)


def test_a_missing_file_names_the_presets() -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml: no such file; the presets are asympo, demo, sat"):
        load("nothing.toml")


@pytest.mark.parametrize(
    ("change", "nearest"),
    [
        ({"objectivs": ["grpo"]}, "objectives"),
        ({"learner": {"lrr": 1.0}}, "learner.lr"),
        ({"objectives": [{"name": "grpo", "lable": "x"}]}, "objectives[0].label"),
        ({"lags": [{"lag": 1, "seed": [0]}]}, "lags[0].seeds"),
        ({"baseline": "grp"}, "grpo"),
    ],
)
def test_an_unknown_key_names_the_nearest(change: dict[str, Any], nearest: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        from_tree(SMALL | change, "x")
    assert error.value.nearest == nearest


@pytest.mark.parametrize(
    ("objectives", "task", "nearest"),
    [
        ('["grpp"]', "arithmetic", "grpo"),
        ('[{name = "grpo", options = {hihg = 1.0}}]', "arithmetic", "objective.high"),
        ('["grpo"]', "arithmetics", "arithmetic"),
    ],
)
def test_unknown_names_are_found_before_the_first_run(tmp_path: Path, objectives: str, task: str, nearest: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f'objectives = {objectives}\nlags = [1]\nseeds = [0]\ntask.name = "{task}"\n')
    with pytest.raises(UnknownNameError) as error:
        load(str(file))
    assert error.value.nearest == nearest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 3}, r"seed = 3: a comparison sets it itself; use seeds = "),
        ({"run_dir": "x"}, r"run_dir = 'x': .* use --out"),
        ({"objective": {"name": "grpo"}}, r"use objectives = "),
        ({"schedule": {"broadcast_every": 2}}, r"schedule.broadcast_every = 2: .* use lags = "),
        ({"objectives": []}, r"objectives = \[\]: must be a list with at least one entry"),
        ({"objectives": [3]}, r"objectives\[0\] = 3: must be a name"),
        ({"objectives": ["grpo", "grpo"]}, r"label 'grpo' appears twice"),
        ({"objectives": [{"name": "grpo", "label": "a/b"}]}, r"label = 'a/b': must be letters"),
        ({"objectives": [{"name": "grpo", "options": 3}]}, r"options = 3: must be a table"),
        ({"lags": [1, 1]}, r"lag 1 appears twice"),
        ({"lags": [-1]}, r"lags\[0\] = -1: must be a whole number >= 0"),
        ({"lags": [True]}, r"lags\[0\] = True: must be a whole number"),
        ({"lags": 8}, r"lags = 8: must be a list"),
        ({"seeds": []}, r"seeds = \[\]: must be a list of whole numbers"),
        ({"seeds": [0, 0]}, r"seeds 0 appears twice"),
        ({"seeds": "01"}, r"seeds = '01': must be a list of whole numbers"),
        ({"title": 3}, r"title = 3: must be text"),
        ({"steps": 0}, r"steps = 0: must be >= 1"),
    ],
)
def test_what_is_not_allowed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_tree(SMALL | change, "x")


def test_a_lag_without_seeds_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lags\[0\] = 1: has no seeds"):
        from_tree({"objectives": ["grpo"], "lags": [1]}, "x")
