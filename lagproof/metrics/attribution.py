"""Where the mismatch comes from: a chain of distributions between the policy and its sampler, and what each link adds.

With ``pi_v`` the training engine at the version that sampled the token,

    d = [log pi - log pi_v]  +  [log pi_v - log mu]
          policy update           engine: its kernels, its precision

A further distribution between two of these (``pi_v`` with the sampler's expert choices) is a further link of the chain
and splits the part it lies in. The parts add up to ``d`` for every token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lagproof.data.metrics import Maximum, Mean, Metric, Sum, over
from lagproof.data.slices import Key


def links(names: Sequence[str], chain: Sequence[Tensor]) -> dict[str, Tensor]:
    """The differences of neighbours, in float64, where the difference of two float32 log-probabilities is exact.

    Args:
        names: of the links, from the policy to the sampler, one fewer than distributions.
        chain: log-probabilities of the same tokens under each distribution, nats, each ``[N]``.
    """
    assert len(chain) == len(names) + 1, f"{len(names)} names for {len(chain)} distributions"
    wide = [x.detach().double() for x in chain]
    return {name: before - after for name, before, after in zip(names, wide, wide[1:], strict=False)}


def attribution(parts: Mapping[str, Tensor]) -> dict[Key, Metric]:
    """What each part adds to ``d_bar``, over the tokens for which all parts are known.

    * ``probe/{name}``: mean of ``sign(d) part``; over the names these add up to ``probe/d_bar``.
    * ``probe/{name}_abs``, ``probe/{name}_max``: mean and largest ``|part|``.
    * ``probe/tokens``, ``probe/unattributed``: tokens that were split, and share of those looked at that could not be.
    """
    stacked = torch.stack(list(parts.values()))
    known = torch.isfinite(stacked).all(dim=0)
    stacked = stacked[:, known]
    d = stacked.sum(dim=0)
    n, num_tokens = int(known.sum()), len(known)
    out: dict[str, Metric] = {
        "probe/d_bar": Mean(float(d.abs().sum()), n),
        "probe/tokens": Sum(n),
        "probe/unattributed": Mean(num_tokens - n, num_tokens),
    }
    for name, part in zip(parts, stacked, strict=True):
        out[f"probe/{name}"] = Mean(float((torch.sign(d) * part).sum()), n)
        out[f"probe/{name}_abs"] = Mean(float(part.abs().sum()), n)
        if n:
            out[f"probe/{name}_max"] = Maximum(float(part.abs().max()))
    return over(out)
