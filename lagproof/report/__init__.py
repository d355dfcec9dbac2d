"""A run, a comparison or a ``whatif`` as one self-contained HTML page that works offline."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from lagproof.dumps.whatif import WhatIf
from lagproof.errors import RunDirError
from lagproof.experiments.comparison import Comparison, is_comparison, pooled, read_comparison
from lagproof.report.comparison_page import of_comparison, of_runs
from lagproof.report.page import save
from lagproof.report.plan_page import of_plan
from lagproof.report.run_page import of_run
from lagproof.report.whatif_page import of_whatif
from lagproof.runs.evaluation import is_evaluation, result_file
from lagproof.runs.run import Run
from lagproof.runtime.clock.planner import Plans

__all__ = ["write", "write_comparison", "write_report", "write_whatif"]

FILE = "report.html"


def write(sources: Sequence[Path], out: Path | None = None, *, command: str | None = None) -> Path:
    """Write the page of a run, of a comparison, or of several runs side by side.

    Args:
        sources: run directories, or directories of comparisons.
        out: the file; ``report.html`` inside the only source, or in the current directory for several.
        command: what made the data, for the page; read from the comparison if absent.

    Returns:
        The file that was written.

    Raises:
        RunDirError: a source that is neither, or a page that cannot be written.
    """
    if not sources:
        raise RunDirError("nothing to report on: name a run directory or the directory of a comparison")
    if len(sources) == 1:
        (source,) = sources
        out = out or source / FILE
        if is_comparison(source):
            return write_comparison(read_comparison(source), out, command=command)
        return write_report([_run(source)], out, command=command)
    runs: list[Run] = []
    for source in sources:
        runs += read_comparison(source).runs if is_comparison(source) else [_run(source)]
    return write_report(pooled(runs), out or Path(FILE), command=command)


def _run(source: Path) -> Run:
    if is_evaluation(source):
        raise RunDirError(
            f"{source}: is an evaluation, which has no page; its numbers are in {result_file(source)}, and the same "
            "lagproof eval command prints its table again without sampling"
        )
    return Run.open(source)


def write_comparison(comparison: Comparison, out: Path | None = None, *, command: str | None = None) -> Path:
    """Write the page of a comparison as it stands; ``report.html`` in its directory if no file is named."""
    return save(of_comparison(comparison, command), out or comparison.path / FILE)


def write_report(runs: Sequence[Run], path: Path, title: str | None = None, *, command: str | None = None) -> Path:
    """Write the page of one run, or of several side by side.

    Args:
        runs: see :meth:`lagproof.runs.run.Run.open`; several have labels that tell them apart.
        path: the file.
        title: heading; made from the runs if absent.
        command: what made the data, for a shell.
    """
    return save(of_run(runs[0], title, command) if len(runs) == 1 else of_runs(runs, title, command), path)


def write_plan(found: Plans, out: Path, *, command: str) -> Path:
    """Write the page of schedules side by side.

    Args:
        found: see :func:`lagproof.runtime.clock.planner.plan`.
        out: the file.
        command: what made it, for a shell.

    Raises:
        RunDirError: it cannot be written.
    """
    return save(of_plan(found, command), out)


def write_whatif(found: WhatIf, out: Path, *, command: str | None = None) -> Path:
    """Write the page of a comparison of objectives on the same tokens.

    Args:
        found: see :func:`lagproof.dumps.whatif.whatif`.
        out: the file.
        command: what made it, for a shell.

    Raises:
        RunDirError: it cannot be written.
    """
    return save(of_whatif(found, command or shlex.join(["lagproof", "whatif", found.path, "--out", str(out)])), out)
