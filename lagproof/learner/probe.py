"""Part of a batch scored once more with the weights that sampled it, to tell the policy's updates from the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PreTrainedModel

from lagproof.data.metrics import Metric
from lagproof.data.samples import Group
from lagproof.data.tokens import TokenBatch
from lagproof.learner.batching import Trainee, cut
from lagproof.metrics.attribution import attribution, links
from lagproof.models.layout import Layout, layout
from lagproof.models.logprobs import response_logprobs, row_cost


def probe(
    model: PreTrainedModel,
    groups: Sequence[Group],
    tokens: TokenBatch,
    kept: Mapping[int, Mapping[str, Tensor]],
    *,
    temperature: float,
    responses: int,
    budget_tokens: int,
) -> dict[str, Metric]:
    """Split the log-ratios of the first responses of a batch; see :mod:`lagproof.metrics.attribution`.

    Args:
        model: whose forward is used; its own weights are not.
        groups: of the batch.
        tokens: of the batch, with the policy's log-probabilities before the step.
        kept: weights of published versions by parameter name; tokens of other versions are counted as unattributed.
        temperature: that the responses were sampled with.
        responses: how many are looked at.
        budget_tokens: positions of one forward at most.
    """
    if tokens.sampler_logp is None:
        return {}
    number = [g for g, group in enumerate(groups) for _ in group.samples]
    samples = [sample for group in groups for sample in group.samples][:responses]
    trainees = [Trainee(i, number[i], sample) for i, sample in enumerate(samples) if len(sample.response_ids)]
    ends = list(accumulate((len(sample.response_ids) for sample in samples), initial=0))
    looked_at = slice(0, ends[-1])
    assert tokens.version is not None
    then = torch.full_like(tokens.policy_logp[looked_at], torch.nan)
    cost = row_cost(model)
    for version, weights in sorted(kept.items()):
        sampled = [trainee for trainee in trainees if version in set(trainee.sample.version)]
        for micro in cut(sampled, budget_tokens, cost):
            chosen = [trainee.index for group in micro for trainee in group]
            rows = torch.cat([torch.arange(ends[i], ends[i + 1]) for i in chosen])
            logp = _score(model, weights, layout([[t.sample for t in group] for group in micro], cost), temperature)
            own = tokens.version[rows] == version
            then[rows[own]] = logp[own]
    chain = (tokens.policy_logp[looked_at], then, tokens.sampler_logp[looked_at])
    return attribution(links(("policy", "engine"), chain))


class _Scorer(nn.Module):
    """Scoring as a forward, so that it can be called with other weights than the model's."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: Layout, temperature: float) -> Tensor:
        return response_logprobs(self.model, rows, temperature).logp


@torch.no_grad()
def _score(model: PreTrainedModel, weights: Mapping[str, Tensor], rows: Layout, temperature: float) -> Tensor:
    named = {f"model.{name}": weight for name, weight in weights.items()}
    return functional_call(_Scorer(model), named, (rows, temperature))
