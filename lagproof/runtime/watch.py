"""Where the time of a run goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from lagproof.data.slices import Key


@dataclass
class Watch:
    """Seconds spent since the last row of metrics, by what they were spent on."""

    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.spent[what] += time.perf_counter() - began

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
        now = time.perf_counter()
        step_s = now - self.began
        out = {Key(f"time/{what}_s"): seconds for what, seconds in sorted(self.spent.items())}
        out |= {Key("time/step_s"): step_s, Key("time/tokens_per_s"): num_tokens / step_s}
        self.spent.clear()
        self.began = now
        return out
