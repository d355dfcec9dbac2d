"""Part of a batch scored once more with the weights that sampled it, to tell the policy's updates from the engine."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PreTrainedModel

from lagproof.data.batch import Batch
from lagproof.data.metrics import Metric
from lagproof.data.slices import Key
from lagproof.learner.batching import items, micro_batches
from lagproof.metrics.attribution import attribution, links
from lagproof.models.layout import TokenLayout, layout
from lagproof.models.logprobs import response_logprobs, row_cost


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
        batch: with the policy's log-probabilities before the step.
        kept: weights of published versions by parameter name; tokens of other versions are counted as unattributed.
        temperature: that the responses were sampled with.
        responses: how many are looked at.
        budget_tokens: positions of one forward at most.
    """
    if batch.sampler_logp is None:
        return {}
    assert batch.policy_logp is not None
    looked_at = slice(0, int(batch.offsets[: responses + 1][-1]))
    then = torch.full_like(batch.policy_logp[looked_at], torch.nan)
    cost = row_cost(model)
    for version, weights in sorted(kept.items()):
        sampled = [item for item in items(batch, responses) if (item.sample.version == version).any()]
        for micro in micro_batches(sampled, budget_tokens, cost):
            rows = batch.places([item.index for group in micro for item in group])
            logp = _score(
                model, weights, layout([[item.sample for item in group] for group in micro], cost), temperature
            )
            own = batch.version[rows] == version
            then[rows[own]] = logp[own]
    chain = (batch.policy_logp[looked_at], then, batch.sampler_logp[looked_at])
    return attribution(links(("policy", "engine"), chain))


class _Scorer(nn.Module):
    """Scoring as a forward, so that it can be called with other weights than the model's."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: TokenLayout, temperature: float) -> Tensor:
        return response_logprobs(self.model, rows, temperature).logp


@torch.no_grad()
def _score(model: PreTrainedModel, weights: Mapping[str, Tensor], rows: TokenLayout, temperature: float) -> Tensor:
    named = {f"model.{name}": weight for name, weight in weights.items()}
    return functional_call(_Scorer(model), named, (rows, temperature))
