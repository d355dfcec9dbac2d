"""The table of tasks: what the ``[task]`` section of a configuration can name. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lagproof.config import from_dict, to_dict
from lagproof.errors import UnknownNameError
from lagproof.tasks.arithmetic import ArithmeticTask
from lagproof.tasks.task import Task


@dataclass(frozen=True)
class Entry:
    """A line of the table.

    Attributes:
        options: dataclass whose fields are the options, each with its default.
        build: makes the task from an instance of it.
        summary: one line for ``--help``.
    """

    options: type
    build: Callable[[Any], Task]
    summary: str


TASKS: Mapping[str, Entry] = {
    "arithmetic": Entry(ArithmeticTask, lambda task: task, "sums of one-digit terms, for the tiny models"),
}


def build(name: str, options: Mapping[str, Any] | None = None) -> Task:
    """The task ``name`` with ``options``.

    Raises:
        UnknownNameError: no such task, or no such option (named ``task.<option>``).
        ConfigError: an option of the wrong type or value.
        InputError: a data set that cannot be used.
    """
    return _entry(name).build(from_dict(_entry(name).options, options or {}, prefix="task."))


def options(name: str) -> list[tuple[str, Any, str]]:
    """Options of a task: name, default, help."""
    entry = _entry(name)
    return [
        (f.name, getattr(entry.options(), f.name), f.metadata.get("help", ""))
        for f in dataclasses.fields(entry.options)
    ]


def resolve(name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options of a task with every default filled in, as plain TOML values; absent ones are left out."""
    return to_dict(from_dict(_entry(name).options, options or {}, prefix="task."))


def _entry(name: str) -> Entry:
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return TASKS[name]
