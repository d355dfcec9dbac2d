"""What ``lagproof grade`` does around the grader: progress and a count of reasons, on stderr. Imports no torch."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from lagproof.cli.progress import display
from lagproof.cli.tables import say
from lagproof.errors import ConfigError
from lagproof.grading.extract import Form
from lagproof.grading.files import grade_file
from lagproof.grading.pool import Limits


def grade(file: Path, out: Path | None, form: str, limits: Limits, columns: tuple[str, str]) -> None:
    """Grade ``file`` into ``out`` or standard output."""
    if form not in list(Form):
        raise ConfigError(f"--form {form!r}: must be {' | '.join(Form)}")
    console = Console(stderr=True)
    with display(console) as shown:

        def graded(done: int) -> None:
            shown.bar("grading", note=f"{done} answers")
            shown.beat(lambda: f"grading: {done} answers")

        graded(0)
        counts = grade_file(
            file,
            sys.stdout if out is None else out,
            form=Form(form),
            limits=limits,
            answer_column=columns[0],
            gold_column=columns[1],
            on_progress=graded,
        )
    said = ", ".join(f"{count} {reason}" for reason, count in counts.most_common()) or "no answers"
    say(said + ("" if out is None else f": {out}"), console)
