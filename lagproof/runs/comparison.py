"""The directory of a comparison: many runs, what they share, and the table of them.

::

    compare.toml                     the grid
    cells/<label>-lag<k>-seed<s>/    a run each, see ``layout.py``
    logs/<label>-lag<k>-seed<s>.log  what it printed; no file where it printed nothing
    table.json                       every number
    report.html                      the page
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagproof.errors import RunDirError
from lagproof.runs.files import read_toml, write_json, write_text, writing
from lagproof.runs.layout import is_run

ELSEWHERE = "make room, fix its permissions, or choose another with --out"


@dataclass(frozen=True)
class ComparisonDir:
    """The paths and files of a comparison.

    Attributes:
        path: its directory; it need not exist.
    """

    path: Path

    @property
    def exists(self) -> bool:
        """Whether it holds a comparison."""
        return self.grid_file.is_file()

    @property
    def grid_file(self) -> Path:
        return self.path / "compare.toml"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def cells(self) -> Path:
        return self.path / "cells"

    def cell(self, name: str) -> Path:
        """The run directory of a cell."""
        return self.cells / name

    def has_run(self, name: str) -> bool:
        """Whether a cell has started."""
        return is_run(self.cell(name))

    def clear(self, name: str) -> None:
        """Take away empty folders of a cell, of a process that was killed before its first file."""
        where = self.cell(name)
        if where.is_dir() and not any(p.is_file() for p in where.rglob("*")):
            shutil.rmtree(where)

    def read_grid(self) -> dict[str, Any]:
        """The tables of the grid.

        Raises:
            RunDirError: no comparison there, or a grid that cannot be read.
        """
        if not self.exists:
            raise RunDirError(f"{self.path}: is not a comparison (it has no {self.grid_file.name}); check the path")
        return read_toml(self.grid_file)

    def check_free(self) -> None:
        """Refuse a place that holds anything else.

        Raises:
            RunDirError: it does.
        """
        path = self.path
        if path.exists() and (not path.is_dir() or any(p.is_file() and p.name[0] != "." for p in path.rglob("*"))):
            raise RunDirError(f"{path}: exists already and is not a comparison; choose another directory with --out")

    def write_grid(self, toml: str) -> None:
        """Make the directory, or replace its grid.

        Raises:
            RunDirError: it cannot be written.
        """
        with writing(self.path, ELSEWHERE):
            self.cell("").mkdir(parents=True, exist_ok=True)
            self.logs.mkdir(exist_ok=True)
            write_text(toml, self.grid_file)

    def write_table(self, table: Mapping[str, Any]) -> Path:
        """Every number.

        Raises:
            RunDirError: it cannot be written.
        """
        file = self.path / "table.json"
        with writing(file, ELSEWHERE):
            write_json(table, file)
        return file
