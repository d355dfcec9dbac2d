"""Models of settings: frozen pydantic dataclasses whose errors are ours.

Dataclasses, and not pydantic's base class, because a section may inherit the keys of a plain dataclass of a room that
does without pydantic; what that room declares is then declared once.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NoReturn, TypeVar, dataclass_transform

import pydantic.dataclasses
from pydantic import BeforeValidator, ConfigDict, GetCoreSchemaHandler, ValidationError, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from lagproof.errors import ConfigError, UnknownNameError
from lagproof.settings.keys import allowed

T = TypeVar("T")

_STRICT = ConfigDict(strict=True, extra="forbid")
_EXPECTED = {"int_type": "int", "float_type": "float", "string_type": "str", "bool_type": "bool", "dict_type": "table"}
_BOUNDS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number")

COUNTERPARTS = {
    "learning_rate": "here it is learner.lr",
    "epsilon": "here it is an option of the objective: objective.low and objective.high",
    "clip_range": "here it is an option of the objective: objective.low and objective.high",
    "cliprange": "here it is an option of the objective: objective.low and objective.high",
    "num_generations": "here it is rollout.samples",
    "group_size": "here it is rollout.samples",
    "n_samples_per_prompt": "here it is rollout.samples",
    "beta": "here it has no counterpart: no objective has a penalty towards a reference policy",
    "kl_coef": "here it has no counterpart: no objective has a penalty towards a reference policy",
    "device": "here it has no counterpart: leave it out",
    "max_completion_length": "here it is rollout.max_tokens",
    "max_new_tokens": "here it is rollout.max_tokens",
    "batch_size": "here it is rollout.prompts (prompts per step) times rollout.samples",
    "per_device_train_batch_size": "here it is rollout.prompts (prompts per step) times rollout.samples",
    "max_steps": "here it is steps",
    "num_train_epochs": "here it is epochs",
    "output_dir": "here it is run_dir",
}
"""What other trainers call a key."""


@dataclass_transform(frozen_default=True)  # key is a plain default to a type checker
def model(section: str) -> Callable[[type[T]], type[T]]:
    """Make a class of :func:`lagproof.settings.keys.key` fields a frozen model.

    Types are strict, but that a float may be written as an integer and a tuple as a list; unknown keys are errors.

    Args:
        section: what stands before its keys in messages; empty for the whole tree.

    Raises (when the model is built):
        UnknownNameError: an unknown key; names the nearest one.
        ConfigError: a value of the wrong type, or one that is not allowed.
    """

    def made(cls: type[T]) -> type[T]:
        built: Any = pydantic.dataclasses.dataclass(cls, frozen=True, config=_STRICT)
        validate = built.__init__
        names = [f.name for f in dataclasses.fields(built)]

        @functools.wraps(validate)
        def init(self: Any, *args: Any, **values: Any) -> None:
            try:
                validate(self, **dict(zip(names, args, strict=False)), **values)
            except ValidationError as error:
                _refuse(built, error, section)

        built.__init__ = init
        return built

    return made


@dataclasses.dataclass(frozen=True)
class Named:
    """A section that picks an entry of a table by ``name``; the other keys are that entry's options."""

    name: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def reader(cls, default: str) -> BeforeValidator:
        """Reads a section, or a bare name; a section without a name is about the entry ``default``."""

        def read(value: Any, info: ValidationInfo) -> Any:
            if isinstance(value, str):
                return cls(value)
            if not isinstance(value, Mapping):
                return value
            name = value.get("name", default)
            if not isinstance(name, str):
                key = info.field_name
                raise ConfigError(f"{key} = {value!r}: expected a section with a name, for example {key}.name=...")
            return cls(name, {k: v for k, v in value.items() if k != "name"})

        return BeforeValidator(read)


class FromTable:
    """Marks a key of a model that is a model itself, and is read from a table."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any) -> Any:
            return source(**value) if isinstance(value, Mapping) else value

        return core_schema.no_info_before_validator_function(read, handler(source))


def to_dict(settings: Any) -> dict[str, Any]:
    """Settings as plain TOML values; ``None`` has none and is left out."""
    if isinstance(settings, Named):
        return {"name": settings.name, **{k: v for k, v in settings.options.items() if v is not None}}
    pairs = ((f.name, getattr(settings, f.name)) for f in dataclasses.fields(settings))
    return {name: _plain(value) for name, value in pairs if value is not None}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, StrEnum):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _refuse(cls: type, error: ValidationError, section: str) -> NoReturn:
    """Raise the first error in our words; a key that does not exist comes before a value that is wrong."""
    found = error.errors(include_url=False)
    unknown = [e for e in found if e["type"] == "unexpected_keyword_argument"]
    first = (unknown or found)[0]
    own = first.get("ctx", {}).get("error")
    if isinstance(own, ConfigError):
        raise own from None
    prefix = f"{section}." if section else ""
    name = str(first["loc"][0])
    if first["type"] == "unexpected_keyword_argument":
        allowed = [prefix + f.name for f in dataclasses.fields(cls)]
        hint = COUNTERPARTS.get(name.lower(), "")
        raise UnknownNameError("configuration key", prefix + name, allowed, hint) from None
    raise ConfigError(f"{prefix}{name} = {first['input']!r}: {_wrong(cls, name, first)}") from None


def _wrong(cls: type, name: str, error: Mapping[str, Any]) -> str:
    """What is wrong with a value, and what is allowed."""
    kind, got = error["type"], type(error["input"]).__name__
    hint = _without_none(typing.get_type_hints(cls)[name])
    if kind in _BOUNDS:
        return f"must be {allowed(next(f for f in dataclasses.fields(cls) if f.name == name).metadata)}"
    if kind in ("literal_error", "enum"):
        return f"must be {' | '.join(map(str, typing.get_args(hint) or hint))}"
    if kind == "dataclass_exact_type":
        named = f"expected a section with a name, for example {name}.name=..."
        return named if hint is Named else f"is a section, not a value; set {name}.<key> instead"
    if kind in ("tuple_type", "list_type", "missing", "too_long"):
        items = typing.get_args(hint)
        if kind == "list_type" or items[1:] == (...,):
            return f"expected a list, got {got}"
        return f"expected a list of {len(items)} numbers"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, got {got}"
    return f"{error['msg']}"


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(a for a in typing.get_args(hint) if a is not type(None))
    return hint
