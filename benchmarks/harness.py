"""Time a few functions side by side and print them as ratios to the first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch


def median_s(run: Callable[[], object], repeats: int) -> float:
    """Median wall time of one call, seconds, after one call that is not counted."""
    run()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return sorted(seconds)[repeats // 2]


def compare(title: str, runs: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """Print milliseconds and the ratio to the first row."""
    torch.set_num_threads(1)
    seconds = {name: median_s(run, repeats) for name, run in runs.items()}
    base = next(iter(seconds.values()))
    print(f"\n{title}")
    for name, s in seconds.items():
        print(f"  {name:<28}{s * 1e3:>10.2f} ms{s / base:>8.2f} x")
    return seconds
