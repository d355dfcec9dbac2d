"""What ``lagproof plan`` does: simulate schedules, print them side by side, and write a page where one is wanted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from lagproof.cli import tables
from lagproof.cli.progress import display
from lagproof.cli.tables import say, show_list
from lagproof.dumps.dump import read_dump
from lagproof.runtime.clock.durations import MeasuredLengths
from lagproof.runtime.clock.planner import Hardware, Workload, plan
from lagproof.runtime.clock.tables import advice, schedules


def measured(path: Path) -> MeasuredLengths:
    """The lengths of the responses of a run or a dump.

    Raises:
        UsageError: it cannot be read.
    """
    counts = [np.bincount(batch.tokens.response.numpy()) for batch in read_dump(path).batches]
    return MeasuredLengths(np.concatenate([c[c > 0] for c in counts] or [np.zeros(0, np.int64)]), str(path))


def run_plan(
    names: Sequence[str],
    hardware: Hardware,
    work: Workload,
    console: Console,
    *,
    as_json: bool,
    out: Path | None,
    command: str,
) -> None:
    """Print what each schedule would do.

    Raises:
        ConfigError: a name that is none, or a schedule that cannot work.
        RunDirError: the page cannot be written.
    """
    with display(console) as shown:
        found = plan(names, hardware, work, lambda name, done, total: shown.bar(name, done, total))
    if out is not None:
        from lagproof.report import write_plan  # here: a second that only drawing needs

        write_plan(found, out, command=command)
    if as_json:
        print(json.dumps(found.to_dict() | ({} if out is None else {"page": str(out)}), indent=1, allow_nan=False))
        return
    tables.show(schedules(found), console)
    show_list("What follows", advice(found), console)
    if out is not None:
        say(str(out), console)
