"""The JSON schema of a configuration, for editors: every key, and the options of each task and objective by name.

Written for draft 7, which the TOML language servers check by; what TOML cannot say (null, a tuple) is taken out of what
pydantic writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from lagproof import objectives as rules
from lagproof import tasks
from lagproof.config import DEFAULT_OBJECTIVE, DEFAULT_TASK, Config

Schema = dict[str, Any]
_DRAFT = "http://json-schema.org/draft-07/schema#"


def schema() -> Schema:
    """The schema of a run's TOML file."""
    tree = _of(Config)
    tree["properties"]["task"] = _one_of({name: _task(name) for name in tasks.TASKS}, DEFAULT_TASK)
    tree["properties"]["objective"] = _one_of({name: _objective(name) for name in rules.OBJECTIVES}, DEFAULT_OBJECTIVE)
    return {"$schema": _DRAFT, "title": "A run of lagproof", **tree}


def _one_of(sections: Mapping[str, Schema], default: str) -> Schema:
    """A bare name, or the section of one entry; a section without a name is about the entry ``default``."""
    named = {name: _named(name, section, required=name != default) for name, section in sections.items()}
    return {"oneOf": [{"enum": list(sections)}, *named.values()], "default": default}


def _named(name: str, section: Schema, *, required: bool = True) -> Schema:
    properties = {"name": {"const": name, "description": section.get("description", "")}, **section["properties"]}
    return {**section, "title": name, "properties": properties, **({"required": ["name"]} if required else {})}


def _task(name: str) -> Schema:
    info = tasks.info(name)
    found: Schema = {**_of(info.options), "description": info.summary}
    for option, default in info.defaults.items():
        found["properties"][option]["default"] = default
    if name == "mixture":
        of_parts = [_named(part, _part(part)) for part in tasks.TASKS if part != "mixture"]
        found["properties"]["tasks"]["items"] = {"oneOf": of_parts}
    return found


def _part(name: str) -> Schema:
    """A task of a mixture."""
    found = _task(name)
    found["properties"] |= {
        "weight": {"type": "number", "minimum": 0, "default": 1, "description": "share of what is trained on"},
        "evaluate": {"type": "boolean", "default": True, "description": "whether it is evaluated on"},
    }
    return found


def _objective(name: str) -> Schema:
    properties = {option.name: _option(name, option) for option in rules.options(name)}
    summary = rules.OBJECTIVES[name].summary
    return {"type": "object", "description": summary, "properties": properties, "additionalProperties": False}


def _option(name: str, option: rules.Option) -> Schema:
    said = {"enum": option.choices, "minimum": option.minimum, "maximum": option.maximum}
    said |= {"exclusiveMinimum": option.above, "description": option.help}
    default = rules.defaults(name)[option.name]
    bounds = {key: list(value) if key == "enum" else value for key, value in said.items() if value is not None}
    return _tidy(TypeAdapter(option.type).json_schema() | {"default": default, **bounds}, {})


def _of(cls: type) -> Schema:
    found = TypeAdapter(cls).json_schema()
    definitions = found.pop("$defs", {})
    return _tidy(found, definitions)


def _tidy(node: Any, definitions: Mapping[str, Schema]) -> Any:
    """Without references, titles and nulls; a tuple is a list of so many values of one kind."""
    if isinstance(node, list):
        return [_tidy(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        node = definitions[node["$ref"].rsplit("/", 1)[-1]] | {k: v for k, v in node.items() if k != "$ref"}
    if "anyOf" in node:
        kinds = [kind for kind in node["anyOf"] if kind != {"type": "null"}]
        rest = {k: v for k, v in node.items() if k != "anyOf"}
        node = {**kinds[0], **rest} if len(kinds) == 1 else {**rest, "anyOf": kinds}
    if "prefixItems" in node:
        node = {"items": node["prefixItems"][0], **{k: v for k, v in node.items() if k != "prefixItems"}}
    return {
        key: {k: _tidy(v, definitions) for k, v in value.items()} if key == "properties" else _tidy(value, definitions)
        for key, value in node.items()
        if not (key == "title" or (key == "default" and not _writable(value)))
    }


def _writable(default: Any) -> bool:
    """Whether JSON has the value, and TOML: neither null nor infinity."""
    if isinstance(default, list | tuple):
        return all(_writable(value) for value in default)
    return default is not None and not (isinstance(default, float) and not math.isfinite(default))
