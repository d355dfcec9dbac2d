"""What ``lagproof grade`` does around the grader: progress and a count of reasons, on stderr. Imports no torch."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Console

from lagproof.errors import ConfigError
from lagproof.grading.extract import Form
from lagproof.grading.files import grade_file
from lagproof.grading.pool import Limits

LINE_EVERY_S = 30.0
"""Longest silence in a file while answers are graded."""


def grade(file: Path, out: Path | None, form: str, limits: Limits, columns: tuple[str, str]) -> None:
    """Grade ``file`` into ``out`` or standard output."""
    if form not in list(Form):
        raise ConfigError(f"--form {form!r}: must be {' | '.join(Form)}")
    console = Console(stderr=True)
    last = time.monotonic()

    def told(done: int) -> None:
        nonlocal last
        status.update(f"grading: {done} answers")
        if not console.is_terminal and time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            console.print(f"grading: {done} answers", highlight=False)

    with console.status("grading") as status:
        counts = grade_file(
            file,
            sys.stdout if out is None else out,
            form=Form(form),
            limits=limits,
            answer_column=columns[0],
            gold_column=columns[1],
            on_progress=told,
        )
    said = ", ".join(f"{count} {reason}" for reason, count in counts.most_common()) or "no answers"
    console.print(f"{said}" + ("" if out is None else f": {out}"), highlight=False, soft_wrap=True)
