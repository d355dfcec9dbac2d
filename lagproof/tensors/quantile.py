"""Exact empirical quantiles of tensors of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float


def quantile(x: Float[Tensor, " N"], q: float) -> float | None:
    """The ``q``-quantile with linear interpolation between order statistics, as ``numpy.quantile`` defines it.

    With ``h = q (N - 1)`` and sorted ``x``: ``x[floor h] + (h - floor h) (x[floor h + 1] - x[floor h])``. Selection,
    not sorting; ``torch.quantile`` refuses more than 2^24 entries, this does not.

    Args:
        x: finite values.
        q: in [0, 1].

    Returns:
        A Python float, or ``None`` where there is no value at all.

    Raises:
        ValueError: ``q`` outside [0, 1].
    """
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"quantile q = {q}: must be in [0, 1]")
    n = x.numel()
    if n == 0:
        return None
    position = q * (n - 1)
    low = min(int(position), n - 1)
    fraction = position - low
    below, above = _order_statistics(x.detach(), low, need_next=fraction > 0.0)
    return below + (above - below) * fraction


def _order_statistics(x: Tensor, low: int, *, need_next: bool) -> tuple[float, float]:
    """The entries of rank ``low`` and ``low + 1`` (counted from 0)."""
    if x.device.type == "cpu":
        values = np.partition(x.numpy(), low)
        below = float(values[low])
        return below, float(values[low + 1 :].min()) if need_next else below
    below_t = torch.kthvalue(x, low + 1).values
    if not need_next:
        return float(below_t), float(below_t)
    is_tied = (x <= below_t).sum() > low + 1
    above_t = torch.where(is_tied, below_t, torch.where(x > below_t, x, torch.inf).min())
    return float(below_t), float(above_t)
