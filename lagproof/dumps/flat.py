# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""One table of a dump as flat arrays. From arrow's buffers to numpy's; no Python object a token is ever made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lagproof.dumps.sources import SourceFile, is_list
from lagproof.errors import InputError

_TOKEN_KINDS: dict[str, type] = {
    "policy_logp": np.float32,
    "sampler_logp": np.float32,
    "advantage": np.float32,
    "version": np.float64,  # until it is known that none is missing
    "entropy": np.float32,
    "mask": np.float32,
}
_RESPONSE_KINDS: dict[str, type] = {"step": np.float64, "learner_version": np.float64, "reward": np.float64}
_WHOLE_NUMBERS = ("step", "version", "learner_version")


@dataclass(frozen=True, eq=False)
class Flat:
    """Columns by role.

    Attributes:
        lengths: tokens of each response, ``[R]``.
        token: values of each token, responses end to end, ``[N]``.
        response: values of each response, ``[R]``.
        group: what groups are called in the file, ``[R]``, ``None`` if there is no such column.
    """

    lengths: NDArray[np.int64]
    token: Mapping[str, NDArray[Any]]
    response: Mapping[str, NDArray[Any]]
    group: pa.ChunkedArray | None


def flatten(source: SourceFile) -> Flat:
    """Flatten one table, with one row a response or one row a token, and leave out what its mask leaves out.

    Raises:
        InputError: a column of the wrong kind, or lists of unequal lengths; names the row.
    """
    _check_log_probabilities(source)
    flat = _from_lists(source) if is_list(source.table["policy_logp"].type) else _from_rows(source)
    keep = flat.token.get("mask")
    if keep is None:
        return flat
    if not np.isin(keep, (0.0, 1.0)).all():
        raise InputError(f"column {_called(source, 'mask')} holds values other than 0 and 1: a mask must not")
    chosen = keep.astype(np.bool_)
    token = {role: values[chosen] for role, values in flat.token.items() if role != "mask"}
    before = np.concatenate([[0], np.cumsum(chosen)])
    end = np.cumsum(flat.lengths)
    return Flat(before[end] - before[end - flat.lengths], token, flat.response, flat.group)


def _from_lists(source: SourceFile) -> Flat:
    table = source.table
    policy, _ = _values(source, "policy_logp")
    lengths = _list_lengths(table["policy_logp"])
    token: dict[str, NDArray[Any]] = {"policy_logp": policy}
    for role, kind in _TOKEN_KINDS.items():
        if role == "policy_logp" or role not in table.column_names:
            continue
        values, is_null = _values(source, role)
        if not is_list(table[role].type):
            token[role] = np.repeat(values, lengths)
            continue
        found = np.where(is_null, lengths, _list_lengths(table[role]))
        _check_lengths(source, role, lengths, found)
        token[role] = values if not is_null.any() else _filled(values, np.repeat(is_null, lengths), kind)
    response = {role: _of_response(source, role) for role in _RESPONSE_KINDS if role in table.column_names}
    return _finish(source, lengths, token, response, lambda x: x)


def _from_rows(source: SourceFile) -> Flat:
    """One row a token: a response is the rows that share ``response`` (and ``step``)."""
    table = source.table
    if "response" not in table.column_names:
        raise InputError(
            f"column {_called(source, 'policy_logp')} holds one number a row: then a column must say which response a "
            "token belongs to; name it with --map response=<column>, or write one row a response with lists"
        )
    number = table["response"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    key = number.astype(np.int64)
    if "step" in table.column_names:
        step = np.unique(_values(source, "step")[0], return_inverse=True)[1]
        key = step.astype(np.int64) * (int(number.max(initial=0)) + 1) + key
    order = None if (key[1:] >= key[:-1]).all() else np.argsort(key, kind="stable")
    ordered = key if order is None else key[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(key) else np.empty(0, np.int64)
    lengths = np.diff(np.append(first, len(key)))
    at = first if order is None else order[first]

    def token(role: str) -> NDArray[Any]:
        values = _values(source, role)[0]
        return values if order is None else values[order]

    tokens = {role: token(role) for role in _TOKEN_KINDS if role in table.column_names}
    response = {role: _of_response(source, role)[at] for role in _RESPONSE_KINDS if role in table.column_names}
    return _finish(source, lengths, tokens, response, lambda x: x.take(pa.array(at)))


def _finish(
    source: SourceFile, lengths: NDArray[Any], token: dict[str, Any], response: dict[str, Any], pick: Any
) -> Flat:
    table = source.table
    for part in (token, response):
        for role in _WHOLE_NUMBERS:
            if role in part:
                part[role] = _whole(source, role, part[role])
    if "finish" in table.column_names:
        is_cut = pc.call_function("equal", [pick(table["finish"]), pa.scalar("length")])
        response["truncated"] = is_cut.fill_null(False).to_numpy()
    group = pick(table["group"]) if "group" in table.column_names else None
    return Flat(lengths.astype(np.int64), token, response, group)


def _values(source: SourceFile, role: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """All values of a column end to end, a missing one NaN; and which rows are null."""
    column = source.table[role]
    _check_numbers(source, role)
    kind = _TOKEN_KINDS.get(role) or _RESPONSE_KINDS[role]
    chunks = (chunk.flatten() if is_list(column.type) else chunk for chunk in column.chunks)
    parts = [np.empty(0, kind), *(_numbers(chunk, kind) for chunk in chunks)]
    return np.concatenate(parts), _nulls(column)  # a copy: arrow's own buffers must not be written to


def _check_log_probabilities(source: SourceFile) -> None:
    """Both hold numbers, and both a list a row or both a number a row."""
    listed: dict[bool, str] = {}
    for role in ("policy_logp", "sampler_logp"):
        _check_numbers(source, role)
        listed[is_list(source.table[role].type)] = _called(source, role)
    if len(listed) == 2:
        raise InputError(
            f"column {listed[True]} holds lists and column {listed[False]} one number a row: both must have one number "
            "a token"
        )


def _check_numbers(source: SourceFile, role: str) -> None:
    kind = source.table[role].type
    inner = kind.value_type if is_list(kind) else kind
    kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_null)
    if not any(is_kind(inner) for is_kind in kinds):
        advice = ": lists that were written as text must be written as lists" if pa.types.is_string(kind) else ""
        raise InputError(f"column {_called(source, role)} is {kind}: must hold numbers, or lists of them{advice}")


def _numbers(chunk: pa.Array, kind: type) -> NDArray[Any]:
    if chunk.null_count and not pa.types.is_floating(chunk.type):
        chunk = chunk.cast(pa.float64())
    return np.asarray(chunk.to_numpy(zero_copy_only=False), dtype=kind)


def _of_response(source: SourceFile, role: str) -> NDArray[Any]:
    """One value a response; where there is a list (rewards of tokens), its sum."""
    values, _ = _values(source, role)
    column = source.table[role]
    if not is_list(column.type):
        return values
    lengths = _list_lengths(column)
    total = np.bincount(np.repeat(np.arange(len(lengths)), lengths), weights=values, minlength=len(lengths))
    return np.where(lengths > 0, total, np.nan)


def _whole(source: SourceFile, role: str, values: NDArray[Any]) -> NDArray[np.int64]:
    if not (np.isfinite(values) & (values == np.floor(values))).all():
        raise InputError(f"column {_called(source, role)} has values that are missing or no whole numbers")
    return values.astype(np.int64)


def _filled(values: NDArray[Any], missing: NDArray[np.bool_], kind: type) -> NDArray[Any]:
    out = np.full(len(missing), np.nan, dtype=kind)
    out[~missing] = values
    return out


def _check_lengths(source: SourceFile, role: str, expected: NDArray[Any], found: NDArray[Any]) -> None:
    wrong = np.flatnonzero(expected != found)
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"row {row}: column {_called(source, role)} has {found[row]} values, {_called(source, 'policy_logp')} has "
            f"{expected[row]} ({len(wrong)} of {len(expected)} rows differ): both must have one a token, and nothing "
            "may be padded with numbers that look like log-probabilities"
        )


def _list_lengths(column: pa.ChunkedArray) -> NDArray[np.int64]:
    lengths = pc.call_function("list_value_length", [column])
    return np.asarray(lengths.fill_null(0).to_numpy(), dtype=np.int64)


def _nulls(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(column.is_null().to_numpy(), dtype=np.bool_)


def _called(source: SourceFile, role: str) -> str:
    column = source.columns[role]
    return repr(role) if column == role else f"{column!r} ({role})"


def concatenate(parts: Sequence[Flat]) -> Flat:
    """The responses of several files, with the columns that all of them have."""
    if len(parts) == 1:
        return parts[0]
    token = {role: np.concatenate([p.token[role] for p in parts]) for role in _common([p.token for p in parts])}
    response = {
        role: np.concatenate([p.response[role] for p in parts]) for role in _common([p.response for p in parts])
    }
    groups = [p.group for p in parts]
    group = None
    if all(g is not None for g in groups):
        kinds = {g.type for g in groups if g is not None}
        chunks = [chunk if len(kinds) == 1 else chunk.cast(pa.string()) for g in groups for chunk in g.chunks]  # type: ignore[union-attr]
        group = pa.chunked_array(chunks)
    return Flat(np.concatenate([p.lengths for p in parts]), token, response, group)


def _common(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [role for role in parts[0] if all(role in part for part in parts)]
