"""What a comparison shows while it runs: bars on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lagproof.experiments.pool import CellOutcome, View
from lagproof.experiments.worker import Ending, Job

HEARTBEAT_LINE_S = 30.0


class Tally:
    """What has been seen of each job: its last step, and the last value of each metric."""

    def __init__(self, jobs: Sequence[Job], num_cells: int) -> None:
        self.num_cells = num_cells
        self.ended = num_cells - len(jobs)
        self.steps = {job.name: 0 for job in jobs}
        self.total_steps = sum(job.config.steps for job in jobs)
        self.running: dict[str, Job] = {}
        self._last: dict[str, dict[str, Any]] = {}
        self._since = time.monotonic()

    def see(self, job: Job, row: Mapping[str, Any]) -> None:
        """A row of a running job."""
        self.steps[job.name] = row["step"]
        self._last.setdefault(job.name, {}).update(row)

    def end(self, job: Job, outcome: CellOutcome) -> str:
        """One line about a job that has ended."""
        self.running.pop(job.name, None)
        if outcome.ending is Ending.FINISHED:
            self.ended += 1
            self.steps[job.name] = job.config.steps
            seen = self.seen(job, ("eval/accuracy", "d_bar"))
            said = f"{_clock(outcome.seconds)}{', ' if seen else ''}{seen}"
        elif outcome.ending is Ending.INTERRUPTED:
            said = f"interrupted at step {self.steps[job.name]} of {job.config.steps}"
        else:
            self.ended += 1
            said = f"{outcome.ending} after {_clock(outcome.seconds)}: {outcome.reason}"
        width = len(str(self.num_cells))
        return f"[{self.ended:{width}}/{self.num_cells}] {job.name}: {said}"

    def seen(self, job: Job, names: Sequence[str]) -> str:
        """The last values of some metrics, in words; what was never there is left out."""
        last = self._last.get(job.name, {})
        return " ".join(f"{name.removeprefix('eval/')} {last[name]:.3g}" for name in names if name in last)

    def heartbeat(self) -> str:
        """One line about everything that runs."""
        running = [
            f"{job.name} step {self.steps[job.name]}/{job.config.steps} {self.seen(job, ('reward', 'd_bar'))}".rstrip()
            for job in self.running.values()
        ]
        done, spent = sum(self.steps.values()), time.monotonic() - self._since
        left = f"; about {_clock(spent * (self.total_steps - done) / done)} left" if done else ""
        return f"{self.ended} of {self.num_cells} done{left}; running: {'; '.join(running) or 'nothing yet'}"


class Lines:
    """A plain line for each cell that ends, and one now and then while they run."""

    def __init__(self, console: Console, tally: Tally, every_s: float = HEARTBEAT_LINE_S) -> None:
        self._console, self._tally, self._every_s = console, tally, every_s
        self._spoke = time.monotonic()

    def started(self, job: Job) -> None:
        self._tally.running[job.name] = job

    def step(self, job: Job, row: Mapping[str, Any]) -> None:
        self._tally.see(job, row)

    def ended(self, job: Job, outcome: CellOutcome) -> None:
        self.say(self._tally.end(job, outcome))

    def tick(self) -> None:
        if time.monotonic() - self._spoke >= self._every_s:
            self.say(self._tally.heartbeat())

    def say(self, text: str) -> None:
        self._spoke = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bars:
    """One bar for the whole and one for each running cell; a line stays for each cell that has ended."""

    def __init__(self, progress: Progress, tally: Tally) -> None:
        self._progress, self._tally = progress, tally
        self._tasks: dict[str, TaskID] = {}
        self._whole = progress.add_task("", total=tally.total_steps, seen="")
        self.tick()

    def started(self, job: Job) -> None:
        self._tally.running[job.name] = job
        self._tasks[job.name] = self._progress.add_task(escape(job.name), total=job.config.steps, seen="starting")

    def step(self, job: Job, row: Mapping[str, Any]) -> None:
        self._tally.see(job, row)
        seen = self._tally.seen(job, ("reward", "d_bar"))
        self._progress.update(self._tasks[job.name], completed=row["step"], seen=seen)

    def ended(self, job: Job, outcome: CellOutcome) -> None:
        self._progress.remove_task(self._tasks.pop(job.name))
        style = "red" if outcome.ending is Ending.FAILED else None
        line = self._tally.end(job, outcome)
        self._progress.console.print(line, style=style, markup=False, highlight=False)

    def tick(self) -> None:
        cells = f"{self._tally.ended} of {self._tally.num_cells} cells"
        self._progress.update(self._whole, completed=sum(self._tally.steps.values()), description=cells)

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)


@contextmanager
def watching(console: Console, jobs: Sequence[Job], num_cells: int) -> Iterator[View]:
    """The view that fits the console.

    Args:
        console: where to show it.
        jobs: what will run.
        num_cells: cells of the whole comparison, those that had ended before included.
    """
    tally = Tally(jobs, num_cells)
    if not console.is_terminal:
        yield Lines(console, tally)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[seen]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, expand=True, refresh_per_second=4) as progress:
        yield Bars(progress, tally)


def _clock(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
