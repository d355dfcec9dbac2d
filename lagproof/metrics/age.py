"""How old tokens are: the learner's version before the step minus the version that sampled them."""

from __future__ import annotations

from lagproof.data.metrics import Maximum, Mean, Metric, over
from lagproof.data.slices import Key
from lagproof.data.tokens import TokenBatch


def ages(tokens: TokenBatch, version: int) -> dict[Key, Metric]:
    """``age_mean`` over tokens and ``age_max``, in optimiser updates; nothing where versions are unknown."""
    if tokens.version is None or not len(tokens):
        return {}
    age = version - tokens.version
    return over({"age_mean": Mean(float(age.sum()), len(age)), "age_max": Maximum(float(age.max()))})
