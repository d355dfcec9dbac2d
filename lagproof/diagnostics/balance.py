"""How the two signs of the advantage weigh against each other; what breaks the objectives of the current policy."""

from __future__ import annotations

import torch

from lagproof.data.metrics import Mean, Metric
from lagproof.data.tokens import TokenBatch
from lagproof.tensors.segments import segment_count, segment_sum


def scales(tokens: TokenBatch) -> dict[str, Metric]:
    """``scale_positive``, ``scale_negative``: mean over responses of ``S_g = mean_t -log pi``, by sign of A_g, nats.

    A response counts by the sign of its summed advantage; one without signal (0) counts on neither side.
    """
    ok = tokens.scorable(sampler=False)
    response = tokens.response[ok]
    lengths = segment_count(response, tokens.num_responses)
    scale = segment_sum(-tokens.policy_logp.detach()[ok].double(), response, tokens.num_responses)
    scale = scale / lengths.clamp(min=1)
    sign = torch.sign(segment_sum(tokens.advantage[ok].double(), response, tokens.num_responses))
    out: dict[str, Metric] = {}
    for name, side in (("scale_positive", 1.0), ("scale_negative", -1.0)):
        chosen = scale[(sign == side) & (lengths > 0)]
        out[name] = Mean(float(chosen.sum()), len(chosen))
    return out
