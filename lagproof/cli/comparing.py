"""``lagproof whatif``: objectives on the same tokens, as a table and as a page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from lagproof.cli.commands import run_whatif
from lagproof.dumps.whatif import WhatIf


def compare_objectives(
    path: Path,
    objectives: str | None,
    mapping: Mapping[str, str] | None,
    *,
    present: str | None,
    as_json: bool,
    out: Path | None,
) -> int:
    """Print what was found, and write the page where one is wanted; the exit code.

    Raises:
        RunDirError: the page cannot be written.
    """
    command = shlex.join(["lagproof", *sys.argv[1:]])

    def page(found: WhatIf) -> Path:
        from lagproof.report import write_whatif  # here: a second that only drawing needs

        assert out is not None
        return write_whatif(found, out, command=command)

    names = None if objectives is None else objectives.split(",")
    write = None if out is None else page
    return run_whatif(path, names, mapping, present=present, as_json=as_json, page=write)
