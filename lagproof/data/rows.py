"""One line of a run's metrics, typed. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lagproof.data.slices import Key, Slice

S = TypeVar("S", bound=Slice)


@dataclass(frozen=True)
class Row:
    """What was measured at one optimiser step, or of a batch that made none.

    Attributes:
        step: optimiser steps trained, this one included; 0 for the evaluation before the first.
        values: by what they are; without data there is no value, and every value is finite.
        batch: running number of the optimiser batch; ``None`` where none was used.
        outcome: why the batch made no step; ``None`` where it made one.
    """

    step: int
    values: Mapping[Key, float] = field(default_factory=dict[Key, float])
    batch: int | None = None
    outcome: str | None = None

    def __post_init__(self) -> None:
        finite = {key: value for key, value in self.values.items() if math.isfinite(value)}
        object.__setattr__(self, "values", finite)

    def get(self, name: str, of: Slice | None = None) -> float | None:
        """A value; ``None`` where it has none."""
        return self.values.get(Key(name, of))

    def slices(self, kind: type[S], name: str) -> list[S]:
        """The parts of this kind that have the value, in order."""
        return sorted(key.of for key in self.values if key.name == name and isinstance(key.of, kind))

    @property
    def flat(self) -> dict[str, Any]:
        """As it is written: plain values under flat keys."""
        out: dict[str, Any] = {"step": self.step}
        if self.batch is not None:
            out["batch"] = self.batch
        if self.outcome is not None:
            out["outcome"] = self.outcome
        return out | {key.flat: value for key, value in self.values.items()}

    @classmethod
    def parse(cls, flat: Mapping[str, Any]) -> Row:
        """The inverse of :attr:`flat`; whatever is no number is left out.

        Raises:
            ValueError: there is no step.
        """
        step, batch, outcome = flat.get("step"), flat.get("batch"), flat.get("outcome")
        if type(step) is not int or step < 0:
            raise ValueError(f"step = {step!r}: must be an integer >= 0")
        values = {
            Key.parse(name): value
            for name, value in flat.items()
            if name not in ("step", "batch") and isinstance(value, int | float) and not isinstance(value, bool)
        }
        return cls(step, values, batch if type(batch) is int else None, None if outcome is None else str(outcome))
