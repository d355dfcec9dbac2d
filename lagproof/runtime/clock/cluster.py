"""Workers, a learner and a channel on a clock of their own."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from lagproof.runtime.schedule import Event, SampleFinished, StepFinished, WeightsLoaded, WorkerJoined


@dataclass(frozen=True)
class _Arrival:
    """A publication has reached every worker."""

    version: int


@dataclass
class _Run:
    """A prompt that is being sampled; ``entry`` is the one number in the queue that ends it."""

    worker: int
    oldest: int
    newest: int
    entry: int


@dataclass
class _SimulatedWorker:
    version: int
    load: int = 0


class SimulatedCluster:
    """Answers the commands of a scheduler with events, in the order of simulated time.

    ::

        start      a prompt is finished after its duration; a worker samples all its prompts side by side
        train      the learner is done with a batch after its duration, and idle until it gets the next
        publish    the weights reach every worker after their duration, while both sides work on; a worker takes them
                   once it has nothing to sample, or at once where weights are swapped in flight

    Events of the same moment come in the order in which they were asked for. The cost of an event is the logarithm of
    how many there are.

    Args:
        workers: how many.
        slots: prompts that each samples at once, >= 1.
        version: that they hold.
        in_flight: whether a worker takes weights while it samples.
    """

    def __init__(self, workers: int, slots: int, version: int = 0, *, in_flight: bool = False) -> None:
        assert workers >= 1 and slots >= 1, (workers, slots)
        self.now_s = 0.0
        self.sampling_s = 0.0
        """Slot-seconds in which something was sampled."""
        self.learning_s = 0.0
        """Seconds in which the learner had a batch."""
        self._slots, self._in_flight = slots, in_flight
        self._workers = [_SimulatedWorker(version) for _ in range(workers)]
        self._newest = version  # that has reached the workers
        self._runs: dict[int, _Run] = {}
        self._learns = False
        self._queue: list[tuple[float, int, SampleFinished | StepFinished | WeightsLoaded | _Arrival | int]] = []
        self._entries = 0

    @property
    def num_slots(self) -> int:
        """Of all workers together."""
        return len(self._workers) * self._slots

    def join(self) -> list[WorkerJoined]:
        """The workers, for the scheduler."""
        return [WorkerJoined(number, worker.version, self._slots) for number, worker in enumerate(self._workers)]

    def start(self, ticket: int, worker: int, duration_s: float) -> None:
        """A worker begins with a prompt."""
        version = self._workers[worker].version
        self._workers[worker].load += 1
        self._runs[ticket] = _Run(worker, version, version, self._push(self.now_s + duration_s, ticket))

    def finish_at(self, ticket: int, time_s: float) -> None:
        """A prompt that is being sampled takes until then instead."""
        self._runs[ticket].entry = self._push(max(time_s, self.now_s), ticket)

    def cancel(self, ticket: int) -> None:
        """A prompt is given up."""
        if (run := self._runs.pop(ticket, None)) is not None:
            self._end(run)

    def running(self, worker: int | None = None) -> list[int]:
        """Tickets that a worker samples, or all of them."""
        return [ticket for ticket, run in self._runs.items() if worker in (None, run.worker)]

    def train(self, batch: int, duration_s: float) -> None:
        """The learner begins with a batch."""
        assert not self._learns, "the learner has a batch"
        self._learns = True
        self._push(self.now_s + duration_s, StepFinished(batch))

    def publish(self, version: int, duration_s: float) -> None:
        """The newest weights are on their way to every worker."""
        self._push(self.now_s + duration_s, _Arrival(version))

    def next(self) -> Sequence[Event]:
        """Go on to the next moment at which something happens; empty where nothing is under way."""
        while self._queue:
            time_s, entry, what = heapq.heappop(self._queue)
            if isinstance(what, int):
                run = self._runs.get(what)
                if run is None or run.entry != entry:
                    continue  # it was given up, or takes another time
            self._go_to(time_s)
            match what:
                case int(ticket):
                    run = self._runs.pop(ticket)
                    self._end(run)
                    return [SampleFinished(ticket, run.oldest, run.newest)]
                case _Arrival(version):
                    if events := self._arrived(version):
                        return events
                case StepFinished():
                    self._learns = False
                    return [what]
                case _:
                    return [what]
        return []

    def _go_to(self, time_s: float) -> None:
        passed = time_s - self.now_s
        self.sampling_s += passed * len(self._runs)
        self.learning_s += passed * self._learns
        self.now_s = time_s

    def _push(self, time_s: float, what: SampleFinished | StepFinished | WeightsLoaded | _Arrival | int) -> int:
        self._entries += 1
        heapq.heappush(self._queue, (time_s, self._entries, what))
        return self._entries

    def _end(self, run: _Run) -> None:
        worker = self._workers[run.worker]
        worker.load -= 1
        if not worker.load and worker.version < self._newest:
            self._push(self.now_s, self._load(run.worker))

    def _arrived(self, version: int) -> list[WeightsLoaded]:
        if version <= self._newest:  # a later one was faster
            return []
        self._newest = version
        if self._in_flight:
            for worker in self._workers:
                worker.version = version
            for run in self._runs.values():
                run.newest = version
            return [WeightsLoaded(None, version)]
        return [self._load(number) for number, worker in enumerate(self._workers) if not worker.load]

    def _load(self, number: int) -> WeightsLoaded:
        self._workers[number].version = self._newest
        return WeightsLoaded(number, self._newest)
