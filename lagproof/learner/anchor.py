"""The anchor: what the learner itself gives a token at an earlier version, which tells updates and engine apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PreTrainedModel

from lagproof.data.batch import Batch
from lagproof.data.tokens import TokenBatch
from lagproof.learner.batching import items, micro_batches
from lagproof.models.layout import TokenLayout, layout
from lagproof.models.logprobs import response_logprobs, row_cost

Weights = Mapping[str, Tensor]


def at_versions(
    model: PreTrainedModel,
    batch: Batch,
    kept: Mapping[int, Weights],
    *,
    temperature: float,
    budget_tokens: int,
    responses: int | None = None,
) -> Tensor:
    """``log pi_v(a)`` of each token under the learner's weights of the version that sampled it, ``[N]``, nats.

    NaN where that version is not kept. One pass without a gradient for each version in the batch.

    Args:
        model: whose forward is used; its own weights are not.
        kept: weights of versions by parameter name.
        temperature: that the responses were sampled with.
        budget_tokens: positions of one forward at most.
        responses: only the first so many; ``None``: all.
    """
    then = torch.full((batch.num_tokens,), torch.nan)
    cost = row_cost(model)
    for version in sorted(kept.keys() & set(batch.version.tolist())):
        sampled = [item for item in items(batch, responses) if (item.sample.version == version).any()]
        for micro in micro_batches(sampled, budget_tokens, cost):
            rows = batch.places([item.index for group in micro for item in group])
            scored = layout([[item.sample for item in group] for group in micro], cost)
            logp = _score(model, kept[version], scored, temperature)
            own = batch.version[rows] == version
            then[rows[own]] = logp[own]
    return then


def _known(tokens: TokenBatch) -> TokenBatch:
    return tokens


def _sampling_version(tokens: TokenBatch) -> TokenBatch:
    """The pass over kept versions; a token of age 0 is anchored by the policy's own pass: u is exactly 0."""
    assert tokens.anchor_logp is not None and tokens.age is not None
    anchor = torch.where(tokens.age == 0, tokens.policy_logp.detach(), tokens.anchor_logp)
    return replace(tokens, anchor_logp=anchor)


def _batch_start(tokens: TokenBatch) -> TokenBatch:
    return replace(tokens, anchor_logp=tokens.policy_logp.detach())


def _interpolated(tokens: TokenBatch) -> TokenBatch:
    assert tokens.sampler_logp is not None and tokens.age is not None
    k = tokens.age.clamp(min=1)
    d = tokens.policy_logp.detach() - tokens.sampler_logp
    return replace(tokens, anchor_logp=tokens.sampler_logp + (k - 1) / k * d)


ANCHORS: Mapping[str, Callable[[TokenBatch], TokenBatch]] = {
    "none": _known,
    "sampling_version": _sampling_version,
    "batch_start": _batch_start,
    "interpolated": _interpolated,
}
"""Tokens whose policy log-probability is known, with their anchor, by its name in ``learner.anchor``.

* ``sampling_version``: the learner at the version that sampled: ``u`` is all updates since, ``e`` the engine alone.
* ``batch_start``: the policy before the step. With one step a batch ``u`` is 0 and every decoupled objective is tis.
* ``interpolated``: ``log mu + (k-1)/k d``, ``k = max(age, 1)`` (A-3PO): it says nothing of the engine.
"""


class _Scorer(nn.Module):
    """Scoring as a forward, so that it can be called with other weights than the model's."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: TokenLayout, temperature: float) -> Tensor:
        return response_logprobs(self.model, rows, temperature).logp


@torch.no_grad()
def _score(model: PreTrainedModel, weights: Weights, rows: TokenLayout, temperature: float) -> Tensor:
    named = {f"model.{name}": weight for name, weight in weights.items()}
    return functional_call(_Scorer(model), named, (rows, temperature))
