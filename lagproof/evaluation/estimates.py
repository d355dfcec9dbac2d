"""Estimators over problems and samples: pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_CHUNK = 2_000_000


@dataclass(frozen=True)
class Interval:
    """A percentile bootstrap interval of a mean."""

    low: float
    high: float


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Probability that ``k`` of the samples, drawn without replacement, have a right one among them.

    Formula:  1 - C(n - c, k) / C(n, k)                                                            unbiased for k <= n
    Source:   Evaluating Large Language Models Trained on Code, arXiv 2107.03374, equation 1. Resampling with
              replacement is biased low: 0.6836 instead of 0.7857 for n = 8, c = 2, k = 4.

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n.
    """
    if not (0 <= num_correct <= num_samples and 1 <= k <= num_samples):
        raise ValueError(f"pass@{k}, {num_correct} right of {num_samples}: need right <= samples and 1 <= k <= samples")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def majority(keys: Sequence[str | None], rewards: Sequence[float]) -> float:
    """What the most frequent answer is worth; the mean over the answers that share the first place.

    Args:
        keys: what each sample says, in one form for one meaning; ``None`` does not vote.
        rewards: of the same samples.
    """
    votes: dict[str, list[float]] = {}
    for key, reward in zip(keys, rewards, strict=True):
        if key is not None:
            votes.setdefault(key, []).append(reward)
    if not votes:
        return 0.0
    most = max(map(len, votes.values()))
    return float(np.mean([np.mean(worth) for worth in votes.values() if len(worth) == most]))


def bootstrap(
    values: Sequence[float], *, seed: int = 0, resamples: int = 10_000, level: float = 0.95
) -> Interval | None:
    """Interval of the mean over problems, drawn with replacement; ``None`` where they are fewer than two or all alike.

    Every resample of values that are all alike is the same, which says that the sample is small, not that the mean is
    certain. Problems are the unit, not samples: the samples of one problem are not independent of each other.

    Args:
        values: one number a problem; for a paired comparison the differences.
        seed: of the resampling.
        resamples: how many.
        level: probability that the interval is meant to have.
    """
    n = len(values)
    if n < 2 or min(values) == max(values):
        return None
    data, rng = np.asarray(values, dtype=float), np.random.default_rng(seed)
    means = np.concatenate(
        [data[rng.integers(n, size=(count, n))].mean(axis=1) for count in _chunks(resamples, _CHUNK // n + 1)]
    )
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _chunks(total: int, size: int) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)]
