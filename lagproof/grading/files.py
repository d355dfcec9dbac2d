"""Grade a file of answers: what ``lagproof grade`` does. Imports no torch."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from lagproof.errors import InputError
from lagproof.grading.extract import Form
from lagproof.grading.grader import Grader
from lagproof.grading.pool import Limits
from lagproof.grading.rows import FileRow, at, file_rows, has, plain
from lagproof.runs.files import replacing, writing

_BATCH = 32


def grade_file(
    path_in: str | Path,
    path_out: str | Path | TextIO,
    *,
    form: Form = Form.BOXED,
    limits: Limits | None = None,
    answer_column: str = "answer",
    gold_column: str = "gold",
    on_progress: Callable[[int], None] = lambda done: None,
) -> Counter[str]:
    """Read rows with an answer and a gold, write them with ``reward`` and ``reason``; count the reasons.

    Args:
        path_in: JSON Lines or parquet.
        path_out: JSON Lines file, written whole or not at all, or an open stream. A reward is null where the gold
            cannot be read.
        form: how the answers are marked.
        limits: of one answer.
        answer_column, gold_column: dotted paths.
        on_progress: called with the number of answers graded.

    Raises:
        InputError: a file or a row that cannot be used, with its line.
        RunDirError: the output cannot be written.
    """
    if not Path(path_in).exists():
        raise InputError(f"{path_in}: no such file; name a .jsonl or .parquet file")
    if isinstance(path_out, str | Path) and Path(path_out).is_dir():
        raise InputError(f"{path_out}: is a folder; name the file to be written, for example {path_out}/graded.jsonl")
    if Path(path_in).is_dir():
        raise InputError(f"{path_in}: is a folder; name one .jsonl or .parquet file in it")
    if isinstance(path_out, str | Path) and Path(path_out).suffix == ".parquet":
        raise InputError(f"{path_out}: JSON Lines are written, not parquet; name the file .jsonl")
    found = file_rows(Path(path_in))
    with Grader(form, limits) as grader:
        graded = graded_rows(found, grader, answer_column, gold_column)
        if not isinstance(path_out, str | Path):
            _write(graded, path_out, on_progress)
        else:
            file = Path(path_out)
            with writing(file):
                file.parent.mkdir(parents=True, exist_ok=True)
                with replacing(file) as beside, beside.open("w", encoding="utf-8") as stream:
                    _write(graded, stream, on_progress)
        return grader.counts


def graded_rows(
    found: Iterable[FileRow], grader: Grader, answer_column: str = "answer", gold_column: str = "gold"
) -> Iterator[dict[str, Any]]:
    """Rows with ``reward`` and ``reason``, in order."""
    for batch in _batches(found):
        pairs = [(_text(row, gold_column), _text(row, answer_column)) for row in batch]
        for row, grade in zip(batch, grader.grade(pairs), strict=True):
            reward = None if math.isnan(grade.reward) else grade.reward
            yield {**row.values, "reward": reward, "reason": grade.reason}


def _batches(found: Iterable[FileRow]) -> Iterator[list[FileRow]]:
    batch: list[FileRow] = []
    for row in found:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _write(graded: Iterable[Mapping[str, Any]], stream: TextIO, on_progress: Callable[[int], None]) -> None:
    for number, row in enumerate(graded, start=1):
        stream.write(_line(row, stream.encoding or "utf-8") + "\n")
        on_progress(number)


def _line(row: Mapping[str, Any], encoding: str) -> str:
    """A row as JSON that any reader takes: null for a number that is not finite, escapes for what has no encoding."""
    try:
        text = json.dumps(row, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        row = _finite(row)
        text = json.dumps(row, ensure_ascii=False, default=str, allow_nan=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:  # half of a surrogate pair, or a terminal that knows few characters
        return json.dumps(row, default=str, allow_nan=False)
    return text


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
        case _:
            return value


def _text(row: FileRow, column: str) -> str:
    """A value as text: an empty one where it is null, since a missing answer is graded too."""
    path = column.split(".")
    if not has(row.values, path):
        inside = f", and {path[0]} is {row.values[path[0]]!r:.80}" if path[0] in row.values else ""
        raise InputError(f"{row.where}: no column {column!r}; the row has {', '.join(row.values) or 'none'}{inside}")
    value = plain(at(row.values, path))
    if isinstance(value, bool | list | dict):
        raise InputError(f"{row.where}: {column} is {value!r:.80}; must be text, a number, or a list of one")
    return "" if value is None or value != value else str(value)  # NaN is a missing one too
