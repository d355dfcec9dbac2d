"""Tables as data: what stands in a cell, and how a wide one becomes several narrow ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lagproof.data.table import Column, Style, Table, TableCell, TableRow

WIDE = Table(
    "Results",
    [
        Column("name", align="left"),
        Column("accuracy", format=".3f", group="Accuracy"),
        Column("min", format=".2f", group="Accuracy"),
        Column("d_bar", format=".4f", group="Mismatch"),
        Column("reduction", align="left", group="Mismatch", detail=True),
    ],
    [
        [TableRow(["a", 0.5, None, 0.25, "token"], Style.BAD)],
        [TableRow(["b", 1, TableCell("[x]", share=0.5), 2.0, "none"])],
    ],
    caption="First.",
    notes=["Last."],
)


@pytest.mark.parametrize(("value", "text"), [(0.12345, "0.123"), (None, "-"), ("[1, 2]", "[1, 2]"), (1, "1.000")])
def test_a_value_as_text(value: float | str | None, text: str) -> None:
    assert Column("x", format=".3f").text(value) == text


def test_a_whole_number_stays_whole_without_a_format() -> None:
    assert Column("x").text(3) == "3"


def test_groups_of_columns() -> None:
    assert WIDE.groups == [("", 1), ("Accuracy", 2), ("Mismatch", 2)]
    assert Table("x", [Column("a"), Column("b")], []).groups == []


def test_a_narrow_place_has_a_table_for_each_group() -> None:
    first, second = WIDE.narrow()
    assert (first.title, second.title) == ("Accuracy", "Mismatch")
    assert [c.heading for c in first.columns] == ["name", "accuracy", "min"]
    assert [c.heading for c in second.columns] == ["name", "d_bar"]
    assert [list(row.values) for row in second.rows] == [["a", 0.25], ["b", 2.0]]
    assert [row.style for row in first.rows] == [Style.BAD, None]
    assert len(first.sections) == 2
    assert (first.caption, first.notes) == ("First.", ()) and (second.caption, second.notes) == ("", ["Last."])


def test_a_table_without_groups_only_loses_its_details() -> None:
    plain = Table("T", [Column("a"), Column("b", detail=True)], [[TableRow([1, 2])]], "caption", ["note"])
    (only,) = plain.narrow()
    assert (only.title, only.caption, only.notes) == ("T", "caption", ["note"])
    assert [list(row.values) for row in only.rows] == [[1]]


def test_a_row_has_a_value_for_each_column() -> None:
    with pytest.raises(AssertionError):
        Table("x", [Column("a")], [[TableRow([1, 2])]])


def test_it_imports_nothing_heavy() -> None:
    code = "import sys, lagproof.data.table; sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'rich')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
