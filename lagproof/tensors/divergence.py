"""Divergences between the policy pi and the sampler mu, from tokens that mu sampled.

Everything is per token; ``d = log pi(a) - log mu(a)``, nats. Means of these over tokens estimate the divergence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lagproof.tensors.ratio import LOG_RATIO_BOUND

if TYPE_CHECKING:
    from jaxtyping import Float


def k3(log_ratio: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """``exp(d) - 1 - d``: unbiased for KL(mu || pi), never negative. ``exp`` is bounded as every ratio is.

    ``expm1``, because ``exp(d) - 1`` loses all digits of a healthy ``d`` in float32.
    """
    return torch.expm1(log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)) - log_ratio


def binary_total_variation(policy_logp: Float[Tensor, " N"], sampler_logp: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """``pi(a) - mu(a)``, signed: the total variation between "the sampled token" and "any other"."""
    return torch.exp(policy_logp) - torch.exp(sampler_logp)


def binary_kl(policy_logp: Float[Tensor, " N"], sampler_logp: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """``mu (log mu - log pi) + (1 - mu) log((1 - mu) / (1 - pi))``: the KL between the same two events, never NaN.

    ``inf`` where pi is 1 and mu is not.
    """
    log_rest_mu, log_rest_pi = _log_complement(sampler_logp), _log_complement(policy_logp)
    hit = torch.exp(sampler_logp) * (sampler_logp - policy_logp)
    rest = torch.where(
        torch.isinf(log_rest_mu), torch.zeros_like(hit), torch.exp(log_rest_mu) * (log_rest_mu - log_rest_pi)
    )
    return hit + rest


def _log_complement(logp: Tensor) -> Tensor:
    """``log(1 - exp(logp))`` without cancellation; rounding may leave ``logp`` a little above 0."""
    return torch.log(-torch.expm1(logp.clamp(max=0.0)))
