# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""One table of a dump as flat arrays. From arrow's buffers to numpy's; no Python object a token is ever made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lagproof.dumps.columns import INVERTED
from lagproof.dumps.shapes import is_list, is_number
from lagproof.dumps.sources import SourceFile
from lagproof.errors import InputError

_TOKEN_KINDS: dict[str, type] = {
    "policy_logp": np.float32,
    "sampler_logp": np.float32,
    "anchor_logp": np.float32,
    "advantage": np.float32,
    "version": np.float64,  # until it is known that none is missing
    "entropy": np.float32,
    "mask": np.float32,
}
_RESPONSE_KINDS: dict[str, type] = {
    "step": np.float64,
    "learner_version": np.float64,
    "reward": np.float64,
    "keep": np.float64,
}
_WHOLE_NUMBERS = ("step", "version", "learner_version")

TRUNCATED = frozenset({"length", "max_tokens", "max_length", "max_new_tokens", "truncated"})
"""What servers and trainers call a response that reached its limit of tokens."""

ENDED = frozenset(
    {
        *("stop", "stopped", "eos", "eos_token", "end_turn", "end", "stop_sequence", "finished", "finish", "complete"),
        *("completed", "done", "success", "tool_calls", "tool_call", "tool_use", "function_call", "abort", "aborted"),
        *("cancelled", "canceled", "content_filter", "error", "failed", "pending"),
    }
)
"""What they call every other end."""


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


def flatten(source: SourceFile, notes: list[str]) -> Flat:
    """Flatten one table, with one row a response or one row a token, and leave out what its masks leave out.

    Args:
        notes: what was noticed is added.

    Raises:
        InputError: a needed column of the wrong kind, or lists of unequal lengths; names the row.
    """
    _check_log_probabilities(source)
    read = _from_lists if is_list(source.table["policy_logp"].type) else _from_rows
    flat = _without_masked(source, read(source, notes), notes)
    token, response = dict(flat.token), dict(flat.response)
    for values in (token, response):
        for role in [role for role in _WHOLE_NUMBERS if role in values]:
            if (np.isfinite(values[role]) & (values[role] == np.floor(values[role]))).all():
                values[role] = values[role].astype(np.int64)
            else:
                notes.append(
                    f"{_called(source, role)} was left out: it has values that are missing or no whole numbers"
                )
                del values[role]
    return Flat(flat.lengths, token, response, flat.group)


def _without_masked(source: SourceFile, flat: Flat, notes: list[str]) -> Flat:
    """Without the tokens that the mask leaves out, and those of responses that do not count."""
    mask, keep = flat.token.get("mask"), flat.response.get("keep")
    if mask is None and keep is None:
        return flat
    chosen = np.ones(int(flat.lengths.sum()), dtype=np.bool_)
    if mask is not None:
        if not np.isin(mask, (0.0, 1.0)).all():
            raise InputError(f"column {_called(source, 'mask')} holds values other than 0 and 1: a mask must not")
        chosen &= mask.astype(np.bool_)
        if len(chosen) and not chosen.any():
            raise InputError(
                f"column {_called(source, 'mask')} leaves out all {len(chosen)} tokens: nothing is left to look at"
            )
    response = dict(flat.response)
    if keep is not None:
        if source.columns["keep"] in INVERTED:
            keep = 1.0 - keep
        keep = np.isnan(keep) | (keep != 0)
        response["keep"] = keep
        chosen &= np.repeat(keep, flat.lengths)
        if not keep.all():
            notes.append(
                f"{np.count_nonzero(~keep)} of {len(keep)} responses are left out by {_called(source, 'keep')}"
            )
    token = {role: values[chosen] for role, values in flat.token.items() if role != "mask"}
    before = np.concatenate([[0], np.cumsum(chosen)])
    end = np.cumsum(flat.lengths)
    return Flat(before[end] - before[end - flat.lengths], token, response, flat.group)


def _from_lists(source: SourceFile, notes: list[str]) -> Flat:
    table = source.table
    lengths = _list_lengths(table["policy_logp"])
    token: dict[str, NDArray[Any]] = {}
    for role in [role for role in _TOKEN_KINDS if role in table.column_names]:
        values = _of_tokens(source, role, lengths, notes)
        if values is not None:
            token[role] = values
    response = {role: _of_response(source, role) for role in _RESPONSE_KINDS if role in table.column_names}
    return _finish(source, lengths, token, response, notes, lambda x: x)


def _of_tokens(source: SourceFile, role: str, lengths: NDArray[Any], notes: list[str]) -> NDArray[Any] | None:
    """One value a token; ``None``, and a note, where an optional column cannot be used."""
    values, is_null = _values(source, role)
    if role == "mask" and is_null.any():
        notes.append(
            f"{_called(source, role)} is null for {np.count_nonzero(is_null)} of {len(lengths)} responses: every token "
            "of theirs counts"
        )
    missing = 1.0 if role == "mask" else np.nan
    column = source.table[role]
    if not is_list(column.type):
        return np.repeat(np.where(is_null, missing, values).astype(_TOKEN_KINDS[role]), lengths)
    found = _list_lengths(column)
    is_optional = role not in ("policy_logp", "sampler_logp", "mask")
    is_whole = is_null | (found == lengths)
    if is_optional and not is_whole.all():
        if (is_null | (found == 1)).all():  # one of a response
            each = _filled(values, is_null, _TOKEN_KINDS[role])
            return np.repeat(each, lengths)
        if (is_whole | (found == 1)).all():  # of some responses, of the tokens of others
            times = np.where(is_whole, 1, lengths)
            values = np.repeat(values, np.repeat(times, found))
        elif role == "version" and (is_null | ((found >= 1) & (found <= lengths))).all():
            notes.append(f"{_called(source, role)} has a value a segment: a response counts as sampled by its oldest")
            return np.repeat(_smallest(values, np.where(is_null, 0, found)), lengths)
        else:
            row = int(np.flatnonzero(~is_whole)[0])
            notes.append(
                f"{_called(source, role)} was left out: row {row} has {found[row]} values, "
                f"{_called(source, 'policy_logp')} has {lengths[row]}; it must have one a token, or one a response"
            )
            return None
    elif not is_optional:
        _check_lengths(source, role, lengths, np.where(is_null, lengths, found))
    return values if not is_null.any() else _filled(values, np.repeat(is_null, lengths), _TOKEN_KINDS[role], missing)


def _smallest(values: NDArray[Any], lengths: NDArray[Any]) -> NDArray[Any]:
    """The smallest of each list, NaN of an empty one."""
    out = np.full(len(lengths), np.nan)
    np.fmin.at(out, np.repeat(np.arange(len(lengths)), lengths), values)
    return out


def _from_rows(source: SourceFile, notes: list[str]) -> Flat:
    """One row a token: a response is the rows that share ``response`` (and ``step``)."""
    table = source.table
    if "response" not in table.column_names:
        raise InputError(
            f"column {_called(source, 'policy_logp')} holds one number a row: then a column must say which response a "
            "token belongs to; name it with --map response=<column>, or write one row a response with lists"
        )
    key = numbered(table["response"])
    if "step" in table.column_names:
        step = np.unique(_values(source, "step")[0], return_inverse=True)[1]
        key = step.astype(np.int64) * (int(key.max(initial=0)) + 1) + key
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
    return _finish(source, lengths, tokens, response, notes, lambda x: x.take(pa.array(at)))


def _finish(
    source: SourceFile,
    lengths: NDArray[Any],
    token: dict[str, Any],
    response: dict[str, Any],
    notes: list[str],
    pick: Callable[[Any], Any],
) -> Flat:
    table = source.table
    if "finish" in table.column_names:
        is_truncated = _truncated(source, pick(table["finish"]), notes)
        if is_truncated is not None:
            response["truncated"] = is_truncated
    group = pick(table["group"]) if "group" in table.column_names else None
    return Flat(lengths.astype(np.int64), token, response, group)


def _truncated(source: SourceFile, finish: Any, notes: list[str]) -> NDArray[np.bool_] | None:
    """Whether each response was truncated; ``None``, and a note, where the words do not tell."""
    called = _called(source, "finish")
    if is_number(finish.type):
        if "trunc" in source.columns["finish"]:
            return np.asarray(finish.cast(pa.float64()).to_numpy(), dtype=np.float64) == 1.0
        notes.append(f"{called} was left out: it is {finish.type}, and must be a word such as 'length' or 'stop'")
        return None
    words = [str(word).lower().rsplit(".", 1)[-1] for word in finish.unique().drop_null().to_pylist()]
    if not TRUNCATED & set(words) and not ENDED.issuperset(words):
        unknown = ", ".join(sorted(set(words) - ENDED)[:4])
        notes.append(f"{called} was left out: none of its words is known ({unknown}); 'length' means truncated")
        return None
    lower = [None if word is None else str(word).lower().rsplit(".", 1)[-1] for word in finish.to_pylist()]
    return np.array([word in TRUNCATED for word in lower], dtype=np.bool_)


def _values(source: SourceFile, role: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """All values of a column end to end, a missing one NaN; and which rows are null."""
    column = source.table[role]
    kind = _TOKEN_KINDS.get(role) or _RESPONSE_KINDS[role]
    chunks = (chunk.flatten() if is_list(column.type) else chunk for chunk in column.chunks)
    parts = [np.empty(0, kind), *(_numbers(chunk, kind) for chunk in chunks)]
    return np.concatenate(parts), _nulls(column)  # a copy: arrow's own buffers must not be written to


def _check_log_probabilities(source: SourceFile) -> None:
    """Both hold numbers, and both a list a row or both a number a row."""
    listed: dict[bool, str] = {}
    for role in ("policy_logp", "sampler_logp"):
        listed[is_list(source.table[role].type)] = _called(source, role)
    if len(listed) == 2:
        raise InputError(
            f"column {listed[True]} holds lists and column {listed[False]} one number a row: both must have one number "
            "a token"
        )


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


def _filled(values: NDArray[Any], missing: NDArray[np.bool_], kind: type, instead: float = math.nan) -> NDArray[Any]:
    out = np.full(len(missing), instead, dtype=kind)
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


def numbered(names: pa.ChunkedArray) -> NDArray[np.int64]:
    """A number for each name, the same for the same; each missing one has a number of its own."""
    found = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    found = found if pa.types.is_dictionary(found.type) else found.dictionary_encode()
    number = found.indices.to_numpy(zero_copy_only=False).astype(np.float64)
    missing = np.isnan(number)
    number[missing] = len(number) + np.arange(int(missing.sum()))
    return number.astype(np.int64)


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
