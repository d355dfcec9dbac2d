"""Rules over the history of a run's metrics: what left its band, when, and by how much, in a sentence with numbers.

A run's rows go in one by one, alarms come out; nothing but the rows and the thresholds decides, so that reading a
finished run's ``metrics.jsonl`` again fires the same alarms as the live run did. Windows are of optimiser steps: the
row of a batch that made none (``outcome``) is part of none, and only the rule about such batches looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lagproof.data.rows import Row
from lagproof.monitor.history import History
from lagproof.monitor.thresholds import Thresholds


class Severity(StrEnum):
    """How bad."""

    YELLOW = "yellow"  # look at it
    RED = "red"  # a run like this is on its way to collapse, or has collapsed


_RANK = {None: 0, Severity.YELLOW: 1, Severity.RED: 2}


@dataclass(frozen=True)
class Alarm:
    """One alarm.

    Attributes:
        step: of the row that made it fire.
        name: of the rule.
        severity: yellow or red.
        sentence: what was seen, with its numbers.
    """

    step: int
    name: str
    severity: Severity
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        return {"step": self.step, "name": self.name, "severity": str(self.severity), "sentence": self.sentence}


@dataclass(frozen=True)
class Violation:
    """What a rule found wrong: the alarm but for its step and name."""

    severity: Severity
    sentence: str


@dataclass(frozen=True)
class AlarmContext:
    """What a rule sees: the thresholds and the rows so far."""

    config: Thresholds
    history: History


Rule = Callable[[AlarmContext], Violation | None]
Sentence = Callable[[float, float], str]
"""What is said of a value and of the threshold that it crossed."""


def _above(value: float | None, thresholds: tuple[float, float], sentence: Sentence) -> Violation | None:
    """Red above the second threshold, yellow above the first."""
    if value is None:
        return None
    yellow, red = thresholds
    if value > red:
        return Violation(Severity.RED, sentence(value, red))
    return Violation(Severity.YELLOW, sentence(value, yellow)) if value > yellow else None


def _below(value: float | None, thresholds: tuple[float, float], sentence: Sentence) -> Violation | None:
    """Red below the second threshold, yellow below the first."""
    if value is None:
        return None
    yellow, red = thresholds
    if value < red:
        return Violation(Severity.RED, sentence(value, red))
    return Violation(Severity.YELLOW, sentence(value, yellow)) if value < yellow else None


def _lately(context: AlarmContext) -> str:
    return f"over the last {context.config.window} steps" if context.config.window > 1 else "in this step"


def mismatch(context: AlarmContext) -> Violation | None:
    """The policy is far from its sampler."""
    return _above(
        context.history.mean("d_bar"),
        context.config.d_bar,
        lambda d, t: f"the mismatch left its band: d_bar {d:.3g} nats {_lately(context)} (threshold {t:g})",
    )


def divergence(context: AlarmContext) -> Violation | None:
    """The sampler's distribution diverges from the policy's."""
    return _above(
        context.history.mean("k3"),
        context.config.k3,
        lambda x, t: f"the divergence left its band: k3 {x:.3g} {_lately(context)} (threshold {t:g})",
    )


def mismatch_growth(context: AlarmContext) -> Violation | None:
    """The policy is much further from its sampler than it was when the run began."""
    d, first = context.history.mean("d_bar"), context.history.first("d_bar")
    if d is None or first is None or first <= 0 or d < context.config.growth_floor:
        return None
    numbers = f"d_bar {d:.3g} nats {_lately(context)}, {first:.3g} at first"
    return _above(
        d / first,
        context.config.growth,
        lambda x, t: f"the mismatch has grown {x:.1f}-fold: {numbers} (threshold {t:g}-fold)",
    )


def heavy_tail(context: AlarmContext) -> Violation | None:
    """A few tokens have moved very far."""
    tail, median = context.history.mean("abs_d_q999"), context.history.mean("abs_d_q50")
    if tail is None or median is None or tail < context.config.tail_ratio * median:
        return None
    times = f"{tail / median:.0f} times the median" if median > 0 else "with a median of 0"
    return _above(
        tail,
        context.config.tail,
        lambda x, t: (
            f"the tail is heavy: one token in 1000 has |d| above {x:.3g} nats, {times}, {_lately(context)} "
            f"(threshold {t:g})"
        ),
    )


def negative_side(context: AlarmContext) -> Violation | None:
    """Responses with negative advantage make up nearly all of the loss."""
    return _above(
        context.history.mean("loss_mass_ratio"),
        context.config.negative,
        lambda x, t: (
            f"the negative side dominates: its loss mass is {x:.3g} times the positive one {_lately(context)} "
            f"(threshold {t:g})"
        ),
    )


def entropy_collapse(context: AlarmContext) -> Violation | None:
    """The policy has become nearly deterministic."""
    now, first = context.history.mean("entropy"), context.history.first("entropy")
    if now is None or first is None or first <= 0:
        return None
    numbers = f"{now:.3g} nats a token {_lately(context)}, {first:.3g} at first"
    return _below(
        now / first,
        context.config.entropy,
        lambda x, t: f"the entropy is {x:.0%} of what it was: {numbers} (threshold {t:.0%})",
    )


def length(context: AlarmContext) -> Violation | None:
    """Responses have become much longer."""
    now, first = context.history.mean("response_tokens"), context.history.first("response_tokens")
    if now is None or first is None or first <= 0:
        return None
    numbers = f"{now:.4g} tokens {_lately(context)}, {first:.4g} at first"
    return _above(
        now / first,
        context.config.length,
        lambda x, t: f"responses are {x:.1f} times as long as they were: {numbers} (threshold {t:g} times)",
    )


def truncated(context: AlarmContext) -> Violation | None:
    """Many responses are truncated."""
    return _above(
        context.history.mean("truncated"),
        context.config.truncated,
        lambda x, t: (
            f"{x:.0%} of the responses are truncated at the length limit {_lately(context)} (threshold {t:.0%})"
        ),
    )


def reward_collapse(context: AlarmContext) -> Violation | None:
    """The reward is far below its peak."""
    now, peak = context.history.mean("reward"), context.history.peak("reward")
    if now is None or peak is None or peak <= 0:
        return None
    numbers = f"{now:.3g} {_lately(context)}, {peak:.3g} at its best"
    return _below(
        now / peak,
        context.config.reward,
        lambda x, t: f"the reward fell to {x:.0%} of its peak: {numbers} (threshold {t:.0%})",
    )


def saturated(context: AlarmContext) -> Violation | None:
    """The trust region rejects a large part of the tokens."""
    return _above(
        context.history.mean("clipped"),
        context.config.clipped,
        lambda x, t: (
            f"the trust region is saturated: it rejects {x:.0%} of the tokens {_lately(context)} (threshold {t:.0%})"
        ),
    )


def effective_size(context: AlarmContext) -> Violation | None:
    """Importance ratios leave few tokens in effect."""
    return _below(
        context.history.mean("ess"),
        context.config.ess,
        lambda x, t: (
            f"the effective sample size of the ratios is {x:.0%} of the tokens {_lately(context)} (threshold {t:.0%})"
        ),
    )


def learner_starved(context: AlarmContext) -> Violation | None:
    """The learner waits for rollouts."""
    return _waiting(context, "learner", "rollouts")


def rollouts_starved(context: AlarmContext) -> Violation | None:
    """The rollout side waits for the learner."""
    return _waiting(context, "rollout", "the learner")


def _waiting(context: AlarmContext, side: str, other: str) -> Violation | None:
    wait_s, step_s = context.history.mean(f"time/{side}_wait_s"), context.history.mean("time/step_s")
    if wait_s is None or step_s is None or step_s <= 0:
        return None
    return _above(
        wait_s / step_s,
        context.config.waiting,
        lambda x, t: (
            f"the {side} side spends {x:.0%} of its time waiting for {other} {_lately(context)} (threshold {t:.0%})"
        ),
    )


def missing_anchor(context: AlarmContext) -> Violation | None:
    """Tokens of versions whose weights are not kept any more cannot be trained on."""
    missing, tokens = context.history.mean("missing_anchor"), context.history.mean("tokens")
    if not missing or tokens is None:
        return None
    share = missing / (missing + tokens)
    return Violation(
        Severity.RED if share > 0.1 else Severity.YELLOW,
        f"{share:.0%} of the tokens have no anchor {_lately(context)}, and leave the loss: the weights of their "
        "versions are not kept any more; raise learner.anchor_versions",
    )


def non_finite(context: AlarmContext) -> Violation | None:
    """A step was given up because its gradient was not finite."""
    if context.history.row.outcome != "non_finite":
        return None
    return Violation(Severity.RED, "a gradient was not finite: the step was given up and the weights are as they were")


RULES: dict[str, Rule] = {
    "mismatch": mismatch,
    "divergence": divergence,
    "mismatch_growth": mismatch_growth,
    "heavy_tail": heavy_tail,
    "negative_side": negative_side,
    "entropy_collapse": entropy_collapse,
    "length": length,
    "truncated": truncated,
    "reward_collapse": reward_collapse,
    "saturated": saturated,
    "effective_size": effective_size,
    "learner_starved": learner_starved,
    "rollouts_starved": rollouts_starved,
    "missing_anchor": missing_anchor,
    "non_finite": non_finite,
}
"""Every rule by the name of its alarm."""


class Monitor:
    """Watches a run.

    A rule fires when it first finds something, and once more if yellow turns red later; so a run has at most two
    alarms a rule, and the first of them tells when the trouble began.

    Args:
        config: the thresholds.
    """

    def __init__(self, config: Thresholds) -> None:
        self._context = AlarmContext(config, History(config.window))
        self._worst: dict[str, Severity] = {}

    def observe(self, row: Row) -> list[Alarm]:
        """What the next row of ``metrics.jsonl`` makes fire."""
        self._context.history.add(row)
        out: list[Alarm] = []
        for name, rule in RULES.items():
            found = rule(self._context)
            if found is None or _RANK[found.severity] <= _RANK[self._worst.get(name)]:
                continue
            self._worst[name] = found.severity
            out.append(Alarm(row.step, name, found.severity, found.sentence))
        return out


def alarms(rows: Iterable[Row], config: Thresholds) -> list[Alarm]:
    """Every alarm of a history, in the order in which they fire."""
    monitor = Monitor(config)
    return [alarm for row in rows for alarm in monitor.observe(row)]
