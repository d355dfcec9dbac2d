"""The schedule executed in one process: deterministic, bit-reproducible, interruptible between two steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from lagproof.config import Config
from lagproof.data.batch import Batch
from lagproof.data.metrics import values
from lagproof.data.rows import Row
from lagproof.data.samples import Group, Sample
from lagproof.data.slices import Key
from lagproof.data.streams import Purpose, stream
from lagproof.errors import InterruptedRunError
from lagproof.learner.probe import probe
from lagproof.learner.step import Learner
from lagproof.metrics.responses import by_task, reasons, responses
from lagproof.models.loading import Loaded, encode
from lagproof.models.loading import save as save_model
from lagproof.monitor.alarm import Alarm, Monitor
from lagproof.rollout.engine import Engine, Request, Sampling
from lagproof.runs import checkpoints
from lagproof.runs.writer import RunWriter
from lagproof.runtime.publication import MemoryChannel
from lagproof.runtime.schedule import (
    Begin,
    Command,
    Discard,
    Event,
    Publish,
    SampleFinished,
    Scheduler,
    Start,
    StepFinished,
    StepOutcome,
    Stop,
    Train,
    WeightsLoaded,
    WorkerJoined,
)
from lagproof.runtime.watch import Watch
from lagproof.tasks.task import Answer, Grade, Problem, Task, position

Weights = Mapping[str, Tensor]
WORKER = 0


@dataclass(frozen=True)
class Components:
    """The parts that a run joins."""

    task: Task
    loaded: Loaded
    learner: Learner
    engine: Engine
    evaluator: Callable[[int], Mapping[Key, float]]
    channel: MemoryChannel


class InlineRun:
    """Executes the commands of a scheduler; commands that follow from an event come before those that were left.

    So a publication is loaded, and the starts that waited for it are sampled, before the learner moves the weights.

    Args:
        config: resolved.
        parts: see :class:`Components`.
        scheduler: new or restored.
        writer: where rows, rollouts and checkpoints go.
        held: groups by ticket, of a restored run.
        kept: weights of versions in flight, of a restored run.
        monitor: has seen the rows that are written already.
        interrupted: asked between two steps; when true the run saves everything and raises.
        on_row: called with every row of metrics.
        on_alarm: called with every alarm that a row makes fire.
    """

    def __init__(
        self,
        config: Config,
        parts: Components,
        scheduler: Scheduler,
        writer: RunWriter,
        *,
        held: Mapping[int, Group] | None = None,
        kept: Mapping[int, Weights] | None = None,
        monitor: Monitor | None = None,
        interrupted: Callable[[], bool] = lambda: False,
        on_row: Callable[[Row], None] = lambda row: None,
        on_alarm: Callable[[Alarm], None] = lambda alarm: None,
    ) -> None:
        self._config, self._parts, self._scheduler, self._writer = config, parts, scheduler, writer
        self._held: dict[int, Group] = dict(held or {})
        self._kept: dict[int, Weights] = dict(kept or {})
        self._keep()
        self._monitor = monitor or Monitor(config.alarm)
        self._interrupted, self._on_row, self._on_alarm = interrupted, on_row, on_alarm
        self._sampling = Sampling(
            max_tokens=config.rollout.max_tokens,
            temperature=config.rollout.temperature,
            top_p=config.rollout.top_p,
            top_k=config.rollout.top_k,
            record_logp=config.rollout.record_logp,
        )
        self._watch = Watch()
        self._saved: int | None = scheduler.version if held is not None else None

    def run(self) -> Stop:
        """Until the scheduler says stop.

        Raises:
            InterruptedRunError: asked to stop; everything is saved.
            RunDirError: the disk is full or cannot be written.
        """
        if self._saved is None and self._config.eval.every:
            self._write(Row(0, self._evaluate()), 0)
        todo: deque[Command] = deque(self._scheduler.handle(WorkerJoined(WORKER, self._parts.engine.version), Begin()))
        while True:
            command = todo.popleft()
            match command:
                case Start():
                    answers = self._sample([command, *_leading_starts(todo)])
                case Train():
                    self._between_steps()
                    answers = [self._train(command)]
                case Publish():
                    answers = [self._publish(command)]
                case Discard():
                    del self._held[command.ticket]
                    answers = []
                case Stop():
                    self.save()
                    return command
                case _:
                    raise AssertionError(f"{command} cannot happen with one worker that never fails")
            todo.extendleft(reversed(self._scheduler.handle(*answers)))

    def save(self) -> None:
        """A checkpoint of this moment, unless there is one already."""
        version = self._scheduler.version
        if self._saved == version:
            return
        self._writer.flush(version)
        published, weights = self._parts.channel.fetch()
        state = checkpoints.Checkpoint(
            version=version,
            schedule=self._scheduler.snapshot(),
            held={ticket: self._held[ticket] for ticket in self._scheduler.held},
            optimizer=self._parts.learner.optimizer.state_dict(),
            sampler=None if published == version else weights,
            kept={v: weights for v, weights in self._kept.items() if v != published},
            metrics_bytes=self._writer.metrics_bytes,
        )
        loaded = self._parts.loaded
        checkpoints.save(
            self._writer.layout,
            state,
            lambda folder: save_model(folder, loaded.model, loaded.tokenizer),
            self._config.save.keep,
        )
        self._saved = version

    def _between_steps(self) -> None:
        version = self._scheduler.version
        if self._interrupted():
            self.save()
            raise InterruptedRunError(
                f"stopped after step {version} of {self._config.steps}; continue with --resume {self._writer.path}"
            )
        if version and version % self._config.save.every == 0:
            self.save()

    def _problem(self, prompt: int) -> Problem:
        task = self._parts.task
        order_seed = stream(self._config.seed, Purpose.ORDER)
        return task.problem(position(prompt, task.size, order_seed)[1])

    def _sample(self, starts: Sequence[Start]) -> list[Event]:
        parts, config = self._parts, self._config
        problems = [self._problem(start.prompt) for start in starts]
        requests = [
            Request(
                encode(parts.loaded, problem.prompt),
                config.rollout.samples,
                stream(config.seed, Purpose.SAMPLE, start.prompt),
                problem.stop if config.rollout.stop is None else config.rollout.stop,
            )
            for problem, start in zip(problems, starts, strict=True)
        ]
        with self._watch.on("sample"):
            sampled = parts.engine.generate(requests, self._sampling)
        with self._watch.on("grade"):
            graded = self._grade(problems, sampled)
        events: list[Event] = []
        for start, problem, samples in zip(starts, problems, graded, strict=True):
            info = {"task": problem.task, "gold": problem.gold}
            group = self._held[start.ticket] = Group(start.prompt, problem.id, samples, info)
            versions = group.versions or {start.version}
            events.append(SampleFinished(start.ticket, min(versions), max(versions)))
        return events

    def _grade(self, problems: Sequence[Problem], sampled: Sequence[Sequence[Sample]]) -> list[list[Sample]]:
        answers = [
            Answer(problem, sample.text, sample.finish)
            for problem, samples in zip(problems, sampled, strict=True)
            for sample in samples
        ]
        grades = iter(self._parts.task.grade(answers))
        return [[_graded(sample, next(grades)) for sample in samples] for samples in sampled]

    def _train(self, command: Train) -> Event:
        with self._watch.on("learn"):
            result = self._parts.learner.step(Batch.of([self._held.pop(ticket) for ticket in command.tickets]))
        batch = result.batch
        step = self._parts.learner.version
        found = values(result.metrics | responses(batch.samples) | reasons(batch.samples) | by_task(batch.groups))
        if result.outcome is StepOutcome.TRAINED:
            if self._config.save.rollouts:
                self._writer.record(batch, step)
            found |= self._probe(batch, step)
            if self._is_evaluated(step):
                found |= self._evaluate()
        outcome = None if result.outcome is StepOutcome.TRAINED else str(result.outcome)
        self._write(Row(step, found, command.batch, outcome), batch.num_tokens)
        return StepFinished(command.batch, result.outcome)

    def _probe(self, batch: Batch, step: int) -> dict[Key, float]:
        config = self._config.probe
        if not config.every or step % config.every:
            return {}
        with self._watch.on("probe"):
            split = probe(
                self._parts.loaded.model,
                batch,
                self._kept,
                temperature=self._config.rollout.temperature,
                responses=config.responses,
                budget_tokens=self._config.learner.micro_batch_tokens,
            )
        return values(split)

    def _keep(self) -> None:
        """Keep the weights of the versions in flight for the probe, the newest few of them; the channel copied them."""
        if not self._config.probe.every:
            return
        published, weights = self._parts.channel.fetch()
        in_flight = {published}.union(*(group.versions for group in self._held.values()))
        kept = {v: w for v, w in {**self._kept, published: weights}.items() if v in in_flight}
        self._kept = {v: kept[v] for v in sorted(kept)[-self._config.probe.versions :]}

    def _is_evaluated(self, step: int) -> bool:
        every = self._config.eval.every
        return bool(every) and (step % every == 0 or step == self._config.steps)

    def _evaluate(self) -> Mapping[Key, float]:
        with self._watch.on("eval"):
            return self._parts.evaluator(self._parts.learner.version)

    def _publish(self, command: Publish) -> Event:
        with self._watch.on("publish"):
            self._parts.channel.publish(command.version, dict(self._parts.loaded.model.named_parameters()))
            self._parts.engine.load(*self._parts.channel.fetch())
        self._keep()
        return WeightsLoaded(WORKER, command.version)

    def _write(self, row: Row, num_tokens: int) -> None:
        full = replace(row, values={**row.values, **self._watch.read(num_tokens)})
        self._writer.append(full)
        self._on_row(full)
        for alarm in self._monitor.observe(full):
            self._writer.alarm(alarm)
            self._on_alarm(alarm)


def _graded(sample: Sample, grade: Grade) -> Sample:
    return replace(sample, reward=grade.reward, reason=grade.reason)


def _leading_starts(todo: deque[Command]) -> Iterator[Start]:
    """Take the starts that come next, so that they are sampled in one call."""
    while todo and isinstance(command := todo[0], Start):
        todo.popleft()
        yield command
