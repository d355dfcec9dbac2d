"""What a person sees while a run goes on: a bar in a terminal, plain lines in a file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lagproof.monitor.alarm import Alarm

LINES = 20
"""Lines of steps in a file, besides those of evaluations."""

LINE_EVERY_S = 30.0
"""Longest silence in a file while steps go on."""


class Display(Protocol):
    """Told what happens in a run."""

    def row(self, row: Mapping[str, Any]) -> None: ...

    def tokens(self, drawn: int) -> None: ...

    def alarm(self, alarm: Alarm) -> None: ...


@contextmanager
def display(steps: int, console: Console, first: str) -> Iterator[Display]:
    """A bar if ``console`` is a terminal, else a line now and then and at every evaluation; ``first`` stands there."""
    if not console.is_terminal:
        console.print(first, soft_wrap=True, highlight=False, markup=False)
        yield Lines(steps, console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        yield Bar(steps, progress, first)


class Lines:
    """One line now and then."""

    def __init__(self, steps: int, console: Console) -> None:
        self._steps, self._console, self._last = steps, console, time.monotonic()
        self._drawn = 0

    def row(self, row: Mapping[str, Any]) -> None:
        now = time.monotonic()
        is_due = row["step"] % max(1, self._steps // LINES) == 0
        if is_due or "eval/accuracy" in row or "outcome" in row or now - self._last >= LINE_EVERY_S:
            self._last = now
            self._console.print(f"step {row['step']}/{self._steps}  {summary(row)}", soft_wrap=True, highlight=False)

    def tokens(self, drawn: int) -> None:
        self._drawn += drawn
        now = time.monotonic()
        if now - self._last >= LINE_EVERY_S:
            self._last = now
            self._console.print(f"sampling: {self._drawn} tokens so far", highlight=False)

    def alarm(self, alarm: Alarm) -> None:
        self._console.print(sentence(alarm), soft_wrap=True, highlight=False, markup=False)


class Bar:
    """A bar of steps with the newest numbers under it."""

    def __init__(self, steps: int, progress: Progress, first: str) -> None:
        self._progress = progress
        self._numbers = progress.add_task(first, total=None)
        self._bar = progress.add_task("step", total=steps)
        self._drawn, self._last_accuracy = 0, ""

    def row(self, row: Mapping[str, Any]) -> None:
        self._progress.update(self._bar, completed=row["step"])
        if "eval/accuracy" in row:
            self._last_accuracy = f"acc {row['eval/accuracy']:.3f}"
        self._progress.update(self._numbers, description=summary(row, self._last_accuracy))
        self._drawn = 0

    def tokens(self, drawn: int) -> None:
        self._drawn += drawn
        if self._drawn > 4096 or drawn < 64:
            self._progress.update(self._numbers, description=f"sampling {self._drawn} tokens  {self._last_accuracy}")

    def alarm(self, alarm: Alarm) -> None:
        style = "bold red" if alarm.severity == "red" else "yellow"
        self._progress.console.print(sentence(alarm), style=style, highlight=False, markup=False)


def sentence(alarm: Alarm) -> str:
    """An alarm as a line."""
    return f"{alarm.severity} alarm at step {alarm.step}: {alarm.sentence}"


def summary(row: Mapping[str, Any], accuracy: str = "") -> str:
    """Reward, accuracy, mismatch, age and speed of one row, as far as it has them."""
    if "outcome" in row:
        return f"not trained: {row['outcome']}"
    parts = [
        f"{label} {row[key]:{form}}"
        for label, key, form in (
            ("reward", "reward", ".3f"),
            ("acc", "eval/accuracy", ".3f"),
            ("d_bar", "d_bar", ".4f"),
            ("age", "age_mean", ".1f"),
            ("tok/s", "time/tokens_per_s", ".0f"),
        )
        if row.get(key) is not None and (label != "tok/s" or row[key] > 0)  # none were trained before the first step
    ]
    if accuracy and "eval/accuracy" not in row:
        parts.insert(1, accuracy)
    return "  ".join(parts)
