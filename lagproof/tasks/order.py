"""In which order problems are trained on: a pure function of one integer, the cursor. Imports no torch."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from lagproof.errors import InputError


def position(n: int, size: int | None, seed: int) -> tuple[int, int]:
    """Epoch and index of the ``n``-th problem of a run.

    Every epoch is a permutation of all ``size`` problems of its own, drawn from ``(seed, epoch)`` alone; so
    the whole state of the order is the cursor ``n``, and a resumed run goes on as an uninterrupted one.

    Args:
        n: problems drawn before this one, >= 0.
        size: problems of the task; ``None`` for a generator that never ends: one epoch, no order.
        seed: >= 0.

    Raises:
        InputError: there are no problems.
    """
    if n < 0:
        raise ValueError(f"cursor {n}: must be >= 0")
    if size is None:
        return 0, n
    if size < 1:
        raise InputError("the task has no problems: nothing to train on")
    epoch, place = divmod(n, size)
    return epoch, int(_permutation(size, seed, epoch)[place])


@lru_cache(maxsize=4)
def _permutation(size: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(size)
