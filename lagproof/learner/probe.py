"""Part of a batch scored once more with the weights that sampled it, to tell the policy's updates from the engine."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from transformers import PreTrainedModel

from lagproof.data.batch import Batch
from lagproof.data.metrics import Metric
from lagproof.data.slices import Key
from lagproof.learner.anchor import at_versions
from lagproof.metrics.attribution import attribution, links


def probe(
    model: PreTrainedModel,
    batch: Batch,
    kept: Mapping[int, Mapping[str, Tensor]],
    *,
    temperature: float,
    responses: int,
    budget_tokens: int,
) -> dict[Key, Metric]:
    """Split the log-ratios of the first responses of a batch; see :mod:`lagproof.metrics.attribution`.

    Args:
        model: whose forward is used; its own weights are not.
        batch: with the policy's log-probabilities before the step; an anchor of the sampling version is taken
            if it has one.
        kept: weights of published versions by parameter name; tokens of other versions are counted as unattributed.
        temperature: that the responses were sampled with.
        responses: how many are looked at.
        budget_tokens: positions of one forward at most.
    """
    if batch.sampler_logp is None:
        return {}
    assert batch.policy_logp is not None
    looked_at = slice(0, int(batch.offsets[: responses + 1][-1]))
    then = batch.anchor_logp
    if then is None:
        then = at_versions(
            model, batch, kept, temperature=temperature, budget_tokens=budget_tokens, responses=responses
        )
    chain = (batch.policy_logp[looked_at], then[looked_at], batch.sampler_logp[looked_at])
    return attribution(links(("policy", "engine"), chain))
