# pyright: basic, reportMissingImports=false
"""What runs in the processes of a Ray run. Imports torch only once the number of threads is set."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import socket
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lagproof.config import Config
    from lagproof.data.samples import Group
    from lagproof.runtime.executor import Moment
    from lagproof.runtime.schedule import Train

Packed = Mapping[str, tuple[str, Any]]
"""Weights as they travel: name of the type and array of each parameter."""
PACKAGES = ("lagproof", "torch", "transformers")


class ActorFailure(Exception):
    """An error of an actor, as its type, its message and where it happened: three texts, which always travel."""

    @property
    def kind(self) -> str:
        return self.args[0]

    @property
    def text(self) -> str:
        return self.args[1]


@dataclass(frozen=True)
class Order:
    """What a process needs to begin.

    Attributes:
        config: of the run, as TOML values.
        saved: checkpoint that the run goes on from.
        data: what the driver's files of the task are.
        versions: of the driver's packages, see :func:`versions`.
    """

    config: Mapping[str, Any]
    saved: str | None
    data: Mapping[str, Any] | None
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Place:
    """Where an actor runs."""

    process: int
    node: str


@dataclass(frozen=True)
class ActorReply:
    """The answer of an actor.

    Attributes:
        value: what was asked for.
        seconds: spent on it, by what they were spent on.
    """

    value: Any
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class SampledVersions:
    """What the driver learns of a group: the versions behind its tokens, and how many tokens."""

    oldest: int
    newest: int
    tokens: int


def versions() -> dict[str, str]:
    """Of the packages that must be the same in all processes, and of Python."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {**found, "python": platform.python_version()}


def _reported(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            text = str(error) or type(error).__name__
            raise ActorFailure(type(error).__name__, text, traceback.format_exc()) from None

    return call


class RunActor:
    """A process of a run: with as many threads as it may have, and the driver's packages.

    The constructor does nothing that can fail, since Ray reports errors of calls better than those of constructors.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self._open = ExitStack()

    def _begin(self) -> Config:
        from lagproof.config import Config
        from lagproof.errors import RunStoppedError

        here, there = versions(), self.order.versions
        if here != there:
            differing = [name for name in there if here.get(name) != there[name]]
            told = ", ".join(f"{name} {here.get(name)} instead of {there[name]}" for name in differing)
            raise RunStoppedError(
                f"{socket.gethostname()} has {told}: all machines of a run need the driver's versions"
            )
        config = Config(**self.order.config)
        os.environ["OMP_NUM_THREADS"] = str(config.ray.threads)
        import torch

        torch.set_num_threads(config.ray.threads)
        return config

    def _place(self) -> Place:
        return Place(os.getpid(), socket.gethostname())

    def _load(self, config: Config) -> Any:
        from lagproof.models.loading import load

        return load(config.model if self.order.saved is None else self.order.saved)

    def _task(self, config: Config) -> Any:
        from lagproof import tasks
        from lagproof.errors import InputError

        task = tasks.build(config.task.name, config.task.options, config.seed)
        self._open.callback(task.close)
        if task.data != self.order.data:
            host = socket.gethostname()
            raise InputError(f"the data of the task {task.name!r} on {host} are not those of the driver")
        return task


class RolloutActor(RunActor):
    """Samples, grades and evaluates."""

    @_reported
    def begin(self) -> Place:
        """Everything that takes long or may fail."""
        from lagproof.runtime.watch import Watch
        from lagproof.runtime.worker import Evaluator, RolloutWorker, check_prompts

        config = self._begin()
        task, loaded = self._task(config), self._load(config)
        check_prompts(config, task, loaded)
        self._watch, self._model = Watch(), loaded.model
        self._worker = RolloutWorker.build(config, task, loaded, self._watch)
        self._evaluator = Evaluator(config, task, loaded, self._watch)
        return self._place()

    @_reported
    def load(self, version: int, weights: Packed) -> ActorReply:
        """Sample with these weights from now on."""
        with self._watch.on("publish"):
            self._worker.engine.load(version, unpacked(weights))
        return ActorReply(None, self._watch.take())

    @_reported
    def sample(self, prompts: Sequence[int], version: int) -> tuple[Any, ...]:
        """What the driver learns of the groups, and the groups."""
        engine = self._worker.engine
        assert engine.version == version, f"weights {engine.version} are loaded, {version} are asked for"
        groups = self._worker.sample(prompts)
        found = [_versions_of(group, version) for group in groups]
        return ActorReply(found, self._watch.take()), *groups

    @_reported
    def evaluate(self, version: int, weights: Packed) -> ActorReply:
        """Evaluate these weights; those that are sampled with stay as they are."""
        import torch

        own = dict(self._model.named_parameters())
        with torch.no_grad():
            for name, weight in unpacked(weights).items():
                own[name].copy_(weight)
        return ActorReply(dict(self._evaluator.evaluate(version)), self._watch.take())


class LearnerActor(RunActor):
    """Trains, publishes, and writes rollouts and checkpoints."""

    @_reported
    def begin(self) -> Place:
        """Load the model."""
        self._config = self._begin()
        self._loaded = self._load(self._config)
        return self._place()

    @_reported
    def open(self, run_dir: str, published: int, in_flight: Collection[int]) -> None:
        """Take up the work of a run whose directory is there now."""
        from lagproof.runs import checkpoints
        from lagproof.runs.writer import RunWriter
        from lagproof.runtime.trainer import Trainer
        from lagproof.runtime.watch import Watch
        from lagproof.runtime.worker import Evaluator

        writer = RunWriter.open(Path(run_dir))
        self._open.enter_context(writer.learner_locked())
        config, loaded = self._config, self._loaded
        state = None if self.order.saved is None else checkpoints.load_state(Path(self.order.saved))
        self._held = {} if state is None else dict(state.held)
        self._watch = Watch()
        self._trainer = Trainer.build(config, loaded, writer, self._watch, published, in_flight, state)
        self._evaluator = None
        if config.eval.every and config.eval.where == "learner":
            self._evaluator = Evaluator(config, self._task(config), loaded, self._watch)

    @_reported
    def held(self, tickets: Sequence[int]) -> Any:
        """The groups of a restored run; they are forgotten here."""
        groups = [self._held.pop(ticket) for ticket in tickets]
        return groups[0] if len(groups) == 1 else groups

    @_reported
    def published(self) -> Packed:
        """The weights that engines start with."""
        return packed(self._trainer.channel.fetch()[1])

    @_reported
    def present(self) -> Packed:
        """The newest weights."""
        return packed(dict(self._loaded.model.named_parameters()))

    @_reported
    def train(self, command: Train, *groups: Group) -> ActorReply:
        return ActorReply(self._trainer.train(command, groups), self._watch.take())

    @_reported
    def publish(self, version: int, in_flight: Collection[int]) -> ActorReply:
        """Keep the newest weights for checkpoints and probes: they are what engines sample with."""
        self._trainer.publish(version, in_flight)
        return ActorReply(None, self._watch.take())

    @_reported
    def evaluate(self, version: int) -> ActorReply:
        assert self._evaluator is not None
        return ActorReply(dict(self._evaluator.evaluate(version)), self._watch.take())

    @_reported
    def save(self, moment: Moment, tickets: Sequence[int], *groups: Group) -> None:
        self._trainer.save(moment, dict(zip(tickets, groups, strict=True)))


def packed(weights: Mapping[str, Any]) -> Packed:
    """Tensors as arrays, which Ray puts into shared memory once and reads there without a copy."""
    import torch

    out: dict[str, tuple[str, Any]] = {}
    for name, weight in weights.items():
        plain = weight.detach().cpu().contiguous()
        kind = str(plain.dtype).removeprefix("torch.")
        out[name] = (kind, (plain.view(torch.int16) if kind == "bfloat16" else plain).numpy())  # numpy has no bfloat16
    return out


def unpacked(weights: Packed) -> dict[str, Any]:
    """The inverse of :func:`packed`: tensors in shared memory, to be read and not written."""
    import warnings

    import torch

    out: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        for name, (kind, array) in weights.items():
            tensor = torch.from_numpy(array)
            out[name] = tensor.view(torch.bfloat16) if kind == "bfloat16" else tensor
    return out


def _versions_of(group: Group, version: int) -> SampledVersions:
    found = group.versions or {version}
    return SampledVersions(min(found), max(found), sum(len(sample.response_ids) for sample in group.samples))
