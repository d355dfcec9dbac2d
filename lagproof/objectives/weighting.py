"""The weights of a batch, and the scalar that a training loop calls ``backward`` on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lagproof.data.metrics import Metrics, flat
from lagproof.data.tokens import Counts
from lagproof.errors import InputError

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


@dataclass(frozen=True, eq=False)
class Weighting:
    """The weights of a batch, fixed before the first backward.

    Attributes:
        weight: d J / d log pi(a_t), reduction included, detached, ``[N]``; 0 for a token that cannot be scored.
        contribution: what each token adds to J, reduction included, detached, ``[N]``.
        scorable: tokens that could be scored, ``[N]``.
        counts: the denominators that were used.
        metrics: typed values; merge those of micro-batches with ``lagproof.data.metrics.merge``.
    """

    weight: Float[Tensor, " N"]
    contribution: Float[Tensor, " N"]
    scorable: Bool[Tensor, " N"]
    counts: Counts
    metrics: Metrics

    @cached_property
    def value(self) -> float:
        """J of these tokens, maximised."""
        return float(self.contribution.sum())

    @property
    def stats(self) -> dict[str, float]:
        """The metrics as plain floats under flat keys; one without data is left out."""
        return flat(self.metrics)

    def loss(self, policy_logp: Float[Tensor, " n"], rows: slice | Tensor | None = None) -> Float[Tensor, ""]:
        """A scalar to call ``backward`` on: its value is ``-J`` and its gradient is ``-weight``.

        Args:
            policy_logp: log pi(a_t) with a graph: of all tokens, or of the micro-batch ``rows``.
            rows: the tokens of the micro-batch; the losses of micro-batches add up to that of the batch.
        """
        return _Surrogate.apply(policy_logp, *self._at(policy_logp, rows))  # type: ignore[no-any-return]

    def token_loss(self, policy_logp: Float[Tensor, " n"], rows: slice | Tensor | None = None) -> Float[Tensor, " n"]:
        """The loss token by token, for a trainer with a reducer of its own: ``-contribution``, gradient ``-weight``.

        Weighed with ``reduction="sum"`` no denominator is in it yet. A token that cannot be scored is 0.
        """
        return _TokenSurrogate.apply(policy_logp, *self._at(policy_logp, rows))  # type: ignore[no-any-return]

    def _at(self, policy_logp: Tensor, rows: slice | Tensor | None) -> tuple[Tensor, Tensor]:
        weight, contribution = (x if rows is None else x[rows] for x in (self.weight, self.contribution))
        if policy_logp.shape != weight.shape:
            raise InputError(
                f"policy_logp has shape {tuple(policy_logp.shape)}: must be {tuple(weight.shape)}, one entry a weight; "
                "for a micro-batch pass its rows"
            )
        return weight, contribution


class _TokenSurrogate(torch.autograd.Function):
    """``-contribution`` forward, ``-weight`` backward.

    A log-probability, which may be -inf where a token cannot be scored, is never multiplied by anything.
    """

    @staticmethod
    def forward(ctx: Any, policy_logp: Tensor, weight: Tensor, contribution: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.dtype = policy_logp.dtype
        return -contribution

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return (-grads[0] * ctx.saved_tensors[0]).to(ctx.dtype), None, None


class _Surrogate(torch.autograd.Function):
    """The sum of :class:`_TokenSurrogate`."""

    @staticmethod
    def forward(ctx: Any, policy_logp: Tensor, weight: Tensor, contribution: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.dtype = policy_logp.dtype
        return -contribution.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return (-grads[0] * ctx.saved_tensors[0]).to(ctx.dtype), None, None
