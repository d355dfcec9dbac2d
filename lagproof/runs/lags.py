"""What tables, directories and claims call the schedule of a run: its lag as a number, or ``s0.5n8`` for a threshold.

==========  ==============================================================================
``8``       ``broadcast_every = batches_ahead = 8``; 0 is on-policy, with a broadcast every step
``s0.5n8``  ``staleness_threshold = 0.5``, ``broadcast_every = 8``
==========  ==============================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

LagName = int | str
THRESHOLD = re.compile(r"s([0-9][0-9.e+-]*)n([0-9]+)")


def threshold(share: float, every: int) -> str:
    """The name of a staleness threshold with a broadcast every so many steps."""
    return f"s{share!r}n{every}"


def of_schedule(schedule: Mapping[str, Any]) -> LagName:
    """The name of a run's schedule.

    Raises:
        KeyError, ValueError: what is there is no schedule.
    """
    every = int(schedule["broadcast_every"])
    if "staleness_threshold" in schedule:
        return threshold(float(schedule["staleness_threshold"]), every)
    return int(schedule.get("batches_ahead", every))


def to_schedule(name: LagName) -> dict[str, Any]:
    """The keys of ``[schedule]`` behind a name."""
    if isinstance(name, int):
        return {"broadcast_every": max(name, 1), "batches_ahead": name}
    share, every = _parts(name)
    return {"broadcast_every": every, "staleness_threshold": share}


def describe(name: str) -> str:
    """What the name of a threshold means, as a sentence."""
    share, every = _parts(name)
    return f"Lag {name}: staleness threshold {share:g}, with a broadcast every {every} steps."


def rank(name: LagName) -> tuple[bool, float, int]:
    """Where a name stands in tables: lags by size, then thresholds."""
    return (False, float(name), 0) if isinstance(name, int) else (True, *_parts(name))


def in_order(names: Iterable[LagName]) -> list[LagName]:
    """Each name once, by :func:`rank`."""
    return sorted(set(names), key=rank)


def _parts(name: str) -> tuple[float, int]:
    match = THRESHOLD.fullmatch(name)
    assert match is not None, name
    return float(match[1]), int(match[2])
