"""Where the time of a run goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from lagproof.data.slices import Key


@dataclass
class Watch:
    """Seconds spent since the last row of metrics, by what they were spent on."""

    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    clock: Callable[[], float] = time.perf_counter
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def follow(self, clock: Callable[[], float]) -> None:
        """Count by another clock from now on."""
        self.clock = clock
        self.began = clock()

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        began = self.clock()
        try:
            yield
        finally:
            self.spent[what] += self.clock() - began

    def add(self, spent: Mapping[str, float]) -> None:
        """Seconds that were measured elsewhere."""
        for what, seconds in spent.items():
            self.spent[what] += seconds

    def take(self) -> dict[str, float]:
        """Seconds by what they were spent on since the last call, for another watch."""
        spent = dict(self.spent)
        self.spent.clear()
        return spent

    def read(self, num_tokens: int) -> dict[Key, float]:
        """``time/...`` of a row; starts again from zero."""
        now = self.clock()
        step_s = now - self.began
        out = {Key(f"time/{what}_s"): seconds for what, seconds in sorted(self.spent.items())}
        out |= {Key("time/step_s"): step_s}
        if step_s > 0:
            out |= {Key("time/tokens_per_s"): num_tokens / step_s}
        self.spent.clear()
        self.began = now
        return out


class Pauses:
    """Seconds in which something had nothing to do; a pause that goes on is split where it is read.

    Args:
        now_s: the time; it has nothing to do from now on.
    """

    def __init__(self, now_s: float) -> None:
        self._since: float | None = now_s
        self._paused = 0.0

    def works(self, now_s: float) -> None:
        """It has something to do."""
        self.rests(now_s)
        self._since = None

    def rests(self, now_s: float) -> None:
        """It has nothing to do."""
        self._paused += 0.0 if self._since is None else now_s - self._since
        self._since = now_s

    def read(self, now_s: float) -> float:
        """Since the last reading."""
        if self._since is not None:
            self.rests(now_s)
        paused, self._paused = self._paused, 0.0
        return paused
