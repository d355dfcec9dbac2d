"""The thresholds of the alarms: plain settings, so that a finished run or a dump is judged without a configuration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lagproof.errors import UnknownNameError
from lagproof.settings.keys import check, key, read, require


@dataclass(frozen=True)
class Thresholds:
    """When a run calls for attention: pairs of a yellow and a red threshold. See ``docs/metrics.md``.

    Each is compared with a mean over the last ``window`` steps, so that no single batch fires. ``inf`` never fires,
    and neither does 0 where an alarm fires below its threshold.
    """

    window: int = key(8, "steps that are averaged before an alarm judges them", ge=1)
    d_bar: tuple[float, float] = key((0.15, 0.4), "mean |log-ratio|, nats: fires above")
    k3: tuple[float, float] = key((math.inf, math.inf), "k3, an estimate of KL(sampler || policy): fires above")
    growth: tuple[float, float] = key((3.0, 5.0), "mean |log-ratio| as a multiple of the run's first: fires above")
    growth_floor: float = key(0.02, "mean |log-ratio| below which growth means nothing", ge=0)
    tail: tuple[float, float] = key((4.0, 8.0), "99.9 % quantile of |log-ratio|, nats: fires above")
    tail_ratio: float = key(20.0, "that quantile over the median, below which no tail", ge=0)
    negative: tuple[float, float] = key((5.0, 20.0), "loss mass of negative over positive responses: fires above")
    entropy: tuple[float, float] = key((0.5, 0.2), "entropy as a share of the run's first: fires below")
    length: tuple[float, float] = key((1.5, 2.5), "response length as a multiple of the run's first: fires above")
    truncated: tuple[float, float] = key((0.3, 0.8), "share of responses truncated at max_tokens: fires above")
    reward: tuple[float, float] = key((0.75, 0.5), "reward over its peak: fires below")
    clipped: tuple[float, float] = key((0.25, 0.75), "share of tokens that the trust region rejects: fires above")
    ess: tuple[float, float] = key((0.6, 0.2), "effective sample size of the ratios, a share: fires below")
    waiting: tuple[float, float] = key((0.5, 0.9), "share of its time that a side waits for the other: fires above")

    def __post_init__(self) -> None:
        check(self, "alarm")
        for name in ("d_bar", "k3", "growth", "tail", "negative", "length", "truncated", "clipped", "waiting"):
            yellow, red = getattr(self, name)
            allowed = "a yellow threshold > 0 and a red one that is not below it; inf never fires"
            require(0 < yellow <= red, f"alarm.{name}", [yellow, red], allowed)
        for name in ("entropy", "reward", "ess"):
            yellow, red = getattr(self, name)
            allowed = "shares: a yellow threshold <= 1 and a red one >= 0 that is not above it; 0 never fires"
            require(0 <= red <= yellow <= 1, f"alarm.{name}", [yellow, red], allowed)


class Scale(StrEnum):
    """How large the model is that thresholds are for."""

    TINY = "tiny"
    LARGE = "large"
    UNKNOWN = "unknown"


SCALES: dict[Scale, Thresholds] = {
    # set on the embedded runs: models of .1 M parameters, lag 8 (docs/evidence/alarms.md)
    Scale.TINY: Thresholds(),
    # a 30 B mixture of experts: d_bar .006-.008 with routing replay and .010-.011 without was healthy; above .03, k3
    # above 2.8e-3, began the regime before a collapse. Yellow is twice the healthy one, and k3 of docs/metrics.md
    Scale.LARGE: Thresholds(d_bar=(0.02, 0.03), k3=(1e-3, 2.8e-3), growth_floor=0.01),
    # yellow as for a large model, red as for a tiny one
    Scale.UNKNOWN: Thresholds(d_bar=(0.02, 0.4), k3=(1e-3, math.inf), growth_floor=0.01),
}
"""The thresholds of each."""


def find_scale(name: Scale | str) -> Scale:
    """The scale of that name.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in tuple(Scale):
        raise UnknownNameError("scale", str(name), [str(scale) for scale in Scale])
    return Scale(name)


def with_overrides(thresholds: Thresholds, overrides: Mapping[str, Any]) -> Thresholds:
    """These thresholds with some set anew, by name.

    Raises:
        UnknownNameError, ConfigError: one that does not exist, or a value that is not allowed.
    """
    read(Thresholds, overrides, "alarm")  # names and kinds
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in overrides.items()}
    return dataclasses.replace(thresholds, **values)


LARGE_VOCABULARY = 1000
"""Token ids at or above it are of a tokenizer of words: no model of the embedded kind."""


def guess(top_token: int | None) -> Scale:
    """The scale of the model that used such token ids."""
    if top_token is None:
        return Scale.UNKNOWN
    return Scale.LARGE if top_token >= LARGE_VOCABULARY else Scale.TINY
