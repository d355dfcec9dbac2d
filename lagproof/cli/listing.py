"""What ``lagproof objectives`` and ``lagproof tasks`` print."""

from __future__ import annotations

import json

from rich.console import Console

from lagproof import tasks
from lagproof.cli import tables
from lagproof.cli.tables import say
from lagproof.data.table import Column, Table, TableRow


def show_objectives(console: Console) -> None:
    """Every objective with its options."""
    from lagproof import objectives as rules  # here: torch, which the tables of tasks do without

    columns = [
        Column("name", align="left"),
        Column("options", align="left", wrap=True),
        Column("needs", align="left"),
        Column("what it protects against", align="left", wrap=True),
    ]
    rows = [
        TableRow(
            [
                e.name,
                " ".join(
                    f"{o.name}={'-' if o.default is None else o.default}" for o in e.options.values() if not o.shared
                ),
                ", ".join(name for name, needed in e.needs._asdict().items() if needed) or "policy",
                e.summary,
            ]
        )
        for e in rules.OBJECTIVES.values()
    ]
    tables.show(Table("", columns, [rows]), console)


def show_objective(name: str, console: Console) -> None:
    """The whole page of one objective.

    Raises:
        UnknownNameError: no such objective.
    """
    from lagproof import objectives as rules

    columns = [
        Column("option", align="left"),
        Column("default", align="left"),
        Column("allowed", align="left"),
        Column("meaning", align="left", wrap=True),
    ]
    rows = [
        TableRow([o.name, "none" if o.default is None else str(o.default), o.allowed, o.help])
        for o in rules.options(name)
    ]
    info = rules.OBJECTIVES[name]
    say(info.doc, console)
    for caveat in info.caveats:
        say(f"\nNote: {caveat}.", console)
    if rows:
        say("", console)
        tables.show(Table("", columns, [rows]), console)


def show_tasks(console: Console) -> None:
    """Every task in a line."""
    columns = [Column("name", align="left"), Column("problems", align="left", wrap=True)]
    rows = [TableRow([name, info.summary]) for name, info in tasks.TASKS.items()]
    tables.show(Table("", columns, [rows]), console)


def show_options(name: str, console: Console) -> None:
    """The options of one task with their defaults.

    Raises:
        UnknownNameError: no such task.
    """
    columns = [
        Column("option", align="left"),
        Column("default", align="left"),
        Column("meaning", align="left", wrap=True),
    ]
    rows = [
        TableRow([option, "" if default is None else json.dumps(default), text])
        for option, default, text in tasks.options(name)
    ]
    tables.show(Table("", columns, [rows], caption=f"{name}: {tasks.TASKS[name].summary}"), console)
