"""What to try, by what was found. Each sentence names the key or the thing to change."""

from __future__ import annotations

from collections.abc import Sequence

from lagproof.monitor.alarm import Alarm
from lagproof.objectives import OBJECTIVES, remedies

ENGINE_SHARE = 0.5
"""Share of the mismatch above which it is the engine that should be looked at, and not the lag."""

_OF_ALARM: dict[str, tuple[str, ...]] = {
    "heavy_tail": (
        f"a few tokens are very far off: a rule that rejects them one by one ({', '.join(remedies('heavy_tail'))}) "
        "leaves the rest as it is",
    ),
    "negative_side": (f"scale the negative side down: {', or '.join(remedies('negative_side'))}",),
    "entropy_collapse": (
        "give exploration room: a wider upper radius (objective.high = 0.28), a lower learning rate, harder problems",
    ),
    "length": ("look at the longest responses, and at whether the reward pays for length",),
    "truncated": (
        "raise rollout.max_tokens, or find out why responses do not end; a truncated response is scored as it is",
    ),
    "reward_collapse": (
        "go back to a checkpoint from before the first alarm and continue from it with one of the changes above",
    ),
    "saturated": (
        "much of the batch no longer counts: lower the lag (schedule.broadcast_every) or the learning rate, or widen "
        "the radius if the rejected tokens are only a little outside",
    ),
    "effective_size": (
        f"few tokens carry the importance weights: truncate or mask them ({', '.join(remedies('effective_size'))})",
    ),
    "learner_starved": ("give the rollout side more workers, or let it run further ahead (schedule.batches_ahead)",),
    "rollouts_starved": ("the learner is the bottleneck: fewer rollout workers lose nothing",),
    "non_finite": ("look at the step before it: the largest |d|, the gradient norm, and the log-probabilities given",),
}


def advice(fired: Sequence[Alarm], engine_share: float | None, objective: str | None) -> list[str]:
    """What to try, the most likely to help first; nothing where nothing fired.

    Args:
        fired: the alarms.
        engine_share: of ``d_bar``, where it is known.
        objective: its name, where it is known.
    """
    names = list(dict.fromkeys(alarm.name for alarm in fired))
    out: list[str] = []
    if {"mismatch", "mismatch_growth", "heavy_tail", "effective_size"} & set(names):
        out += _against_mismatch(engine_share, objective)
    for name in sorted(names, key=lambda name: name == "reward_collapse"):
        out += _OF_ALARM.get(name, ())
    return list(dict.fromkeys(out))


def _against_mismatch(engine_share: float | None, objective: str | None) -> list[str]:
    if engine_share is not None and engine_share > ENGINE_SHARE:
        return [
            f"{engine_share:.0%} of the mismatch comes from the engine and not from age: compare its temperature, "
            "top-p and top-k with the learner's, its precision (rollout.precision), and its routing (experts)",
        ]
    out: list[str] = []
    own = OBJECTIVES[objective].advice.get("mismatch") if objective is not None and objective in OBJECTIVES else None
    if own is not None:
        named = {alarm: remedies(alarm) for alarm in ("mismatch", "negative_side")}
        others = own.format(mismatch=" or ".join(named["mismatch"]), negative_side=", or ".join(named["negative_side"]))
        out.append(f"{objective} {others}")
    out.append("lower the lag (schedule.broadcast_every, schedule.batches_ahead) or the learning rate (learner.lr)")
    if engine_share is None:
        out.append("find out what the engine adds: set probe.every = 10, or record tokens of age 0")
    return out
