"""The rollout workers of one process, and what each of them runs."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field


@dataclass
class Worker:
    """A worker that is alive: its version, how many prompts it takes at once (``None``: any) and has."""

    version: int
    slots: int | None
    load: int = 0

    @property
    def free(self) -> bool:
        """Whether it takes one more prompt."""
        return self.slots is None or self.load < self.slots


@dataclass
class RunningPrompt:
    """A prompt that a worker samples.

    Attributes:
        prompt: its running number.
        worker: who samples it.
        version: what the worker held at the start.
        deadline_s: when it times out; ``None`` before the first tick that saw it.
    """

    prompt: int
    worker: int
    version: int
    deadline_s: float | None = None


@dataclass
class WorkerPool:
    """Workers by number and runs by ticket.

    Every worker that may take a prompt has an entry ``(load, number)`` in a heap; entries that no longer say the truth
    are passed over when they come up. So a start costs the logarithm of the number of workers.
    """

    workers: dict[int, Worker] = field(default_factory=dict[int, Worker])
    runs: dict[int, RunningPrompt] = field(default_factory=dict[int, RunningPrompt])
    _heap: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _entries: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    def join(self, number: int, version: int, slots: int | None) -> None:
        """A worker is there."""
        assert slots is None or slots >= 1, f"worker {number} takes no prompts"
        assert number not in self.workers, f"worker {number} joined twice; report that it was lost first"
        self.workers[number] = Worker(version, slots)
        self._offer(number)

    def lose(self, number: int) -> list[int]:
        """A worker is gone, and what it ran with it; these prompts."""
        self.workers.pop(number, None)
        gone = [ticket for ticket, run in self.runs.items() if run.worker == number]
        return [self.runs.pop(ticket).prompt for ticket in gone]

    def load(self, number: int | None, version: int) -> None:
        """A worker, or every one, holds other weights; news of a worker that is gone says nothing."""
        for worker in self.workers if number is None else self.workers.keys() & {number}:
            self.workers[worker].version = version
            self._offer(worker)

    def start(self, ticket: int, prompt: int, version: int) -> RunningPrompt | None:
        """Give a prompt to the least loaded worker with a free slot that holds ``version``, if any."""
        number = self.free(version)
        if number is None:
            return None
        self.workers[number].load += 1
        self._offer(number)
        self.runs[ticket] = RunningPrompt(prompt, number, self.workers[number].version)
        return self.runs[ticket]

    def end(self, ticket: int) -> RunningPrompt:
        """A run is over, with a result or without."""
        run = self.runs.pop(ticket)
        self.workers[run.worker].load -= 1
        self._offer(run.worker)
        return run

    def free(self, version: int) -> int | None:
        """The least loaded worker with a free slot that holds ``version``; of several the first."""
        while self._heap:
            load, number = self._heap[0]
            worker = self.workers.get(number)
            if worker is not None and worker.load == load and worker.free and worker.version >= version:
                return number
            self._entries.remove(heapq.heappop(self._heap))  # offered again when it changes
        return None

    def _offer(self, number: int) -> None:
        worker = self.workers[number]
        entry = (worker.load, number)
        if worker.free and entry not in self._entries:
            self._entries.add(entry)
            heapq.heappush(self._heap, entry)

    def timed_out(self, now_s: float, timeout_s: float) -> list[int]:
        """Tickets whose time is over; it counts from the first tick that sees the run, so none gets less."""
        over: list[int] = []
        for ticket, run in self.runs.items():
            if run.deadline_s is None:
                run.deadline_s = now_s + timeout_s
            elif now_s >= run.deadline_s:
                over.append(ticket)
        return over

    def check(self) -> None:
        """Assert what must hold between any two events."""
        prompts = [run.prompt for run in self.runs.values()]
        assert len(set(prompts)) == len(prompts), "a prompt runs twice"
        assert all(run.worker in self.workers for run in self.runs.values()), "a lost worker runs a prompt"
        for number, worker in self.workers.items():
            load = sum(run.worker == number for run in self.runs.values())
            assert load == worker.load, f"worker {number} runs {load} prompts, counted {worker.load}"
            assert worker.slots is None or load <= worker.slots, f"worker {number} has more prompts than slots"
