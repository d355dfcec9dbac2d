"""The arithmetic an engine samples with, where it is not the learner's: what makes an engine's mismatch real."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lagproof.errors import ConfigError

PRECISIONS = ("float32", "bfloat16", "int8", "int6")
_BITS = {"int8": 8, "int6": 6}


def check_precision(precision: str) -> None:
    """Raises: ConfigError: not one of ``PRECISIONS``."""
    if precision not in PRECISIONS:
        raise ConfigError(f"rollout.precision = {precision!r}: must be {' | '.join(PRECISIONS)}")


def compute_dtype(precision: str) -> torch.dtype:
    """What a model computes in: integer weights are rounded but multiplied in float32."""
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def lower(weights: Mapping[str, Tensor], precision: str, exact: frozenset[str]) -> dict[str, Tensor]:
    """The weights as an engine of that precision holds them.

    ``int8`` and ``int6`` round every matrix (and every expert's) to a symmetric grid with one scale an output channel,
    ``w -> round(w / s) * s`` with ``s = max |w| / (2**(bits - 1) - 1)`` over the channel's inputs.

    Args:
        exact: names that are never rounded.
    """
    bits = _BITS.get(precision)
    if bits is None:
        return dict(weights)
    return {name: fake_quantise(w, bits) if w.dim() >= 2 and name not in exact else w for name, w in weights.items()}


def fake_quantise(weight: Tensor, bits: int) -> Tensor:
    """Round to ``2**bits - 1`` levels, symmetric around 0, one scale for each slice along the last dimension."""
    largest = 2 ** (bits - 1) - 1
    scale = weight.abs().amax(dim=-1, keepdim=True) / largest
    return (weight / scale.clamp_min(torch.finfo(weight.dtype).tiny)).round_() * scale


def kept_exact(model: nn.Module) -> frozenset[str]:
    """Parameters that integer engines usually leave alone: embeddings, the output head and routers."""
    names: set[str] = set()
    embeddings = {id(p) for p in _embeddings(model)}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in embeddings or name.endswith((".gate.weight", ".router.weight")):
            names.add(name)
    return frozenset(names)


def _embeddings(model: nn.Module) -> list[nn.Parameter]:
    modules = (model.get_input_embeddings(), model.get_output_embeddings())  # type: ignore[operator]
    return [p for m in modules if m is not None for p in m.parameters()]
