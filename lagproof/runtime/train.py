"""One run from its configuration: builds its components, joins them, and resumes where an earlier process stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lagproof import objectives as rules
from lagproof import tasks
from lagproof.config import Config, ScheduleConfig
from lagproof.data.rows import Row
from lagproof.errors import CheckpointError, ConfigError, InputError, RunDirError
from lagproof.models.loading import Loaded, load
from lagproof.monitor.alarm import Alarm, Monitor
from lagproof.runs import checkpoints
from lagproof.runs.run import Run, RunResult
from lagproof.runs.writer import RunWriter, check_free
from lagproof.runtime.driver import Driver
from lagproof.runtime.idle import IdleNote
from lagproof.runtime.inline import InlineExecutor
from lagproof.runtime.interrupt import interruptible
from lagproof.runtime.outcome import finish, finished
from lagproof.runtime.ray.cluster import cluster
from lagproof.runtime.ray.executor import RayExecutor, RayProcesses
from lagproof.runtime.replay import ReplayExecutor, ScheduleRecord
from lagproof.runtime.schedule import Admission, FailureLimits, MaxAge, Periodic, Plan, Scheduler, Threshold
from lagproof.runtime.simulated import SimulatedExecutor
from lagproof.runtime.trainer import Trainer
from lagproof.runtime.watch import Watch
from lagproof.runtime.worker import Evaluator, RolloutWorker, check_prompts
from lagproof.settings.models import Named
from lagproof.tasks.task import Task


def train(
    config: Config | str | Path | Mapping[str, Any],
    *,
    resume: bool = False,
    on_step: Callable[[Row], None] | None = None,
    on_tokens: Callable[[int], None] | None = None,
    on_alarm: Callable[[Alarm], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> RunResult:
    """Run ``config``.

    SIGINT and SIGTERM finish the step, save and raise; a second one stops at once.

    Args:
        config: the run, or a TOML file or the tables of one. With ``resume`` it must be the one in ``run_dir``, but
            for what is saved.
        resume: continue in ``config.run_dir``; starts over where it has no checkpoint yet.
        on_step: called with each row of metrics as it is written.
        on_tokens: called with how many tokens were just sampled, for showing progress within a step of a slow model.
        on_alarm: called with each alarm as it fires.
        on_note: called with what a person should know, such as a damaged checkpoint; the run keeps it too.

    Raises:
        UsageError: the configuration, the task, the model or the directory cannot be used.
        CheckpointError: no checkpoint of the run can be read.
        RunStoppedError: the run cannot continue, with the reason; the run keeps it too.
        InterruptedRunError: asked to stop; everything is saved.
    """
    config = resolve(_config(config))
    if resume and config.replay is not None:
        raise RunDirError(
            f"--resume {config.run_dir}: it repeats the schedule of {config.replay}, from its first event; a replay "
            f"cannot be resumed: start it again with --replay {config.replay}"
        )
    path, note = Path(config.run_dir), on_note or _ignore
    writer = _reopen(config, note) if resume else None
    if writer is None:
        check_free(path)
    elif (ended := finished(path)) is not None:
        return ended
    with ExitStack() as held:
        if writer is not None:
            held.enter_context(writer.locked())
        task = held.enter_context(closing(tasks.build(config.task.name, config.task.options, config.seed)))
        _check_data(config, task)
        if writer is not None:
            writer.check_data(task.data)
        saved = None if writer is None else _newest(writer)
        sides = held.enter_context(_begun(config, task, saved, note))
        if writer is None:
            writer = RunWriter.create(path, config.to_dict(), task.data, note)
            held.enter_context(writer.locked())
        interrupted = held.enter_context(interruptible())
        observers = Observers(interrupted, on_step or _ignore, on_tokens or _ignore, on_alarm or _ignore)
        objective = rules.objective(config.objective.name, **config.objective.options)
        idle = IdleNote(objective, writer.note)
        observers = replace(observers, on_row=idle.before(observers.on_row))
        stop = _join(config, task, sides, writer, saved, observers).run()
        idle.finish(writer.rows())
    return finish(config, writer, stop)


def _config(given: Config | str | Path | Mapping[str, Any]) -> Config:
    if isinstance(given, Config):
        return given
    if isinstance(given, str | Path):
        return Config.load(given)
    if isinstance(given, Mapping):
        return Config.of_table(given)
    raise ConfigError(
        f"config is {type(given).__name__}: must be lp.Config(...), the path of a TOML file, or a dict of its tables"
    )


def resolve(config: Config) -> Config:
    """The same run with every default of its task and objective filled in, checked before anything is built.

    Raises:
        ConfigError: an unknown name or option, or two settings that exclude each other.
    """
    objective = rules.objective(config.objective.name, **config.objective.options)
    if objective.needs.sampler and not config.rollout.record_logp:
        raise ConfigError(
            f"rollout.record_logp = false: {objective.name} compares the policy with the sampler and needs it; "
            f"set it to true, or choose one that needs none ({', '.join(rules.without('sampler'))})"
        )
    learner = config.learner
    advantage = objective.default_advantage if learner.advantage == "auto" else learner.advantage
    how = objective.default_reduction if learner.reduction == "auto" else learner.reduction
    return replace(
        config,
        task=Named(config.task.name, tasks.resolve(config.task.name, config.task.options)),
        objective=Named(objective.name, {**rules.defaults(objective.name), **config.objective.options}),
        schedule=_resolved_schedule(config.schedule),
        learner=replace(learner, advantage=advantage, reduction=how, anchor=_anchor(objective, learner.anchor)),
    )


def _anchor(objective: rules.Objective, name: str) -> str:
    if name == "auto":
        return "sampling_version" if objective.needs.anchor else "none"
    if name == "none" and objective.needs.anchor:
        raise ConfigError(
            f"learner.anchor = none: {objective.name} compares the policy with an anchor; set it to "
            f"sampling_version, or choose one that needs none ({', '.join(rules.without('anchor'))})"
        )
    return name


def _resolved_schedule(schedule: ScheduleConfig) -> ScheduleConfig:
    is_free = schedule.staleness_threshold is not None or schedule.max_age is not None
    return schedule if is_free else replace(schedule, batches_ahead=schedule.ahead)


@dataclass(frozen=True)
class Observers:
    """The callbacks of a run."""

    interrupted: Callable[[], bool]
    on_row: Callable[[Row], None]
    on_tokens: Callable[[int], None]
    on_alarm: Callable[[Alarm], None]


def _ignore(what: object) -> None:
    pass


@contextmanager
def _begun(
    config: Config, task: Task, saved: Path | None, on_note: Callable[[str], None]
) -> Iterator[Loaded | RayProcesses]:
    """Whatever takes long before a run, or may show that it cannot be: its model, or the processes that have it."""
    if config.runtime != "ray":
        loaded = load(config.model if saved is None else saved)
        check_prompts(config, task, loaded)
        yield loaded
        return
    on_note(f"starting Ray: a learner and rollout.workers = {config.rollout.workers}")
    with cluster(config.ray, 1 + config.rollout.workers, on_note):
        processes = RayProcesses(config, task.data, saved)
        with closing(processes):
            yield processes


def _join(
    config: Config,
    task: Task,
    sides: Loaded | RayProcesses,
    writer: RunWriter,
    saved: Path | None,
    observers: Observers,
) -> Driver:
    seen = None if saved is None else checkpoints.load_progress(saved)
    plan = _plan(config, task)
    scheduler = Scheduler(plan) if seen is None else Scheduler.restore(plan, seen.schedule)
    if seen is not None:
        writer.rewind(seen.version, seen.written)
    watch = Watch()
    if isinstance(sides, RayProcesses):
        executor = RayExecutor(config, sides, scheduler, writer.path, watch, observers.on_tokens, writer.note)
    else:
        executor = _local(config, task, sides, scheduler, writer, saved, watch, observers.on_tokens)
    monitor = Monitor(config.alarm)
    writer.replay(monitor.observe)
    return Driver(
        config,
        scheduler,
        executor,
        writer,
        watch,
        saved=None if seen is None else seen.version,
        monitor=monitor,
        interrupted=observers.interrupted,
        on_row=observers.on_row,
        on_alarm=observers.on_alarm,
    )


def _local(
    config: Config,
    task: Task,
    loaded: Loaded,
    scheduler: Scheduler,
    writer: RunWriter,
    saved: Path | None,
    watch: Watch,
    on_tokens: Callable[[int], None],
) -> InlineExecutor | SimulatedExecutor | ReplayExecutor:
    """Both sides of a run in this process."""
    state = None if saved is None else checkpoints.load_state(saved)
    trainer = Trainer.build(config, loaded, writer, watch, scheduler.published, scheduler.in_flight, state)
    worker = RolloutWorker.build(config, task, loaded, watch, on_tokens)
    worker.engine.load(*trainer.channel.fetch())
    evaluator = Evaluator(config, task, loaded, watch, on_tokens)
    if config.replay is not None:
        return ReplayExecutor(ScheduleRecord(Run.open(config.replay)), trainer, worker, evaluator, watch)
    held = None if state is None else state.held
    if config.runtime == "simulated":
        return SimulatedExecutor(config, trainer, worker, evaluator, watch, held)
    return InlineExecutor(trainer, worker, evaluator, watch, held, config.rollout.workers)


def _plan(config: Config, task: Task) -> Plan:
    num_prompts = None if config.epochs is None or task.size is None else config.epochs * task.size
    return Plan(
        admission=_admission(config.schedule),
        prompts_per_step=config.rollout.prompts,
        steps=config.steps,
        num_prompts=num_prompts,
        limits=FailureLimits(
            zero_variance_batches=config.learner.max_zero_variance_batches,
            bad_steps=config.learner.max_bad_steps,
            restarts=config.ray.restarts,
        ),
    )


def _admission(schedule: ScheduleConfig) -> Admission:
    if schedule.staleness_threshold is not None:
        return Threshold(schedule.staleness_threshold, schedule.broadcast_every)
    if schedule.max_age is not None:
        return MaxAge(schedule.max_age, schedule.late, schedule.broadcast_every)
    return Periodic(schedule.broadcast_every, schedule.ahead)


def _check_data(config: Config, task: Task) -> None:
    if config.epochs is not None and task.size is None:
        raise ConfigError(
            f"epochs = {config.epochs}: the task {task.name!r} is a stream without an end, so that no epoch of it is "
            "ever over; leave epochs out and set steps"
        )
    if task.size is not None and task.size < config.rollout.prompts:
        raise InputError(
            f"rollout.prompts = {config.rollout.prompts}: the task {task.name!r} has {task.size} problems; "
            "a batch must not hold a problem twice: lower rollout.prompts or give more data"
        )


def _reopen(config: Config, on_note: Callable[[str], None]) -> RunWriter:
    """The directory to resume in, begun with the same configuration."""
    path = Path(config.run_dir)
    writer = RunWriter.open(path, on_note)
    differing = _differences(Config(**writer.config()).to_dict(), config.to_dict())
    if differing:
        raise RunDirError(
            f"--resume {path}: it was begun with other settings: {'; '.join(differing)}; a run resumes as it began: "
            "leave them, or start a new run_dir"
        )
    return writer


def _check_config(writer: RunWriter, checkpoint: Path) -> None:
    """Refuse a configuration that was edited since the checkpoint was written."""
    then = checkpoints.load_config(checkpoint)
    edited = [] if then is None else _differences(then, writer.config())
    if edited:
        raise RunDirError(
            f"{writer.layout.config}: was edited since {checkpoint.name} was written: {'; '.join(edited)}; a run "
            "resumes as it began: put that back, or start a new run_dir"
        )


def _newest(writer: RunWriter) -> Path | None:
    """The newest checkpoint that can be read; without any the run starts over."""
    found = writer.layout.saved()
    problems: list[str] = []
    for candidate in reversed(found):
        try:
            checkpoints.verify(candidate)
            seen = checkpoints.load_progress(candidate)
            if lacks := writer.lacks(seen.version, seen.written):
                raise CheckpointError(lacks)
        except CheckpointError as error:
            problems.append(str(error))
            continue
        _check_config(writer, candidate)
        for problem in problems:
            writer.note(f"{problem}; resuming from {candidate.name}")
        return candidate
    if problems:
        raise CheckpointError("; ".join(problems) + "; no earlier checkpoint is left: start a new run_dir")
    writer.rewind(0, {})
    return None


_FREE = {"run_dir", "save", "runtime", "ray", "rollout.workers", "eval.where"}
"""What a resumed run may have otherwise: where things run, and what is kept of them."""


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> list[str]:
    out: list[str] = []
    for name in sorted({*before, *after}):
        key, a, b = prefix + name, before.get(name), after.get(name)
        if key in _FREE or a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            out += _differences(a, b, f"{key}.")
        else:
            out.append(f"{key} was {_value(a)} and is {_value(b)}")
    return out


def _value(value: Any) -> str:
    return "absent" if value is None else repr(value)
