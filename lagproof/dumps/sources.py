# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""Files of a rollout dump as arrow tables that hold only the columns that are wanted, each in the shape of its role."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from lagproof.dumps.columns import NEEDED, resolve
from lagproof.dumps.shapes import ShapeError, column, is_list, is_regular, type_of
from lagproof.errors import InputError
from lagproof.runs.evaluation import is_evaluation
from lagproof.runs.layout import RunLayout

PARQUET = (".parquet", ".pq")
JSONL = (".jsonl", ".ndjson", ".json")
TORCH = (".pt",)
PICKLES = (".pkl", ".pickle")
ENDINGS = (*PARQUET, *JSONL, *TORCH)
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
        top_token: the largest token id among the first responses, where the file has token ids.
    """

    path: Path
    table: pa.Table
    columns: Mapping[str, str]
    is_ours: bool
    notes: tuple[str, ...]
    top_token: int | None = None


def files(path: Path) -> list[Path]:
    """The files of a dump, in the order of the numbers in their paths; folders below are searched if ``path`` has none.

    Raises:
        InputError: nothing there, or nothing that can be read.
    """
    if path.is_file():
        if path.suffix in PICKLES:
            raise InputError(
                f"{path}: a pickle can run any code and is not read; load it with the trainer that wrote it and write "
                "its columns as parquet: policy_logp, sampler_logp, mask, advantage, lists with one number a token"
            )
        if path.suffix not in ENDINGS and path.suffixes[-2:-1] != [".jsonl"]:
            raise InputError(
                f"{path}: is neither parquet ({', '.join(PARQUET)}), JSON lines ({', '.join(JSONL)}) nor a file of "
                f"torch.save ({', '.join(TORCH)})"
            )
        return [path]
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    if is_evaluation(path):
        raise InputError(
            f"{path}: holds an evaluation, which has no log-probabilities; give a run directory, or a dump of rollouts"
        )
    rollouts = RunLayout(path).rollouts
    folder = rollouts if rollouts.is_dir() else path
    for found in (folder.iterdir(), folder.rglob("*")):
        chosen = [file for file in found if _is_dump(file.relative_to(folder)) and file.is_file()]
        if chosen:
            return sorted(chosen, key=lambda file: _numbered(file.relative_to(folder)))
    raise InputError(
        f"{folder}: holds neither parquet nor JSON lines; give a run directory that has trained a step and whose "
        "rollouts were saved (save.rollouts = true), or a file with per-token policy_logp and sampler_logp"
    )


def read(path: Path, mapping: Mapping[str, str] | None) -> SourceFile:
    """Read the columns of one file that have a meaning.

    Raises:
        MissingColumnError: it lacks the log-probabilities.
        InputError: a file that is damaged, empty, or of another shape; names the file.
    """
    reader = _parquet if path.suffix in PARQUET else _saved_by_torch if path.suffix in TORCH else _json_lines
    try:
        return reader(path, mapping)
    except InputError as error:
        raise type(error)(f"{path}: {error}") from None
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read: {_first_line(error)}") from error


def _is_dump(path: Path) -> bool:
    names = path.name.removesuffix(".gz").removesuffix(".zst")
    return Path(names).suffix in ENDINGS and not any(part.startswith(".") for part in path.parts)


def _parquet(path: Path, mapping: Mapping[str, str] | None) -> SourceFile:
    file = pq.ParquetFile(path)
    schema = file.schema_arrow
    columns = resolve(schema.names, mapping)
    table = file.read(columns=list(dict.fromkeys(columns.values())))
    notes: list[str] = []
    arrays: dict[str, Any] = {}
    for role, name in columns.items():
        values = table[name]
        if is_regular(role, values.type) and not pa.types.is_fixed_size_list(values.type):
            arrays[role] = values
            continue
        found = _shaped(role, name, values.to_pylist(), notes, lambda row: f"row {row}", str(values.type))
        if found is not None:
            arrays[role] = found
    first = next(file.iter_batches(8), None) if file.metadata.num_rows else None
    seen = {} if first is None else {name: first[name].to_pylist() for name in schema.names if _may_tell(name)}
    notes += _unused_masks(columns, seen)
    is_ours = b"lagproof_record_version" in (schema.metadata or {})
    return _source(path, arrays, columns, notes, is_ours=is_ours, top_token=_top_token(seen))


def _json_lines(path: Path, mapping: Mapping[str, str] | None) -> SourceFile:
    with pa.input_stream(path) as stream:  # reads .gz and .zst too
        body = stream.read()
    body = body.removeprefix(b"\xef\xbb\xbf")
    notes: list[str] = []
    if ".json" in path.suffixes and (rows := _whole_document(body)) is not None:
        return _of_rows(path, rows, [f"row {k}" for k in range(len(rows))], mapping, notes)
    cut = body.rfind(b"\n") + 1
    if cut != len(body) and not _is_json(body[cut:]):
        notes.append(f"{path.name}: the last line is truncated and was left out")
        body = body[:cut]
    peeked = _peek(body)
    columns = resolve(list(peeked), mapping)
    table = _with_known_types(body, columns, peeked)
    if table is None:
        numbered = list(_objects(body))
        return _of_rows(path, [row for _, row in numbered], [f"line {n}" for n, _ in numbered], mapping, notes)
    seen = {name: [value] for name, value in peeked.items() if _may_tell(name)}
    notes += _unused_masks(columns, seen)
    return _source(path, {r: table[c] for r, c in columns.items()}, columns, notes, top_token=_top_token(seen))


def _saved_by_torch(path: Path, mapping: Mapping[str, str] | None) -> SourceFile:
    """Tensors, lists, numbers and texts; nothing that would have to be executed."""
    import torch

    try:
        tree = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise InputError(
            f"cannot be read: it holds objects other than tensors, lists, numbers and texts, which would have to be "
            f"executed ({_first_line(error)[:120]}); write its columns as parquet"
        ) from None
    rows = _rows_of(_plain(tree))
    if rows is None:
        raise InputError("holds no responses: must be a list of objects, or an object of lists, one entry a response")
    return _of_rows(path, rows, [f"sample {k}" for k in range(len(rows))], mapping, [])


def _with_known_types(body: bytes, columns: Mapping[str, str], peeked: Mapping[str, Any]) -> pa.Table | None:
    """Read by arrow where the first lines say all; ``None`` where values have to be looked at one by one."""
    types = {name: type_of(role, peeked[name]) for role, name in columns.items()}
    if any(kind is None for kind in types.values()):
        return None
    schema = pa.schema([pa.field(name, kind) for name, kind in types.items()])
    try:
        return pyarrow.json.read_json(
            pa.BufferReader(body),
            read_options=pyarrow.json.ReadOptions(block_size=min(_BLOCK_BYTES, max(len(body), 1))),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return None


def _of_rows(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    places: Sequence[str],
    mapping: Mapping[str, str] | None,
    notes: list[str],
) -> SourceFile:
    """From objects, one a response, each value looked at."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows:
        raise InputError("has no line: nothing to look at")
    columns = resolve(names, mapping)
    arrays: dict[str, Any] = {}
    for role, name in columns.items():
        found = _shaped(role, name, [row.get(name) for row in rows], notes, places.__getitem__, None)
        if found is not None:
            arrays[role] = found
    seen = {name: [row.get(name) for row in rows[:_PEEKED_LINES]] for name in names if _may_tell(name)}
    notes += _unused_masks(columns, seen)
    return _source(path, arrays, columns, notes, top_token=_top_token(seen))


def _shaped(
    role: str, name: str, values: Sequence[Any], notes: list[str], place: Callable[[int], str], kind: str | None
) -> pa.Array | None:
    """The column for its role; ``None``, and a note, where an optional one cannot be used."""
    called = repr(name) if name == role else f"{name!r} ({role})"
    try:
        return column(role, values)
    except ShapeError as error:
        if role in NEEDED or role == "mask":
            if kind is not None or isinstance(error.value, str):
                advice = (
                    ": lists that were written as text must be written as lists" if isinstance(error.value, str) else ""
                )
                raise InputError(
                    f"column {called} is {kind or 'string'}: must hold numbers, or lists of them{advice}"
                ) from None
            raise InputError(
                f"{place(error.row)}: column {name!r} is {error.value!r:.60}; must be {error.must}"
            ) from None
        notes.append(
            f"{called} was left out: in {place(error.row)} it is {error.value!r:.60}, and must be {error.must}; "
            f"--map {role}=<column> names another, --map {role}= none"
        )
        return None


def _source(
    path: Path,
    arrays: Mapping[str, Any],
    columns: Mapping[str, str],
    notes: Sequence[str],
    *,
    is_ours: bool = False,
    top_token: int | None,
) -> SourceFile:
    """Without roles that have no column that can be used, or nothing in it."""
    used = {
        role: values for role, values in arrays.items() if role in NEEDED or role == "mask" or not _is_empty(values)
    }
    if "reward" in arrays and "reward" not in used:
        notes = [*notes, f"{columns['reward']} is null for every response"]
    if is_list(used["policy_logp"].type):  # nothing has to say which response a token belongs to
        used.pop("response", None)
    table = pa.table(used)
    return SourceFile(path, table, {r: columns[r] for r in used}, is_ours, tuple(notes), top_token)


def _is_empty(values: Any) -> bool:
    return values.null_count == len(values)


TOKEN_IDS = ("token_ids", "tokens", "input_ids", "response_ids", "responses", "completion_ids", "output_ids")


def _may_tell(name: str) -> bool:
    """Whether a column that has no role may still tell something."""
    return name in TOKEN_IDS or "mask" in name


def _unused_masks(columns: Mapping[str, str], seen: Mapping[str, Sequence[Any]]) -> list[str]:
    """Columns of 0 and 1 that are called a mask, where no column is used as one."""
    if "mask" in columns:
        return []
    names = [
        name
        for name, values in seen.items()
        if "mask" in name and name not in columns.values() and (flat := _flat(values)) and set(flat) <= {0, 1}
    ]
    return [
        f"{name!r} holds 0 and 1 and is not used: if it tells the tokens that count, add --map mask={name}"
        for name in names
    ]


def _top_token(seen: Mapping[str, Sequence[Any]]) -> int | None:
    values = next((flat for name in TOKEN_IDS if (flat := _flat(seen.get(name, ())))), None)
    return None if values is None else int(max(values))


def _flat(values: Any) -> list[float]:
    """Numbers in nested lists; nothing where there is anything else, or no list of numbers."""
    out: list[float] = []
    for value in values:
        if isinstance(value, list | tuple):
            for x in _flat(value) if value and isinstance(value[0], list | tuple) else value:
                if not isinstance(x, int | float):
                    return []
                out.append(x)
    return out


def _whole_document(body: bytes) -> list[Mapping[str, Any]] | None:
    """The rows of a file that is one JSON value and not a line for each; ``None`` where it is not."""
    try:
        tree = json.loads(body)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    if isinstance(tree, list) or {"samples", "rollout_data"} & set(tree) or b"\n" in body.strip():
        return _rows_of(tree)
    return None


def _rows_of(tree: Any) -> list[Mapping[str, Any]] | None:
    """One object a response: a list of them, ``samples`` of an object, or an object of lists (``rollout_data``)."""
    if isinstance(tree, list):
        return tree if all(isinstance(row, dict) for row in tree) else None
    if not isinstance(tree, dict):
        return None
    of_all = {} if tree.get("rollout_id") is None else {"step": tree["rollout_id"]}  # slime: one file a rollout
    if isinstance(tree.get("samples"), list):
        rows = _rows_of(tree["samples"])
        return None if rows is None else [{**row, **of_all} for row in rows]
    inner = tree.get("rollout_data", tree)
    lists = {name: value for name, value in inner.items() if isinstance(value, list)}
    length = len(next((lists[name] for name in ("log_probs", "rollout_log_probs") if name in lists), []))
    length = length or max(map(len, lists.values()), default=0)
    chosen = {name: value for name, value in lists.items() if len(value) == length}
    return [{**{name: value[k] for name, value in chosen.items()}, **of_all} for k in range(length)] or None


def _plain(tree: Any) -> Any:
    """Tensors as lists."""
    if hasattr(tree, "tolist"):
        return tree.tolist()
    if isinstance(tree, Mapping):
        return {key: _plain(value) for key, value in tree.items()}
    return [_plain(value) for value in tree] if isinstance(tree, list | tuple) else tree


def _peek(body: bytes) -> dict[str, Any]:
    """A value of each key that the first lines have."""
    seen: dict[str, Any] = {}
    for count, (_, row) in enumerate(_objects(body)):
        if count == _PEEKED_LINES:
            break
        seen |= {key: value for key, value in row.items() if value not in (None, []) or key not in seen}
    if not seen:
        raise InputError("has no line: nothing to look at")
    return seen


def _objects(body: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line that is not blank, with its number from 1."""
    for number, line in enumerate(io.BytesIO(body), 1):
        if line.strip():
            yield number, _object(number, line.rstrip())


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


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return not line.strip()
    return True


def _numbered(path: Path) -> tuple[list[int], str]:
    return [int(n) for n in re.findall(r"\d+", str(path))], str(path)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
