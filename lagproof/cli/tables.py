"""Tables in a terminal: eighty columns, and plain where they are piped."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

import rich.table
from rich import box
from rich.console import Console
from rich.text import Text

from lagproof.data.table import Style, Table, TableRow

PLAIN = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""A rule below the headings and an empty line between sections: the same on a terminal and in a file."""

STYLES = {Style.GOOD: "green", Style.BAD: "bold red", Style.MUTED: "dim"}


def show(table: Table, console: Console) -> None:
    """Print a table: a wide one as one for each group of its columns; an empty line after each."""
    for part in table.narrow():
        if part.title:
            console.print(Text(part.title, style="bold"))
        if part.caption:
            console.print(Text(wrapped(part.caption, console), style="dim"))
        console.print(_rendered(part), "")
    show_notes(table.notes, console)


def show_notes(notes: Iterable[str], console: Console) -> None:
    """Print sentences that few have to read."""
    for note in notes:
        console.print(note, markup=False, highlight=False, style="dim")


def show_list(title: str, sentences: Iterable[str], console: Console) -> None:
    """Print sentences under a title and an empty line after them; nothing where there is none."""
    listed = list(sentences)
    if not listed:
        return
    console.print(Text(title, style="bold"))
    for sentence in listed:
        console.print(Text(wrapped(f"  - {sentence}", console, 4)))
    console.print("")


def say(text: str, console: Console, style: str | None = None) -> None:
    """Print one line as it is, however long: a path in it can be copied."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def wrapped(text: str, console: Console, indent: int = 0) -> str:
    """``text`` over as many lines as the console needs."""
    return textwrap.fill(text, console.width, subsequent_indent=" " * indent, break_on_hyphens=False)


def _rendered(table: Table) -> rich.table.Table:
    out = rich.table.Table(box=PLAIN, padding=(0, 1, 0, 0), show_edge=False)
    for column in table.columns:
        out.add_column(Text(column.heading), justify=column.align, no_wrap=not column.wrap, overflow="fold")
    for section in table.sections:
        if out.row_count:
            out.add_section()
        for row in section:
            out.add_row(*_texts(table, row), style=STYLES[row.style] if row.style else None)
    return out


def _texts(table: Table, row: TableRow) -> Iterator[Text]:
    for column, cell in zip(table.columns, row.cells, strict=True):
        # what a row means stands out; a cell's own meaning counts in rows without one
        own = STYLES[cell.style] if cell.style and not row.style else ""
        yield Text(column.text(cell.value), style=own)
