"""The part of a run that is the same wherever its sides run: schedule, rows, alarms, checkpoints, interrupts.

::

    Driver     holds the scheduler; hands each command to an executor, and what happened back to the scheduler;
               writes every row and alarm; decides when to evaluate and to save
    Executor   samples, trains, publishes and evaluates: at once in this process (``inline.py``), or elsewhere, and
               tells later
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lagproof.config import Config
from lagproof.data.rows import Row
from lagproof.data.slices import Key
from lagproof.errors import InterruptedRunError
from lagproof.monitor.alarm import Alarm, Monitor
from lagproof.runs.writer import RunWriter
from lagproof.runtime.executor import Evaluated, Executor, Happening, Moment, Sampled, Trained
from lagproof.runtime.schedule import (
    Begin,
    Cancel,
    Command,
    Discard,
    Event,
    Publish,
    Replace,
    Scheduler,
    Start,
    StepFinished,
    StepOutcome,
    Stop,
    Train,
    to_json,
)
from lagproof.runtime.watch import Watch

RESUMED = "resumed"
"""What the record of a schedule says, in the place of an event, where a run was resumed."""
CALL = "call"
"""Key of the record: the number of the engine's call that a prompt was sampled in."""


@dataclass
class _Pending:
    """A row to be written when its evaluation is done, and those before it are written."""

    row: Row
    times: Mapping[Key, float]
    evaluates: bool


class Driver:
    """Runs a schedule to its end.

    Commands that follow from an event come before those that were left. So a publication is loaded, and the starts that
    waited for it are sampled, before an executor that does everything at once moves the weights.

    Args:
        config: resolved.
        scheduler: new or restored.
        executor: of its commands.
        writer: where rows and alarms go.
        watch: for the seconds spent, also filled in by the executor.
        saved: step of the checkpoint that the run goes on from; ``None`` for a run that begins.
        monitor: has seen the rows that are written already.
        interrupted: asked between two steps; when true the run saves everything and raises.
        on_row: called with every row of metrics.
        on_alarm: called with every alarm that a row makes fire.
    """

    def __init__(
        self,
        config: Config,
        scheduler: Scheduler,
        executor: Executor,
        writer: RunWriter,
        watch: Watch,
        *,
        saved: int | None = None,
        monitor: Monitor | None = None,
        interrupted: Callable[[], bool] = lambda: False,
        on_row: Callable[[Row], None] = lambda row: None,
        on_alarm: Callable[[Alarm], None] = lambda alarm: None,
    ) -> None:
        self._config, self._scheduler, self._executor, self._writer = config, scheduler, executor, writer
        self._watch, self._saved = watch, saved
        self._monitor = monitor or Monitor(config.alarm)
        self._interrupted, self._on_row, self._on_alarm = interrupted, on_row, on_alarm
        self._pending: deque[_Pending] = deque()
        self._owed: list[Command] = []
        self._learning = False
        self._calls = 0

    def run(self) -> Stop:
        """Until the scheduler says stop.

        Raises:
            InterruptedRunError: asked to stop; everything is saved.
            RunDirError: the disk is full or cannot be written.
        """
        if self._saved is not None:
            self._writer.schedule([{"event": RESUMED, "version": self._saved}])
        elif self._config.eval.every:
            self._write_later(Row(0), 0, evaluates=True)
        todo: deque[Command] = deque(self._take([*self._executor.join(), Begin()]))
        while True:
            while todo:
                command = todo.popleft()
                if isinstance(command, Stop):
                    self.save()
                    return command
                todo.extendleft(reversed(self._take(self._execute(command, todo))))
                todo.extend(self._owed)
                self._owed = []
            if not self._learning:
                self._stop_if_asked()
            todo.extend(self._take(self._executor.wait()))

    def save(self) -> None:
        """A checkpoint of this moment, unless there is one already."""
        version = self._scheduler.version
        if self._saved == version:
            return
        self._finish_rows()
        moment = Moment(version, self._scheduler.snapshot(), self._writer.written)
        self._executor.save(moment, self._scheduler.held)
        self._saved = version

    def _execute(self, command: Command, todo: deque[Command]) -> Sequence[Happening]:
        executor = self._executor
        match command:
            case Start():
                return executor.sample([command, *_leading_starts(todo)])
            case Train():
                self._between_steps()
                if self._scheduler.stopped is not None:
                    return ()
                self._learning = True
                return executor.train(command)
            case Publish():
                return executor.publish(command.version, self._scheduler.in_flight)
            case Discard():
                executor.discard(command.ticket)
                return ()
            case Cancel():
                return executor.cancel(command.ticket)
            case Replace():
                return executor.restart(command.worker)
            case _:
                raise AssertionError(f"{command} is executed by nobody")

    def _take(self, happenings: Iterable[Happening]) -> list[Command]:
        commands: list[Command] = []
        for what in happenings:
            match what:
                case Trained():
                    self._learning = False
                    commands += self._handle(self._trained(what))
                case Evaluated():
                    self._evaluated(what)
                case Sampled():
                    commands += self._handle(*what.prompts, call=self._calls)
                    self._calls += 1
                case _:
                    commands += self._handle(what)
        return commands

    def _handle(self, *events: Event, call: int | None = None) -> list[Command]:
        mark = {} if call is None else {CALL: call}
        self._writer.schedule([{**to_json(event), **mark} for event in events])
        return self._scheduler.handle(*events)

    def _between_steps(self) -> None:
        version = self._scheduler.version
        self._stop_if_asked()
        if version and version % self._config.save.every == 0:
            self.save()

    def _stop_if_asked(self) -> None:
        if self._interrupted():
            self.save()
            raise InterruptedRunError(
                f"stopped after step {self._scheduler.version} of {self._config.steps}; "
                f"continue with --resume {self._writer.path}"
            )

    # Rows are written in order, each when it is complete.

    def _finish_rows(self) -> None:
        """Wait for the evaluations that rows wait for: one that is missing in a checkpoint would never be written.

        What else happens meanwhile is taken in, and what follows is owed, but for workers that are replaced.
        """
        while self._pending:
            commands = self._take(self._executor.wait())
            for command in commands:
                if isinstance(command, Replace):
                    self._executor.restart(command.worker)
                else:
                    self._owed.append(command)
            if self._scheduler.stopped is not None:  # no worker is left to evaluate
                for pending in self._pending:
                    pending.evaluates = False
                self._write_complete()

    def _trained(self, what: Trained) -> StepFinished:
        is_step = what.outcome is StepOutcome.TRAINED
        row = Row(what.step, what.values, what.batch, None if is_step else str(what.outcome))
        self._write_later(row, what.num_tokens, evaluates=is_step and self._is_evaluated(what.step))
        return StepFinished(what.batch, what.outcome)

    def _is_evaluated(self, step: int) -> bool:
        every = self._config.eval.every
        return bool(every) and (step % every == 0 or step == self._config.steps)

    def _write_later(self, row: Row, num_tokens: int, *, evaluates: bool) -> None:
        found = self._executor.evaluate(row.step) if evaluates else {}
        row = replace(row, values={**row.values, **(found or {})})
        self._watch.add(self._executor.waits())
        self._pending.append(_Pending(row, self._watch.read(num_tokens), found is None))
        self._write_complete()

    def _evaluated(self, what: Evaluated) -> None:
        for pending in self._pending:
            if pending.evaluates and pending.row.step == what.step:
                pending.row = replace(pending.row, values={**pending.row.values, **what.values})
                pending.evaluates = False
        self._write_complete()

    def _write_complete(self) -> None:
        while self._pending and not self._pending[0].evaluates:
            done = self._pending.popleft()
            row = replace(done.row, values={**done.row.values, **done.times})
            self._writer.append(row)
            self._on_row(row)
            for alarm in self._monitor.observe(row):
                self._writer.alarm(alarm)
                self._on_alarm(alarm)


def _leading_starts(todo: deque[Command]) -> Iterator[Start]:
    """Take the starts that come next, so that they can be sampled in one call."""
    while todo and isinstance(command := todo[0], Start):
        todo.popleft()
        yield command
