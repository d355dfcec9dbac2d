"""Sides of a run that need no model: real processes under a real driver, which fail where they are told to.

The classes are made inside functions, so that Ray carries them by value to processes that cannot import them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from lagproof.config import Config
from lagproof.data.rows import Row
from lagproof.runs.run import Run
from lagproof.runs.writer import RunWriter
from lagproof.runtime.driver import Driver
from lagproof.runtime.ray import executor as executor_module
from lagproof.runtime.ray.actors import LearnerActor, RolloutActor
from lagproof.runtime.ray.executor import RayExecutor, RayProcesses
from lagproof.runtime.schedule import PromptCounts, Scheduler, Stop, from_json
from lagproof.runtime.train import _plan, resolve
from lagproof.runtime.watch import Watch
from lagproof.tasks import build

Faults = Mapping[int, str]
"""What happens at a prompt, a batch or the evaluation of a step: kill | raise | hang | garbage | ``once:`` and one."""

SETTINGS = ("runtime=ray", "eval.every=0", "rollout.prompts=4", "steps=6", "save.every=2", "rollout.samples=2")


def settings(path: Path, *overrides: str) -> Config:
    return resolve(Config.load(None, [*SETTINGS, f"run_dir={json.dumps(str(path))}", *overrides]))


def sides(marks: Path, faults: Faults, batch_faults: Faults, work_s: float = 0.0) -> tuple[type, type]:
    """A rollout worker and a learner.

    Args:
        marks: where it is remembered what happened once.
        faults: at prompts, and at evaluations under ``-1 - step``.
        batch_faults: at batches.
        work_s: seconds that a prompt and a batch take.
    """

    def happen(kind: str, number: int, table: Faults) -> str:
        what = table.get(number, "")
        if what.startswith("once:"):
            mark = marks / f"{kind}-{number}"
            what = "" if mark.exists() else what.removeprefix("once:")
            mark.touch()
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "hang":
            signal.pause()
        if what == "raise":
            raise ArithmeticError(f"{kind} {number} is cursed")
        return what

    class StubRollout(RolloutActor):
        def begin(self) -> Any:
            return self._place()

        def load(self, version: int, weights: Any) -> Any:
            from lagproof.runtime.ray.actors import ActorReply

            self._version = version
            return ActorReply(None, {})

        def sample(self, prompts: Any, version: int) -> Any:
            import time

            from lagproof.data.samples import Finish, Group, Sample
            from lagproof.runtime.ray.actors import ActorReply, SampledVersions

            assert self._version == version, (self._version, version)
            groups, found = [], []
            for prompt in prompts:
                time.sleep(work_s)
                if happen("prompt", prompt, faults) == "garbage":
                    return ("banana", *[None] * len(prompts))
                sample = Sample([1], [2], [version], Finish.STOP, reward=0.0)
                groups.append(Group(prompt, str(prompt), (sample,)))
                found.append(SampledVersions(version, version, 1))
            return ActorReply(found, {}), *groups

        def evaluate(self, version: int, weights: Any) -> Any:
            from lagproof.data.slices import Key
            from lagproof.runtime.ray.actors import ActorReply

            happen("evaluation", version, {-1 - n: what for n, what in faults.items()})
            return ActorReply({Key("eval/accuracy"): float(version)}, {})

    class StubLearner(LearnerActor):
        def begin(self) -> Any:
            return self._place()

        def open(self, run_dir: str, published: int, in_flight: Any) -> None:
            self._dir = Path(run_dir)
            self._trained: list[list[int]] = []
            self._groups: dict[int, int] = {}
            if self.order.saved is not None:
                state = json.loads(Path(self.order.saved).read_text())
                self._trained = state["trained"]
                self._groups = {int(ticket): prompt for ticket, prompt in state["held"].items()}

        def held(self, tickets: Any) -> Any:
            from lagproof.data.samples import Group

            groups = [Group(self._groups[ticket], "", ()) for ticket in tickets]
            return groups[0] if len(groups) == 1 else groups

        def published(self) -> Any:
            return {}

        def present(self) -> Any:
            return {}

        def train(self, command: Any, *groups: Any) -> Any:
            import time

            from lagproof.data.samples import StepOutcome
            from lagproof.runtime.executor import Trained
            from lagproof.runtime.ray.actors import ActorReply

            time.sleep(work_s)
            what = happen("batch", command.batch, batch_faults)
            step = len(self._trained)
            if what in ("non_finite", "zero_variance"):
                return ActorReply(Trained(command.batch, StepOutcome(what), step, {}, 1), {})
            self._trained.append([group.prompt for group in groups])
            return ActorReply(Trained(command.batch, StepOutcome.TRAINED, step + 1, {}, 1), {})

        def publish(self, version: int, in_flight: Any) -> Any:
            from lagproof.runtime.ray.actors import ActorReply

            return ActorReply(None, {})

        def save(self, moment: Any, tickets: Any, *groups: Any) -> None:
            held = {ticket: group.prompt for ticket, group in zip(tickets, groups, strict=True)}
            state = {
                "version": moment.version,
                "schedule": dict(moment.schedule),
                "written": dict(moment.written),
                "held": held,
                "trained": self._trained,
            }
            beside = self._dir / "stub.tmp"
            beside.write_text(json.dumps(state))
            os.replace(beside, self._dir / "stub.json")

    return StubRollout, StubLearner


@contextlib.contextmanager
def used(rollout: type, learner: type) -> Iterator[None]:
    before = executor_module.RolloutActor, executor_module.LearnerActor
    executor_module.RolloutActor, executor_module.LearnerActor = rollout, learner
    try:
        yield
    finally:
        executor_module.RolloutActor, executor_module.LearnerActor = before


def drive(
    config: Config,
    faults: Faults | None = None,
    batch_faults: Faults | None = None,
    *,
    work_s: float = 0.0,
    on_row: Callable[[Row], None] = lambda row: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Stop:
    """Run, or resume, with stubs; the driver, the scheduler, the files and the processes are real."""
    path = Path(config.run_dir)
    task = build("arithmetic")
    file = path / "stub.json"
    saved = json.loads(file.read_text()) if file.exists() else None
    plan = _plan(config, task)
    scheduler = Scheduler(plan) if saved is None else Scheduler.restore(plan, saved["schedule"])
    writer = RunWriter(path) if path.exists() else RunWriter.create(path, config.to_dict(), None)
    writer.rewind(*((0, {}) if saved is None else (saved["version"], saved["written"])))
    marks = path / "marks"
    marks.mkdir(exist_ok=True)
    watch = Watch()
    with used(*sides(marks, faults or {}, batch_faults or {}, work_s)):
        processes = RayProcesses(config, None, None if saved is None else file)
        with closing(processes):
            executor = RayExecutor(config, processes, scheduler, path, watch, lambda n: None, writer.note)
            version = None if saved is None else saved["version"]
            driver = Driver(
                config, scheduler, executor, writer, watch, saved=version, on_row=on_row, interrupted=interrupted
            )
            try:
                return driver.run()
            finally:
                scheduler.check()
                assert scheduler.counts.adds_up


def trained(path: Path) -> list[list[int]]:
    """Prompts of each step, as the learner got them."""
    return json.loads((path / "stub.json").read_text())["trained"]


def counts(config: Config) -> PromptCounts:
    """The books at the end, from the record alone; one that was resumed is checked by what was trained."""
    scheduler = Scheduler(_plan(config, build("arithmetic")))
    for record in Run.open(config.run_dir).schedule:
        scheduler.handle(from_json({k: v for k, v in record.items() if k != "call"}))
        scheduler.check()
    return scheduler.counts


def processes_of(path: Path) -> tuple[int, list[int]]:
    """Learner and rollout workers that were told of last."""
    lines = (path / "notes.txt").read_text().splitlines()
    first = [line for line in lines if line.startswith("Ray: learner in process")][-1]
    numbers = [int(word.strip(",")) for word in first.split() if word.strip(",").isdigit()]
    workers = dict(enumerate(numbers[1:]))
    for line in lines[lines.index(first) :]:
        words = line.split()
        if "runs again in process" in line:
            workers[int(words[2])] = int(words[7])
    return numbers[0], list(workers.values())


def flat(steps: Iterable[Iterable[int]]) -> list[int]:
    return [prompt for step in steps for prompt in step]
