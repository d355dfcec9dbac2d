"""The schema for editors accepts what the configuration accepts, and no other keys."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lagproof import objectives, tasks
from lagproof.config import Config, keys
from lagproof.config.schema import schema
from lagproof.errors import ConfigError
from lagproof.experiments.grid import GRID_KEYS

ROOT = Path(__file__).parents[2]
SCHEMA = schema()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
PRESETS = sorted((ROOT / "lagproof" / "experiments" / "presets").glob("*.toml"))


def is_valid(tree: dict[str, Any]) -> bool:
    return VALIDATOR.is_valid(tree)


def test_it_is_a_schema_and_plain_json():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA, allow_nan=False)) == SCHEMA
    assert "$ref" not in json.dumps(SCHEMA)


@pytest.mark.parametrize("path", [*EXAMPLES, *PRESETS], ids=lambda path: path.name)
def test_examples_and_the_run_of_presets_are_valid(path):
    tree = {k: v for k, v in tomllib.loads(path.read_text()).items() if k not in GRID_KEYS}
    assert is_valid(tree)
    assert not is_valid({**tree, "stepz": 3})
    for section in ("rollout", "learner", "eval"):
        assert not is_valid({**tree, section: {**tree.get(section, {}), "promts": 3}})
    assert not is_valid({**tree, "task": {**tree.get("task", {}), "shotz": 3}})
    assert not is_valid({**tree, "objective": {"name": "grpo", "hihg": 0.2}})


def test_what_is_resolved_and_saved_is_valid():
    tree = Config().to_dict()
    for name in tasks.TASKS:
        assert is_valid(tree | {"task": {"name": name, **tasks.resolve(name)}}), name
        assert is_valid({"task": name})
    for name in objectives.OBJECTIVES:
        given = {k: v for k, v in objectives.defaults(name).items() if v is not None}
        assert is_valid(tree | {"objective": {"name": name, **given}}), name
        assert is_valid({"objective": name})


def test_the_option_of_one_is_none_of_another():
    assert is_valid({"task": {"name": "words", "largest": 5}}) and not is_valid({"task": {"largest": 5}})
    assert is_valid({"task": {"terms": 3}}) and not is_valid({"task": {"name": "words", "terms": 3}})
    assert is_valid({"objective": {"name": "spo", "alpha": 0.5}})
    assert not is_valid({"objective": {"name": "grpo", "alpha": 0.5}})
    assert not is_valid({"objective": "grop"}) and not is_valid({"task": {"name": "gsm8"}})
    part = {"name": "words", "weight": 2, "largest": 5}
    assert is_valid({"task": {"name": "mixture", "tasks": [part]}})
    for wrong in ({"larges": 5}, {"weight": -1}, {"name": "mixture"}):
        assert not is_valid({"task": {"name": "mixture", "tasks": [part | wrong]}})


@pytest.mark.parametrize(
    "tree",
    [
        {"steps": 0},
        {"steps": "3"},
        {"runtime": "spark"},
        {"schedule": {"broadcast_every": 0}},
        {"schedule": {"batches_ahead": None}},
        {"rollout": {"top_p": 0}},
        {"rollout": {"top_p": 1.5}},
        {"rollout": {"samples": 1}},
        {"rollout": {"precision": "int4"}},
        {"rollout": {"stop": "x"}},
        {"learner": {"lr": 0}},
        {"learner": {"betas": [0.9]}},
        {"learner": {"advantage": "grpo"}},
        {"alarm": {"window": 0}},
        {"alarm": {"d_bar": [0.1, 0.2, 0.3]}},
        {"eval": 3},
    ],
    ids=str,
)
def test_bounds_are_those_of_the_configuration(tree):
    assert not is_valid(tree)
    if tree != {"schedule": {"batches_ahead": None}}:  # Python may say None; TOML has no such value
        with pytest.raises(ConfigError):
            Config(**tree)


def properties(node: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in node.get("properties", {}).items():
        if "properties" in value:
            yield from properties(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def test_every_key_has_its_default_and_its_help():
    found = dict(properties(SCHEMA))
    for name, default, text in keys():
        if name.endswith(".name"):
            assert found[name.removesuffix(".name")]["default"] == default
            continue
        assert found[name]["description"] == text, name
        wanted = list(default) if isinstance(default, tuple) else default
        if isinstance(wanted, list) and math.inf in wanted:  # JSON has no infinity
            wanted = None
        assert found[name].get("default") == wanted, name


def test_other_defaults_of_a_task_are_its_own():
    alternatives = {s.get("title"): s for s in SCHEMA["properties"]["task"]["oneOf"]}
    assert alternatives["dapo-math-17k"]["properties"]["answer_form"]["default"] == "marked"
    assert alternatives["gsm8k"]["properties"]["answer_form"]["default"] == "boxed"
