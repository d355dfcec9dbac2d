"""Keys of settings: a default, a help text, and what is allowed, declared once. Imports no package.

A plain frozen dataclass declares its fields by :func:`key` and calls :func:`check` where it is built, so that rooms
that do without pydantic have settings too; the configuration inherits from it, and pydantic reads the same bounds and
texts out of the fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple, TypeVar

from lagproof.errors import ConfigError, UnknownNameError

T = TypeVar("T")
_BOUNDS = ("gt", "ge", "lt", "le")


def key(default: Any = dataclasses.MISSING, help: str = "", *, hint: str = "", **more: Any) -> Any:
    """A field of a dataclass of settings.

    Args:
        default: its one default; a callable, or a class, makes a new one each time.
        help: what it means, for ``--help``, pages and editors.
        hint: goes behind what is allowed in the message of a wrong value (``"; 0 is greedy"``).
        more: bounds ``gt``, ``ge``, ``lt``, ``le``, or what else pydantic's fields take; ``strict=False`` reads a tuple
            from a list, which is TOML's only one (set where the default is a tuple).
    """
    made: dict[str, Any] = {"default_factory": default} if callable(default) else {"default": default}
    if isinstance(default, tuple):
        more = {"strict": False, **more}
    return field(**made, metadata={**({"description": help} if help else {}), "hint": hint, **more})


def allowed(metadata: Mapping[str, Any]) -> str:
    """The bounds of a key and its hint in words: ``>= 1``, ``in (0, 1]``; of a key without bounds its hint."""
    above = next(((name, metadata[name]) for name in ("gt", "ge") if name in metadata), None)
    below = next(((name, metadata[name]) for name in ("lt", "le") if name in metadata), None)
    if above and below:
        words = f"in {'(' if above[0] == 'gt' else '['}{above[1]}, {below[1]}{')' if below[0] == 'lt' else ']'}"
    elif bound := above or below:
        words = f"{ {'gt': '>', 'ge': '>=', 'lt': '<', 'le': '<='}[bound[0]] } {bound[1]}"
    else:
        words = ""
    return words + metadata.get("hint", "")


def check(settings: Any, section: str) -> None:
    """Hold the values of a plain dataclass against the bounds of its keys.

    Raises:
        ConfigError: a value that is out of bounds; it is named ``section.key``.
    """
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        for name in _BOUNDS:
            if name in f.metadata and value is not None and not _holds(name, value, f.metadata[name]):
                raise ConfigError(f"{section}.{f.name} = {value!r}: must be {allowed(f.metadata)}")


def read(cls: type[T], table: Mapping[str, Any], section: str) -> T:
    """A plain dataclass of settings from a table of TOML.

    Raises:
        UnknownNameError: an unknown key; names the nearest one.
        ConfigError: a value of another kind than the default, or one that is not allowed.
    """
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name, value in table.items():
        if name not in defaults:
            raise UnknownNameError("configuration key", f"{section}.{name}", [f"{section}.{n}" for n in defaults])
        expected = _shape(defaults[name])
        if _shape(value) != expected:
            raise ConfigError(f"{section}.{name} = {value!r}: expected {expected}, got {_shape(value)}")
    return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in table.items()})


def _shape(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"a list of {len(value)} {_shape(value[0])}s" if value else "a list of nothing"
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def require(ok: bool, name: str, got: object, allowed: str) -> None:
    """Raise the error of a value that is not allowed.

    Raises:
        ConfigError: not ``ok``.
    """
    if not ok:
        raise ConfigError(f"{name} = {got!r}: must be {allowed}")


class Setting(NamedTuple):
    """A key of settings: its dotted name, its default and its help text."""

    name: str
    default: Any
    help: str


def keys(settings: Any, prefix: str = "") -> list[Setting]:
    """The keys of one dataclass of settings, with the values of this instance as defaults."""
    return [
        Setting(prefix + f.name, getattr(settings, f.name), f.metadata.get("description", ""))
        for f in dataclasses.fields(settings)
    ]


def _holds(name: str, value: Any, bound: Any) -> bool:
    return {"gt": value > bound, "ge": value >= bound, "lt": value < bound, "le": value <= bound}[name]
