"""Randomised kills: `python tests/ray/soak.py --schedules 200`, which is `make soak`.

Each run has a schedule, a number of workers and kills (of workers, of the learner, of the driver) at times drawn from
its seed; whatever stopped it, it is resumed until it has finished. Then every prompt must have been trained exactly
once, in the order of the schedule where that is promised, and every step must have exactly one row. The sides are stubs
without a model (`stubs.py`): driver, scheduler, files and processes are real, and so is kill -9.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # the head listens on loopback
from stubs import drive, flat, processes_of, settings, trained

from lagproof.config import Config
from lagproof.errors import LagproofError
from lagproof.runs.run import Run
from lagproof.runtime.ray.cluster import ray_package

HEAD = """
import sys
from lagproof.runtime.ray.cluster import start_local, ray_package
start_local(16)
print(ray_package().get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""
LIMIT_S = 180.0
"""A run that takes longer, resumes included, counts as hung."""


@dataclass
class Outcome:
    kills: Counter = field(default_factory=Counter)
    lives: int = 0
    trained: int = 0
    wrong: str = ""


def drawn(seed: int, path: Path, address: str) -> tuple[Config, list[tuple[str, float]]]:
    """A run, and its kills: of what, so many seconds after its processes are there."""
    rng = random.Random(seed)
    n, k = rng.choice([(1, 0), (1, 1), (2, 1), (2, 2), (1, 3)])
    lag = [f"schedule.broadcast_every={n}"]
    lag += [rng.choice([f"schedule.batches_ahead={k}", f"schedule.staleness_threshold={rng.choice([0, 0.5, 1])}"])]
    config = settings(
        path,
        *lag,
        f"rollout.workers={rng.randint(1, 3)}",
        f"rollout.prompts={rng.randint(2, 5)}",
        f"steps={rng.randint(8, 16)}",
        f"save.every={rng.randint(1, 3)}",
        f"eval.every={rng.choice([0, 3])}",
        "eval.prompts=4",
        "ray.restarts=99",
        f'ray.address="{address}"',
    )
    kinds = rng.choices(["worker", "all workers", "learner", "driver"], [5, 1, 2, 2], k=rng.randint(1, 3))
    return config, [(kind, rng.uniform(0, 1.5)) for kind in kinds]


def live(config: Config) -> None:
    """One process of the driver; exit code 0: finished, 3: stopped as it should."""
    code = 1
    try:
        # without asking first whether the cluster answers: that takes longer than the run
        ray_package().init(address=config.ray.address, log_to_driver=False, configure_logging=False)
        stop = drive(config, work_s=0.02)
        code = 0 if stop.reason.success else 1
    except LagproofError as error:
        code = 3 if "process was lost" in str(error) or "ended while it began" in str(error) else 1
        if code == 1:
            traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def kill(kind: str, path: Path, driver: int) -> bool:
    learner, workers = processes_of(path)
    numbers = {"learner": [learner], "driver": [driver], "worker": workers[:1], "all workers": workers}[kind]
    done = False
    for number in numbers:
        if number == driver or b"ray::" in cmdline(number):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
                done = True
    return done


def cmdline(number: int) -> bytes:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""


def told(path: Path) -> int:
    notes = path / "notes.txt"
    return notes.read_text().count("Ray: learner in process") if notes.exists() else 0


def one(seed: int, folder: Path, address: str) -> Outcome:
    path, out = folder / f"run-{seed}", Outcome()
    config, kills = drawn(seed, path, address)
    began = time.monotonic()
    while True:
        before, out.lives = told(path), out.lives + 1
        driver = os.fork()
        if driver == 0:
            live(config)
        due: float | None = None
        status = None
        while status is None:
            time.sleep(0.01)
            now = time.monotonic()
            if now - began > LIMIT_S:
                os.kill(driver, signal.SIGKILL)
                os.waitpid(driver, 0)
                out.wrong = f"hung for {LIMIT_S:g} s"
                return out
            if due is None and told(path) > before and kills:
                due = now + kills[0][1]
            if due is not None and now >= due:
                kind, _ = kills.pop(0)
                out.kills[kind] += kill(kind, path, driver)
                due = now + kills[0][1] if kills else None
            done, code = os.waitpid(driver, os.WNOHANG)
            status = code if done else None
        ended = os.waitstatus_to_exitcode(status)
        if ended == 0:
            break
        if ended not in (3, -signal.SIGKILL):
            out.wrong = f"ended with {ended}"
            return out
    out.trained, out.wrong = checked(config, path)
    return out


def checked(config: Config, path: Path) -> tuple[int, str]:
    steps = trained(path)
    prompts = flat(steps)
    expected = list(range(config.steps * config.rollout.prompts))
    if (prompts if config.schedule.staleness_threshold is None else sorted(prompts)) != expected:
        return len(prompts), f"trained {steps}"
    rows = [row.step for row in Run.open(path).history if row.step]
    if rows != list(range(1, config.steps + 1)):
        return len(prompts), f"rows of steps {rows}"
    return len(prompts), ""


def soak(schedules: int, seed: int = 0) -> list[Outcome]:
    """Run them; the outcomes in order, up to a Ctrl-C."""
    command = [sys.executable, "-c", HEAD]
    pipe = subprocess.PIPE
    head = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
    assert head.stdout is not None and head.stdin is not None
    try:
        address = next(line.strip() for line in head.stdout if line.strip().rpartition(":")[2].isdigit())
        out: list[Outcome] = []
        with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
            for number in range(seed, seed + schedules):
                out.append(one(number, Path(folder), address))
                if out[-1].wrong:
                    print(f"schedule {number}: {out[-1].wrong}", flush=True)
                if len(out) % 10 == 0:
                    print(f"{len(out)} of {schedules}", flush=True)
        return out
    finally:
        head.stdin.close()
        head.wait(timeout=30)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts it in the background turns it off
    began = time.monotonic()
    outcomes = soak(chosen.schedules, chosen.seed)
    kills = sum((outcome.kills for outcome in outcomes), Counter())
    print(f"{len(outcomes)} runs, {sum(outcome.wrong != '' for outcome in outcomes)} wrong")
    print(f"{kills.total()} kills: {', '.join(f'{number} {kind}' for kind, number in sorted(kills.items()))}")
    print(
        f"{sum(outcome.lives - 1 for outcome in outcomes)} resumes, {sum(o.trained for o in outcomes)} prompts trained"
    )
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    main()
