"""Tables in a terminal: plain, eighty columns, and what is in a cell is text."""

from __future__ import annotations

import io

from rich.console import Console

from lagproof.cli.tables import show
from lagproof.data.table import Column, Style, Table, TableCell, TableRow


def printed(table: Table, *, terminal: bool = False) -> list[str]:
    text = io.StringIO()
    show(table, Console(file=text, width=80, force_terminal=terminal, color_system="standard" if terminal else None))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_sections_stand_apart_below_a_rule() -> None:
    columns = [Column("name", align="left"), Column("[n]", format=".2f")]
    table = Table(
        "T", columns, [[TableRow(["[a]", 1.0])], [TableRow(["bb", None])]], caption="Above.", notes=["Below."]
    )
    assert [line.replace("-", "").rstrip() for line in printed(table)] == [
        "T",
        "Above.",
        "name   [n]",
        "",
        "[a]   1.00",
        "",
        "bb",
        "",
        "Below.",
    ]
    assert printed(table)[3].startswith("-----") and printed(table)[6].split() == ["bb", "-"]


def test_long_words_are_folded_where_they_may_be() -> None:
    name = "x" * 60 + "y" * 60
    table = Table("", [Column("name", align="left", wrap=True), Column("n")], [[TableRow([name, 12345])]])
    lines = printed(table)
    assert max(map(len, lines)) <= 80 and "".join(line.split()[0] for line in lines[2:-1]) == name
    assert lines[2].endswith("12345")


def test_a_row_that_is_bad_stands_out_in_a_terminal_only() -> None:
    table = Table("", [Column("n")], [[TableRow([1], Style.BAD)], [TableRow([TableCell(2, Style.MUTED)])]])
    shown = "\n".join(printed(table, terminal=True))
    assert "\x1b[1;31m" in shown and "\x1b[2m" in shown
    assert "\x1b" not in "\n".join(printed(table))
