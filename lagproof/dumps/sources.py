# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""Files of a rollout dump as arrow tables that hold only the columns that are wanted."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from lagproof.dumps.columns import resolve
from lagproof.errors import InputError
from lagproof.runs.evaluation import is_evaluation
from lagproof.runs.layout import RunLayout

PARQUET = (".parquet", ".pq")
JSONL = (".jsonl", ".ndjson", ".json")
_BLOCK_BYTES = 1 << 26
_PEEKED_LINES = 20


@dataclass(frozen=True, eq=False)
class SourceFile:
    """One file.

    Attributes:
        path: of the file.
        table: its columns, named by their roles.
        columns: what they are called in the file.
        is_ours: whether a run of ours wrote it, so that a step's number tells the learner's version.
        notes: what was noticed while reading.
    """

    path: Path
    table: pa.Table
    columns: Mapping[str, str]
    is_ours: bool
    notes: tuple[str, ...]


def files(path: Path) -> list[Path]:
    """The files of a dump, in the order of the numbers in their names.

    Raises:
        InputError: nothing there, or nothing that can be read.
    """
    if path.is_file():
        if path.suffix not in (*PARQUET, *JSONL) and path.suffixes[-2:-1] != [".jsonl"]:
            raise InputError(f"{path}: is neither parquet ({', '.join(PARQUET)}) nor JSON lines ({', '.join(JSONL)})")
        return [path]
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    if is_evaluation(path):
        raise InputError(
            f"{path}: holds an evaluation, which has no log-probabilities; give a run directory, or a dump of rollouts"
        )
    rollouts = RunLayout(path).rollouts
    folder = rollouts if rollouts.is_dir() else path
    for suffixes in (PARQUET, JSONL):
        found = [p for p in folder.iterdir() if p.suffix in suffixes and not p.name.startswith(".")]
        if found:
            return sorted(found, key=_numbered)
    raise InputError(
        f"{folder}: holds neither parquet nor JSON lines; give a run directory that has trained a step and whose "
        "rollouts were saved (save.rollouts = true), or a file with per-token policy_logp and sampler_logp"
    )


def read(path: Path, mapping: Mapping[str, str] | None) -> SourceFile:
    """Read the columns of one file that have a meaning.

    Raises:
        InputError: a file that is damaged, empty, or lacks the log-probabilities; names the file.
    """
    try:
        return _parquet(path, mapping) if path.suffix in PARQUET else _json_lines(path, mapping)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read: {_first_line(error)}") from error


def _parquet(path: Path, mapping: Mapping[str, str] | None) -> SourceFile:
    file = pq.ParquetFile(path)
    schema = file.schema_arrow
    columns = _of_lists(resolve(schema.names, mapping), schema)
    table = file.read(columns=list(dict.fromkeys(columns.values())))
    is_ours = b"lagproof_record_version" in (schema.metadata or {})
    return SourceFile(path, _named(table, columns), columns, is_ours, ())


def _json_lines(path: Path, mapping: Mapping[str, str] | None) -> SourceFile:
    with pa.input_stream(path) as stream:  # reads .gz and .zst too
        body = stream.read()
    cut = body.rfind(b"\n") + 1
    notes: tuple[str, ...] = ()
    if cut != len(body) and not _is_json(body[cut:]):
        notes = (f"{path.name}: the last line is truncated and was left out",)
        body = body[:cut]
    peeked = _peek(body)
    columns = resolve(list(peeked), mapping)
    schema = pa.schema([pa.field(name, _type(peeked[name])) for name in dict.fromkeys(columns.values())])
    columns = _of_lists(columns, schema)
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(body),
            read_options=pyarrow.json.ReadOptions(block_size=min(_BLOCK_BYTES, max(len(body), 1))),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        _refuse_first_wrong_line(body, schema)
        raise
    return SourceFile(path, _named(table, columns), columns, False, notes)


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _named(table: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    return pa.table({role: table[column] for role, column in columns.items()})


def _of_lists(columns: dict[str, str], schema: pa.Schema) -> dict[str, str]:
    """With one row a response nothing has to say which response a token belongs to (``response`` may be its text)."""
    if is_list(schema.field(columns["policy_logp"]).type):
        return {role: column for role, column in columns.items() if role != "response"}
    return columns


def _peek(body: bytes) -> dict[str, Any]:
    """A value of each key that the first lines have."""
    seen: dict[str, Any] = {}
    for number, line in enumerate(io.BytesIO(body), 1):
        if number > _PEEKED_LINES:
            break
        if not line.strip():
            continue
        row = _object(number, line)
        seen |= {key: value for key, value in row.items() if value not in (None, []) or key not in seen}
    if not seen:
        raise InputError("has no line: nothing to look at")
    return seen


def _object(number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"line {number} is not JSON: {error.msg} at column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"line {number} is not UTF-8: {error.reason} at byte {error.start}") from None
    if not isinstance(row, dict):
        raise InputError(f"line {number} is {type(row).__name__}: must be an object, one response a line")
    return row


def _refuse_first_wrong_line(body: bytes, schema: pa.Schema) -> None:
    """Say which line could not be read, and why; arrow counts rows from the beginning of a block."""
    for number, line in enumerate(io.BytesIO(body), 1):
        if not line.strip():
            continue
        row = _object(number, line.rstrip())
        for field in schema:
            try:
                pa.array([row.get(field.name)], field.type)
            except (pa.ArrowException, TypeError, ValueError):
                kind = (
                    "a list of numbers" if is_list(field.type) else "text" if field.type == pa.string() else "a number"
                )
                raise InputError(
                    f"line {number}: column {field.name!r} is {row[field.name]!r:.60}; must be {kind}, as in the "
                    "first lines"
                ) from None


def _type(example: Any) -> pa.DataType:
    if isinstance(example, list):
        return pa.list_(pa.bool_() if any(isinstance(x, bool) for x in example) else pa.float64())
    if isinstance(example, str):
        return pa.string()
    return pa.bool_() if isinstance(example, bool) else pa.float64()


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return not line.strip()
    return True


def _numbered(path: Path) -> tuple[list[int], str]:
    return [int(n) for n in re.findall(r"\d+", path.name)], path.name


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
