"""What a batch is like, whatever becomes of its tokens: lengths, rewards, reasons, ages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from lagproof.data.metrics import Maximum, Mean, Metric, Spread, Sum, over
from lagproof.data.samples import Finish, Group, Sample
from lagproof.data.slices import Key, OfTask
from lagproof.data.tokens import TokenBatch


def responses(samples: Iterable[Sample]) -> dict[Key, Metric]:
    """``samples``, ``response_tokens``, ``truncated`` and ``reward_std``.

    Of all responses: also of the truncated ones, of those without a reward and of those that are masked later, so
    that lengths do not look shorter than they are.
    """
    return over(_responses(list(samples)))


def _responses(samples: Sequence[Sample]) -> dict[str, Metric]:
    rewards = [s.reward for s in samples if s.scored and s.reward is not None]
    return {
        "samples": Sum(len(samples)),
        "response_tokens": Mean(sum(len(s.response_ids) for s in samples), len(samples)),
        "truncated": Mean(sum(s.finish is Finish.LENGTH for s in samples), len(samples)),
        "reward_std": Spread.of(rewards),
    }


def reasons(samples: Iterable[Sample]) -> dict[Key, Metric]:
    """``graded/timed_out``, ``graded/failed``, ``graded/unparsed``: responses worth nothing for want of an answer.

    Only those that occur. Zeros of this kind look like wrong answers in every reward.
    """
    found = Counter(sample.reason for sample in samples)
    return over({f"graded/{name}": Sum(found[name]) for name in ("timed_out", "failed", "unparsed") if found[name]})


def by_task(groups: Sequence[Group]) -> dict[Key, Metric]:
    """``reward``, ``response_tokens`` and ``truncated`` of each task where a batch mixes tasks, else nothing."""
    parts: dict[str, list[Sample]] = {}
    for group in groups:
        parts.setdefault(group.info["task"], []).extend(group.samples)
    if len(parts) < 2:
        return {}
    out: dict[Key, Metric] = {}
    for task, samples in sorted(parts.items()):
        found = _responses(samples)
        rewards = [s.reward for s in samples if s.scored and s.reward is not None]
        named = {"reward": Mean(sum(rewards), len(rewards))}
        out |= over({**named, **{n: found[n] for n in ("response_tokens", "truncated")}}, OfTask(task))
    return out


def ages(tokens: TokenBatch, version: int) -> dict[Key, Metric]:
    """``age_mean`` over tokens and ``age_max``, in optimiser updates; nothing where versions are unknown."""
    if tokens.version is None or not len(tokens):
        return {}
    age = version - tokens.version
    return over({"age_mean": Mean(float(age.sum()), len(age)), "age_max": Maximum(float(age.max()))})
