"""Random streams as pure functions of the seed: a run has no random state, and a retry draws the same numbers."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream is for; part of its key, so that no two purposes share numbers."""

    ORDER = 0
    SAMPLE = 1
    EVALUATE = 2
    EVAL_PROBLEMS = 3
    CLOCK = 4


def stream(seed: int, purpose: Purpose, *index: int) -> int:
    """A 63-bit seed for ``(seed, purpose, index)``."""
    return int(np.random.SeedSequence([seed, int(purpose), *index]).generate_state(1, np.uint64)[0] >> np.uint64(1))
