# pyright: basic, reportMissingImports=false
"""Executes the commands of a scheduler by calls of actors, and tells what became of them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lagproof import errors
from lagproof.config import Config
from lagproof.data.slices import Key
from lagproof.errors import LagproofError, RunStoppedError
from lagproof.runtime.executor import Evaluated, Happening, Moment, Sampled, Trained
from lagproof.runtime.inline import by_worker
from lagproof.runtime.ray.actors import (
    ActorFailure,
    ActorReply,
    LearnerActor,
    Order,
    Place,
    RolloutActor,
    SampledVersions,
    versions,
)
from lagproof.runtime.ray.cluster import ray_package
from lagproof.runtime.schedule import (
    SampleFailed,
    SampleFinished,
    Scheduler,
    Start,
    Train,
    WeightsLoaded,
    WorkerJoined,
    WorkerLost,
)
from lagproof.runtime.watch import Pauses, Watch

TELL_S = 0.2
"""Longest time without a look at limits and interrupts."""
TRIES = 3
"""Times that an evaluation is begun before it is given up."""


@dataclass(frozen=True)
class _Lost:
    """A call that will not be answered; ``reason`` is the original error."""

    reason: str
    process: bool


@dataclass
class _ActorCall:
    """One call of a worker.

    Attributes:
        send: makes it; the first of its references is the answer.
        done: what an answer means.
        failed: what it means that there is none.
    """

    send: Callable[[Any], Any]
    done: Callable[[Any], Sequence[Happening]]
    failed: Callable[[_Lost], Sequence[Happening]]


@dataclass
class _WorkerProcess:
    """A rollout worker as the driver sees it: one call at a time, the rest waits here."""

    number: int
    handle: Any
    place: Place | None = None
    queue: deque[_ActorCall] = field(default_factory=deque)
    job: _ActorCall | None = None
    answer: Any = None
    deadline_s: float = math.inf
    pauses: Pauses = field(default_factory=lambda: Pauses(time.monotonic()))


@dataclass
class _Evaluation:
    """One that waits for a worker, or is with one."""

    step: int
    weights: Any
    steps_waited: int = 0
    tries: int = 0


class RayProcesses:
    """The actors of a run, started and ready.

    Args:
        config: resolved.
        data: what the driver's files of the task are.
        saved: checkpoint that the run goes on from.

    Raises:
        LagproofError: what an actor says that it cannot begin with; none is left behind.
        RunStoppedError: it does not begin in time.
    """

    def __init__(self, config: Config, data: Mapping[str, Any] | None, saved: Path | None) -> None:
        self.ray = ray_package()
        self._config = config
        self._order = Order(config.to_dict(), None if saved is None else str(saved), data, versions())
        self._actors: list[Any] = []
        try:
            self.learner = self.start(LearnerActor)
            self.workers = [self.start(RolloutActor) for _ in range(config.rollout.workers)]
            self.places = self._wait([self.learner, *self.workers])
        except BaseException:
            self.close()
            raise

    def start(self, kind: type) -> Any:
        """An actor that has not begun."""
        actor = self.ray.remote(num_cpus=self._config.ray.threads, max_restarts=0, max_task_retries=0)(kind)
        handle = actor.remote(self._order)
        self._actors.append(handle)
        return handle

    def kill(self, handle: Any) -> None:
        """End a process, whatever it does."""
        with suppress(Exception):  # it may be gone
            self.ray.kill(handle)
        self._actors = [actor for actor in self._actors if actor is not handle]

    def close(self) -> None:
        """End all processes."""
        for handle in list(self._actors):
            self.kill(handle)

    def _wait(self, handles: Sequence[Any]) -> list[Place]:
        limit_s = self._config.ray.start_timeout_s
        refs = [handle.begin.remote() for handle in handles]
        ready, late = self.ray.wait(refs, num_returns=len(refs), timeout=limit_s)
        for ref in ready:
            answer = self.answer(ref)
            if isinstance(answer, _Lost):
                raise RunStoppedError(f"a process of the run ended while it began: {answer.reason}")
        if late:
            raise RunStoppedError(
                f"{len(late)} of {len(refs)} processes were not ready within ray.start_timeout_s = {limit_s:g} s: "
                "raise it, or see whether the cluster has free CPUs"
            )
        return [self.answer(ref) for ref in refs]

    def answer(self, ref: Any) -> Any:
        """What a call returned.

        Returns:
            The value; :class:`_Lost` if its process is gone.

        Raises:
            LagproofError: what the actor raised, with its message.
        """
        exceptions = self.ray.exceptions
        try:
            return self.ray.get(ref)
        except exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, ActorFailure):
                raise _as_error(cause) from error
            raise RunStoppedError(f"{type(cause).__name__}: {cause}") from error
        except exceptions.RayError as error:
            return _Lost(_reason(error), process=True)


class RayExecutor:
    """See :class:`lagproof.runtime.driver.Executor`.

    Calls of one worker are made one after the other, in the order of the commands, so that whatever is started after a
    publication is sampled with it; all workers can be told to have it as soon as it is made.

    Args:
        config: resolved.
        processes: the actors.
        scheduler: new or restored; asked once, for what it begins with.
        run_dir: exists.
        watch: for the seconds spent.
        on_tokens: called with how many tokens were just sampled.
        on_note: called with what a person should know.

    Raises:
        LagproofError: the learner cannot write there, or cannot go on from its checkpoint.
    """

    def __init__(
        self,
        config: Config,
        processes: RayProcesses,
        scheduler: Scheduler,
        run_dir: Path,
        watch: Watch,
        on_tokens: Callable[[int], None],
        on_note: Callable[[str], None],
    ) -> None:
        self._config, self._processes, self._watch = config, processes, watch
        self._on_tokens, self._on_note = on_tokens, on_note
        self._ray, self._learner = processes.ray, processes.learner
        self._share = math.ceil(config.rollout.prompts / config.rollout.workers)
        self._suspects: set[int] = set()
        self._evaluations: deque[_Evaluation] = deque()
        self._asked: dict[Any, Callable[[Any], Sequence[Happening]]] = {}  # of the learner, by the answer
        self._learner_pauses = Pauses(time.monotonic())
        self._present: tuple[int, Any] | None = None
        self._learner_answer(
            self._learner.open.remote(str(run_dir.resolve()), scheduler.published, scheduler.in_flight)
        )
        self._published = (scheduler.published, self._learner.published.remote())
        tickets = scheduler.held
        self._held: dict[int, Any] = {}
        if tickets:
            refs = self._learner.held.options(num_returns=len(tickets)).remote(tickets)
            self._held = dict(zip(tickets, refs if len(tickets) > 1 else [refs], strict=True))
        places = processes.places
        self._workers = {
            number: _WorkerProcess(number, handle, place)
            for number, (handle, place) in enumerate(zip(processes.workers, places[1:], strict=True))
        }
        for worker in self._workers.values():
            self._load(worker)
        on_note(f"Ray: {_told(places)}")

    def join(self) -> Sequence[WorkerJoined]:
        return [WorkerJoined(number, self._published[0]) for number in self._workers]

    def sample(self, starts: Sequence[Start]) -> Sequence[Happening]:
        for number, own in by_worker(starts).items():
            worker = self._workers.get(number)
            if worker is not None and worker.place is not None:  # else it was lost a moment ago, and they come again
                worker.queue.extend(self._sampling(worker, call) for call in self._calls(own))
        return ()

    def train(self, command: Train) -> Sequence[Happening]:
        refs = [self._held.pop(ticket) for ticket in command.tickets]
        for evaluation in self._evaluations:
            evaluation.steps_waited += 1
        self._ask(self._learner.train.remote(command, *refs), self._trained)
        return ()

    def publish(self, version: int, in_flight: Collection[int]) -> Sequence[Happening]:
        self._published = (version, self._weights(version))
        self._ask(self._learner.publish.remote(version, in_flight), self._noted)
        for worker in self._workers.values():
            if worker.place is not None:
                self._load(worker)
        return [WeightsLoaded(None, version)]

    def evaluate(self, step: int) -> Mapping[Key, float] | None:
        if self._config.eval.where == "learner":
            self._ask(self._learner.evaluate.remote(step), lambda reply: [Evaluated(step, self._value(reply))])
        else:
            self._evaluations.append(_Evaluation(step, self._weights(step)))
        return None

    def waits(self) -> Mapping[str, float]:
        now = time.monotonic()
        paused = [worker.pauses.read(now) for worker in self._workers.values()]
        rollout = sum(paused) / len(paused) if paused else 0.0
        return {"learner_wait": self._learner_pauses.read(now), "rollout_wait": rollout}

    def discard(self, ticket: int) -> None:
        self._held.pop(ticket, None)

    def cancel(self, ticket: int) -> Sequence[Happening]:
        return ()  # a call of the embedded engine ends when it ends, and its time is limited here

    def restart(self, worker: int) -> Sequence[Happening]:
        new = _WorkerProcess(worker, self._processes.start(RolloutActor))
        self._workers[worker] = new
        new.queue.append(
            _ActorCall(
                lambda handle: handle.begin.remote(),
                lambda place: self._joined(new, place),
                lambda lost: self._lose(new, lost.reason),
            )
        )
        return ()

    def save(self, moment: Moment, held: Sequence[int]) -> None:
        refs = [self._held[ticket] for ticket in held]
        self._learner_answer(self._learner.save.remote(moment, list(held), *refs))

    def wait(self) -> Sequence[Happening]:
        self._dispatch()
        now = time.monotonic()
        by_answer = {worker.answer: worker for worker in self._workers.values() if worker.job is not None}
        refs = [*self._asked, *by_answer]
        assert refs, "nobody does anything, and the scheduler waits for something"
        patience_s = min([TELL_S, *(max(0.0, w.deadline_s - now) for w in by_answer.values())])
        ready, _ = self._ray.wait(refs, num_returns=1, timeout=patience_s)
        more, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        out: list[Happening] = []
        for ref in dict.fromkeys([*ready, *more]):
            out += self._learner_told(ref) if ref in self._asked else self._worker_told(by_answer[ref], ref)
        return out + self._overdue()

    # The learner: one that is gone ends the run.

    def _ask(self, ref: Any, done: Callable[[Any], Sequence[Happening]]) -> None:
        if not self._asked:
            self._learner_pauses.works(time.monotonic())
        self._asked[ref] = done

    def _learner_told(self, ref: Any) -> Sequence[Happening]:
        done = self._asked.pop(ref)
        happened = done(self._learner_answer(ref))
        if not self._asked:
            self._learner_pauses.rests(time.monotonic())
        return happened

    def _learner_answer(self, ref: Any) -> Any:
        answer = self._processes.answer(ref)
        if isinstance(answer, _Lost):
            raise RunStoppedError(
                f"the learner's process was lost: {answer.reason}; everything up to the last checkpoint is kept: "
                "continue with --resume"
            )
        return answer

    def _trained(self, reply: ActorReply) -> Sequence[Happening]:
        trained: Trained = self._value(reply)
        return [trained]

    def _noted(self, reply: ActorReply) -> Sequence[Happening]:
        self._value(reply)
        return ()

    def _value(self, reply: ActorReply) -> Any:
        self._watch.add(reply.seconds)
        return reply.value

    def _weights(self, version: int) -> Any:
        """The learner's present weights, put into the object store once a version."""
        if self._present is None or self._present[0] != version:
            self._present = (version, self._learner.present.remote())
        return self._present[1]

    # Workers.

    def _dispatch(self) -> None:
        """Give every worker that does nothing its next call."""
        for worker in self._workers.values():
            if worker.job is None:
                job = self._next_job(worker)
                if job is not None:
                    sent = job.send(worker.handle)
                    worker.job, worker.answer = job, sent[0] if isinstance(sent, list) else sent
                    now, ray = time.monotonic(), self._config.ray
                    worker.deadline_s = now + (ray.start_timeout_s if worker.place is None else ray.call_timeout_s)
                    worker.pauses.works(now)

    def _next_job(self, worker: _WorkerProcess) -> _ActorCall | None:
        """Evaluations are for those that have nothing else to do, unless none of them has for two steps."""
        urgent = bool(self._evaluations) and self._evaluations[0].steps_waited > 1
        if self._evaluations and worker.place is not None and (urgent or not worker.queue):
            return self._evaluating(self._evaluations.popleft())
        return worker.queue.popleft() if worker.queue else None

    def _worker_told(self, worker: _WorkerProcess, ref: Any) -> Sequence[Happening]:
        job, worker.job, worker.answer = worker.job, None, None
        assert job is not None
        worker.deadline_s = math.inf
        worker.pauses.rests(time.monotonic())
        try:
            answer = self._processes.answer(ref)
        except LagproofError as error:
            return job.failed(_Lost(str(error), process=False))
        if not isinstance(answer, _Lost):
            return job.done(answer)
        return [*job.failed(answer), *self._lose(worker, answer.reason)]

    def _overdue(self) -> list[Happening]:
        out: list[Happening] = []
        now = time.monotonic()
        for worker in [w for w in self._workers.values() if w.job is not None and now >= w.deadline_s]:
            job, worker.job = worker.job, None
            limit = "start_timeout_s" if worker.place is None else "call_timeout_s"
            reason = f"no answer within ray.{limit} = {getattr(self._config.ray, limit):g} s: its process was killed"
            assert job is not None
            out += [*job.failed(_Lost(reason, process=False)), *self._lose(worker, reason)]
        return out

    def _lose(self, worker: _WorkerProcess, reason: str) -> Sequence[Happening]:
        """A worker is gone, or no longer wanted; the scheduler starts what it had again."""
        if self._workers.get(worker.number) is not worker:
            return ()
        del self._workers[worker.number]
        self._processes.kill(worker.handle)
        self._on_note(f"rollout worker {worker.number} was lost: {reason}")
        return [WorkerLost(worker.number, reason)]

    def _joined(self, worker: _WorkerProcess, place: Place) -> Sequence[Happening]:
        worker.place = place
        self._load(worker)
        self._on_note(f"rollout worker {worker.number} runs again in process {place.process} on {place.node}")
        return [WorkerJoined(worker.number, self._published[0])]

    def _load(self, worker: _WorkerProcess) -> None:
        version, weights = self._published
        worker.queue.append(
            _ActorCall(
                lambda handle: handle.load.remote(version, weights),
                self._noted,
                lambda lost: () if lost.process else self._lose(worker, f"cannot load weights: {lost.reason}"),
            )
        )

    # Sampling.

    def _calls(self, starts: Sequence[Start]) -> list[list[Start]]:
        """At most a worker's share of a batch in one call; a prompt that has failed before shares none."""
        alone = [[start] for start in starts if start.prompt in self._suspects]
        shared = [start for start in starts if start.prompt not in self._suspects]
        return [shared[i : i + self._share] for i in range(0, len(shared), self._share)] + alone

    def _sampling(self, worker: _WorkerProcess, starts: Sequence[Start]) -> _ActorCall:
        refs: list[Any] = []

        def send(handle: Any) -> list[Any]:
            prompts = [start.prompt for start in starts]
            sample = handle.sample.options(num_returns=1 + len(prompts))
            refs.extend(sample.remote(prompts, starts[0].version))
            return refs

        def done(reply: Any) -> Sequence[Happening]:
            wrong = self._wrong(reply, starts)
            if wrong is not None:
                return failed(_Lost(f"rollout worker {worker.number} {wrong}", process=False))
            found: list[SampledVersions] = self._value(reply)
            self._held |= {start.ticket: ref for start, ref in zip(starts, refs[1:], strict=True)}
            self._on_tokens(sum(one.tokens for one in found))
            finished = [SampleFinished(s.ticket, one.oldest, one.newest) for s, one in zip(starts, found, strict=True)]
            return [Sampled(tuple(finished))]

        def failed(lost: _Lost) -> Sequence[Happening]:
            if lost.process:  # not the fault of the prompts
                return ()
            self._suspects |= {start.prompt for start in starts}
            return [SampleFailed(start.ticket, lost.reason) for start in starts]

        return _ActorCall(send, done, failed)

    def _wrong(self, reply: Any, starts: Sequence[Start]) -> str | None:
        """What an answer must not be, in words."""
        if not isinstance(reply, ActorReply) or not isinstance(reply.value, list) or len(reply.value) != len(starts):
            return f"answered {reply!r:.80} for {len(starts)} prompts"
        for one, start in zip(reply.value, starts, strict=True):
            if (
                not isinstance(one, SampledVersions)
                or not start.version <= one.oldest <= one.newest <= self._published[0]
            ):
                return f"answered {one!r:.80} for a prompt started with version {start.version}"
        return None

    # Evaluation.

    def _evaluating(self, evaluation: _Evaluation) -> _ActorCall:
        evaluation.tries += 1
        step = evaluation.step

        def failed(lost: _Lost) -> Sequence[Happening]:
            if evaluation.tries >= TRIES or not lost.process:
                raise RunStoppedError(f"the evaluation of step {step} failed: {lost.reason}")
            self._evaluations.appendleft(evaluation)
            return ()

        return _ActorCall(
            lambda handle: handle.evaluate.remote(step, evaluation.weights),
            lambda reply: [Evaluated(step, self._value(reply))],
            failed,
        )


def _as_error(failure: ActorFailure) -> LagproofError:
    """The error of an actor as its own type, where that is one of ours."""
    kind = getattr(errors, failure.kind, None)
    if not isinstance(kind, type) or not issubclass(kind, LagproofError):
        return RunStoppedError(f"{failure.kind}: {failure.text}")
    try:
        return kind(failure.text)
    except TypeError:  # it is made of parts
        return errors.UsageError(failure.text) if issubclass(kind, errors.UsageError) else RunStoppedError(failure.text)


def _reason(error: Exception) -> str:
    """What Ray says of a process that is gone, without its identifiers and advice."""
    said = " ".join(str(error).split())
    detail = said.partition("Worker exit detail: ")[2].partition(" Some common causes")[0]
    return f"the process died unexpectedly: {detail}" if detail else said[:400]


def _told(places: Sequence[Place]) -> str:
    learner, *workers = [f"{place.process}" for place in places]
    nodes = ", ".join(dict.fromkeys(place.node for place in places))
    return f"learner in process {learner}, rollout workers in {', '.join(workers)} ({nodes})"
