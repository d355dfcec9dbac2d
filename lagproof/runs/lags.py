"""What tables, directories and claims call the schedule of a run: its lag as a number, or ``s0.5n8`` for a threshold.

==========  ==============================================================================
``8``       ``broadcast_every = batches_ahead = 8``; 0 is on-policy, with a broadcast every step
``s0.5n8``  ``staleness_threshold = 0.5``, ``broadcast_every = 8``
``a2n1``    ``max_age = 2``, ``broadcast_every = 1``; ``a2n1drop`` with ``late = "drop"``
==========  ==============================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

LagName = int | str
BOUND = re.compile(r"a([0-9]+)n([0-9]+)(drop)?")
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
    if "max_age" in schedule:
        return f"a{int(schedule['max_age'])}n{every}{'drop' if schedule.get('late') == 'drop' else ''}"
    return int(schedule.get("batches_ahead", every))


def to_schedule(name: LagName) -> dict[str, Any]:
    """The keys of ``[schedule]`` behind a name."""
    if isinstance(name, int):
        return {"broadcast_every": max(name, 1), "batches_ahead": name}
    if (match := BOUND.fullmatch(name)) is not None:
        return {"broadcast_every": int(match[2]), "max_age": int(match[1]), "late": match[3] or "train"}
    share, every = _parts(name)
    return {"broadcast_every": every, "staleness_threshold": share}


def describe(name: str) -> str:
    """What the name of a threshold or of a bounded age means, as a sentence."""
    if (match := BOUND.fullmatch(name)) is not None:
        late = "dropped" if match[3] else "trained and counted"
        return f"Lag {name}: age at most {match[1]}, with a broadcast every {match[2]} steps; later prompts are {late}."
    share, every = _parts(name)
    return f"Lag {name}: staleness threshold {share:g}, with a broadcast every {every} steps."


def rank(name: LagName) -> tuple[int, float, int, bool]:
    """Where a name stands in tables: lags by size, then thresholds, then bounded ages."""
    if isinstance(name, int):
        return 0, float(name), 0, False
    if (match := BOUND.fullmatch(name)) is not None:
        return 2, float(match[1]), int(match[2]), match[3] is not None
    return 1, *_parts(name), False


def in_order(names: Iterable[LagName]) -> list[LagName]:
    """Each name once, by :func:`rank`."""
    return sorted(set(names), key=rank)


def _parts(name: str) -> tuple[float, int]:
    match = THRESHOLD.fullmatch(name)
    assert match is not None, name
    return float(match[1]), int(match[2])
