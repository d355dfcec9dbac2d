"""How much of the mismatch is the engine's, from everything that a history holds about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lagproof.data.rows import Row
from lagproof.data.slices import AgeBand, Slice

Rows = Sequence[Row]
YOUNGEST = AgeBand(0, 0)


class Origin(StrEnum):
    """What the share was read off."""

    PROBE = "probe"  # tokens scored again with the weights that sampled them
    AGE_0 = "age_0"  # tokens that the very policy sampled that is trained on them


@dataclass(frozen=True)
class EngineShare:
    """The engine's part of ``d_bar``.

    Attributes:
        origin: what it was read off.
        d_bar: mean ``|d|``, nats: of the probed tokens, or of tokens of all ages.
        engine: of it the engine's part, nats: what it adds, or what it makes alone at age 0.
        alone: mean size of the engine's part by itself, nats; ``None`` where it was not recorded.
        tokens: behind ``engine``.
        steps: in which there was one of them.
    """

    origin: Origin
    d_bar: float
    engine: float
    alone: float | None
    tokens: int
    steps: Sequence[int]

    @property
    def share(self) -> float:
        """Of ``d_bar``, at most 1; below 0 where the engine happens to bring the two policies together."""
        return min(1.0, self.engine / self.d_bar)

    def __str__(self) -> str:
        where = span(self.steps)
        if self.origin is Origin.AGE_0:
            return (
                f"where it comes from, {self.tokens} tokens of age 0 in {where}: there the engine alone makes d_bar "
                f"{self.engine:.3g} nats, {self.share:.0%} of the {self.d_bar:.3g} over all ages and all steps"
            )
        num = len(self.steps)
        alone = "" if self.alone is None else f"; alone it would make {self.alone:.3g}"
        return (
            f"where it comes from, {num} probe{'s' if num != 1 else ''} ({self.tokens} tokens) in {where}: the engine "
            f"adds {self.engine:.3g} of d_bar {self.d_bar:.3g} nats ({self.share:.0%}), updates of the policy the "
            f"rest{alone}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "share": self.share,
            "origin": str(self.origin),
            "d_bar": self.d_bar,
            "engine": self.engine,
            "tokens": self.tokens,
            "steps": len(self.steps),
            "first_step": self.steps[0],
            "last_step": self.steps[-1],
        } | ({} if self.alone is None else {"alone": self.alone})


def engine_share(rows: Rows, *, knows_learner: bool) -> EngineShare | None:
    """From all probes of the rows, or from all their tokens of age 0; ``None`` where there are neither.

    Args:
        rows: of a run, or made from a dump.
        knows_learner: whether tokens of age 0 were sampled by the very policy that was trained.
    """
    probed = [row for row in rows if row.get("probe/tokens")]
    if probed:
        d_bar, engine, alone = (
            _mean(probed, "probe/tokens", f"probe/{name}") for name in ("d_bar", "engine", "engine_abs")
        )
        if d_bar and engine is not None:
            return EngineShare(Origin.PROBE, d_bar, engine, alone, _tokens(probed, "probe/tokens"), _steps(probed))
    young = [row for row in rows if row.get("tokens", YOUNGEST)]
    ages = by_age(rows)
    total = sum(age["tokens"] * age["d_bar"] for age in ages.values())
    if not young or not total or not knows_learner:
        return None
    d_bar = total / sum(age["tokens"] for age in ages.values())
    tokens = _tokens(young, "tokens", YOUNGEST)
    return EngineShare(Origin.AGE_0, d_bar, ages[YOUNGEST]["d_bar"], None, tokens, _steps(young))


def by_age(rows: Iterable[Row]) -> dict[AgeBand, dict[str, float]]:
    """``tokens`` and ``d_bar`` of each bin of ages, the youngest first; exact, from the tokens behind each mean."""
    tokens: dict[AgeBand, float] = {}
    total: dict[AgeBand, float] = {}
    for row in rows:
        for age in row.slices(AgeBand, "tokens"):
            n, d_bar = row.get("tokens", age), row.get("d_bar", age)
            if n is not None and d_bar is not None:
                tokens[age] = tokens.get(age, 0) + n
                total[age] = total.get(age, 0.0) + n * d_bar
    return {age: {"tokens": tokens[age], "d_bar": total[age] / tokens[age]} for age in sorted(tokens)}


def span(steps: Sequence[int]) -> str:
    """``step 7``, ``steps 1-24``; the steps are in order, and some between may be missing."""
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]}-{steps[-1]}"


def _mean(rows: Rows, weight: str, name: str) -> float | None:
    """Over the tokens behind each row's mean."""
    known = [(n, x) for row in rows if (x := row.get(name)) is not None and (n := row.get(weight)) is not None]
    return sum(n * x for n, x in known) / sum(n for n, _ in known) if known else None


def _tokens(rows: Rows, name: str, of: Slice | None = None) -> int:
    return int(sum(row.get(name, of) or 0 for row in rows))


def _steps(rows: Rows) -> list[int]:
    return [row.step for row in rows]
