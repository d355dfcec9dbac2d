"""A verdict on a run or a dump: what is wrong, since when, how one can tell, and what to try."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from lagproof.config import AlarmConfig
from lagproof.diagnostics import rows as rows_module
from lagproof.diagnostics.advice import advice
from lagproof.diagnostics.alarm import Alarm, Severity, alarms
from lagproof.diagnostics.dump import read_dump
from lagproof.diagnostics.rows import Record

COLLAPSE = "reward_collapse"


class Status(StrEnum):
    """In one word; the exit code of ``lagproof doctor`` is 0, 0, 1."""

    HEALTHY = "healthy"
    WATCH = "watch"  # only yellow alarms
    SICK = "sick"  # a red alarm, or a run that was given up


@dataclass(frozen=True)
class Verdict:
    """What :func:`diagnose` found.

    Attributes:
        path: of what was looked at.
        status: in one word.
        sentence: in words.
        steps: training steps that were judged.
        alarms: all that rang, in order.
        lead_steps: steps from the first alarm to the collapse of the reward, if it collapsed.
        evidence: further sentences with numbers: how stale, how far, where from.
        advice: what to try, the most likely to help first.
        numbers: the metrics over the last steps of a run, over all of a dump.
        by_age: tokens and ``d_bar`` of each bin of ages, the youngest first.
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
    notes: Sequence[str]

    @property
    def exit_code(self) -> int:
        return int(self.status is Status.SICK)

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
            "notes": list(self.notes),
        }


def diagnose(path: str | Path, mapping: Mapping[str, str] | None = None, config: AlarmConfig | None = None) -> Verdict:
    """Judge a run directory of ours, or a rollout dump of any trainer.

    Args:
        path: a run directory, or what :func:`lagproof.diagnostics.dump.read_dump` reads.
        mapping: our role of a dump's column to its name, where it is not recognised.
        config: thresholds; by default the run's own, for a dump the defaults.

    Raises:
        InputError: it cannot be used; says why.
    """
    path = Path(path)
    path = path.parent if path.name == "metrics.jsonl" else path
    if rows_module.is_run(path):
        record = rows_module.of_run(path)
        record = record if config is None else replace(record, alarm=config)
    else:
        record = rows_module.of_dump(read_dump(path, mapping), config or AlarmConfig())
    return judge(str(path), record)


def judge(path: str, record: Record) -> Verdict:
    """The verdict on a history."""
    rows = record.rows
    window = max(1, min(record.alarm.window, len(rows)))
    rung = alarms(rows, replace(record.alarm, window=window))
    numbers = record.pooled or _recent(rows[-window:])
    by_age = _by_age([numbers] if record.pooled else rows[-window:])
    engine = _engine_share(numbers, by_age, knows_learner=record.knows_learner)
    steps = sum("outcome" not in row for row in rows)
    is_sick = record.stopped is not None or any(a.severity is Severity.RED for a in rung)
    status = Status.SICK if is_sick else Status.WATCH if rung else Status.HEALTHY
    lead = _lead(rung)
    return Verdict(
        path=path,
        status=status,
        sentence=_sentence(status, rung, lead, record.stopped, numbers, steps),
        steps=steps,
        alarms=rung,
        lead_steps=lead,
        evidence=[*_evidence(numbers, by_age, engine), *_course(rows, window)],
        advice=advice(rung, engine, record.objective),
        numbers={
            name: x for name, x in numbers.items() if not name.startswith("age_") or name in ("age_mean", "age_max")
        },
        by_age=by_age,
        notes=record.notes,
    )


def _recent(last: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of each metric over the last steps that have it; of those that must not be averaged, the largest."""
    out: dict[str, float] = {}
    for name in {name for row in last for name in row}:
        found = [row[name] for row in last if isinstance(row.get(name), int | float)]
        if found and name not in ("step", "batch"):
            out[name] = max(found) if name.endswith(("_max", "/max")) else math.fsum(found) / len(found)
    return out


def _by_age(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Exactly, from the number of tokens behind each mean."""
    tokens: dict[str, float] = {}
    total: dict[str, float] = {}
    for row in rows:
        for name, n in row.items():
            age, _, what = name.partition("/")
            if what == "tokens" and age.startswith("age_") and f"{age}/d_bar" in row:
                tokens[age] = tokens.get(age, 0) + n
                total[age] = total.get(age, 0.0) + n * row[f"{age}/d_bar"]
    ordered = sorted(tokens, key=lambda age: int(age.removeprefix("age_").split("-")[0]))
    return {age: {"tokens": tokens[age], "d_bar": total[age] / tokens[age]} for age in ordered}


def _lead(rung: Sequence[Alarm]) -> int | None:
    """Steps from the first alarm to the reward's fall below half its peak."""
    fall = next((a.step for a in rung if a.name == COLLAPSE and a.severity is Severity.RED), None)
    return None if fall is None else fall - rung[0].step


def _sentence(
    status: Status,
    rung: Sequence[Alarm],
    lead: int | None,
    stopped: str | None,
    numbers: Mapping[str, float],
    num_steps: int,
) -> str:
    if stopped is not None:
        return f"Sick: the run was given up: {stopped}."
    if status is Status.HEALTHY:
        level = (
            f"d_bar {numbers['d_bar']:.3g} nats" if "d_bar" in numbers else "without the sampler's log-probabilities"
        )
        return f"Healthy: nothing rang in {num_steps} step{'s' if num_steps != 1 else ''}, {level}."
    chosen = [a for a in rung if a.severity is Severity.RED] or list(rung)
    worst = "Sick" if status is Status.SICK else "Worth watching"
    text = f"{worst}: {chosen[0].sentence}, at step {chosen[0].step}."
    if lead is not None:
        first = rung[0]
        text += (
            f" The reward collapsed {lead} steps after the first alarm ({first.name.replace('_', ' ')}, "
            f"step {first.step})."
        )
    return text


def _evidence(
    numbers: Mapping[str, float], by_age: Mapping[str, Mapping[str, float]], engine: float | None
) -> list[str]:
    n = numbers
    out: list[str] = []
    if "age_mean" in n:
        out.append(f"staleness: tokens are {n['age_mean']:.3g} updates old on average, {n['age_max']:.0f} at most")
    if "d_bar" in n:
        out.append(
            f"mismatch: d_bar {n['d_bar']:.3g} nats, k3 {n['k3']:.3g}, total variation {n['tv']:.3g}, "
            f"effective sample size {n['ess']:.0%}"
        )
        out.append(
            f"tail of |d|: median {n['abs_d_q50']:.2g}, 99 % {n['abs_d_q99']:.2g}, 99.9 % {n['abs_d_q999']:.2g}, "
            f"largest {n['abs_d_max']:.2g} nats"
        )
    if len(by_age) > 1:
        young, old = next(iter(by_age)), list(by_age)[-1]
        out.append(
            f"by age: d_bar {by_age[young]['d_bar']:.3g} at {_age(young)}, {by_age[old]['d_bar']:.3g} at {_age(old)}"
        )
    if "positive/d_bar" in n and "negative/d_bar" in n:
        out.append(f"by sign: d_bar {n['positive/d_bar']:.3g} where A > 0, {n['negative/d_bar']:.3g} where A < 0")
    if engine is not None:
        how = "a probe with the weights that sampled" if "probe/d_bar" in n else "tokens of age 0"
        out.append(f"where it comes from: about {engine:.0%} of d_bar is the engine's ({how}), the rest is age")
    return out


def _engine_share(
    numbers: Mapping[str, float], by_age: Mapping[str, Mapping[str, float]], *, knows_learner: bool
) -> float | None:
    """Of ``d_bar``: from the probe, or from tokens that the very policy sampled that is trained."""
    if numbers.get("probe/d_bar"):
        return numbers["probe/engine"] / numbers["probe/d_bar"]
    if knows_learner and "age_0" in by_age and numbers.get("d_bar"):
        return min(1.0, by_age["age_0"]["d_bar"] / numbers["d_bar"])
    return None


def _course(rows: Sequence[Mapping[str, Any]], window: int) -> list[str]:
    """How the reward went, where there is a course at all."""
    reward = [row["reward"] for row in rows if "reward" in row]
    if len(reward) < 2 * window:
        return []
    means = [math.fsum(reward[i : i + window]) / window for i in range(len(reward) - window + 1)]
    first, best, last = means[0], max(means), means[-1]
    return [f"reward: {first:.3g} at first, {best:.3g} at its best, {last:.3g} at the end (means of {window} steps)"]


def _age(name: str) -> str:
    return f"age {name.removeprefix('age_')}"
