"""An engine inside the process: any causal language model of transformers, on a copy of the learner's weights."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from lagproof.data.samples import Finish, Sample, token_ids
from lagproof.errors import InputError
from lagproof.models.prompts import check_length, positions
from lagproof.rollout.decoding import decode
from lagproof.rollout.engine import Request, Sampling, WeightSwap
from lagproof.rollout.precision import compute_dtype, lower
from lagproof.rollout.stops import truncate

BATCH_BYTES = 2**30
"""Memory for the keys, values and logits of the responses that are decoded side by side; the rest waits."""


class HFEngine:
    """Samples from a copy of a model, in a precision of its own.

    Nothing computed with some weights outlives :meth:`generate`, so no cache can be stale after :meth:`load`.

    Args:
        model: copied; its weights are version ``version``.
        tokenizer: turns responses into text.
        stop_ids: token ids that end a response, besides the stop strings of its request.
        precision: float32 | bfloat16 | int8 | int6, see :mod:`lagproof.rollout.precision`.
        version: of the model's weights.
        on_tokens: called with the number of tokens just drawn, for showing progress of slow models.

    Raises:
        ConfigError: unknown precision.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        stop_ids: Sequence[int],
        precision: str = "float32",
        *,
        version: int = 0,
        on_tokens: Callable[[int], None] | None = None,
    ) -> None:
        dtype = compute_dtype(precision)
        self._model = copy.deepcopy(model).requires_grad_(False).eval()
        for parameter in self._model.parameters():  # not the buffers: rotary frequencies stay in float32
            parameter.data = parameter.data.to(dtype)
        self._tokenizer, self._stop_ids = tokenizer, tuple(stop_ids)
        self._precision = precision
        self._on_tokens = on_tokens
        self._version = version
        self.load(version, dict(model.named_parameters()))

    @staticmethod
    def view(
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        stop_ids: Sequence[int],
        *,
        version: int,
        on_tokens: Callable[[int], None] | None = None,
    ) -> ModelView:
        """An engine on the model itself, for evaluating it: no copy is made, and no other weights can be loaded."""
        return ModelView(model, tokenizer, stop_ids, version=version, on_tokens=on_tokens)

    @property
    def version(self) -> int:
        return self._version

    @torch.no_grad()
    def load(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Copy a complete set of weights, by parameter name; on an error nothing has changed.

        Raises:
            InputError: a parameter is missing, unknown or of another shape.
        """
        _check_weights(self._model, weights)
        own = dict(self._model.state_dict())
        for name, weight in lower(weights, self._precision).items():
            own[name].copy_(weight)
        self._version = version

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Sample]]:
        with torch.inference_mode():
            return _generate(
                self._model, self._tokenizer, self._stop_ids, requests, sampling, self._version, self._on_tokens
            )

    def generate_in_flight(
        self, requests: Sequence[Request], sampling: Sampling, swaps: Sequence[WeightSwap]
    ) -> list[list[Sample]]:
        """The same with weights that arrive meanwhile: each token is stamped with the version that drew it.

        Afterwards the engine holds the weights of the last swap that came before the call was over.

        Raises:
            InputError: swaps that are not in order, or too many requests to be run as one batch.
        """
        places = [swap.after_tokens for swap in swaps]
        if places != sorted(places) or (places and places[0] < 0):
            raise InputError(f"weights arrive after {places} tokens: must be >= 0 and in order")
        if len(list(_batches(self._model, requests, sampling))) > 1:
            raise InputError("weights arrive while requests wait for their batch: send fewer requests in a call")
        todo = deque(swaps)

        def between(drawn: int) -> bool:
            recompute = False
            while todo and todo[0].after_tokens <= drawn:
                swap = todo.popleft()
                self.load(swap.version, swap.weights)
                recompute |= swap.recompute
            by_token.append(self._version)  # of the token that comes next
            return recompute

        by_token: list[int] = []
        between(0)
        with torch.inference_mode():
            return _generate(
                self._model,
                self._tokenizer,
                self._stop_ids,
                requests,
                sampling,
                by_token,
                self._on_tokens,
                between,
            )


class ModelView:
    """An engine on somebody else's model as it is at the moment; made by :meth:`HFEngine.view`."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        stop_ids: Sequence[int],
        *,
        version: int,
        on_tokens: Callable[[int], None] | None = None,
    ) -> None:
        self._model, self._tokenizer, self._stop_ids = model, tokenizer, tuple(stop_ids)
        self._version = version
        self._on_tokens = on_tokens

    @property
    def version(self) -> int:
        return self._version

    def load(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Raises: InputError: always; the weights belong to the learner."""
        raise InputError("a view of a model cannot load weights: make an HFEngine, which has a copy of its own")

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Sample]]:
        # no_grad rather than inference mode: the learner will need every tensor that the model may cache
        with torch.no_grad(), _evaluating(self._model):
            return _generate(
                self._model, self._tokenizer, self._stop_ids, requests, sampling, self._version, self._on_tokens
            )


def _generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    stop_ids: tuple[int, ...],
    requests: Sequence[Request],
    sampling: Sampling,
    version: int | Sequence[int],
    on_tokens: Callable[[int], None] | None,
    between: Callable[[int], bool] = lambda drawn: False,
) -> list[list[Sample]]:
    """``version``: of all tokens, or of the first token of each response, the second, ..."""
    _check_requests(requests)
    prompts = [len(request.prompt_ids) for request in requests]
    check_length(prompts, sampling.max_tokens, positions(model), "max_tokens")
    out: list[list[Sample]] = []
    decoded = partial(_texts, tokenizer)
    for batch in _batches(model, requests, sampling):
        responses = decode(model, batch, sampling, stop_ids, decoded, on_tokens, between)
        flat = [r for group in responses for r in group]
        listed = [r.ids.tolist() for r in flat]
        texts = iter(decoded([ids[:-1] if ids[-1] in stop_ids else ids for ids in listed]))
        for request, group in zip(batch, responses, strict=True):
            prompt_ids = token_ids(request.prompt_ids)
            out.append(
                [
                    Sample(
                        prompt_ids=prompt_ids,
                        response_ids=r.ids,
                        version=_versions(version, len(r.ids)),
                        finish=Finish.STOP if r.stopped else Finish.LENGTH,
                        sampler_logp=r.logp,
                        support=r.support,
                        text=truncate(next(texts), request.stop),
                    )
                    for r in group
                ]
            )
    return out


def _versions(version: int | Sequence[int], tokens: int) -> NDArray[np.int64]:
    return np.full(tokens, version, np.int64) if isinstance(version, int) else np.array(version[:tokens], np.int64)


def _texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[Sequence[int]]) -> list[str]:
    if isinstance(tokenizer, PreTrainedTokenizerFast):  # ten times faster than its own batch_decode
        return tokenizer.backend_tokenizer.decode_batch(ids, skip_special_tokens=True)
    return tokenizer.batch_decode(list(map(list, ids)), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def _batches(model: PreTrainedModel, requests: Sequence[Request], sampling: Sampling) -> Iterator[list[Request]]:
    """Consecutive requests whose samples fit into ``BATCH_BYTES`` together; a request is never split."""
    batch: list[Request] = []
    rows = tokens = 0
    for request in requests:
        grown = max(tokens, len(request.prompt_ids) + sampling.max_tokens)
        if batch and (rows + request.samples) * _row_bytes(model, grown) > BATCH_BYTES:
            yield batch
            batch, rows, grown = [], 0, len(request.prompt_ids) + sampling.max_tokens
        batch.append(request)
        rows, tokens = rows + request.samples, grown
    if batch:
        yield batch


def _row_bytes(model: PreTrainedModel, tokens: int) -> int:
    """Upper bound for one response: its keys and values twice (one copy while rows leave), its logits, in float64."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cached = 2 * config.num_hidden_layers * heads * width * tokens
    return 2 * cached * model.dtype.itemsize + 4 * config.vocab_size * 8


def _check_requests(requests: Sequence[Request]) -> None:
    for request in requests:
        if not len(request.prompt_ids):
            raise InputError("a request has an empty prompt: must have at least one token")
        if request.samples < 1:
            raise InputError(f"a request asks for {request.samples} samples: must be >= 1")
        if not all(request.stop):
            raise InputError(f"a request has the stop strings {list(request.stop)}: none may be empty")


def _check_weights(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    own = model.state_dict()
    needed = {name for name, _ in model.named_parameters()}  # a tied parameter counts once
    for kind, names in (("lack", needed - weights.keys()), ("have unknown", weights.keys() - own.keys())):
        if names:
            raise InputError(
                f"weights for {type(model).__name__} {kind} {len(names)} tensors, {min(names)} among them: "
                "an engine takes every parameter of its model, by its name there"
            )
    for name, weight in weights.items():
        if weight.shape != own[name].shape:
            raise InputError(
                f"weights for {type(model).__name__}: {name} has shape {tuple(weight.shape)}: "
                f"must be {tuple(own[name].shape)}"
            )


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
