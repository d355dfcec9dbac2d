"""The rollout workers of one process, and what each of them runs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Worker:
    """A worker that is alive: its version, how many prompts it takes at once (``None``: any) and has."""

    version: int
    slots: int | None
    load: int = 0


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
    """Workers by number and runs by ticket."""

    workers: dict[int, Worker] = field(default_factory=dict[int, Worker])
    runs: dict[int, RunningPrompt] = field(default_factory=dict[int, RunningPrompt])

    def join(self, number: int, version: int, slots: int | None) -> None:
        """A worker is there."""
        assert slots is None or slots >= 1, f"worker {number} takes no prompts"
        assert number not in self.workers, f"worker {number} joined twice; report that it was lost first"
        self.workers[number] = Worker(version, slots)

    def lose(self, number: int) -> None:
        """A worker is gone, and what it ran with it."""
        self.workers.pop(number, None)
        self.runs = {ticket: run for ticket, run in self.runs.items() if run.worker != number}

    def load(self, number: int | None, version: int) -> None:
        """A worker, or every one, holds other weights; news of a worker that is gone says nothing."""
        for worker in self.workers if number is None else self.workers.keys() & {number}:
            self.workers[worker].version = version

    def start(self, ticket: int, prompt: int, version: int) -> RunningPrompt | None:
        """Give a prompt to the least loaded worker with a free slot that holds ``version``, if any."""
        able = [
            (worker.load, number)
            for number, worker in self.workers.items()
            if worker.version >= version and (worker.slots is None or worker.load < worker.slots)
        ]
        if not able:
            return None
        number = min(able)[1]
        self.workers[number].load += 1
        self.runs[ticket] = RunningPrompt(prompt, number, self.workers[number].version)
        return self.runs[ticket]

    def end(self, ticket: int) -> RunningPrompt:
        """A run is over, with a result or without."""
        run = self.runs.pop(ticket)
        self.workers[run.worker].load -= 1
        return run

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
