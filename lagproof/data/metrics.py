"""Typed values that merge exactly: nothing is a mean of means, and no data means no value, never 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from lagproof.data.distribution import Distribution
from lagproof.data.slices import Key, Slice

Self_ = TypeVar("Self_")


class Metric(Protocol):
    """A value with an associative, commutative ``merge``; ``value`` is ``None`` where there was no data."""

    def merge(self: Self_, other: Self_, /) -> Self_: ...

    @property
    def value(self) -> float | None: ...


@dataclass(frozen=True)
class Mean:
    """``total / count``; both are sums over the same tokens, responses or groups."""

    total: float
    count: float

    def merge(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count > 0 else None


@dataclass(frozen=True)
class Sum:
    """A sum over parts: how many, or how much."""

    total: float

    def merge(self, other: Sum) -> Sum:
        return Sum(self.total + other.total)

    @property
    def value(self) -> float:
        return self.total


@dataclass(frozen=True)
class Maximum:
    """The largest; ``-inf`` stands for no data."""

    largest: float

    def merge(self, other: Maximum) -> Maximum:
        return Maximum(max(self.largest, other.largest))

    @property
    def value(self) -> float | None:
        return None if self.largest == -math.inf else self.largest


@dataclass(frozen=True)
class Same:
    """A number that every part of a step shares (a batch quantile); merging two different ones is a bug."""

    shared: float

    def merge(self, other: Same) -> Same:
        assert self.shared == other.shared, f"parts of one step disagree: {self.shared} and {other.shared}"
        return self

    @property
    def value(self) -> float:
        return self.shared


@dataclass(frozen=True)
class Spread:
    """The standard deviation of all values, ``sqrt(sum (x - mean)^2 / n)``.

    Attributes:
        count, mean: of the values.
        squares: ``sum (x - mean)^2``; kept as such, because ``sum x^2 - n mean^2`` loses all digits of a small spread.
    """

    count: int
    mean: float
    squares: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if not values:
            return cls(0, 0.0, 0.0)
        mean = math.fsum(values) / len(values)
        return cls(len(values), mean, math.fsum((x - mean) ** 2 for x in values))

    def merge(self, other: Spread) -> Spread:
        count = self.count + other.count
        if not count:
            return self
        gap = other.mean - self.mean
        mean = self.mean + gap * other.count / count
        return Spread(count, mean, self.squares + other.squares + gap * gap * self.count * other.count / count)

    @property
    def value(self) -> float | None:
        return math.sqrt(self.squares / self.count) if self.count else None


@dataclass(frozen=True)
class EffectiveSize:
    """``(sum w)^2 / (N sum w^2)``, in (0, 1]: the share of the tokens that weights ``w`` leave in effect.

    Attributes:
        total, squares: sums of ``w`` and ``w^2``.
        count: tokens summed over (N).
    """

    total: float
    squares: float
    count: int

    def merge(self, other: EffectiveSize) -> EffectiveSize:
        return EffectiveSize(self.total + other.total, self.squares + other.squares, self.count + other.count)

    @property
    def value(self) -> float | None:
        """``None`` also where every weight is 0: then nothing is in effect, and no share of it is defined."""
        return self.total**2 / (self.count * self.squares) if self.squares > 0 else None


Metrics = Mapping[Key, Metric]
"""Records: what is measured (a name, and the part of the batch it is over), and a value that merges exactly."""

K = TypeVar("K")


def over(named: Mapping[str, Metric], of: Slice | None = None) -> dict[Key, Metric]:
    """Records of one part of a batch; ``None`` is all of it."""
    return {Key(name, of): metric for name, metric in named.items()}


def merge(parts: Iterable[Mapping[K, Metric]]) -> dict[K, Metric]:
    """Merge the metrics of micro-batches, ranks or steps, record by record."""
    out: dict[K, Metric] = {}
    for part in parts:
        for key, metric in part.items():
            out[key] = out[key].merge(metric) if key in out else metric
    return out


def values(metrics: Metrics) -> dict[Key, float]:
    """Plain floats; a metric without data is left out, a distribution says its quantiles."""
    out: dict[Key, float] = {}
    for key, metric in metrics.items():
        if isinstance(metric, Distribution):
            out |= {Key(name, key.of): value for name, value in metric.named(key.name).items()}
        elif (v := metric.value) is not None:
            out[key] = v
    return out


def flat(metrics: Metrics) -> dict[str, float]:
    """Plain floats under flat keys, for whoever is outside."""
    return {key.flat: value for key, value in values(metrics).items()}
