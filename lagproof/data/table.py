"""A table of numbers and words that knows nothing of where it is shown: a terminal (``cli/``) or a page (``report/``).

Rooms that have results return these; nobody below ``cli`` and ``report`` lays out text. Imports nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

NOTHING = "-"
"""What stands where there is no value."""


class Style(StrEnum):
    """What a row or a cell means; the terminal and the page choose its look."""

    GOOD = "good"
    BAD = "bad"
    MUTED = "muted"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        heading: above it.
        align: ``right`` for numbers, ``left`` for words.
        format: of the numbers in it, as ``format(value, ...)`` takes it; text stands as it is.
        help: what the heading means, in a sentence.
        wrap: whether long values may take several lines.
        group: columns of the same group stand under this heading together. A narrow place shows each group as a table
            of its own, with the columns of no group (the names) in all of them.
        detail: left out where there is little room.
    """

    heading: str
    align: Literal["left", "right"] = "right"
    format: str = ""
    help: str = ""
    wrap: bool = False
    group: str = ""
    detail: bool = False

    def text(self, value: str | float | None) -> str:
        """A value as it is shown in this column."""
        if value is None:
            return NOTHING
        return value if isinstance(value, str) else format(value, self.format)


@dataclass(frozen=True)
class TableCell:
    """A value with a meaning.

    Attributes:
        value: a number, text, or ``None`` where there is nothing.
        style: what it means.
        share: in [-1, 1], for a tint by its size; the sign chooses the colour.
    """

    value: str | float | None
    style: Style | None = None
    share: float | None = None


Value = TableCell | str | float | None


@dataclass(frozen=True)
class TableRow:
    """One value a column, the first being the name of the row, and what all of it means."""

    values: Sequence[Value]
    style: Style | None = None

    @property
    def cells(self) -> list[TableCell]:
        """The values as cells."""
        return [value if isinstance(value, TableCell) else TableCell(value) for value in self.values]


@dataclass(frozen=True)
class Table:
    """Rows in sections under headings.

    Attributes:
        title: heading; may be empty.
        columns: from left to right.
        sections: rows that belong together, from top to bottom.
        caption: what a reader has to know before.
        notes: what a reader has to know after, a sentence each.
    """

    title: str
    columns: Sequence[Column]
    sections: Sequence[Sequence[TableRow]]
    caption: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row.values) == len(self.columns), (self.title, len(row.values), len(self.columns))

    @property
    def rows(self) -> Iterator[TableRow]:
        """Every row."""
        return (row for section in self.sections for row in section)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Each group of columns that stand together, with how many; nothing where no column has a group."""
        runs: list[tuple[str, int]] = []
        for column in self.columns:
            if runs and runs[-1][0] == column.group:
                runs[-1] = (column.group, runs[-1][1] + 1)
            else:
                runs.append((column.group, 1))
        return runs if any(group for group, _ in runs) else []

    def narrow(self) -> list[Table]:
        """One table a group of columns, without details, titled by the group; caption first, notes last."""
        names = list(dict.fromkeys(column.group for column in self.columns if column.group)) or [""]
        parts = [
            self._only([c.group in ("", name) and not c.detail for c in self.columns], name or self.title)
            for name in names
        ]
        parts[0] = replace(parts[0], caption=self.caption)
        parts[-1] = replace(parts[-1], notes=self.notes)
        return parts

    def _only(self, chosen: Sequence[bool], title: str) -> Table:
        columns = [column for column, keep in zip(self.columns, chosen, strict=True) if keep]
        sections = [
            [TableRow([v for v, keep in zip(row.values, chosen, strict=True) if keep], row.style) for row in section]
            for section in self.sections
        ]
        return Table(title, columns, sections)
