"""The process that runs cells: what comes through the pipe, until it is asked to stop or its parent is gone."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lagproof.config import Config
from lagproof.data.rows import Row
from lagproof.errors import InterruptedRunError, LagproofError, RunStoppedError
from lagproof.runs.layout import RunLayout

SHOWN = ("reward", "d_bar", "eval/accuracy")
"""What of a row travels to the parent."""


class Ending(StrEnum):
    """How an attempt at a cell ended."""

    FINISHED = "finished"  # there is a result
    STOPPED = "stopped"  # the run could not continue: a result too, in ``CellOutcome.reason`` why
    INTERRUPTED = "interrupted"  # asked to stop; can be continued
    FAILED = "failed"  # an error, in ``CellOutcome.reason``


@dataclass(frozen=True)
class Job:
    """One cell to run: its name, its configuration, and whether there is something to continue."""

    name: str
    config: Config
    resume: bool


def work(connection: Connection, train: str) -> None:
    """The worker process: run what comes, until ``None`` comes or the parent is gone."""
    if os.name == "posix":
        os.setpgrp()  # the terminal's Ctrl-C reaches the parent only
    with contextlib.suppress(EOFError, OSError):
        while (task := connection.recv()) is not None:
            job, log = task
            with _printed_to(log):
                message = _attempt(connection, train, job)
            connection.send(message)


def _attempt(connection: Connection, train: str, job: Job) -> tuple[Ending, str]:
    """Run one job; a process edge: whatever happens is reported, each kind as what it is."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # until the run listens itself
    try:
        module, _, name = train.partition(":")
        run: Callable[..., Any] = getattr(importlib.import_module(module), name)
        result = run(job.config, resume=job.resume, on_step=_reporter(connection))
    except (InterruptedRunError, KeyboardInterrupt):
        return Ending.INTERRUPTED, "asked to stop"
    except RunStoppedError as error:
        has_result = RunLayout(Path(job.config.run_dir)).result.is_file()
        return Ending.STOPPED if has_result else Ending.FAILED, str(error)
    except LagproofError as error:
        traceback.print_exc()
        return Ending.FAILED, f"{type(error).__name__}: {error}"
    except Exception as error:
        traceback.print_exc()
        return Ending.FAILED, f"{type(error).__name__}: {error} (a fault of lagproof: its trace is in the log)"
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Ending.FINISHED, str(result.reason)


def _reporter(connection: Connection) -> Callable[[Row], None]:
    """Send each step; a message in the pipe, or a parent that is gone, is a request to stop: the run hears Ctrl-C."""
    asked = False

    def report(row: Row) -> None:
        nonlocal asked
        gone = False
        try:
            shown = {name: value for name in SHOWN if (value := row.get(name)) is not None}
            connection.send({"step": row.step, **shown})
        except OSError:
            gone = True
        if not asked and (gone or connection.poll()):
            asked = True
            signal.raise_signal(signal.SIGINT)

    return report


@contextlib.contextmanager
def _printed_to(log: Path) -> Iterator[None]:
    """Send standard output and error of this process to a file, also what native code prints; no file if nothing."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
        try:
            yield
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
    if log.stat().st_size == 0:
        log.unlink()
