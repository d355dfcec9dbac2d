"""What a person sees while something runs: bars in a terminal, plain lines now and then anywhere else.

Rooms below call back with what happens; ``training.py``, ``comparing.py``, ``evaluating.py`` and ``grading.py`` put
that in words and give them to the one :class:`Display`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from lagproof.cli.tables import say

BEAT_S = 30.0
"""Longest silence in a file."""


class Display(Protocol):
    """Where progress is shown."""

    def say(self, text: str, style: str | None = None) -> None:
        """A line that stays, in a terminal and in a file."""

    def log(self, text: str) -> None:
        """A line in a file; in a terminal a bar shows it."""

    def beat(self, text: Callable[[], str]) -> None:
        """A line in a file if there was none for :data:`BEAT_S`; in a terminal a bar shows it."""

    def bar(self, name: str, done: float | None = None, total: float | None = None, note: str = "") -> None:
        """A bar in a terminal, made when it is first named.

        Args:
            name: in front of it.
            done: ``None`` leaves it where it is.
            total: ``None`` only shows that something is running.
            note: behind it.
        """

    def drop(self, name: str) -> None:
        """Take a bar away."""

    def status(self, text: str) -> None:
        """A line below the bars of a terminal."""


@contextmanager
def display(console: Console) -> Iterator[Display]:
    """Bars if ``console`` is a terminal, else lines."""
    if not console.is_terminal:
        yield PlainLines(console)
        return
    with _Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[counted]}"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        expand=True,
        transient=True,
        refresh_per_second=4,
    ) as progress:
        yield Bars(progress)


class PlainLines:
    """Plain lines."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic, every_s: float = BEAT_S) -> None:
        self._console, self._now, self._every_s, self._last = console, now, every_s, now()

    def say(self, text: str, style: str | None = None) -> None:
        self._last = self._now()
        say(text, self._console, style)

    def log(self, text: str) -> None:
        self.say(text)

    def beat(self, text: Callable[[], str]) -> None:
        if self._now() - self._last >= self._every_s:
            self.say(text())

    def bar(self, name: str, done: float | None = None, total: float | None = None, note: str = "") -> None:
        pass

    def drop(self, name: str) -> None:
        pass

    def status(self, text: str) -> None:
        pass


class Bars:
    """Bars under the lines that stay."""

    def __init__(self, progress: _Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._done: dict[str, float] = {}

    def say(self, text: str, style: str | None = None) -> None:
        say(text, self._progress.console, style)

    def log(self, text: str) -> None:
        pass

    def beat(self, text: Callable[[], str]) -> None:
        pass

    def bar(self, name: str, done: float | None = None, total: float | None = None, note: str = "") -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(escape(name), total=total, counted="", note="")
            self._done[name] = 0
        task = self._tasks[name]
        self._done[name] = done = self._done[name] if done is None else done
        counted = "" if total is None else f"{done:.0f}/{total:.0f}"
        self._progress.update(task, completed=done, total=total, counted=counted, note=escape(note))

    def drop(self, name: str) -> None:
        if name in self._tasks:
            self._progress.remove_task(self._tasks.pop(name))

    def status(self, text: str) -> None:
        self._progress.status = text


class _Progress(Progress):
    """Bars with one line below them."""

    status = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.status:
            yield Text(self.status, style="dim", no_wrap=True, overflow="ellipsis")
