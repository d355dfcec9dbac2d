"""How the two signs of the advantage weigh against each other; what breaks the objectives of the current policy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagproof.data.metrics import Mean, Metric, over
from lagproof.data.slices import Key
from lagproof.data.tokens import TokenBatch
from lagproof.metrics.slices import run_sums, starts


def balance(tokens: TokenBatch) -> dict[Key, Metric]:
    """Scales and loss masses of the two signs, from ``S_g = mean_t -log pi`` of each response, nats.

    * ``scale_positive``, ``scale_negative``: mean of ``S_g`` over the responses of that sign.
    * ``loss_mass_positive``, ``loss_mass_negative``: ``sum |A_g| S_g / R`` over the responses of that sign, with R all
      responses that have a scorable token: the two sides of the naive loss.
    * ``loss_mass_ratio``: negative over positive.

    A response counts by the sign of its summed advantage, ``A_g`` is its mean; one without signal (0) counts on
    neither side.
    """
    logp, advantage = (x.detach().cpu().numpy() for x in (tokens.policy_logp, tokens.advantage))
    response = tokens.response.cpu().numpy()
    lengths, total_logp, total_advantage = _by_response(response, tokens.num_responses, logp, advantage)
    if not (np.isfinite(total_logp).all() and np.isfinite(total_advantage).all()):  # a number is missing
        ok = tokens.scorable(sampler=False).cpu().numpy()
        lengths, total_logp, total_advantage = _by_response(response[ok], tokens.num_responses, logp[ok], advantage[ok])
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
    return over(out)


def _by_response(response: NDArray[Any], num_responses: int, *x: NDArray[Any]) -> list[NDArray[np.float64]]:
    """Tokens of each response, and the sums of each of ``x`` over them, in float64."""
    first = starts(response)
    of_run = [np.diff(first, append=len(response)).astype(np.float64), *(run_sums(values, first) for values in x)]
    return [np.bincount(response[first], weights=w, minlength=num_responses).astype(np.float64) for w in of_run]
