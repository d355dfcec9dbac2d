"""Rows of a JSON Lines, JSON or parquet file, each with where it stands, and paths of columns. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagproof.errors import InputError

SUFFIXES = (".jsonl", ".json", ".parquet")


@dataclass(frozen=True)
class FileRow:
    """A row and where it stands, for messages: ``train.jsonl, line 17``."""

    where: str
    values: Mapping[str, Any]


def at(values: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value under a path of columns, ``None`` where one is missing; a column may be an object written as text.

    A number is a place in a list, from 0: ``choices.0.message.content``. A column whose own name has the dots comes
    first.
    """
    if (whole := ".".join(path)) in values:
        return values[whole]
    value: Any = values
    for name in path:
        value = _inside(_opened(value), name)
    return value


def _inside(value: Any, name: str) -> Any:
    """What an object has under a name, or a list at a place, ``None`` where there is nothing."""
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, list) and name.isdecimal():
        return value[int(name)] if int(name) < len(value) else None
    return None


def plain(value: Any) -> Any:
    """The text of a list of one, and of one message of the assistant; else the value as it is."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, Mapping) and value.get("role") == "assistant" and isinstance(value.get("content"), str):
        return value["content"]
    return value


def has(values: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Whether a row has a path of columns; below a null it has them all."""
    if ".".join(path) in values:
        return True
    value: Any = values
    for name in path:
        value = _opened(value)
        if value is None:
            return True
        if isinstance(value, list):
            if not name.isdecimal() or int(name) >= len(value):
                return False
        elif not isinstance(value, Mapping) or name not in value:
            return False
        value = _inside(value, name)
    return True


def _opened(value: Any) -> Any:
    """The object or list that a text is, or the value itself."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def first_of_each(found: Iterator[FileRow], unique: Sequence[str], seen: set[Any]) -> Iterator[FileRow]:
    """Of the rows with the same value under ``unique`` the first; the values are added to ``seen``."""
    for row in found:
        key = at(row.values, unique) if unique else None
        if key is None or key not in seen:
            seen.add(key)
            yield row


def file_rows(file: Path, unique: Sequence[str] = (), seen: set[Any] | None = None) -> Iterator[FileRow]:
    """Every row of a file, in order.

    Args:
        file: of a kind in ``SUFFIXES``.
        unique: path of a column: of the rows with the same value only the first counts. In a parquet file the others
            are never built, so that a hundredfold repetition costs little.
        seen: values of that column in files before; those of this one are added.

    Raises:
        InputError: another kind of file, a line that is not a JSON object, or a damaged parquet file.
    """
    seen = set() if seen is None else seen
    if file.suffix == ".parquet":
        return _parquet_rows(file, unique, seen)
    if file.suffix == ".json":
        return first_of_each(_json_rows(file), unique, seen)
    if file.suffix == ".jsonl":
        return first_of_each(_jsonl_rows(file), unique, seen)
    raise InputError(f"{file}: files of this kind are not read; must be {', '.join(SUFFIXES)}")


def _jsonl_rows(file: Path) -> Iterator[FileRow]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{file}, line {number}"
            yield _row(where, _parsed(line.rstrip(), where, "each line must be one JSON object"))


def _json_rows(file: Path) -> Iterator[FileRow]:
    content = _parsed(file.read_bytes(), str(file), "for one object a line name the file .jsonl")
    if isinstance(content, dict):  # one problem a file, as the MATH data set was published
        content = [content]
    if not isinstance(content, list):
        raise InputError(f"{file}: must hold a list of objects; for one object a line name the file .jsonl")
    for number, value in enumerate(content, start=1):
        yield _row(f"{file}, element {number}", value)


def _parsed(text: bytes, where: str, what_next: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if b"\n" in text else ""  # a row of JSON Lines has said its line
        raise InputError(f"{where}: not JSON: {error.msg} at {line}column {error.colno}; {what_next}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8: byte {error.start} is {text[error.start]:#04x}; {what_next}") from error
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits; brackets in brackets without end
        raise InputError(f"{where}: JSON that cannot be read: {error}; write such a number as text") from error


def _row(where: str, value: Any) -> FileRow:
    if not isinstance(value, dict):
        raise InputError(f"{where}: is a JSON {type(value).__name__}; must be an object with named columns")
    return FileRow(where, value)


def _parquet_rows(file: Path, unique: Sequence[str], seen: set[Any]) -> Iterator[FileRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    before = 0
    try:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=4096):
            keys = _column(batch, unique)
            fresh = list(range(len(batch))) if keys is None else []
            for number, key in enumerate(keys or ()):
                if key is None or key not in seen:
                    seen.add(key)
                    fresh.append(number)
            for number, values in zip(fresh, batch.take(pa.array(fresh, pa.int64())).to_pylist(), strict=True):
                yield FileRow(f"{file}, row {before + number + 1}", values)
            before += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file}: not a parquet file that can be read: {error}") from error


def _column(batch: Any, path: Sequence[str]) -> list[Any] | None:
    """One column of a batch of parquet rows as Python values, ``None`` where it has no such column."""
    if not path or path[0] not in batch.schema.names:
        return None
    return [at({path[0]: value}, path) for value in batch.column(path[0]).to_pylist()]
