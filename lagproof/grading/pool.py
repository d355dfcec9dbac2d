"""Killable processes that grade what cannot be trusted, each answer under a wall-clock and a memory limit.

The processes are plain subprocesses of the interpreter that talk over pipes: no fork of a program with threads, no
second import of the caller's main module, no signal or alarm here. So it works from any thread.

pebble, the usual library for this, starts its processes through multiprocessing: to fork a program with torch's threads
can hang, and the other ways run the caller's main module once more, which a script without a main guard does not
survive. It has no memory limit. So these processes are ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

from lagproof.errors import ConfigError, RunStoppedError

START_LIMIT_S = 120.0
"""A process that is not ready by then will not be; the machine may be busy."""
_START_ATTEMPTS = 3

OUT_OF_MEMORY = 12
"""Exit code of a process that reached its memory limit."""


@dataclass(frozen=True)
class Limits:
    """What one answer may cost.

    Attributes:
        time_s: wall-clock seconds an answer may take, > 0.
        memory_mib: MiB that an answer may take on top of the libraries, >= 64.
        workers: processes at most, >= 1.
    """

    time_s: float = 5.0
    memory_mib: int = 1024
    workers: int = 2

    def __post_init__(self) -> None:
        if not self.time_s > 0:
            raise ConfigError(f"time limit {self.time_s} s: must be > 0")
        if self.memory_mib < 64:
            raise ConfigError(f"memory limit {self.memory_mib} MiB: must be >= 64")
        if self.workers < 1:
            raise ConfigError(f"{self.workers} grading processes: must be >= 1")


Question = tuple[str, ...]
"""What a process is asked; what the texts mean is between its module and the caller."""

TIMED_OUT, FAILED = "timed_out", "failed"
"""Words that the pool itself may reply: stopped at the time limit; raised, crashed or ran out of memory."""


@dataclass(frozen=True)
class Reply:
    """One word of the process or of the pool, and what there is to say about it."""

    word: str
    detail: str = ""


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    deadline: float
    job: int | None = None
    ready: bool = False
    buffer: bytearray = field(default_factory=bytearray)

    def send(self, question: Question) -> bool:
        """Whether the process was there to take the question."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def receive(self) -> list[str] | None:
        """The next reply, ``[]`` if it is not complete yet, ``None`` if the process has ended."""
        assert self.process.stdout is not None
        chunk = os.read(self.process.stdout.fileno(), 65536)
        if not chunk:
            return None
        self.buffer += chunk
        line, newline, rest = self.buffer.partition(b"\n")
        if not newline:
            return []
        self.buffer = rest
        return json.loads(line)

    def end(self) -> str:
        """Kill the process, release its pipes, and say how it ended."""
        self.process.kill()
        code = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # an unsent question goes with its reader
                    pipe.close()
        self.errors.seek(0)
        said = self.errors.read().decode("utf-8", "replace").strip()[-500:]
        self.errors.close()
        if code == OUT_OF_MEMORY:
            return "out of memory"
        how = "was killed" if code == -signal.SIGKILL else f"ended with code {code}"
        return f"the process {how}" + (f": {said}" if said else "")


class Pool:
    """Answers questions in processes; a hung or crashed one is killed and replaced.

    Processes start when the first question comes. Safe to use from several threads, one call at a time.

    Args:
        limits: of one answer.
        module: run by the processes; see ``grading/worker.py`` for what it has to do.
        arguments: of the module, behind the limits.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        module: str = "lagproof.grading.worker",
        arguments: Sequence[str] = (),
    ) -> None:
        self.limits, self._command = limits or Limits(), (module, *arguments)
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._closed = False
        self._finalizer = weakref.finalize(self, _end_all, self._workers, os.getpid())

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        """One reply a question, in order.

        Raises:
            RunStoppedError: no process can be started.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            return _Round(self._workers, self.limits, self._command, questions).run() if questions else []

    def close(self) -> None:
        """End every process. May be called twice."""
        with self._lock:
            self._closed = True
            self._finalizer()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Round:
    """One call of :meth:`Pool.ask`: hands questions to idle processes and waits for whichever comes first."""

    def __init__(
        self, workers: list[_Worker], limits: Limits, command: Sequence[str], questions: Sequence[Question]
    ) -> None:
        self.workers, self.limits, self.command, self.questions = workers, limits, command, questions
        self.waiting = deque(range(len(questions)))
        self.replies: dict[int, Reply] = {}
        self.failed_starts = 0

    def run(self) -> list[Reply]:
        try:
            while len(self.replies) < len(self.questions):
                self._hand_out()
                self._wait()
        finally:  # a process that still works on a question of this round must not answer into the next one
            for worker in [w for w in self.workers if w.job is not None]:
                self._drop(worker)
        return [self.replies[i] for i in range(len(self.questions))]

    def _hand_out(self) -> None:
        starting = sum(not worker.ready for worker in self.workers)
        idle = [worker for worker in self.workers if worker.ready and worker.job is None]
        for worker in idle:
            if not self.waiting:
                return
            worker.job = self.waiting.popleft()
            worker.deadline = time.monotonic() + self.limits.time_s
            if not worker.send(self.questions[worker.job]):  # it died while idle: not the question's fault
                self.waiting.appendleft(worker.job)
                self._drop(worker)
        room = self.limits.workers - len(self.workers)
        for _ in range(min(room, len(self.waiting) - starting)):
            self.workers.append(_start(self.limits, *self.command))

    def _wait(self) -> None:
        busy = [worker for worker in self.workers if worker.job is not None or not worker.ready]
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                assert worker.process.stdout is not None
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            nearest = min((worker.deadline for worker in busy), default=0.0)
            for key, _ in selector.select(max(0.0, nearest - time.monotonic())):
                self._take(key.data)
        now = time.monotonic()
        for worker in [w for w in self.workers if w in busy and now >= w.deadline]:
            self._settle(worker, Reply(TIMED_OUT), f"it was not ready within {START_LIMIT_S:g} s, and ")

    def _take(self, worker: _Worker) -> None:
        message = worker.receive()
        if message is None:
            self._settle(worker, Reply(FAILED), "")
        elif message and not worker.ready:
            worker.ready, self.failed_starts = True, 0
        elif message:
            assert worker.job is not None
            self.replies[worker.job] = Reply(message[0], message[1])
            worker.job, worker.deadline = None, float("inf")

    def _settle(self, worker: _Worker, reply: Reply, why: str) -> None:
        """End a process and book what that means: an answer without a reward, or a failed start."""
        job, ready = worker.job, worker.ready
        error = why + self._drop(worker)
        if job is not None:
            self.replies[job] = reply if reply.word == TIMED_OUT else Reply(reply.word, error)
        elif not ready:
            self.failed_starts += 1
            if self.failed_starts >= _START_ATTEMPTS:
                what_next = "the machine is too busy: free a core and start again" if why else "see what it says"
                raise RunStoppedError(
                    f"no grading process can be started, {_START_ATTEMPTS} in a row failed: {error}; {what_next}"
                )

    def _drop(self, worker: _Worker) -> str:
        self.workers.remove(worker)
        return worker.end()


def _start(limits: Limits, module: str, *arguments: str) -> _Worker:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONHASHSEED": "0",  # sympy orders some things by hash: the same answer, the same verdict
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(limits.time_s), str(limits.memory_mib), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
    )
    return _Worker(process, errors, deadline=time.monotonic() + START_LIMIT_S)


def _end_all(workers: list[_Worker], owner: int) -> None:
    if os.getpid() != owner:  # a forked copy of the pool does not own the processes
        return
    while workers:
        workers.pop().end()
