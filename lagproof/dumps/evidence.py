"""The evidence of a verdict, in sentences that say over which steps each number is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lagproof.data.rows import Row
from lagproof.data.slices import AgeBand, Key, Sign
from lagproof.dumps.engine_share import EngineShare, span


@dataclass(frozen=True)
class StepRange:
    """What the numbers of a verdict are over.

    Attributes:
        steps: their numbers, in order; empty where none was made.
        of: how many steps there are in all.
        pooled: whether all tokens were looked at as one; else each number is the mean of the steps' own.
    """

    steps: Sequence[int]
    of: int
    pooled: bool

    def __str__(self) -> str:
        if self.pooled:
            return "all usable tokens" if self.of == 1 else f"all usable tokens of {self.of} steps"
        return span(self.steps) if self.steps else "no step"

    @property
    def lately(self) -> str:
        """As the end of a sentence."""
        if self.pooled:
            return f"over {self}"
        if len(self.steps) == self.of:
            return f"over all {self.of} steps" if self.of > 1 else f"in {self}"
        return f"over the last {len(self.steps)} steps" if len(self.steps) > 1 else f"in {self}"

    def to_dict(self) -> dict[str, Any]:
        if not self.steps:
            return {"steps": 0}
        return {"steps": len(self.steps), "first_step": self.steps[0], "last_step": self.steps[-1]}


def evidence(
    numbers: Mapping[Key, float],
    ages: Mapping[AgeBand, Mapping[str, float]],
    cover: StepRange,
    engine: EngineShare | None,
) -> list[str]:
    """How stale, how far, in what tail, at which ages and on which side, and where it comes from."""
    n = {key.name: value for key, value in numbers.items() if key.of is None}
    out: list[str] = []
    if "age_mean" in n:
        out.append(f"staleness, {cover}: {n['age_mean']:.3g} updates old on average, {n['age_max']:.0f} at most")
    if "d_bar" in n:
        out.append(
            f"mismatch, {cover}: d_bar {n['d_bar']:.3g} nats, k3 {n['k3']:.3g}, total variation {n['tv']:.3g}, "
            f"effective sample size {n['ess']:.0%}"
        )
        each = "" if cover.pooled or len(cover.steps) == 1 else " (means of each step's)"
        out.append(
            f"tail of |log-ratio|, {cover}: median {n['abs_d_q50']:.2g}, 99 % {n['abs_d_q99']:.2g}, "
            f"99.9 % {n['abs_d_q999']:.2g} nats{each}, largest {n['abs_d_max']:.2g}"
        )
    if len(ages) > 1:
        young, old = next(iter(ages)), list(ages)[-1]
        out.append(
            f"by age, {cover}: d_bar {ages[young]['d_bar']:.3g} at age {young.label}, {ages[old]['d_bar']:.3g} at "
            f"age {old.label}"
        )
    up, down = (numbers.get(Key("d_bar", sign)) for sign in Sign)
    if up is not None and down is not None:
        out.append(f"by sign, {cover}: d_bar {up:.3g} where A > 0, {down:.3g} where A < 0")
    if engine is not None:
        out.append(str(engine))
    return out


def course(rows: Sequence[Row], window: int) -> list[str]:
    """How the reward went, where there is a course at all."""
    known = [(row.step, reward) for row in rows if (reward := row.get("reward")) is not None]
    if len(known) < 2 * window:
        return []
    reward = [x for _, x in known]
    means = [math.fsum(reward[i : i + window]) / window for i in range(len(reward) - window + 1)]
    first, best, last = means[0], max(means), means[-1]
    over = span([step for step, _ in known])
    return [
        f"reward, {over}: {first:.3g} at first, {best:.3g} at its best, {last:.3g} at the end (means of {window} steps)"
    ]
