"""The scheduler under the simulated clock: seconds of a forecast and events a second, up to 10,000 engines."""

from __future__ import annotations

import time

from lagproof.runtime.clock.durations import LogNormalLengths
from lagproof.runtime.clock.planner import Hardware, Workload, forecast
from lagproof.runtime.schedule import MaxAge, Periodic, Threshold

SCHEDULES = {"k1": Periodic(1, 1), "s0.5n4": Threshold(0.5, 4), "a2n1": MaxAge(2, "train", 1)}


def main() -> None:
    print("\nforecasts: engines of one slot, as many prompts per step, 5 steps measured")
    for workers in (100, 1_000, 10_000):
        hardware = Hardware(workers, 1, 800, workers, 1_000, step_s=1, publish_s=2)
        work = Workload(workers, 8, LogNormalLengths(400, 0.8, 4096), steps=5)
        for name, schedule in SCHEDULES.items():
            began = time.process_time()
            found = forecast(name, schedule, hardware, work)
            seconds = time.process_time() - began
            prompts = workers * (found.steps + 2 * (found.promised + 1) + 2)
            print(f"  {workers:>6} engines  {name:<8}{seconds:>8.2f} s{prompts / seconds:>10.0f} prompts/s")
