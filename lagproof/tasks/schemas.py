"""What the columns of a published data set mean. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lagproof.errors import InputError
from lagproof.grading.extract import last_box
from lagproof.grading.golds import is_missing, written_once
from lagproof.grading.rows import FileRow, at, has, plain

log = logging.getLogger(__name__)

QUESTIONS = ("problem", "question", "Problem", "Question", "prompt", "query")
GOLDS = ("answer", "Answer", "ground_truth", "gold", "final_answer", "solution", "Solution")
IDS = ("id", "ID", "problem_id", "unique_id", "custom_id")


@dataclass(frozen=True)
class Columns:
    """Which columns to read, as dotted paths (``reward_model.ground_truth``); ``None`` looks for the usual names."""

    question: str | None = None
    gold: str | None = None
    id: str | None = None


@dataclass(frozen=True)
class Item:
    """A problem as the data set has it.

    Attributes:
        id: unique in the data set.
        question: text, or chat messages.
        gold: the right answer, as text.
        where: for messages.
    """

    id: str
    question: str | Sequence[Mapping[str, str]]
    gold: str
    where: str


@dataclass(frozen=True)
class Schema:
    """How a data set is laid out.

    Attributes:
        name: of the data set; ids that are missing are made of it.
        columns: where a row has what.
        unique: whether rows with the same id are one problem.
        gold_of: takes the right answer out of the gold column.
        published: a name under which it can be fetched, for messages.
    """

    name: str
    columns: Columns = Columns()
    unique: bool = False
    gold_of: Callable[[str], str] = str.strip
    published: str | None = None


def unique_column(schema: Schema, columns: Columns) -> Sequence[str]:
    """Path of the column of which only the first row with each value counts; empty where every row counts."""
    column = columns.id or schema.columns.id
    return column.split(".") if schema.unique and column else ()


def after_hashes(solution: str) -> str:
    """The answer of a GSM8K solution: what follows the last ``####``; the text itself where there is none."""
    return solution.rpartition("####")[2].strip()


def boxed_or_whole(solution: str) -> str:
    """The answer of a MATH solution: its last box; the text itself where there is none."""
    return (last_box(solution) or "") if "\\boxed" in solution or "\\fbox" in solution else solution.strip()


def of_any_solution(solution: str) -> str:
    """The answer of a solution as GSM8K or MATH write it: its last box; else what follows the last ``####``."""
    boxed = "\\boxed" in solution or "\\fbox" in solution
    return boxed_or_whole(solution) if boxed else after_hashes(solution)


SCHEMAS = {
    schema.name: schema
    for schema in (
        Schema("gsm8k", Columns("question", "answer"), gold_of=after_hashes, published="openai/gsm8k"),
        Schema("math", gold_of=boxed_or_whole, published="HuggingFaceH4/MATH-500"),
        Schema("aime", gold_of=boxed_or_whole, published="HuggingFaceH4/aime_2024"),
        Schema("amc", gold_of=boxed_or_whole, published="math-ai/amc23"),
        Schema(
            "dapo-math-17k",
            Columns("prompt", "reward_model.ground_truth", "extra_info.index"),
            unique=True,
            published="BytedTsinghua-SIA/DAPO-Math-17k",
        ),
        Schema(
            "dolci-rl-zero-math",
            Columns("messages", "ground_truth"),
            gold_of=boxed_or_whole,
            published="allenai/Dolci-RL-Zero-Math-7B",
        ),
        Schema("jsonl", gold_of=of_any_solution),
        Schema("parquet", gold_of=of_any_solution),
    )
}


def items(rows: Sequence[FileRow], schema: Schema, columns: Columns) -> list[Item]:
    """Rows as problems.

    Args:
        rows: of one split.
        schema: how the data set is laid out.
        columns: chosen by the user; they come before those of the schema.

    Raises:
        InputError: a missing column, an empty question or gold, a value of the wrong kind, or an id that occurs twice.
    """
    out: list[Item] = []
    seen: dict[str, str] = {}
    missing: list[str] = []
    for number, row in enumerate(rows):
        question = _question(_value(row, columns.question, schema.columns.question or QUESTIONS, "question"), row)
        written = written_once(_gold(_value(row, columns.gold, schema.columns.gold or GOLDS, "gold"), row))
        gold = schema.gold_of(written)
        if is_missing(gold):
            missing.append(row.where)
            continue
        if "####" in gold:
            raise InputError(
                f"{row.where}: the right answer is a whole solution with '####', as GSM8K has it; name the task "
                "'gsm8k' (lagproof eval: a label of that name), or 'jsonl', which takes what follows '####'"
            )
        if not gold:
            raise InputError(f"{row.where}: the right answer is empty; correct the row or take it out")
        identity = _id(row, columns.id or schema.columns.id)
        item = Item(f"{schema.name}-{number}" if identity is None else identity, question, gold, row.where)
        if item.id in seen:
            raise InputError(
                f"{row.where}: id {item.id!r} again, as in {seen[item.id]}; ids must be unique, "
                "because samples are grouped by them: take one row out or choose another task.id_column"
            )
        seen[item.id] = row.where
        out.append(item)
    if missing:
        log.warning(
            "%d of %d problems are left out, since their right answer is a word for none, such as 'proof': first %s",
            *(len(missing), len(rows), missing[0]),
        )
    return out


def digest(found: Sequence[Item]) -> str:
    """Of every id, question and right answer, in order."""
    whole = hashlib.sha256()
    for item in found:
        whole.update(json.dumps([item.id, item.question, item.gold]).encode() + b"\n")
    return whole.hexdigest()[:32]


def _value(row: FileRow, chosen: str | None, usual: str | Sequence[str], role: str) -> Any:
    looked_for = chosen or usual
    names = (looked_for,) if isinstance(looked_for, str) else looked_for
    for name in names:
        value = at(row.values, name.split("."))
        if value is not None:
            return value
    if empty := [name for name in names if has(row.values, name.split("."))]:
        raise InputError(
            f"{row.where}: {empty[0]} is null; correct the row, take it out, or choose another task.{role}_column"
        )
    raise InputError(
        f"{row.where}: no {role} column: looked for {', '.join(names)}, the row has {', '.join(row.values)}; "
        f"set task.{role}_column{'' if chosen else _of_another_schema(row)}"
    )


def _of_another_schema(row: FileRow) -> str:
    """The data set that a row looks like, for messages."""
    for schema in SCHEMAS.values():
        named = [c.split(".") for c in (schema.columns.question, schema.columns.gold) if c is not None]
        if named and all(at(row.values, path) is not None for path in named):
            return f", or name the task {schema.name!r}, whose columns these are (lagproof eval: a label of that name)"
    if all(any(name in row.values for name in usual) for usual in (QUESTIONS, GOLDS)):
        return ", or name the task 'jsonl', which knows these columns (lagproof eval: a label of your own)"
    return ""


def _question(value: Any, row: FileRow) -> str | Sequence[Mapping[str, str]]:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list) and value and all(_is_message(message) for message in value):
        return [{"role": message["role"], "content": _content(message) or ""} for message in value]
    raise InputError(
        f"{row.where}: the question is {value!r:.80}; must be text, or a list of chat messages, each with role and "
        "content as text"
    )


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("role"), str) and _content(value) is not None


def _content(message: Mapping[str, Any]) -> str | None:
    """The text of a message, also where it is in parts (``[{"type": "text", "text": ...}]``); ``None`` for others."""
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(p, Mapping) and isinstance(p.get("text"), str) for p in content):
        return "".join(part["text"] for part in content)
    return content if isinstance(content, str) else None


def _gold(value: Any, row: FileRow) -> str:
    value = plain(value)
    if isinstance(value, float) and math.isnan(value):
        raise InputError(f"{row.where}: the right answer is NaN, so it is missing; correct the row or take it out")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{row.where}: the right answer is {value!r:.80}; must be text or a number")
    return str(value)


def _id(row: FileRow, column: str | None) -> str | None:
    if column:
        value = at(row.values, column.split("."))
        if value is None:
            raise InputError(
                f"{row.where}: no id column {column!r}; the row has {', '.join(row.values)}; "
                "set task.id_column to one that tells problems apart"
            )
        return str(value)
    return next((str(row.values[name]) for name in IDS if row.values.get(name) is not None), None)
