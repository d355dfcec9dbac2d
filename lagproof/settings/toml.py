"""TOML in: a file, ``--set a.b=value``, and keys in nested tables. Imports no package."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from lagproof.errors import ConfigError


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as a dict, with errors that name the file and the line."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; with no file at all the embedded default is used") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def parse_override(text: str) -> tuple[str, Any]:
    """``a.b=value``: the value is read as TOML where it is TOML, and is text otherwise."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--set {text!r}: expected key=value, for example --set objective.name=grpo")
    try:
        return key.strip(), tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def set_key(tree: dict[str, Any], dotted: str, value: Any) -> None:
    """Set ``a.b.c`` in nested dicts, in place."""
    *parents, last = dotted.split(".")
    for parent in parents:
        child = tree.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {dotted}: {parent!r} is a value, not a section")
        tree = child
    tree[last] = value
