"""A single run that needs no model: the contract of the real one, with numbers that follow from the configuration.

Seeds choose what happens: 2 dies at step 3, 13 refuses its configuration, 17 has a bug, 23 cannot go on at step 3. In
the first cell of seed 29 the comparison is asked to stop at step 3, and the run goes on until it is told; in that of 31
it is asked twice and the run never listens; in that of 37 the comparison is killed, and the run says when it was told.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagproof.config import Config
from lagproof.data.rows import Row
from lagproof.errors import ConfigError, InterruptedRunError, RunStoppedError

DIES, REFUSES, BUG, STOPS, INTERRUPTS, IGNORES, ORPHAN = 2, 13, 17, 23, 29, 31, 37


@dataclass(frozen=True)
class Result:
    reason: str


def accuracy(config: Config, step: int) -> float:
    """0.5 at first; naive falls at lag 8, everything else rises."""
    falls = config.objective.name == "naive" and (config.schedule.batches_ahead or 0) >= 8
    share = step / config.steps
    return round(0.5 - 0.3 * share if falls else 0.5 + 0.1 * share, 6)


def train(config: Config, *, resume: bool = False, on_step: Callable[[Row], None] | None = None) -> Result:
    assert on_step is not None
    if config.seed == REFUSES:
        raise ConfigError(f"model = {config.model!r}: no such model")
    print(f"printed by seed {config.seed}" if config.seed == BUG else "", end="")
    if config.seed == BUG:
        raise KeyError("forgotten")
    first = config.objective.name == "naive" and config.schedule.ahead == 1
    path = Path(config.run_dir)
    metrics = path / "metrics.jsonl"
    if resume:
        done = len(metrics.read_text().splitlines())
    else:
        path.mkdir(parents=True)
        config.save_toml(path / "config.toml")
        done = 0
    step = done
    while step <= config.steps:
        row: dict[str, Any] = {"step": step, "resumed": resume, "threads": os.environ["OMP_NUM_THREADS"]}
        if step:
            row |= {"reward": 0.5, "d_bar": 0.01 * config.schedule.ahead}
        if step % config.eval.every == 0:
            row["eval/accuracy"] = accuracy(config, step)
        with metrics.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if step == 3 and config.seed == DIES:
            os._exit(7)
        if step == 3 and config.seed == STOPS:
            _finish(path, "no_signal", success=False, steps=step)
            raise RunStoppedError("no group had a signal in 8 batches")
        if step == 3 and config.seed == INTERRUPTS and first and not resume:
            _until_told(on_step, row)
        if step == 3 and config.seed == IGNORES and first:
            _ignore_the_first(on_step, row)
        if step == 3 and config.seed == ORPHAN and first:
            _orphan(on_step, row, path.parent / "told")
        on_step(Row.parse(row))
        step += 1
    _finish(path, "finished", success=True, steps=config.steps)
    return Result("finished")


def _until_told(on_step: Callable[[Row], None], row: Mapping[str, Any]) -> None:
    os.kill(os.getppid(), signal.SIGINT)
    _report_until_interrupted(on_step, row)
    raise InterruptedRunError("saved")


def _ignore_the_first(on_step: Callable[[Row], None], row: Mapping[str, Any]) -> None:
    os.kill(os.getppid(), signal.SIGINT)
    _report_until_interrupted(on_step, row)
    os.kill(os.getppid(), signal.SIGINT)
    while True:
        on_step(Row.parse(row))


def _orphan(on_step: Callable[[Row], None], row: Mapping[str, Any], told: Path) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    _report_until_interrupted(on_step, row)
    with told.open("w") as file:
        file.write(".")
    raise InterruptedRunError("saved")


def _report_until_interrupted(on_step: Callable[[Row], None], row: Mapping[str, Any]) -> None:
    try:
        while True:
            on_step(Row.parse(row))
    except KeyboardInterrupt:
        return


def _finish(path: Path, reason: str, *, success: bool, steps: int) -> None:
    (path / "result.json").write_text(json.dumps({"reason": reason, "success": success, "steps": steps}))
