"""Log-probabilities of response tokens under the policy, with gradient, without a [tokens, vocabulary] tensor to keep.

    log pi(a_t) = z_t[a_t] / T - logsumexp_v(z_t[v] / T),    z_t = head(hidden_{t-1})

The logits are those of the position before the token, divided by the sampling temperature, and the sum runs over the
whole vocabulary, or over the support where the token was drawn from a truncated distribution: with unchanged weights
the ratio to the sampler is then exactly 1. All of it in float32, whatever the model computes in.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lagproof.data.samples import Support
from lagproof.errors import InputError
from lagproof.models.layout import RowCost, TokenLayout

CHUNK_ELEMENTS = 4_000_000
"""Logits held at a time; up to this many the plain path is used, which keeps them and is faster."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Attributes:
    logp: log pi of each response token, nats, float32, ``[N]``, with gradient.
    entropy: of the distribution each token was scored under, nats, ``[N]``, detached; ``None`` if not asked for.
    """

    logp: Tensor
    entropy: Tensor | None


def response_logprobs(
    model: PreTrainedModel, layout: TokenLayout, temperature: float = 1.0, *, entropy: bool = False
) -> Scored:
    """Score the response tokens of a layout, in its order.

    Args:
        model: any causal language model of transformers whose logits are an affine map of its last hidden states
            (with an optional soft cap).
        layout: see :func:`lagproof.models.layout.layout`; its support, where recorded, is replayed.
        temperature: that the tokens were sampled with, > 0.
        entropy: whether to compute entropies too.

    Raises:
        InputError: temperature <= 0, a model with another kind of head, or rows the model cannot run exactly.
    """
    if not temperature > 0:
        raise InputError(f"temperature = {temperature}: must be > 0; greedy samples have no log-probability")
    head = Head.of(model)
    if not len(layout.targets):
        nothing = head.weight.flatten()[:0].float()
        return Scored(nothing, nothing.detach() if entropy else None)
    device = head.weight.device
    hidden = _hidden(model, layout)[layout.score_at.to(device)]
    targets = layout.targets.to(device)
    if hidden.shape[0] * head.weight.shape[0] <= CHUNK_ELEMENTS:
        kept = None if layout.support is None else _kept(layout.support, 0, len(targets), head, device)
        logp, ent = _score(head.logits(hidden, head.weight, head.bias), targets, temperature, kept, entropy)
    else:
        logp, ent = _ChunkedScore.apply(
            hidden, head.weight, head.bias, targets, head, layout.support, temperature, entropy
        )  # type: ignore[misc]
    return Scored(logp, ent.detach() if ent is not None else None)


def row_cost(model: PreTrainedModel) -> RowCost:
    """What decides between the layouts for a model.

    A layer of width H multiplies about 12 H**2 weights a position and 2 H numbers a pair of positions, hence 6 H pairs
    a position. Rows with a mask of their own are exact where every layer attends to everything (no sliding window, no
    recurrent state) and attention takes a mask.
    """
    config = model.config.get_text_config()
    layers = getattr(config, "layer_types", None)
    windowed = getattr(config, "sliding_window", None) is not None
    shares = (
        config._attn_implementation in ("sdpa", "eager")
        and not model._is_stateful
        and (not windowed if layers is None else set(layers) == {"full_attention"})
        and _takes_positions(type(_decoder(model)))
    )
    return RowCost(shares_prompts=shares, pairs_per_token=6.0 * config.hidden_size)


@functools.cache
def _takes_positions(decoder: type[nn.Module]) -> bool:
    return "position_ids" in inspect.signature(decoder.forward).parameters


@dataclass(frozen=True, eq=False)
class Head:
    """Hidden states to logits: ``cap * tanh((W h + b) / cap)``, without a cap ``W h + b``.

    Rows that pad the head beyond the tokenizer are left out: what they stand for is never drawn.
    """

    weight: Tensor
    bias: Tensor | None
    softcap: float | None

    @classmethod
    def of(cls, model: PreTrainedModel) -> Head:
        """The head of a causal language model.

        Raises:
            InputError: the model has no linear output embedding.
        """
        output = model.get_output_embeddings()
        if not isinstance(output, nn.Linear):
            raise InputError(
                f"{type(model).__name__}: its output head is {type(output).__name__}: must be a linear layer "
                "for log-probabilities to be computed in chunks"
            )
        softcap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
        rows = num_tokens(model)
        weight, bias = output.weight, output.bias
        if rows is not None and rows < weight.shape[0]:
            weight, bias = weight[:rows], None if bias is None else bias[:rows]
        return cls(weight, bias, softcap)

    def logits(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``[n, H]`` -> ``[n, V]``, float32; the parameters are arguments so that a caller may detach them."""
        z = nn.functional.linear(hidden, weight, bias).float()
        return z if self.softcap is None else self.softcap * torch.tanh(z / self.softcap)


def draw_from(model: PreTrainedModel, num_tokens: int) -> None:
    """Say that only the first ``num_tokens`` ids stand for anything: sampling draws no other, scoring knows no other.

    Published models pad their vocabulary to a multiple of 64 or more; the rows behind the tokenizer's last id decode
    to nothing.
    """
    model._lagproof_num_tokens = num_tokens  # type: ignore[assignment]  # beside the weights, so that copies have it


def num_tokens(model: PreTrainedModel) -> int | None:
    """Ids that can be drawn, see :func:`draw_from`; ``None``, all of them, where nothing was said."""
    return getattr(model, "_lagproof_num_tokens", None)


@torch.no_grad()
def check_head(model: PreTrainedModel) -> None:
    """Make sure that nothing but the head lies between hidden states and logits (some models scale their logits).

    The model must be in evaluation mode, since it runs twice.

    Raises:
        InputError: the model's own logits differ from the head's.
    """
    head = Head.of(model)
    ids = torch.tensor([[0, min(1, head.weight.shape[0] - 1)]], device=head.weight.device)
    ours = head.logits(_decoder(model)(input_ids=ids, use_cache=False)[0], head.weight, head.bias)
    theirs = model(input_ids=ids, use_cache=False).logits.float()
    if not torch.allclose(ours, theirs, rtol=1e-2, atol=1e-2):
        raise InputError(
            f"{type(model).__name__}: its logits are not its output embedding times its last hidden states "
            f"(they differ by {float((ours - theirs).abs().max()):.3g}): this kind of head is not supported"
        )


def _decoder(model: PreTrainedModel) -> nn.Module:
    decoder = model.get_decoder()
    return model.base_model if decoder is model else decoder


def _hidden(model: PreTrainedModel, layout: TokenLayout) -> Tensor:
    """Last hidden states of every position, ``[B * L, H]``."""
    device, dtype = model.device, model.dtype
    mask = positions = None
    if layout.visible is not None:
        if not row_cost(model).shares_prompts:
            raise InputError(
                f"{type(model).__name__} cannot run rows that share a prompt: build the layout with row_cost(model)"
            )
        visible = layout.visible.to(device)
        mask = torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill_(~visible, torch.finfo(dtype).min)
    if layout.position_ids is not None:
        positions = layout.position_ids.to(device)
    output = _decoder(model)(
        input_ids=layout.input_ids.to(device), attention_mask=mask, position_ids=positions, use_cache=False
    )
    return output[0].flatten(0, 1)


def _score(
    logits: Tensor, targets: Tensor, temperature: float, kept: Tensor | None, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probability and entropy of each row of ``[n, V]`` logits."""
    logp_all = torch.log_softmax(_scaled(logits, temperature, kept), dim=-1)
    logp = logp_all.gather(1, targets[:, None]).squeeze(1)
    return logp, torch.special.entr(logp_all.detach().exp()).sum(-1) if entropy else None


def _scaled(logits: Tensor, temperature: float, kept: Tensor | None) -> Tensor:
    z = logits if temperature == 1.0 else logits / temperature
    return z if kept is None else z.masked_fill(~kept, -torch.inf)


def _kept(support: Support, start: int, stop: int, head: Head, device: torch.device) -> Tensor:
    """Which token ids count for the response tokens start..stop, ``[n, V]`` bool."""
    counts = support.counts[start:stop]
    first = int(support.counts[:start].sum())
    ids = support.ids[first : first + int(counts.sum())]
    kept = np.repeat((counts == 0)[:, None], head.weight.shape[0], axis=1)
    kept[np.repeat(np.arange(len(counts)), counts), ids] = True
    return torch.from_numpy(kept).to(device)


class _ChunkedScore(torch.autograd.Function):
    """The same numbers chunk by chunk; the backward pass computes each chunk's logits once more.

    Kept between the passes: the hidden states that score a token, one logsumexp a token, and the head's weight.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, targets, head, support, temperature, entropy):
        n = hidden.shape[0]
        logp = torch.empty(n, dtype=torch.float32, device=hidden.device)
        lse, ent = torch.empty_like(logp), torch.empty_like(logp) if entropy else None
        for start, stop in _chunks(n, weight.shape[0]):
            kept = None if support is None else _kept(support, start, stop, head, hidden.device)
            z = _scaled(head.logits(hidden[start:stop], weight, bias), temperature, kept)
            lse[start:stop] = torch.logsumexp(z, dim=-1)
            logp[start:stop] = z.gather(1, targets[start:stop, None]).squeeze(1) - lse[start:stop]
            if ent is not None:
                ent[start:stop] = torch.special.entr((z - lse[start:stop, None]).exp_()).sum(-1)
        ctx.save_for_backward(hidden, weight, bias, targets, lse)
        ctx.rest = (head, support, temperature)
        if ent is not None:
            ctx.mark_non_differentiable(ent)
        return logp, ent

    @staticmethod
    def backward(ctx, grad_logp, _grad_entropy):
        hidden, weight, bias, targets, lse = ctx.saved_tensors
        head, support, temperature = ctx.rest
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if ctx.needs_input_grad[2] else None
        for start, stop in _chunks(hidden.shape[0], weight.shape[0]):
            kept = None if support is None else _kept(support, start, stop, head, hidden.device)
            logits = head.logits(hidden[start:stop], weight, bias)
            # d logp / d logits = (onehot - softmax) / T, then through the soft cap: 1 - (z / cap)**2
            grad = (_scaled(logits, temperature, kept) - lse[start:stop, None]).exp_().neg_()
            grad[torch.arange(stop - start, device=grad.device), targets[start:stop]] += 1
            grad *= (grad_logp[start:stop] / temperature)[:, None]
            if head.softcap is not None:
                grad *= 1 - (logits / head.softcap) ** 2
            if grad_bias is not None:
                grad_bias += grad.sum(0)
            grad = grad.to(weight.dtype)
            grad_hidden[start:stop] = grad @ weight
            if grad_weight is not None and weight.dtype == torch.float32:
                grad_weight.addmm_(grad.T, hidden[start:stop])
            elif grad_weight is not None:
                grad_weight += grad.T @ hidden[start:stop]
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(weight.dtype),
            *(None,) * 5,
        )


def _chunks(rows: int, vocabulary: int) -> list[tuple[int, int]]:
    size = max(1, CHUNK_ELEMENTS // vocabulary)
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]
