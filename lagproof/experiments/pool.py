"""Cells in parallel processes: one thread each, stopped after their step on request, each failure kept to its cell.

===========  ==========================================================================================================
parent       consumes steps and outcomes of workers, stop requests; produces cells; waits for any worker or the
             heartbeat; unblocked by a message, by the end of a process, or after :data:`HEARTBEAT_S`
worker       consumes cells; produces steps and one outcome per cell; waits for the next cell; unblocked by a cell, by
             ``None`` (stop), or by the parent's end
===========  ==========================================================================================================

The pipe is the only channel: a worker looks into it at every step, so that a stop request and the death of the parent
are seen in the same way, and a run never outlives the comparison it belongs to.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from lagproof.experiments.worker import Ending, Job, work

TRAIN = "lagproof.runtime.train:train"
"""The single run as ``module:function``; imported in the worker only."""

HEARTBEAT_S = 0.5
MAX_MESSAGES = 100
"""Messages read of one worker before the others have their turn."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class CellOutcome:
    """How one job ended.

    Attributes:
        job: its number in the list of jobs.
        ending: see :class:`Ending`.
        reason: the run's own reason, or the original error.
        seconds: wall time of this attempt.
    """

    job: int
    ending: Ending
    reason: str
    seconds: float


class View(Protocol):
    """Who watches: is called when a job starts, makes a step, ends, and now and then."""

    def started(self, job: Job) -> None: ...

    def step(self, job: Job, row: Mapping[str, Any]) -> None: ...

    def ended(self, job: Job, outcome: CellOutcome) -> None: ...

    def tick(self) -> None: ...

    def say(self, text: str) -> None: ...


Watch = Callable[[Sequence[Job], int], AbstractContextManager[View]]
"""Called with the jobs that will run, and the number of cells of the whole comparison."""


class _Nobody:
    """A view of nothing."""

    def started(self, job: Job) -> None: ...

    def step(self, job: Job, row: Mapping[str, Any]) -> None: ...

    def ended(self, job: Job, outcome: CellOutcome) -> None: ...

    def tick(self) -> None: ...

    def say(self, text: str) -> None: ...


def unwatched(jobs: Sequence[Job], num_cells: int) -> AbstractContextManager[View]:
    """Nobody watches."""
    return contextlib.nullcontext(_Nobody())


@dataclass
class _CellWorker:
    process: BaseProcess
    connection: Connection
    job: int | None = None
    since: float = 0.0


@dataclass
class _Stop:
    """How often a stop was asked for: once lets every step end, twice ends the processes."""

    asked: int = 0


def run_jobs(jobs: Sequence[Job], num_workers: int, logs: Path, view: View, train: str = TRAIN) -> list[CellOutcome]:
    """Run all jobs, each worker taking the next one as it becomes free.

    Args:
        jobs: in the order in which they start.
        num_workers: processes.
        logs: folder for what the runs print, one file per job.
        view: is called with everything.
        train: the single run, ``module:function``.

    Returns:
        One outcome for each job that was started, in the order in which they ended. Ctrl-C and SIGTERM end the list
        early: running jobs are ``INTERRUPTED``.
    """
    pool = _Pool(jobs, logs, view, train)
    with _stop_requests() as stop:
        try:
            return pool.run(min(num_workers, len(jobs)), stop)
        finally:
            pool.close()


class _Pool:
    """Processes that outlive their jobs: starting one costs more than a short job."""

    def __init__(self, jobs: Sequence[Job], logs: Path, view: View, train: str) -> None:
        self._jobs, self._logs, self._view, self._train = jobs, logs, view, train
        self._waiting = list(range(len(jobs)))
        self._workers: list[_CellWorker] = []
        self._context = multiprocessing.get_context("spawn")

    def run(self, num_workers: int, stop: _Stop) -> list[CellOutcome]:
        self._workers = [self._spawn() for _ in range(num_workers)]
        outcomes: list[CellOutcome] = []
        passed_on = 0
        while True:
            if stop.asked > passed_on:
                passed_on = stop.asked
                self._pass_on(stop)
            if not stop.asked:
                self._give()
            busy = [worker for worker in self._workers if worker.job is not None]
            if not busy:
                return outcomes
            ready = wait([x for w in busy for x in (w.connection, w.process.sentinel)], timeout=HEARTBEAT_S)
            for worker in busy:
                if worker.connection in ready or worker.process.sentinel in ready:
                    outcome = self._hear(worker, stopping=stop.asked > 0)
                    if outcome is not None:
                        outcomes.append(outcome)
                        self._view.ended(self._jobs[outcome.job], outcome)
            self._view.tick()

    def close(self) -> None:
        """End every process by force: idle ones have nothing to save, and to unload torch takes them seconds."""
        for worker in self._workers:
            worker.process.kill()
            worker.connection.close()
        for worker in self._workers:
            worker.process.join()
            worker.process.close()

    def _spawn(self) -> _CellWorker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=work, args=(theirs, self._train), name="lagproof-cell")
        with _child_environment():
            process.start()
        theirs.close()
        return _CellWorker(process, ours)

    def _give(self) -> None:
        """A waiting job to every idle worker; a worker that has died is replaced first."""
        for i, worker in enumerate(self._workers):
            if worker.job is not None or not self._waiting:
                continue
            if not worker.process.is_alive():
                worker.connection.close()
                self._workers[i] = worker = self._spawn()
            worker.job, worker.since = self._waiting.pop(0), time.monotonic()
            job = self._jobs[worker.job]
            self._view.started(job)
            with contextlib.suppress(OSError):  # it died just now: its sentinel is ready, and the job fails with that
                worker.connection.send((job, self._logs / f"{job.name}.log"))

    def _hear(self, worker: _CellWorker, *, stopping: bool) -> CellOutcome | None:
        """Read what a busy worker has sent; the outcome of its job if it has ended."""
        number = worker.job
        assert number is not None
        try:
            for _ in range(MAX_MESSAGES):
                if not worker.connection.poll():
                    break
                message = worker.connection.recv()
                if isinstance(message, tuple):
                    ending, reason = message
                    worker.job = None
                    return CellOutcome(number, ending, reason, time.monotonic() - worker.since)
                self._view.step(self._jobs[number], message)
        except (EOFError, OSError):
            worker.process.join()
        if worker.process.is_alive():
            return None
        worker.job = None
        ending = Ending.INTERRUPTED if stopping else Ending.FAILED
        return CellOutcome(number, ending, _cause_of_death(worker.process.exitcode), time.monotonic() - worker.since)

    def _pass_on(self, stop: _Stop) -> None:
        if stop.asked > 1:
            self._view.say("stopping at once; the runs continue from their last checkpoint")
            for worker in self._workers:
                worker.process.kill()
            return
        self._view.say("stopping after the running steps; once more to stop at once")
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.connection.send(None)


def _cause_of_death(code: int | None) -> str:
    if code is not None and code < 0:
        hint = "; out of memory? try fewer --jobs" if code == -9 else ""
        return f"the process was killed by signal {-code}{hint}"
    return f"the process ended with exit code {code}"


@contextlib.contextmanager
def _stop_requests() -> Iterator[_Stop]:
    """Count Ctrl-C and SIGTERM instead of being ended by them."""
    stop = _Stop()

    def ask(*_: object) -> None:
        stop.asked += 1

    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread can listen to signals
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _child_environment() -> Iterator[None]:
    """What a process inherits when it starts: one thread, and no Ctrl-C from the terminal, which is ours to pass on."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
