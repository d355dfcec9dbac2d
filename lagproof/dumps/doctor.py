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
from lagproof.dumps.checks import Doubt
from lagproof.dumps.dump import read_dump
from lagproof.dumps.engine_share import EngineShare, by_age, engine_share
from lagproof.dumps.evidence import StepRange, course, evidence
from lagproof.dumps.rows import Record
from lagproof.errors import InputError
from lagproof.monitor.advice import MISMATCH, Knobs, Situation, advice
from lagproof.monitor.alarm import Alarm, Severity, alarms
from lagproof.monitor.thresholds import SCALES, Scale, Thresholds, find_scale, with_overrides
from lagproof.runs.comparison import ComparisonDir
from lagproof.runs.layout import RunLayout

COLLAPSE = "reward_collapse"


class Status(StrEnum):
    """In one word; the exit code of ``lagproof doctor`` is 0, 0, 1, 3."""

    HEALTHY = "healthy"
    WATCH = "watch"  # only yellow alarms
    UNHEALTHY = "unhealthy"  # a red alarm, or a run that was aborted
    UNKNOWN = "unknown"  # the log-probabilities do not tell


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
        scale: of the model that the thresholds are for; ``None``: they are the run's own.
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
    scale: Scale | None
    engine: EngineShare | None
    notes: Sequence[str]

    @property
    def exit_code(self) -> int:
        return {Status.UNHEALTHY: 1, Status.UNKNOWN: 3}.get(self.status, 0)

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
            "scale": None if self.scale is None else str(self.scale),
            "engine": None if self.engine is None else self.engine.to_dict(),
            "notes": list(self.notes),
        }


def doctor(
    path: str | Path,
    mapping: Mapping[str, str] | None = None,
    config: Thresholds | None = None,
    *,
    scale: Scale | str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Judge a run directory of ours, or a rollout dump of any trainer.

    Args:
        path: a run directory, or what :func:`lagproof.dumps.dump.read_dump` reads.
        mapping: our role of a dump's column to its name, where it is not recognised.
        config: thresholds; by default the run's own, for a dump those of ``scale``.
        scale: ``tiny`` or ``large``, of the model; by default guessed from the token ids of a dump, where it has them.
        overrides: single thresholds by their names (``d_bar``), before all others.

    Raises:
        InputError: it cannot be used; says why.
        ConfigError: a scale or a threshold that does not exist.
    """
    path = Path(path)
    path = path.parent if path == RunLayout(path.parent).metrics else path
    chosen = None if scale is None else find_scale(scale)
    if rows_module.is_run(path):
        record = rows_module.of_run(path)
        record = record if chosen is None else replace(record, alarm=SCALES[chosen], scale=chosen)
    else:
        _refuse_comparison(path)
        record = rows_module.of_dump(read_dump(path, mapping), chosen)
    record = record if config is None else replace(record, alarm=config, scale=None)
    return judge(str(path), replace(record, alarm=with_overrides(record.alarm, overrides or {})))


def _refuse_comparison(path: Path) -> None:
    """A comparison is many runs.

    Raises:
        InputError: ``path`` is one; names some of its cells.
    """
    where = ComparisonDir(path)
    if not where.exists:
        return
    cells = sorted(cell for cell in where.cells.glob("*") if rows_module.is_run(cell))
    some = ", ".join(str(cell) for cell in cells[:3]) + (f" and {len(cells) - 3} more" if len(cells) > 3 else "")
    raise InputError(f"{path}: is a comparison; give one of its runs: {some or 'none has begun'}")


BLIND = Doubt("not one log-ratio was recorded: nothing is known about the mismatch", is_blind=True)


def judge(path: str, record: Record) -> Diagnosis:
    """The verdict on a history."""
    made = [row for row in record.rows if row.outcome is None]
    window = max(1, min(record.alarm.window, len(made)))
    fired = alarms(record.rows, replace(record.alarm, window=window))
    last = made if record.pooled else made[-window:]
    cover = StepRange([row.step for row in last], len(made), bool(record.pooled))
    numbers, ages = record.pooled or _recent(last), by_age(last)
    engine = engine_share(made, knows_learner=record.knows_learner)
    doubts = list(record.doubts)
    if Key("d_bar") not in numbers and made and not any(doubt.is_blind for doubt in doubts):
        doubts.insert(0, BLIND)
    doubts.sort(key=lambda doubt: not doubt.is_blind)
    if doubts and doubts[0].is_blind:  # numbers of a mismatch that is none
        fired = [alarm for alarm in fired if alarm.name not in MISMATCH]
        numbers = {key: x for key, x in numbers.items() if not _is_mismatch(key.name)}
        ages, engine = {}, None
    status = _status(fired, doubts, record.stopped)
    early = _early(fired)
    sudden = _sudden(record.rows)
    before = [step for step in record.checkpoints if not fired or step < fired[0].step]
    situation = Situation(
        engine_share=None if engine is None else engine.share,
        objective=record.objective,
        checkpoint=max(before, default=None),
        sudden=sudden,
    )
    sentence = _sentence(status, fired, early, record.stopped, numbers, cover, doubts, sudden)
    return Diagnosis(
        path=path,
        status=status,
        sentence=sentence + _by(record.scale),
        steps=len(made),
        alarms=fired,
        lead_steps=None if early is None else early[1],
        evidence=[*evidence(numbers, ages, cover, engine), *course(made, window)],
        advice=[*_against(doubts, record.knobs), *advice(fired, situation, record.knobs)],
        numbers={key.flat: x for key, x in numbers.items() if not isinstance(key.of, AgeBand)},
        by_age={age.label: found for age, found in ages.items()},
        cover=cover,
        scale=record.scale,
        engine=engine,
        notes=[*(d.sentence for d in doubts if d.sentence not in sentence), *record.notes],
    )


def _status(fired: Sequence[Alarm], doubts: Sequence[Doubt], stopped: str | None) -> Status:
    if stopped is not None or any(alarm.severity is Severity.RED for alarm in fired):
        return Status.UNHEALTHY
    if any(doubt.is_blind for doubt in doubts):
        return Status.UNKNOWN
    return Status.WATCH if fired or doubts else Status.HEALTHY


def _is_mismatch(name: str) -> bool:
    return name in ("d_bar", "k1", "k3", "tv", "chi2", "ess", "ratio_max", "ratio_overflow") or name.startswith(
        "abs_d_"
    )


def _against(doubts: Sequence[Doubt], knobs: Knobs) -> list[str]:
    """What to change about the dump."""
    words = {
        "mask": f"tell the sampled tokens from the others: {knobs.mask}",
        "rescore": f"score the sampled tokens with the policy: {knobs.rescore}",
    }
    return [words[about] for about in dict.fromkeys(doubt.about for doubt in doubts) if about in words]


def _by(scale: Scale | None) -> str:
    """Whose thresholds the verdict is by."""
    if scale is None:
        return ""
    if scale is not Scale.UNKNOWN:
        return f" By the thresholds of {scale} models."
    return " The model's size is unknown: yellow as for large models, red as for tiny ones; say --scale large or tiny."


SUDDEN_BATCHES = 8
SUDDEN_SHARE = 0.1


def _sudden(rows: Sequence[Row]) -> str:
    """How the reward fell to nothing within the first batches and stayed there; empty where it did not."""
    known = [(row.step, reward) for row in rows if (reward := row.get("reward")) is not None]
    if len(known) < 3:
        return ""
    (begin, first), limit = known[0], SUDDEN_SHARE * known[0][1]
    fall = next((k for k, (_, reward) in enumerate(known[:SUDDEN_BATCHES]) if reward <= limit), None)
    if first <= 0 or fall is None or any(reward > limit for _, reward in known[fall:]):
        return ""
    updates = max(1, known[fall][0] - begin)
    many = f"{updates} update{'s' if updates != 1 else ''}"
    return f"the reward fell from {first:.3g} to {known[fall][1]:.3g} within {many}"


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
    doubts: Sequence[Doubt],
    sudden: str,
) -> str:
    if sudden and status is Status.UNHEALTHY:
        ended = "" if stopped is None else f", and the run was aborted: {stopped.split(':', 1)[0].rstrip('.')}"
        return f"Unhealthy: {sudden}{ended}."
    if stopped is not None:
        return f"Unhealthy: aborted: {stopped}."
    if status is Status.UNKNOWN:
        return f"Unknown: {doubts[0].sentence}."
    if status is Status.HEALTHY:
        level = f"d_bar {numbers[Key('d_bar')]:.3g} nats {cover.lately}"
        return f"Healthy: nothing fired in {cover.of} step{'s' if cover.of != 1 else ''}, {level}."
    if not fired:
        return f"Worth watching: {doubts[0].sentence}. No alarm fired over the rest."
    chosen = [a for a in fired if a.severity is Severity.RED] or list(fired)
    worst = "Unhealthy" if status is Status.UNHEALTHY else "Worth watching"
    text = f"{worst}: {chosen[0].sentence}, at step {chosen[0].step}."
    if early is not None:
        first, steps = early
        text += (
            f" The reward collapsed {steps} step{'s' if steps != 1 else ''} after the first alarm "
            f"({first.name.replace('_', ' ')}, step {first.step})."
        )
    if doubts:
        text += f" But: {doubts[0].sentence}."
    return text
