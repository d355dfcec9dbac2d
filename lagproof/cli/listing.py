"""What ``lagproof objectives`` and ``lagproof tasks`` print."""

from __future__ import annotations

import json

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lagproof import objectives as rules
from lagproof import tasks


def show_objectives(console: Console) -> None:
    """Every objective with its options."""
    table = Table("name", "options", "needs", "what it protects against", box=box.SIMPLE)
    for e in rules.OBJECTIVES.values():
        options = " ".join(f"{k}={'-' if v is None else v}" for k, v in e.options.items())
        table.add_row(e.name, options, "sampler" if e.needs_sampler_logp else "policy", e.summary)
    console.print(table)


def show_objective(name: str) -> None:
    """The whole page of one objective.

    Raises:
        UnknownNameError: no such objective.
    """
    rules.defaults(name)
    print(next(entry.doc for entry in rules.OBJECTIVES.values() if entry.name == name))


def show_tasks(console: Console) -> None:
    """Every task in a line."""
    table = Table("name", "problems", box=box.SIMPLE)
    for name, entry in tasks.TASKS.items():
        table.add_row(name, escape(entry.summary))
    console.print(table)


def show_options(name: str, console: Console) -> None:
    """The options of one task with their defaults.

    Raises:
        UnknownNameError: no such task.
    """
    table = Table("option", "default", "meaning", box=box.SIMPLE)
    for option, default, text in tasks.options(name):
        table.add_row(option, "" if default is None else escape(json.dumps(default)), escape(text))
    console.print(f"{name}: {tasks.TASKS[name].summary}", highlight=False, markup=False)
    console.print(table)
