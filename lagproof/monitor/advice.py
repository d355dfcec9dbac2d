"""What to try, by what was found. Each sentence names the key or the thing to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lagproof.monitor.alarm import Alarm
from lagproof.objectives import OBJECTIVES, remedies

ENGINE_SHARE = 0.5
"""Share of the mismatch above which it is the engine that should be looked at, and not the lag."""


@dataclass(frozen=True)
class Knobs:
    """What a trainer calls the settings that advice is about, as the object of a sentence.

    Attributes:
        lag: how stale rollouts may be.
        lr: the learning rate.
        max_tokens: where responses are truncated.
        clip: a wider upper radius of the trust region.
        precision: of the engine.
        ahead: letting the rollout side run further ahead.
        probe: how to find out what the engine adds.
        rescore: how the policy comes to score the tokens itself.
        mask: how tokens that the model did not sample are told from those that it did.
    """

    lag: str = "the lag"
    lr: str = "the learning rate"
    max_tokens: str = "the limit of response tokens"
    clip: str = "a wider upper radius of the trust region"
    precision: str = "its precision"
    ahead: str = "let it run further ahead"
    probe: str = "record some tokens that the current policy sampled, with their versions"
    rescore: str = "let the policy score the sampled tokens itself before the step"
    mask: str = "write a mask that is 0 on what the model did not sample"


PLAIN = Knobs()
"""For anybody's trainer."""

LAGPROOF = Knobs(
    lag="the lag (schedule.broadcast_every, schedule.batches_ahead)",
    lr="the learning rate (learner.lr)",
    max_tokens="rollout.max_tokens",
    clip="a wider upper radius (objective.high = 0.28)",
    precision="its precision (rollout.precision)",
    ahead="let it run further ahead (schedule.batches_ahead)",
    probe="set probe.every = 10, or record tokens of age 0",
)
"""For a run of ours."""

MISMATCH = frozenset({"mismatch", "mismatch_growth", "divergence", "heavy_tail", "effective_size"})
"""Alarms about the distance of the policy from its sampler."""


@dataclass(frozen=True)
class Situation:
    """What is known of a run besides its alarms.

    Attributes:
        engine_share: of ``d_bar``, where it is known.
        objective: its name, where it is known.
        checkpoint: step of the newest checkpoint from before the first alarm, where there is one.
        sudden: how the reward fell within a few updates of the beginning, in words; empty where it did not.
    """

    engine_share: float | None = None
    objective: str | None = None
    checkpoint: int | None = None
    sudden: str = ""


def _of_alarm(name: str, knobs: Knobs) -> tuple[str, ...]:
    def others(alarm: str, joined: str) -> str:
        return joined.join(remedies(alarm))

    known: dict[str, tuple[str, ...]] = {
        "heavy_tail": (
            f"a few tokens are very far off: a rule that rejects them one by one ({others('heavy_tail', ', ')}) leaves "
            "the rest as it is",
        ),
        "negative_side": (f"scale the negative side down: {others('negative_side', ', or ')}",),
        "entropy_collapse": (f"give exploration room: {knobs.clip}, a lower learning rate, harder problems",),
        "length": ("look at the longest responses, and at whether the reward pays for length",),
        "truncated": (
            f"raise {knobs.max_tokens}, or find out why responses do not end; a truncated response is scored as it is",
        ),
        "saturated": (
            f"much of the batch no longer counts: lower {knobs.lag} or the learning rate, or widen the radius if the "
            "rejected tokens are only a little outside",
        ),
        "effective_size": (
            f"few tokens carry the importance weights: truncate or mask them ({others('effective_size', ', ')})",
        ),
        "learner_starved": (f"give the rollout side more workers, or {knobs.ahead}",),
        "rollouts_starved": ("the learner is the bottleneck: fewer rollout workers lose nothing",),
        "non_finite": (
            "look at the step before it: the largest |d|, the gradient norm, and the log-probabilities given",
        ),
    }
    return known.get(name, ())


def advice(fired: Sequence[Alarm], situation: Situation, knobs: Knobs = LAGPROOF) -> list[str]:
    """What to try, the most likely to help first; nothing where nothing fired.

    Args:
        fired: the alarms.
        situation: what else is known.
        knobs: what the trainer calls its settings.
    """
    names = list(dict.fromkeys(alarm.name for alarm in fired))
    out: list[str] = []
    if situation.sudden:
        out.append(f"{situation.sudden}: lower {knobs.lr}")
    if MISMATCH & set(names):
        out += _against_mismatch(situation, knobs)
    for name in names:
        out += _of_alarm(name, knobs)
    if "reward_collapse" in names and situation.checkpoint is not None:
        out.append(
            f"go back to the checkpoint of step {situation.checkpoint}, from before the first alarm, and continue from "
            "it with one of the changes above"
        )
    return list(dict.fromkeys(out))


def _against_mismatch(situation: Situation, knobs: Knobs) -> list[str]:
    share, objective = situation.engine_share, situation.objective
    if share is not None and share > ENGINE_SHARE:
        return [
            f"{share:.0%} of the mismatch comes from the engine and not from age: compare its temperature, top-p and "
            f"top-k with the learner's, {knobs.precision}, and its routing (experts)",
        ]
    out: list[str] = []
    own = OBJECTIVES[objective].advice.get("mismatch") if objective is not None and objective in OBJECTIVES else None
    if own is not None:
        named = {alarm: remedies(alarm) for alarm in ("mismatch", "negative_side")}
        others = own.format(mismatch=" or ".join(named["mismatch"]), negative_side=", or ".join(named["negative_side"]))
        out.append(f"{objective} {others}")
    out.append(f"lower {knobs.lag} or {knobs.lr}")
    if share is None:
        out.append(f"find out what the engine adds: {knobs.probe}")
    return out
