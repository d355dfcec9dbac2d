"""The arithmetic an engine samples with, where it is not the learner's: what makes an engine's mismatch real."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import torch
from torch import Tensor

from lagproof.errors import ConfigError
from lagproof.names import Precision

PRECISIONS: tuple[str, ...] = get_args(Precision)
_BITS = {"int8": 8, "int6": 6}


def compute_dtype(precision: str) -> torch.dtype:
    """What an engine computes in: weights of int8 and int6 are rounded to a grid, but multiplied in float32.

    Raises:
        ConfigError: not one of ``PRECISIONS``.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"rollout.precision = {precision!r}: must be {' | '.join(PRECISIONS)}")
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def lower(weights: Mapping[str, Tensor], precision: str) -> dict[str, Tensor]:
    """The weights as an engine of that precision holds them; for ``int8`` and ``int6`` every matrix is rounded.

    Embeddings, the output head and routers are rounded too, which most integer engines leave alone: harsher, so that
    a tiny model shows the mismatch of a large one.
    """
    bits = _BITS.get(precision)
    if bits is None:
        return dict(weights)
    return {name: fake_quantise(w, bits) if w.dim() >= 2 else w for name, w in weights.items()}


def fake_quantise(weight: Tensor, bits: int) -> Tensor:
    """Round to a symmetric grid with one scale an output channel (a slice along the last dimension, the inputs).

    ``w -> round(w / s) * s`` with ``s = max |w| / (2**(bits - 1) - 1)``.
    """
    scale = weight.abs().amax(dim=-1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (weight / scale.clamp_min(torch.finfo(weight.dtype).tiny)).round_() * scale
