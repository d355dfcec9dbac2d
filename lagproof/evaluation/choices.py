"""Which tasks an evaluation is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lagproof import tasks
from lagproof.errors import DataChoiceError, InputError, UnknownNameError
from lagproof.grading.rows import SUFFIXES
from lagproof.tasks.task import Task

_LABEL = re.compile(r"[^\W_][\w.-]*")


@dataclass(frozen=True)
class TaskChoice:
    """A task to evaluate on: its label, its name in the table, and its options."""

    label: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


def parse_tasks(texts: Sequence[str], options: Mapping[str, Any] | None = None) -> list[TaskChoice]:
    """``aime24=FILE``, ``gsm8k=FOLDER``, ``mine=FILE`` or ``arithmetic``.

    The label picks the task of the table that it begins with (``aime24``: ``aime``) or that begins with it (``dapo``),
    case aside; any other label reads the file by its usual columns. All of a file is evaluated on; of a folder, its
    split ``test``.

    Args:
        texts: what was typed.
        options: further options; each goes to the tasks that have it.

    Raises:
        InputError: a label without its file, a file without its label, or a label that cannot name a folder.
        UnknownNameError: a task without a file that is not in the table, or an option that no task has.
    """
    choices = [_parse_task(text) for text in texts]
    known = {choice.label: [name for name, _, _ in tasks.options(choice.name)] for choice in choices}
    for key in options or {}:
        if not any(key in names for names in known.values()):
            raise UnknownNameError("task option", key, sorted({name for names in known.values() for name in names}))
    shared = options or {}
    return [
        TaskChoice(c.label, c.name, {**c.options, **{k: v for k, v in shared.items() if k in known[c.label]}})
        for c in choices
    ]


def build(choice: TaskChoice) -> Task:
    """The task of a choice; what is wrong with its data is said in the words of the command line.

    Raises:
        ConfigError: an option of the wrong type or value.
        InputError: a data set that cannot be used.
    """
    try:
        return tasks.build(choice.name, choice.options)
    except DataChoiceError as error:
        first = next(iter(error.allowed), "NAME")
        advice = {
            "path": f"on this command line --task {choice.label}=FILE, or {choice.label}=NAME",
            "split": f"add --set eval_split={first}",
            "subset": f"choose one, for example --set subset={first}",
        }
        raise DataChoiceError(f"{error}; {advice[error.option]}", error.option, error.allowed) from error


def _parse_task(text: str) -> TaskChoice:
    label, separator, path = (part.strip() for part in text.partition("="))
    lower = label.lower()
    if not separator:
        if lower not in tasks.TASKS and _is_place(label):
            raise InputError(
                f"--task {text}: no task of that name; for a file, a folder or a Hugging Face data set give "
                f"LABEL=NAME, for example {_suggested(label)}={label}"
            )
        return TaskChoice(label, lower)
    if not _LABEL.fullmatch(label):
        raise InputError(
            f"--task {text}: the label {label!r} cannot name a folder; must be letters, digits and _ . - , beginning "
            f"with a letter or a digit, for example {_suggested(path)}={path or 'FILE'}"
        )
    if not path:
        raise InputError(f"--task {text}: no file after the sign; must be LABEL=FILE, for example aime24=aime24.jsonl")
    if lower == "reasoning-gym":
        return TaskChoice(path, lower, {"generator": path})
    begins = [name for name in tasks.TASKS if lower.startswith(name)]
    begun = [name for name in tasks.TASKS if len(label) >= 3 and name.startswith(lower)]
    name = max(begins, key=len) if begins else begun[0] if len(begun) == 1 else "jsonl"
    return TaskChoice(label, name, {"eval_path": path, "label": label})


def _is_place(text: str) -> bool:
    return "/" in text or text.endswith(SUFFIXES) or (text != "" and Path(text).exists())


def _suggested(path: str) -> str:
    """A label for a file, a folder or a Hugging Face name: the end of it, as far as a label may be so."""
    found = _LABEL.search(Path(path).name.removesuffix(Path(path).suffix if path.endswith(SUFFIXES) else ""))
    return found[0] if found else "mine"
