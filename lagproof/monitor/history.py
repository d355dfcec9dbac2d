"""The rows of a run's metrics, as far as a rule looks back on them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from lagproof.data.rows import Row


@dataclass
class Series:
    """One metric over the steps that have it.

    Attributes:
        recent: its newest values, at most ``window``.
        first: mean of the first full window.
        peak: the largest mean of any full window.
    """

    recent: deque[float]
    first: float | None = None
    peak: float | None = None

    def add(self, value: float) -> None:
        self.recent.append(value)
        mean = self.mean
        if mean is not None:
            self.first = mean if self.first is None else self.first
            self.peak = mean if self.peak is None else max(self.peak, mean)

    @property
    def mean(self) -> float | None:
        """Over the last window; ``None`` until there is a full one."""
        assert self.recent.maxlen is not None
        return sum(self.recent) / len(self.recent) if len(self.recent) == self.recent.maxlen else None


@dataclass
class History:
    """The rows so far, as far as a rule looks back."""

    window: int
    row: Row = field(default_factory=lambda: Row(0))
    series: dict[str, Series] = field(default_factory=dict[str, Series])

    def add(self, row: Row) -> None:
        """The next row; one with an ``outcome`` made no step, and is part of no window."""
        self.row = row
        if row.outcome is not None:
            return
        of_all = {key.name: value for key, value in row.values.items() if key.of is None}
        for name, value in {**of_all, **_derived(row)}.items():
            self.series.setdefault(name, Series(deque(maxlen=self.window))).add(value)

    def mean(self, name: str) -> float | None:
        """Over the last window of rows that have it; ``None`` where there is no full one."""
        return self.series[name].mean if name in self.series else None

    def first(self, name: str) -> float | None:
        return self.series[name].first if name in self.series else None

    def peak(self, name: str) -> float | None:
        return self.series[name].peak if name in self.series else None


def _derived(row: Row) -> dict[str, float]:
    """Numbers that rules judge and rows do not hold."""
    high, low = row.get("clipped_high"), row.get("clipped_low")
    return {} if high is None and low is None else {"clipped": (high or 0.0) + (low or 0.0)}
