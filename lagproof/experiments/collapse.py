"""Whether a run has collapsed, and when it began: judged against the run's own best, so that no task is favoured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SHARE = 0.75
"""Of the run's best, below which accuracy has collapsed."""

RECOVERED = 0.9
"""Of the run's best, at which it is back."""

WINDOW = 3
"""Evaluations in a row that are averaged, so that one lucky or unlucky evaluation decides nothing."""

FINAL = 0.1
"""Share of the evaluations that the final window holds, ``WINDOW`` at least."""

RULE = (
    f"collapsed: the mean accuracy of the final window (the last {FINAL:.0%} of the evaluations, at least {WINDOW}) "
    f"is below {SHARE:g} of the run's own best mean over {WINDOW} evaluations in a row; or that of the second half "
    f"is, and the final window is not back at {RECOVERED:g}. It began at the first evaluation below after which "
    "the mean of all that follow stays below"
)


@dataclass(frozen=True)
class Collapse:
    """How a run ended, relative to its own best.

    Attributes:
        collapsed: by :data:`RULE`.
        began: step of the evaluation at which it began; ``None`` where it did not, or the best itself came last.
        best: the highest mean over :data:`WINDOW` evaluations in a row.
        second_half, final: mean over the second half of the steps, and over the final window, as shares of ``best``.
    """

    collapsed: bool
    began: int | None
    best: float
    second_half: float
    final: float


def collapse(steps: Sequence[int], accuracy: Sequence[float], last_step: int) -> Collapse | None:
    """:data:`RULE`, of one run.

    Args:
        steps: of its evaluations, in order, the one before training included.
        accuracy: at them.
        last_step: of the run; its second half begins after half of that.

    Returns:
        ``None`` where the second half has no evaluation, or the accuracy was never above 0.
    """
    half = [value for step, value in zip(steps, accuracy, strict=True) if step > last_step / 2]
    means = _means(accuracy) if half else []
    if not means or max(means) <= 0:
        return None
    peak = int(np.argmax(means))
    best = means[peak]
    final = float(np.mean(accuracy[-max(WINDOW, round(FINAL * len(accuracy))) :])) / best
    second = float(np.mean(half)) / best
    fell = final < SHARE or (second < SHARE and final < RECOVERED)
    began = _began(accuracy, peak, SHARE * best) if fell else None
    return Collapse(fell, None if began is None else steps[began], best, second, final)


def _means(accuracy: Sequence[float]) -> list[float]:
    """Over each ``WINDOW`` evaluations in a row, all of them where there are fewer."""
    window = min(WINDOW, len(accuracy))
    return [float(np.mean(accuracy[i : i + window])) for i in range(len(accuracy) - window + 1)]


def _began(accuracy: Sequence[float], peak: int, limit: float) -> int | None:
    """First evaluation since the best that is below, with the three from it on and all from it on below on average."""
    for i in range(peak, len(accuracy)):
        if accuracy[i] < limit and np.mean(accuracy[i : i + WINDOW]) < limit and np.mean(accuracy[i:]) < limit:
            return i
    return None
