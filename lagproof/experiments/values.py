"""Values of a comparison's TOML, checked: each refusal says which key, what was there and what may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lagproof.errors import ConfigError, UnknownNameError


def checked(item: Mapping[str, Any], key: str, name: str, allowed: str, ok: Callable[[object], bool]) -> Any:
    """The value under ``name``, which ``allowed`` describes and ``ok`` accepts."""
    value = item[name]
    if not ok(value):
        raise ConfigError(f"{key}.{name} = {value!r}: must be {allowed}")
    return value


def is_text(value: object) -> bool:
    """Text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_size(value: object) -> bool:
    """A finite number >= 0."""
    return type(value) in (int, float) and 0.0 <= float(value) < float("inf")  # type: ignore[arg-type]


def list_of(ok: Callable[[object], bool]) -> Callable[[object], bool]:
    """A list of values that ``ok`` accepts, at least one."""
    return lambda value: isinstance(value, list) and bool(value) and all(map(ok, value))


def seed_list(value: object, key: str) -> tuple[int, ...]:
    """Different whole numbers >= 0, at least one."""
    if not isinstance(value, Sequence) or not value or any(type(seed) is not int or seed < 0 for seed in value):
        raise ConfigError(f"{key} = {value!r}: must be a list of whole numbers >= 0, at least one")
    check_unique(key, value)
    return tuple(value)


def list_at(tree: Mapping[str, Any], key: str) -> list[Any]:
    """The list under a key, with at least one entry."""
    value = tree.get(key)
    if not isinstance(value, list) or not value:
        got = "is missing" if value is None else f"= {value!r}"
        raise ConfigError(f"{key} {got}: must be a list with at least one entry")
    return value


def text_at(tree: Mapping[str, Any], key: str, prefix: str = "") -> str | None:
    """The text under a key, ``None`` without one."""
    value = tree.get(key)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{prefix + '.' if prefix else ''}{key} = {value!r}: must be text")
    return value


def check_keys(item: Mapping[str, Any], key: str, allowed: Sequence[str]) -> None:
    """Refuse a key that a table does not have, and name the nearest one."""
    for name in item:
        if name not in allowed:
            raise UnknownNameError("key of a comparison", f"{key}.{name}", [f"{key}.{a}" for a in allowed])


def check_unique(key: str, values: Sequence[Any]) -> None:
    """Refuse a value that appears twice."""
    twice = next((v for i, v in enumerate(values) if v in values[:i]), None)
    if twice is not None:
        raise ConfigError(f"{key} {twice!r} appears twice: must be different")


def flat_keys(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every value under its dotted key; tables in a list are numbered."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            out |= flat_keys(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for i, item in enumerate(value):
                out |= flat_keys(item, f"{prefix}{key}[{i}].")
        else:
            out[prefix + key] = value
    return out
