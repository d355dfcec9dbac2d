"""What a batch of responses is like, whatever becomes of its tokens."""

from __future__ import annotations

from collections.abc import Iterable

from lagproof.data.metrics import Mean, Metric, Spread, Sum
from lagproof.data.samples import Finish, Sample


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
