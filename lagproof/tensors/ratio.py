"""The importance ratio, bounded in one place for every objective."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

LOG_RATIO_BOUND = 20.0
"""``|d|`` beyond which the ratio is clamped, nats: exp(20) is 4.9e8, and float32 overflows between 88 and 89."""


def bounded_ratio(log_ratio: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """``exp(clamp(d, -20, 20))``: finite for every finite ``d``."""
    return torch.exp(log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND))


def overflows(log_ratio: Float[Tensor, " N"]) -> Bool[Tensor, " N"]:
    """Where the clamp of :func:`bounded_ratio` acts, so that the derivative of the ratio is 0."""
    return log_ratio.abs() > LOG_RATIO_BOUND


@dataclass(frozen=True, eq=False)
class Ratio:
    """An importance ratio by its logarithm ``d``, with its derivative.

    Attributes:
        log: ``d``, nats.
    """

    log: Float[Tensor, " N"]

    @cached_property
    def value(self) -> Float[Tensor, " N"]:
        """``r``, see :func:`bounded_ratio`."""
        return bounded_ratio(self.log)

    @cached_property
    def slope(self) -> Float[Tensor, " N"]:
        """``dr / dd``: ``r`` itself, and 0 where the clamp acts."""
        return torch.where(overflows(self.log), 0.0, self.value)
