"""Sums and means over the tokens of a response, or over the responses of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def segment_count(segment: Int[Tensor, " N"], num_segments: int) -> Int[Tensor, " S"]:
    """Number of entries of each segment; 0 for an empty one."""
    return torch.bincount(segment, minlength=num_segments)


def segment_sum(x: Float[Tensor, " N"], segment: Int[Tensor, " N"], num_segments: int) -> Float[Tensor, " S"]:
    """Sum of the entries of each segment; 0 for an empty one."""
    return torch.zeros(num_segments, dtype=x.dtype, device=x.device).index_add_(0, segment, x)


def segment_mean(x: Float[Tensor, " N"], segment: Int[Tensor, " N"], lengths: Int[Tensor, " S"]) -> Float[Tensor, " S"]:
    """Mean of the entries of each segment, of which there are ``lengths``; 0 for an empty one."""
    return segment_sum(x, segment, len(lengths)) / lengths.clamp(min=1).to(x.dtype)


def segment_extreme(
    x: Float[Tensor, " N"], segment: Int[Tensor, " N"], num_segments: int, which: Literal["amin", "amax"]
) -> Float[Tensor, " S"]:
    """Smallest or largest entry of each segment; 0 for an empty one."""
    out = torch.zeros(num_segments, dtype=x.dtype, device=x.device)
    return out.scatter_reduce_(0, segment, x, which, include_self=False)
