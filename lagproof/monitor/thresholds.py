"""The thresholds of the alarms: plain settings, so that a finished run or a dump is judged without a configuration."""

from __future__ import annotations

from dataclasses import dataclass

from lagproof.settings.keys import check, key, require


@dataclass(frozen=True)
class Thresholds:
    """When a run calls for attention: pairs of a yellow and a red threshold. See ``docs/metrics.md``.

    Each is compared with a mean over the last ``window`` steps, so that no single batch fires. ``inf`` never fires,
    and neither does 0 where an alarm fires below its threshold.
    """

    window: int = key(8, "steps that are averaged before an alarm judges them", ge=1)
    d_bar: tuple[float, float] = key((0.15, 0.4), "mean |log-ratio|, nats: fires above")
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
        for name in ("d_bar", "growth", "tail", "negative", "length", "truncated", "clipped", "waiting"):
            yellow, red = getattr(self, name)
            allowed = "a yellow threshold > 0 and a red one that is not below it; inf never fires"
            require(0 < yellow <= red, f"alarm.{name}", [yellow, red], allowed)
        for name in ("entropy", "reward", "ess"):
            yellow, red = getattr(self, name)
            allowed = "shares: a yellow threshold <= 1 and a red one >= 0 that is not above it; 0 never fires"
            require(0 <= red <= yellow <= 1, f"alarm.{name}", [yellow, red], allowed)
