"""Sampling from a causal language model of transformers, one forward a token, with everything a learner must know.

What transformers' own ``generate`` does not give: random streams that belong to a request, the log-probability of the
distribution that was really sampled, the support that truncation kept, and samples that are run together as
long as they agree and leave when they are done.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from lagproof.data.samples import Ids, Logps, Support, ends
from lagproof.errors import RunStoppedError
from lagproof.models.logprobs import num_tokens
from lagproof.rollout.engine import Request, Sampling
from lagproof.rollout.stops import StopStrings, Texts

DRAW_TOKENS = 64
"""Uniform numbers are drawn for this many tokens at a time, so that a stream does not depend on ``max_tokens``."""
SHARED_TOKENS = 16
"""Prompts that begin with this many tokens in common have them run once for all."""


@dataclass(frozen=True, eq=False)
class Response:
    """One sample, in slices of the arrays of its batch.

    Attributes:
        ids: those that ended it included, ``[T]``.
        logp: of each token, ``[T]``; ``None`` if not recorded.
        support: what truncation kept; ``None`` if nothing was truncated.
        stopped: whether it ended by itself.
    """

    ids: Ids
    logp: Logps | None
    support: Support | None
    stopped: bool


def decode(
    model: PreTrainedModel,
    requests: Sequence[Request],
    sampling: Sampling,
    stop_ids: Sequence[int],
    texts: Texts,
    on_tokens: Callable[[int], None] | None = None,
    between: Callable[[int], bool] = lambda drawn: False,
) -> list[list[Response]]:
    """The responses of some requests, run as one batch; the caller sets evaluation mode and turns gradients off.

    Samples that agree so far, prompt included, are one row of the batch: a prompt is run once for all its samples, and
    a row splits where its samples part. What all prompts begin with is run once too, as one row.

    ``between`` is called between two tokens, with how many each response has. It may change the weights of the model;
    if it returns true, what is drawn so far is run again, else the keys and values that were computed before stay.
    """
    device = model.device
    row = torch.tensor([i for i, r in enumerate(requests) for _ in range(r.samples)], device=device)  # of each sample
    cache = DynamicCache(config=model.config)
    logits, mask, position = _read(model, [r.prompt_ids for r in requests], cache)

    strings = [r.stop for r in requests for _ in range(r.samples)]
    ends = _Ends(stop_ids, strings, texts, logits.shape[1], device)
    record = _Record(len(row), sampling, ends, device)
    for step, uniform in enumerate(_uniforms(requests, sampling, device), 1):
        token = record.draw(logits, row, uniform)
        if on_tokens is not None:
            on_tokens(len(token))
        going = record.retire(token)
        if not len(going) or step == sampling.max_tokens:
            break
        token, parent, row = _split(row[going], token[going], logits.shape[1])
        if len(parent) != len(position) or bool((parent[1:] == parent[:-1]).any()):
            # the cache's own batch_select_indices is five times slower
            cache.reorder_cache(parent)  # type: ignore[arg-type]
            position = position[parent]
            mask = None if mask is None else mask[parent]
        if between(step):
            cache = DynamicCache(config=model.config)
            logits, mask, position = _read(model, record.rows(requests, row), cache)
            continue
        if mask is not None:
            mask = torch.cat([mask, mask.new_ones(len(token), 1)], dim=1)
        logits = _forward(model, token[:, None], position[:, None], mask, cache)
        position = position + 1
    return record.responses([r.samples for r in requests])


def _split(row: Tensor, token: Tensor, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """The next rows when each sample appends a token to its row: their tokens, the rows they continue, and the new row
    of each sample."""
    key, new_row = torch.unique(row * vocabulary + token, return_inverse=True)
    return key % vocabulary, key // vocabulary, new_row


def _read(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], cache: DynamicCache
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Run the prompts: logits ``[R, V]``, which cached tokens are real ``[R, P]`` (``None``: all), lengths ``[R]``.

    The cache then holds what they share, then the rest of each, padded on its left.
    """
    device = model.device
    shared = _shared(prompts) if _sees_positions_only(model, cache) else 0
    if shared:
        start = torch.tensor([list(prompts[0][:shared])], device=device)
        _forward(model, start, torch.arange(shared, device=device)[None], None, cache)
        cache.batch_repeat_interleave(len(prompts))
    ids, mask, lengths = _left_padded([prompt[shared:] for prompt in prompts], device)
    padding = ids.shape[1] - lengths[:, None]
    positions = shared + (torch.arange(ids.shape[1], device=device) - padding).clamp_(min=0)
    if mask is not None:
        mask = torch.cat([mask.new_ones(len(prompts), shared), mask], dim=1)
    return _forward(model, ids, positions, mask, cache), mask, shared + lengths


def _sees_positions_only(model: PreTrainedModel, cache: DynamicCache) -> bool:
    """Whether masked tokens in between change nothing.

    They would narrow a sliding window, pass through a recurrent state, and count in models that take no positions.
    """
    return "position_ids" in _parameters(type(model)) and all(type(layer) is DynamicLayer for layer in cache.layers)


def _shared(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that all prompts begin with, if they are worth a run of their own; each prompt keeps one at least."""
    if len(prompts) < 2:
        return 0
    first, *others = map(list, prompts)
    most = min(map(len, prompts)) - 1
    count = next((i for i in range(most) if any(other[i] != first[i] for other in others)), most)
    return count if count >= SHARED_TOKENS else 0


def _left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None, Tensor]:
    """Prompt ids ``[R, P]``, which of them are real (``None``: all), and the number of real ones ``[R]``."""
    lengths = [len(prompt) for prompt in prompts]
    width = max(lengths)
    ids = [[0] * (width - n) + list(prompt) for prompt, n in zip(prompts, lengths, strict=True)]
    mask = [[0] * (width - n) + [1] * n for n in lengths] if min(lengths) < width else None
    return (
        torch.tensor(ids, device=device),
        None if mask is None else torch.tensor(mask, device=device),
        torch.tensor(lengths, device=device),
    )


def _forward(
    model: PreTrainedModel, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: DynamicCache
) -> Tensor:
    """Logits of the last position, ``[n, V]``, float32.

    Raises:
        RunStoppedError: there is no distribution to draw from.
    """
    out = model(
        input_ids=ids,
        position_ids=positions,
        attention_mask=mask,
        use_cache=True,
        logits_to_keep=1,
        **{cache_argument(type(model)): cache},
    )
    logits = out.logits[:, -1, : num_tokens(model)].float()
    if not bool(torch.isfinite(logits.amax(-1)).all()):
        raise RunStoppedError("the engine's logits are not finite: the weights it was given are broken")
    return logits


def cache_argument(model: type[PreTrainedModel]) -> str:
    """What a model calls the keys and values so far: transformers renamed it between 5.5 and 5.24."""
    return "cache" if "cache" in _parameters(model) else "past_key_values"


@functools.cache
def _parameters(model: type[PreTrainedModel]) -> frozenset[str]:
    return frozenset(inspect.signature(model.forward).parameters)


class _Ends:
    """What ends a response before the limit: a stop token, or a token that completes a stop string of the sample."""

    def __init__(
        self,
        stop_ids: Sequence[int],
        strings: Sequence[Sequence[str]],
        texts: Texts,
        vocabulary: int,
        device: torch.device,
    ) -> None:
        self.tokens = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self.tokens[torch.tensor(list(stop_ids), dtype=torch.long, device=device)] = True
        self.strings = StopStrings(strings, texts) if any(strings) else None

    def reached(self, samples: Tensor, token: Tensor) -> Tensor:
        """Whether each of these samples ends with the token that it just drew."""
        ended = self.tokens[token]
        if self.strings is None:
            return ended
        return ended | torch.tensor(self.strings.completed(samples.tolist(), token.tolist()), device=token.device)


@dataclass(frozen=True, eq=False)
class _Step:
    """One token of each running sample.

    Attributes:
        alive: the samples, ascending, ``[A]``.
        token, logp: of each, ``[A]``.
        kept: whatever truncation kept, as pairs (place among ``alive``, token id), ordered, ``[K, 2]``.
    """

    alive: Tensor
    token: Tensor
    logp: Tensor | None
    kept: Tensor | None


def _laid_out(parts: Sequence[Tensor], order: Tensor, dtype: torch.dtype) -> Any:
    """Values of all steps in another order, as one array; ``None`` of nothing."""
    return torch.cat(list(parts))[order].to("cpu", dtype).numpy() if parts else None


class _Record:
    """What was drawn so far; ``alive`` are the samples that are still running."""

    def __init__(self, num_samples: int, sampling: Sampling, ends: _Ends, device: torch.device) -> None:
        self.sampling, self.ends = sampling, ends
        self.alive = torch.arange(num_samples, device=device)
        self.steps: list[_Step] = []
        self.stopped = torch.zeros(num_samples, dtype=torch.bool, device=device)

    def draw(self, logits: Tensor, row: Tensor, uniform: Tensor | None) -> Tensor:
        """One token for each running sample, whose distribution is a row of the ``[B, V]`` logits."""
        if uniform is None:
            token = logits.argmax(-1)[row]
            self.steps.append(_Step(self.alive, token, None, None))
            return token
        logp_all = torch.log_softmax(_truncate(logits, self.sampling), dim=-1)
        cumulative = logp_all.double().exp_().cumsum(-1)[row]
        # the first token whose cumulative probability exceeds the uniform number
        threshold = uniform[self.alive, None] * cumulative[:, -1:]
        token = torch.searchsorted(cumulative, threshold, right=True).squeeze(1)
        logp = logp_all[row, token] if self.sampling.record_logp else None
        kept = (logp_all > -torch.inf)[row].nonzero() if self.sampling.truncates else None
        self.steps.append(_Step(self.alive, token, logp, kept))
        return token

    def retire(self, token: Tensor) -> Tensor:
        """Note the samples that just ended; which of the running ones continue."""
        done = self.ends.reached(self.alive, token)
        self.stopped[self.alive[done]] = True
        going = (~done).nonzero().squeeze(1)
        self.alive = self.alive[going]
        return going

    def rows(self, requests: Sequence[Request], row: Tensor) -> list[list[int]]:
        """Prompt and tokens so far behind each row, by ``row`` of each running sample."""
        owner = [i for i, r in enumerate(requests) for _ in range(r.samples)]
        of_row = dict(zip(row.tolist(), self.alive.tolist(), strict=True))  # samples of a row agree so far
        out = [list(requests[owner[of_row[r]]].prompt_ids) for r in range(len(of_row))]
        for step in self.steps:
            drawn = dict(zip(step.alive.tolist(), step.token.tolist(), strict=True))
            for r, ids in enumerate(out):
                ids.append(drawn[of_row[r]])
        return out

    def responses(self, samples: Sequence[int]) -> list[list[Response]]:
        """What each sample drew, grouped as many samples as each request asked for."""
        alive = torch.cat([step.alive for step in self.steps])
        order = torch.argsort(alive, stable=True)  # by sample, then by step
        offsets = ends(torch.bincount(alive, minlength=len(self.stopped)).tolist()).tolist()
        ids = _laid_out([step.token for step in self.steps], order, torch.int32)
        logp = _laid_out([step.logp for step in self.steps if step.logp is not None], order, torch.float32)
        supports = self._supports(alive, order, offsets)
        stopped = self.stopped.tolist()
        responses = iter(
            Response(
                ids=ids[offsets[i] : offsets[i + 1]],
                logp=None if logp is None else logp[offsets[i] : offsets[i + 1]],
                support=None if supports is None else supports[i],
                stopped=stopped[i],
            )
            for i in range(len(stopped))
        )
        return [[next(responses) for _ in range(n)] for n in samples]

    def _supports(self, alive: Tensor, order: Tensor, offsets: Sequence[int]) -> list[Support] | None:
        """Of each sample, out of the pairs (running sample, token id) of each step."""
        kept = [(step.alive, step.kept) for step in self.steps if step.kept is not None]
        if not kept:
            return None
        owner = torch.cat([running[pairs[:, 0]] for running, pairs in kept])
        ids = _laid_out([pairs[:, 1] for _, pairs in kept], torch.argsort(owner, stable=True), torch.int32)
        each = [torch.bincount(pairs[:, 0], minlength=len(running)) for running, pairs in kept]
        counts = _laid_out(each, order, torch.int32)
        first = ends(torch.bincount(owner, minlength=len(self.stopped)).tolist()).tolist()
        return [
            Support(ids[first[i] : first[i + 1]], counts[offsets[i] : offsets[i + 1]]) for i in range(len(self.stopped))
        ]


def _truncate(logits: Tensor, sampling: Sampling) -> Tensor:
    """Logits over temperature, -inf outside top-k, then outside the smallest set that holds top-p of what is left."""
    z = logits if sampling.temperature == 1.0 else logits / sampling.temperature
    if 0 < sampling.top_k < z.shape[1]:
        kth = z.topk(sampling.top_k, dim=-1)
        z = torch.full_like(z, -torch.inf).scatter_(1, kth.indices, kth.values)
    if sampling.top_p < 1.0:
        ordered, order = z.sort(dim=-1, descending=True, stable=True)
        p = ordered.softmax(-1, dtype=torch.float64)
        beyond = p.cumsum(-1) - p >= sampling.top_p  # the mass before a token already reaches top-p
        z = z.masked_fill(torch.zeros_like(beyond).scatter_(1, order, beyond), -torch.inf)
    return z


def _uniforms(requests: Sequence[Request], sampling: Sampling, device: torch.device) -> Iterator[Tensor | None]:
    """One column of uniform numbers a token, ``[rows]``; each request draws from a generator of its own.

    ``None`` for every token of greedy sampling.
    """
    if sampling.temperature == 0:
        yield from [None] * sampling.max_tokens
        return
    generators = [torch.Generator().manual_seed(r.seed) for r in requests]
    for start in range(0, sampling.max_tokens, DRAW_TOKENS):
        blocks = [
            torch.rand(r.samples, DRAW_TOKENS, generator=g, dtype=torch.float64)
            for r, g in zip(requests, generators, strict=True)
        ]
        # just below 1, so that rounding cannot carry a draw past the last possible token
        block = torch.cat(blocks).clamp_(max=1 - 2**-50).to(device)
        yield from block.T[: sampling.max_tokens - start].contiguous()
