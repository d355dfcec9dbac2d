"""Options of an objective: declared once, as fields of its dataclass, with what they may be and what they do.

Error messages, ``lagproof objectives NAME``, the documentation and the configuration read them from here.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from lagproof.errors import ConfigError, UnknownNameError


@dataclass(frozen=True)
class Option:
    """One option of an objective.

    Attributes:
        name: as in ``lp.objective(..., name=value)`` and ``objective.name`` of a configuration.
        type: its annotation: ``float``, ``float | None``, ``str``, ``tuple[str, ...]``, or
            ``float | tuple[float, float]``, a number or a pair (low, high) to each of which the bounds apply.
        default: its value where none is given.
        help: what it does, with its unit.
        choices: all allowed values of a text; ``None`` for numbers.
        above: exclusive lower bound.
        minimum, maximum: inclusive bounds.
        hint: what to write instead, said with the error.
        shared: whether every objective has it, so that tables say it once.
    """

    name: str
    type: Any
    default: Any
    help: str
    choices: tuple[str, ...] | None = None
    above: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    hint: str = ""
    shared: bool = False

    @property
    def allowed(self) -> str:
        """Its bounds or choices in words; empty where there are none."""
        if self.choices is not None:
            return " | ".join(self.choices)
        if self.minimum is not None and self.maximum is not None:
            return f"in [{self.minimum:g}, {self.maximum:g}]"
        bounds = ((">", self.above), (">=", self.minimum), ("<=", self.maximum))
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)

    def check(self, value: Any) -> None:
        """Raise ConfigError or UnknownNameError if ``value`` is of another type or not allowed."""
        if not self._is_typed(value):
            raise ConfigError(f"objective.{self.name} = {value!r}: must be {self._kind}")
        if self.choices is not None and value not in self.choices:
            raise UnknownNameError(f"objective.{self.name}", value, self.choices)
        numbers = cast(Sequence[float], value) if isinstance(value, list | tuple) else (value,)
        if not all(self._is_within(x) for x in numbers if _is_number(x)):
            hint = f"; {self.hint}" if self.hint else ""
            raise ConfigError(f"objective.{self.name} = {value}: must be {self.allowed}{hint}")

    def _is_within(self, x: float) -> bool:
        return (
            (self.above is None or x > self.above)
            and (self.minimum is None or x >= self.minimum)
            and (self.maximum is None or x <= self.maximum)
        )

    @property
    def _kinds(self) -> tuple[Any, ...]:
        return typing.get_args(self.type) if isinstance(self.type, types.UnionType) else (self.type,)

    @property
    def _kind(self) -> str:
        if self.type is str:
            return "text"
        if self._is_list:
            return "a list of texts"
        return (
            "a number, or a pair (low, high) of numbers" if len(self._kinds) > 1 and not self._may_miss else "a number"
        )

    @property
    def _is_list(self) -> bool:
        return typing.get_origin(self.type) is tuple

    @property
    def _may_miss(self) -> bool:
        return types.NoneType in self._kinds

    def _is_typed(self, value: Any) -> bool:
        if self.type is str:
            return isinstance(value, str)
        if self._is_list:
            return isinstance(value, tuple) and all(isinstance(x, str) for x in cast(Sequence[Any], value))
        if isinstance(value, list | tuple) and len(self._kinds) > 1 and not self._may_miss:
            pair = cast(Sequence[Any], value)
            return len(pair) == 2 and all(_is_number(x) for x in pair)
        return _is_number(value) or (value is None and self._may_miss)


def option(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] | None = None,
    above: float | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    hint: str = "",
    shared: bool = False,
) -> Any:
    """A field of an objective's dataclass; see :class:`Option`."""
    limits = {"choices": None if choices is None else tuple(choices), "above": above}
    limits |= {"minimum": minimum, "maximum": maximum, "hint": hint}
    return dataclasses.field(default=default, metadata={"help": help, "shared": shared, **limits}, kw_only=shared)


@cache
def options_of(cls: type) -> tuple[Option, ...]:
    """The options that a dataclass declares, in their order. Read off once: each loss builds an objective."""
    kinds = typing.get_type_hints(cls)
    return tuple(Option(f.name, kinds[f.name], f.default, **f.metadata) for f in dataclasses.fields(cls))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
