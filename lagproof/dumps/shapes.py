# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""Values of a column in the shape that its role needs, however a trainer nested them."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

NAME_ROLES = ("group", "response", "finish")
"""One number or text a response."""

LOG_PROBABILITIES = ("policy_logp", "sampler_logp")


class ShapeError(ValueError):
    """A value that its role cannot use.

    Args:
        row: of the value, from 0.
        value: as it stands there.
        must: what it must be.
    """

    def __init__(self, row: int, value: Any, must: str) -> None:
        self.row, self.value, self.must = row, value, must
        super().__init__(f"row {row}: is {value!r:.60}; must be {must}")


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def is_number(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_null)
    return any(is_kind(kind) for is_kind in kinds)


def is_regular(role: str, kind: pa.DataType) -> bool:
    """Whether a column of this arrow type can be used for the role as it is."""
    if role in NAME_ROLES:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return is_number(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return is_number(kind.value_type if is_list(kind) else kind)


def type_of(role: str, example: Any) -> pa.DataType | None:
    """The arrow type of a column with such values; ``None`` where they have to be looked at one by one."""
    if example is None:
        return pa.null()
    if isinstance(example, list) and role not in NAME_ROLES:
        if not all(x is None or isinstance(x, numbers.Real) for x in example):
            return None
        return pa.list_(pa.bool_() if any(isinstance(x, bool) for x in example) else pa.float64())
    if isinstance(example, str):
        return pa.string() if role in NAME_ROLES else None
    if isinstance(example, bool):
        return pa.bool_()
    return pa.float64() if isinstance(example, numbers.Real) else None


def column(role: str, values: Sequence[Any]) -> pa.Array:
    """Values as they were written, as an array that the role can use.

    A list of one list is that list, a list of one number or text is that, an object with a ``type`` is that type, and
    text that is a number is that number except among log-probabilities. In a column of numbers and of lists, a number
    becomes a list of one.

    Raises:
        ShapeError: a value that cannot be used.
    """
    values = _unwrapped(role, values)
    return _names(role, values) if role in NAME_ROLES else _numbers(role, values)


def _unwrapped(role: str, values: Sequence[Any]) -> Sequence[Any]:
    """Without the brackets of rows that are slices of one response."""
    while True:
        known = [value for value in values if value is not None]
        if not known or not all(isinstance(value, list | tuple) and len(value) == 1 for value in known):
            return values
        nested = all(isinstance(value[0], list | tuple) for value in known)
        if role in LOG_PROBABILITIES and not nested:
            return values
        values = [None if value is None else value[0] for value in values]


def _names(role: str, values: Sequence[Any]) -> pa.Array:
    out: list[Any] = []
    for row, value in enumerate(values):
        found = value.get("type") if role == "finish" and isinstance(value, dict) else value
        if found is not None and not isinstance(found, str | numbers.Real):
            raise ShapeError(row, value, "one number or text a response")
        out.append(found)
    if any(isinstance(value, str) for value in out):
        out = [value if value is None or isinstance(value, str) else str(value) for value in out]
    return pa.array(out)


def _numbers(role: str, values: Sequence[Any]) -> pa.Array:
    must = "a list of numbers" if role in LOG_PROBABILITIES else "a number, or a list of numbers"
    lists = [isinstance(value, list | tuple) for value in values]
    is_mixed = any(lists) and not all(flag or value is None for flag, value in zip(lists, values, strict=True))
    if is_mixed and role in LOG_PROBABILITIES:
        is_listed = next(flag for flag, value in zip(lists, values, strict=True) if value is not None)
        row = next(k for k, value in enumerate(values) if value is not None and lists[k] is not is_listed)
        raise ShapeError(row, values[row], f"{must if is_listed else 'a number'}, as in the first lines")
    out: list[Any] = []
    for row, value in enumerate(values):
        found = _floats(role, value)
        if value is not None and found is None:
            raise ShapeError(row, value, must)
        out.append(found if found is None or found.ndim or not any(lists) else found.reshape(1))
    if any(lists):
        return pa.array(out, pa.list_(pa.float64()))
    return pa.array([None if x is None else float(x) for x in out], pa.float64())


def _floats(role: str, value: Any) -> np.ndarray[Any, Any] | None:
    """A number or a list of numbers, a missing one NaN; ``None`` if it is neither."""
    if value is None or isinstance(value, dict):
        return None
    try:
        plain = np.asarray(value)
        if plain.dtype.kind in "US" and role in LOG_PROBABILITIES:
            return None
        found = plain.astype(np.float64)
    except (ValueError, TypeError):
        return None
    return found if found.ndim <= 1 else None
