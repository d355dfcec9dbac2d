"""What ``lagproof compare`` does around a comparison: progress, its tables, its page and the exit code."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from lagproof.cli import tables
from lagproof.cli.progress import Display, display
from lagproof.cli.tables import say
from lagproof.experiments.claims import Judged
from lagproof.experiments.compare import compare as run
from lagproof.experiments.comparison import Findings
from lagproof.experiments.pool import TRAIN, CellOutcome, View
from lagproof.experiments.tables import alarms, any_alarm, differences, notes, results
from lagproof.experiments.worker import Ending, Job
from lagproof.report import write_comparison
from lagproof.runs.comparison import ComparisonDir

INTERRUPTED = 130


def compare(
    source: str,
    out: Path | None = None,
    *,
    console: Console,
    overrides: Iterable[str] = (),
    seeds: Sequence[int] | None = None,
    jobs: int | None = None,
    command: str | None = None,
    train: str = TRAIN,
) -> int:
    """Run what is missing of a comparison, print its tables and write its page; see ``experiments/compare.py``.

    Returns:
        Exit code: 0, also when a run could not continue, for that is a finding; 1 if a cell failed; 130 if it was asked
        to stop (the same call resumes it).
    """

    @contextmanager
    def watch(todo: Sequence[Job], num_cells: int) -> Iterator[View]:
        if len(todo) < num_cells:
            say(f"{num_cells - len(todo)} of {num_cells} cells have ended before", console)
        with display(console) as shown:
            yield CellEvents(shown, todo, num_cells)

    done = run(source, out, overrides=overrides, seeds=seeds, jobs=jobs, command=command, watch=watch, train=train)
    if done.comparison is None:
        say(f"interrupted; everything is saved under {done.out}; the same command resumes", console)
        return INTERRUPTED
    show(done.comparison.findings, console)
    say(f"report: {write_comparison(done.comparison)}", console)
    for reason, names in done.failures.items():
        logs = ComparisonDir(done.out).logs
        say(f"failed: {', '.join(names)}: {reason} (printed output: {logs})", console, "bold red")
    return 1 if done.failures else 0


def show(findings: Findings, console: Console) -> None:
    """Print the tables, the claims and what a reader of them has to know."""
    cells = findings.cells
    if not cells:
        say("no cell has a result yet", console)
        return
    tables.show(results(cells), console)
    if findings.differences:
        tables.show(differences(findings), console)
    if any_alarm(cells):
        tables.show(alarms(cells), console)
    for judged in findings.claims:
        _show_claim(judged, console)
    tables.show_notes(notes(findings), console)


def _show_claim(judged: Judged, console: Console) -> None:
    console.print(f"Claim: {judged.claim.text}: {judged.verdict}", markup=False, highlight=False, style="bold")
    for part in judged.parts:
        console.print(Padding(Text(part.line), (0, 0, 0, 2)))
    console.print("")


class CellEvents:
    """The events of a comparison in words: a bar for the whole and one for each running cell."""

    def __init__(self, shown: Display, jobs: Sequence[Job], num_cells: int) -> None:
        self._shown, self._num_cells, self._ended = shown, num_cells, num_cells - len(jobs)
        self._steps = {job.name: 0 for job in jobs}
        self._total_steps = sum(job.config.steps for job in jobs)
        self._running: dict[str, Job] = {}
        self._last: dict[str, dict[str, Any]] = {}
        self._since = time.monotonic()
        self.tick()

    def started(self, job: Job) -> None:
        self._running[job.name] = job
        self._shown.bar(job.name, 0, job.config.steps, "starting")

    def step(self, job: Job, row: Mapping[str, Any]) -> None:
        self._steps[job.name] = row["step"]
        self._last.setdefault(job.name, {}).update(row)
        self._shown.bar(job.name, row["step"], job.config.steps, self._seen(job, ("reward", "d_bar")))

    def ended(self, job: Job, outcome: CellOutcome) -> None:
        self._running.pop(job.name, None)
        self._shown.drop(job.name)
        self._shown.say(self._line(job, outcome), "red" if outcome.ending is Ending.FAILED else None)

    def tick(self) -> None:
        whole = f"{self._ended} of {self._num_cells} cells"
        self._shown.bar("all cells", sum(self._steps.values()), self._total_steps, whole)
        self._shown.beat(self._heartbeat)

    def say(self, text: str) -> None:
        self._shown.say(text)

    def _line(self, job: Job, outcome: CellOutcome) -> str:
        """One line about a job that has ended."""
        if outcome.ending is Ending.FINISHED:
            self._ended += 1
            self._steps[job.name] = job.config.steps
            seen = self._seen(job, ("eval/accuracy", "d_bar"))
            said = f"{_clock(outcome.seconds)}{', ' if seen else ''}{seen}"
        elif outcome.ending is Ending.INTERRUPTED:
            said = f"interrupted at step {self._steps[job.name]} of {job.config.steps}"
        else:
            self._ended += 1
            said = f"{outcome.ending} after {_clock(outcome.seconds)}: {outcome.reason}"
        width = len(str(self._num_cells))
        return f"[{self._ended:{width}}/{self._num_cells}] {job.name}: {said}"

    def _seen(self, job: Job, names: Sequence[str]) -> str:
        """The last values of some metrics; what was never there is left out."""
        last = self._last.get(job.name, {})
        return " ".join(f"{name.removeprefix('eval/')} {last[name]:.3g}" for name in names if name in last)

    def _heartbeat(self) -> str:
        """One line about everything that runs."""
        running = [
            f"{name} step {self._steps[name]}/{job.config.steps} {self._seen(job, ('reward', 'd_bar'))}".rstrip()
            for name, job in self._running.items()
        ]
        done, spent = sum(self._steps.values()), time.monotonic() - self._since
        left = f"; about {_clock(spent * (self._total_steps - done) / done)} left" if done else ""
        return f"{self._ended} of {self._num_cells} done{left}; running: {'; '.join(running) or 'nothing yet'}"


def _clock(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
