"""How the two signs of the advantage weigh against each other; what breaks the objectives of the current policy."""

from __future__ import annotations

import math

import numpy as np

from lagproof.data.metrics import Mean, Metric
from lagproof.data.tokens import TokenBatch
from lagproof.tensors.segments import segment_count, segment_sum


def balance(tokens: TokenBatch) -> dict[str, Metric]:
    """Scales and loss masses of the two signs, from ``S_g = mean_t -log pi`` of each response, nats.

    * ``scale_positive``, ``scale_negative``: mean of ``S_g`` over the responses of that sign.
    * ``loss_mass_positive``, ``loss_mass_negative``: ``sum |A_g| S_g / R`` over the responses of that sign, with R all
      responses that have a scorable token: the two sides of the naive loss.
    * ``loss_mass_ratio``: negative over positive.

    A response counts by the sign of its summed advantage, ``A_g`` is its mean; one without signal (0) counts on
    neither side.
    """
    logp, advantage, response = tokens.policy_logp.detach(), tokens.advantage.detach(), tokens.response
    if not math.isfinite(float((logp + advantage).sum())):  # a number that is missing makes the sum missing
        ok = tokens.scorable(sampler=False)
        logp, advantage, response = logp[ok], advantage[ok], response[ok]
    lengths = segment_count(response, tokens.num_responses).cpu().numpy()
    total_logp, total_advantage = (
        segment_sum(x.double(), response, tokens.num_responses).cpu().numpy() for x in (logp, advantage)
    )
    divisor = np.maximum(lengths, 1)
    scale, mean = -total_logp / divisor, total_advantage / divisor
    mass = np.abs(mean) * scale
    num_responses = int((lengths > 0).sum())
    out: dict[str, Metric] = {}
    totals: dict[str, float] = {}
    for side, chosen in (("positive", mean > 0), ("negative", mean < 0)):
        out[f"scale_{side}"] = Mean(float(scale[chosen].sum()), int(chosen.sum()))
        totals[side] = float(mass[chosen].sum())
        out[f"loss_mass_{side}"] = Mean(totals[side], num_responses)
    out["loss_mass_ratio"] = Mean(totals["negative"], totals["positive"])
    return out
