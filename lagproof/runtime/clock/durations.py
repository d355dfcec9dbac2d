"""How long responses are and how long things take, as functions of the seed."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lagproof.data.streams import Purpose, stream
from lagproof.settings.keys import require

_BLOCK = 1024
"""Prompts whose lengths are drawn at a time; the stream of a block is its own, so that no order of calls matters."""


class Lengths(Protocol):
    """Where lengths of responses come from."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.int64]:
        """Tokens of responses, each >= 1."""
        ...

    def describe(self) -> str:
        """In a few words."""
        ...


@dataclass(frozen=True)
class LogNormalLengths:
    """Log-normal lengths, truncated as ``max_tokens`` truncates responses.

    Args:
        mean: tokens, before the truncation, >= 1.
        sigma: standard deviation of the logarithm, >= 0; 0: all have the mean.
        max_tokens: none is longer, >= 1.

    Raises:
        ConfigError: a value out of range.
    """

    mean: float
    sigma: float
    max_tokens: int

    def __post_init__(self) -> None:
        require(math.isfinite(self.mean) and self.mean >= 1, "length.mean", self.mean, ">= 1")
        require(math.isfinite(self.sigma) and self.sigma >= 0, "length.sigma", self.sigma, ">= 0")
        require(self.max_tokens >= 1, "length.max", self.max_tokens, ">= 1")

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.int64]:
        drawn = self.mean * lognormal(rng, self.sigma, shape)
        return np.clip(np.rint(drawn), 1, self.max_tokens).astype(np.int64)

    def describe(self) -> str:
        return f"log-normal, mean {self.mean:g}, sigma {self.sigma:g}, at most {self.max_tokens} tokens"


@dataclass(frozen=True, eq=False)
class MeasuredLengths:
    """Lengths that were measured, drawn with replacement and independently of each other.

    Args:
        lengths: tokens of responses, ``[N]``.
        source: where they were measured.
    """

    lengths: NDArray[np.int64]
    source: str

    def __post_init__(self) -> None:
        require(len(self.lengths) > 0, f"responses of {self.source}", len(self.lengths), ">= 1")

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.int64]:
        return np.maximum(rng.choice(self.lengths, shape), 1)

    def describe(self) -> str:
        n, mean, most = len(self.lengths), self.lengths.mean(), self.lengths.max()
        return f"{n} responses of {self.source}, mean {mean:.1f}, at most {most} tokens"


def lognormal(rng: np.random.Generator, sigma: float, shape: tuple[int, ...] | None = None) -> NDArray[np.float64]:
    """Log-normal factors with mean 1: ``exp(sigma z - sigma^2 / 2)``."""
    return np.exp(sigma * rng.standard_normal(shape) - sigma**2 / 2)


class PromptLengths:
    """The longest response of each prompt and the tokens of all of its responses, by the prompt's number.

    Args:
        lengths: of responses.
        samples: responses per prompt.
        seed: of the streams.
    """

    def __init__(self, lengths: Lengths, samples: int, seed: int) -> None:
        self._lengths, self._samples, self._seed = lengths, samples, seed
        self._block = functools.lru_cache(maxsize=64)(self._drawn)

    def of(self, prompt: int) -> tuple[int, int]:
        """Longest response and total, tokens."""
        longest, total = self._block(prompt // _BLOCK)
        return longest[prompt % _BLOCK], total[prompt % _BLOCK]

    def _drawn(self, block: int) -> tuple[Sequence[int], Sequence[int]]:
        rng = np.random.default_rng(stream(self._seed, Purpose.CLOCK, 0, block))
        drawn = self._lengths.draw(rng, (_BLOCK, self._samples))
        return drawn.max(1).tolist(), drawn.sum(1).tolist()
