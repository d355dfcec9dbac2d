"""A verdict on a run or a dump: what is wrong, since when, how one can tell, and what to try."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from lagproof.data.rows import Row
from lagproof.data.slices import AgeBand, Key
from lagproof.dumps import rows as rows_module
from lagproof.dumps.dump import read_dump
from lagproof.dumps.engine_share import EngineShare, by_age, engine_share
from lagproof.dumps.evidence import StepRange, course, evidence
from lagproof.dumps.rows import Record
from lagproof.monitor.advice import Situation, advice
from lagproof.monitor.alarm import Alarm, Severity, alarms
from lagproof.monitor.thresholds import Thresholds
from lagproof.runs.layout import RunLayout

COLLAPSE = "reward_collapse"


class Status(StrEnum):
    """In one word; the exit code of ``lagproof doctor`` is 0, 0, 1."""

    HEALTHY = "healthy"
    WATCH = "watch"  # only yellow alarms
    UNHEALTHY = "unhealthy"  # a red alarm, or a run that was aborted


@dataclass(frozen=True)
class Diagnosis:
    """What :func:`doctor` found.

    Attributes:
        path: of what was looked at.
        status: in one word.
        sentence: in words.
        steps: training steps that were judged.
        alarms: all that fired, in order.
        lead_steps: steps from the first alarm about anything else to the collapse of the reward; ``None`` if it did
            not collapse, or nothing fired before.
        evidence: further sentences with numbers: how stale, how far, where from.
        advice: what to try, the most likely to help first.
        numbers: the metrics over the last steps of a run, over all of a dump.
        by_age: tokens and ``d_bar`` of each bin of ages, the youngest first, over the same.
        cover: which steps these two are over.
        engine: the engine's part of ``d_bar``, over the whole history; ``None`` where it is not known.
        notes: what a reader should know about the input.
    """

    path: str
    status: Status
    sentence: str
    steps: int
    alarms: Sequence[Alarm]
    lead_steps: int | None
    evidence: Sequence[str]
    advice: Sequence[str]
    numbers: Mapping[str, float]
    by_age: Mapping[str, Mapping[str, float]]
    cover: StepRange
    engine: EngineShare | None
    notes: Sequence[str]

    @property
    def exit_code(self) -> int:
        return int(self.status is Status.UNHEALTHY)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "path": self.path,
            "status": str(self.status),
            "verdict": self.sentence,
            "steps": self.steps,
            "alarms": [alarm.to_dict() for alarm in self.alarms],
            "lead_steps": self.lead_steps,
            "evidence": list(self.evidence),
            "advice": list(self.advice),
            "numbers": dict(self.numbers),
            "by_age": {age: dict(numbers) for age, numbers in self.by_age.items()},
            "numbers_cover": self.cover.to_dict(),
            "engine": None if self.engine is None else self.engine.to_dict(),
            "notes": list(self.notes),
        }


def doctor(path: str | Path, mapping: Mapping[str, str] | None = None, config: Thresholds | None = None) -> Diagnosis:
    """Judge a run directory of ours, or a rollout dump of any trainer.

    Args:
        path: a run directory, or what :func:`lagproof.dumps.dump.read_dump` reads.
        mapping: our role of a dump's column to its name, where it is not recognised.
        config: thresholds; by default the run's own, for a dump the defaults.

    Raises:
        InputError: it cannot be used; says why.
    """
    path = Path(path)
    path = path.parent if path == RunLayout(path.parent).metrics else path
    if rows_module.is_run(path):
        record = rows_module.of_run(path)
        record = record if config is None else replace(record, alarm=config)
    else:
        record = rows_module.of_dump(read_dump(path, mapping), config or Thresholds())
    return judge(str(path), record)


def judge(path: str, record: Record) -> Diagnosis:
    """The verdict on a history."""
    made = [row for row in record.rows if row.outcome is None]
    window = max(1, min(record.alarm.window, len(made)))
    fired = alarms(record.rows, replace(record.alarm, window=window))
    last = made if record.pooled else made[-window:]
    cover = StepRange([row.step for row in last], len(made), bool(record.pooled))
    numbers, ages = record.pooled or _recent(last), by_age(last)
    engine = engine_share(made, knows_learner=record.knows_learner)
    is_unhealthy = record.stopped is not None or any(a.severity is Severity.RED for a in fired)
    status = Status.UNHEALTHY if is_unhealthy else Status.WATCH if fired else Status.HEALTHY
    early = _early(fired)
    return Diagnosis(
        path=path,
        status=status,
        sentence=_sentence(status, fired, early, record.stopped, numbers, cover),
        steps=len(made),
        alarms=fired,
        lead_steps=None if early is None else early[1],
        evidence=[*evidence(numbers, ages, cover, engine), *course(made, window)],
        advice=advice(fired, Situation(None if engine is None else engine.share, record.objective)),
        numbers={key.flat: x for key, x in numbers.items() if not isinstance(key.of, AgeBand)},
        by_age={age.label: found for age, found in ages.items()},
        cover=cover,
        engine=engine,
        notes=record.notes,
    )


def _recent(last: Sequence[Row]) -> dict[Key, float]:
    """The mean of each metric over the last steps that have it; of those that must not be averaged, the largest."""
    out: dict[Key, float] = {}
    for key in {key for row in last for key in row.values}:
        found = [row.values[key] for row in last if key in row.values]
        out[key] = max(found) if key.name.endswith(("_max", "/max")) else math.fsum(found) / len(found)
    return out


def _early(fired: Sequence[Alarm]) -> tuple[Alarm, int] | None:
    """The first alarm about anything else before the reward fell below half its peak, and by how many steps."""
    fall = next((a.step for a in fired if a.name == COLLAPSE and a.severity is Severity.RED), None)
    if fall is None:
        return None
    return next(((a, fall - a.step) for a in fired if a.name != COLLAPSE and a.step < fall), None)


def _sentence(
    status: Status,
    fired: Sequence[Alarm],
    early: tuple[Alarm, int] | None,
    stopped: str | None,
    numbers: Mapping[Key, float],
    cover: StepRange,
) -> str:
    if stopped is not None:
        return f"Unhealthy: aborted: {stopped}."
    if status is Status.HEALTHY:
        level = "without the sampler's log-probabilities"
        if (d_bar := numbers.get(Key("d_bar"))) is not None:
            level = f"d_bar {d_bar:.3g} nats {cover.lately}"
        return f"Healthy: nothing fired in {cover.of} step{'s' if cover.of != 1 else ''}, {level}."
    chosen = [a for a in fired if a.severity is Severity.RED] or list(fired)
    worst = "Unhealthy" if status is Status.UNHEALTHY else "Worth watching"
    text = f"{worst}: {chosen[0].sentence}, at step {chosen[0].step}."
    if early is not None:
        first, steps = early
        text += (
            f" The reward collapsed {steps} step{'s' if steps != 1 else ''} after the first alarm "
            f"({first.name.replace('_', ' ')}, step {first.step})."
        )
    return text
