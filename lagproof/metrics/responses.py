"""What a batch of responses is like, whatever becomes of its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from lagproof.data.metrics import Mean, Metric, Spread, Sum
from lagproof.data.samples import Finish, Group, Sample


def responses(samples: Iterable[Sample]) -> dict[str, Metric]:
    """``samples``, ``response_tokens``, ``truncated`` and ``reward_std``.

    Of all responses: also of the truncated ones, of those without a reward and of those that are masked later, so
    that lengths do not look shorter than they are.
    """
    listed = list(samples)
    rewards = [s.reward for s in listed if s.scored and s.reward is not None]
    return {
        "samples": Sum(len(listed)),
        "response_tokens": Mean(sum(len(s.response_ids) for s in listed), len(listed)),
        "truncated": Mean(sum(s.finish is Finish.LENGTH for s in listed), len(listed)),
        "reward_std": Spread.of(rewards),
    }


def reasons(samples: Iterable[Sample]) -> dict[str, Metric]:
    """``graded/timed_out``, ``graded/failed``, ``graded/unparsed``: responses worth nothing for want of an answer.

    Only those that occur. Zeros of this kind look like wrong answers in every reward.
    """
    found = Counter(sample.reason for sample in samples)
    return {f"graded/{name}": Sum(found[name]) for name in ("timed_out", "failed", "unparsed") if found[name]}


def by_task(groups: Sequence[Group]) -> dict[str, Metric]:
    """``<task>/reward``, ``<task>/response_tokens``, ``<task>/truncated`` where a batch mixes tasks, else nothing."""
    parts: dict[str, list[Sample]] = {}
    for group in groups:
        parts.setdefault(group.info["task"], []).extend(group.samples)
    if len(parts) < 2:
        return {}
    out: dict[str, Metric] = {}
    for task, samples in sorted(parts.items()):
        found = responses(samples)
        rewards = [s.reward for s in samples if s.scored and s.reward is not None]
        out[f"{task}/reward"] = Mean(sum(rewards), len(rewards))
        out |= {f"{task}/{name}": found[name] for name in ("response_tokens", "truncated")}
    return out
