"""The least loaded worker, found through a heap, against a look at all of them."""

from __future__ import annotations

import random

import pytest

from lagproof.runtime.schedule.pool import WorkerPool


def naive(pool: WorkerPool, version: int) -> int | None:
    able = [
        (worker.load, number)
        for number, worker in pool.workers.items()
        if worker.version >= version and (worker.slots is None or worker.load < worker.slots)
    ]
    return min(able)[1] if able else None


@pytest.mark.parametrize("seed", range(5))
def test_the_least_loaded_worker_takes_the_next_prompt(seed: int) -> None:
    rng = random.Random(seed)
    pool, version, ticket = WorkerPool(), 0, 0
    for number in range(6):
        pool.join(number, 0, rng.choice([None, 1, 2, 3]))
    refused = 0
    for _ in range(3_000):
        match rng.choice(["start"] * 5 + ["end"] * 4 + ["load", "publish", "lose"]):
            case "start":
                expected = naive(pool, version)
                run = pool.start(ticket, ticket, version)
                assert (None if run is None else run.worker) == expected
                refused += run is None
                ticket += 1
            case "end" if pool.runs:
                pool.end(rng.choice(list(pool.runs)))
            case "load":
                pool.load(rng.choice([None, *pool.workers]), version)
            case "publish":
                version += 1
            case "lose":
                number = rng.choice(list(pool.workers))
                ran = [run.prompt for run in pool.runs.values() if run.worker == number]
                assert pool.lose(number) == ran
                pool.join(number, rng.choice([0, version]), rng.choice([None, 2]))
        pool.check()
    assert refused > 10
    assert len(pool._heap) <= len(pool._entries) < 500, "entries that say nothing pile up"
