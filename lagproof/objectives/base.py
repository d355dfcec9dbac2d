"""One form for every objective: a rule that turns log-probabilities and advantages into one detached weight a token.

For every objective here the gradient of the maximised ``J`` is ``sum_t w_t grad log pi(a_t)`` with ``w_t`` detached.
The rule is written once per objective; selection of the tokens that can be scored, the reduction and the loss that
a training loop calls ``backward`` on are written once for all of them, in this file.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import torch
from torch import Tensor

from lagproof.data.metrics import Maximum, Mean, Metric, Metrics, Sum, flat, merge, over
from lagproof.data.tokens import Counts, TokenBatch
from lagproof.errors import InputError
from lagproof.objectives.reduction import Reduction, reduction
from lagproof.tensors.divergence import k3
from lagproof.tensors.ratio import LOG_RATIO_BOUND, bounded_ratio, overflows
from lagproof.tensors.segments import segment_count, segment_sum

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


BLOCK_TOKENS = 1 << 16
"""Tokens that a rule is applied to at a time on a CPU: what it needs on the way stays in the processor's cache."""


class Scope(StrEnum):
    """What a rule must see at once to be exact."""

    TOKEN = "token"
    RESPONSE = "response"
    BATCH = "batch"


@dataclass(frozen=True, eq=False)
class Scored:
    """The tokens that can be scored, everything detached: what a rule sees. ``M`` of the batch's ``N`` tokens."""

    policy_logp: Float[Tensor, " M"]
    advantage: Float[Tensor, " M"]
    response: Int[Tensor, " M"]
    lengths: Int[Tensor, " R"]
    sampler_logp: Float[Tensor, " M"] | None
    whole: Scored | None = None  # the tokens that these are some rows of

    @classmethod
    def of(cls, tokens: TokenBatch, index: Int[Tensor, " M"] | None) -> Scored:
        """Select by ``index``; ``None`` takes every token. Half precision is widened to float32."""

        dtype = torch.promote_types(tokens.policy_logp.dtype, torch.float32)

        def take(x: Tensor) -> Tensor:
            x = x.detach().to(dtype)
            return x if index is None else x[index]

        response = tokens.response if index is None else tokens.response[index]
        return cls(
            policy_logp=take(tokens.policy_logp),
            advantage=take(tokens.advantage),
            response=response,
            lengths=segment_count(response, tokens.num_responses),
            sampler_logp=None if tokens.sampler_logp is None else take(tokens.sampler_logp),
        )

    def rows(self, index: slice) -> Scored:
        """Some of the tokens; what is known of their responses stays that of the whole."""
        return Scored(
            self.policy_logp[index],
            self.advantage[index],
            self.response[index],
            self.lengths,
            None if self.sampler_logp is None else self.sampler_logp[index],
            self,
        )

    @cached_property
    def response_log_ratio(self) -> Float[Tensor, " R"]:
        """``mean_t d_t`` of each response, 0 for one without a token."""
        if self.whole is not None:
            return self.whole.response_log_ratio
        total = segment_sum(self.log_ratio, self.response, len(self.lengths))
        return total / self.lengths.clamp(min=1).to(total.dtype)

    @cached_property
    def log_ratio(self) -> Float[Tensor, " M"]:
        """``d_t = log pi(a_t) - log mu(a_t)``, nats."""
        assert self.sampler_logp is not None, "a rule that reads log_ratio must declare needs_sampler_logp"
        return self.policy_logp - self.sampler_logp

    @cached_property
    def ratio(self) -> Float[Tensor, " M"]:
        """``r_t = exp(d_t)``, with ``d_t`` clamped to +-20."""
        return bounded_ratio(self.log_ratio)

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """Smallest and largest ``d_t``; NaN if one is unknown, ``(0, 0)`` without tokens."""
        if not len(self.log_ratio):
            return 0.0, 0.0
        lowest, highest = cast(list[float], torch.stack(torch.aminmax(self.log_ratio)).tolist())  # pyright: ignore
        return lowest, highest

    def rejected(self, mask: Bool[Tensor, " M"], log_ratio: Float[Tensor, " M"]) -> Bool[Tensor, " M"]:
        """``mask``, or the clamp acts on ``log_ratio`` (``d_t`` or means of it): its ratio has no derivative."""
        lowest, highest = self.extremes
        if lowest >= -LOG_RATIO_BOUND and highest <= LOG_RATIO_BOUND:
            return mask
        return mask | overflows(log_ratio)

    @property
    def known_log_ratio(self) -> Float[Tensor, " K"] | None:
        """``d_t`` of the tokens whose sampler log-probability is known; ``None`` where none was recorded at all.

        The same as ``log_ratio`` for objectives that need it; the others keep tokens that have no sampler
        log-probability in the loss, and out of every number about the mismatch.
        """
        if self.sampler_logp is None:
            return None
        if all(map(math.isfinite, self.extremes)):
            return self.log_ratio
        return self.log_ratio[torch.isfinite(self.log_ratio)]

    @property
    def counts(self) -> Counts:
        """Responses and tokens of these tokens alone."""
        return Counts(int(torch.count_nonzero(self.lengths)), len(self.policy_logp))


@dataclass(frozen=True, eq=False)
class Ruling:
    """What a rule says of each token, before the reduction.

    Attributes:
        weight: d J_t / d log pi(a_t), ``[M]``.
        value: J_t, ``[M]``, maximised.
        flags: masks ``[M]`` whose share among the tokens is reported under their name.
        stats: further metrics of the objective's own.
        removed: by name, weights ``[M]`` that a part of the rule took away; reported as a share of the gradient mass
            there was before.
    """

    weight: Float[Tensor, " M"]
    value: Float[Tensor, " M"]
    flags: Mapping[str, Bool[Tensor, " M"]] = field(default_factory=dict[str, Tensor])
    stats: Mapping[str, Metric] = field(default_factory=dict[str, Metric])
    removed: Mapping[str, Float[Tensor, " M"]] = field(default_factory=dict[str, Tensor])


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
        """The metrics as plain floats; one without data is left out."""
        return flat(self.metrics)

    def loss(self, policy_logp: Float[Tensor, " n"], rows: slice | Tensor | None = None) -> Float[Tensor, ""]:
        """A scalar to call ``backward`` on: its value is ``-J`` and its gradient is ``-weight``.

        Args:
            policy_logp: log pi(a_t) with a graph: of all tokens, or of the micro-batch ``rows``.
            rows: the tokens of the micro-batch; the losses of micro-batches add up to that of the batch.
        """
        weight, contribution = (x if rows is None else x[rows] for x in (self.weight, self.contribution))
        if policy_logp.shape != weight.shape:
            raise InputError(
                f"policy_logp has shape {tuple(policy_logp.shape)}: must be {tuple(weight.shape)}, one entry a weight; "
                "for a micro-batch pass its rows"
            )
        return _Surrogate.apply(policy_logp, weight, contribution)  # type: ignore[no-any-return]


class _Surrogate(torch.autograd.Function):
    """``-sum contribution`` forward, ``-weight`` backward.

    A log-probability, which may be -inf where a token cannot be scored, is never multiplied by anything.
    """

    @staticmethod
    def forward(ctx: Any, policy_logp: Tensor, weight: Tensor, contribution: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.dtype = policy_logp.dtype
        return -contribution.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return (-grads[0] * ctx.saved_tensors[0]).to(ctx.dtype), None, None


@dataclass(frozen=True)
class Objective(ABC):
    """A frozen piece of data and a few lines of maths; the dataclass fields are the options.

    Class attributes:
        scope: what :meth:`rule` must see at once to be exact.
        by_rows: whether, once fitted, a rule may be given some rows of the tokens at a time.
        needs_sampler_logp: whether the rule compares the policy with the sampler.
        default_reduction, default_advantage: what the source of the objective uses.
    """

    scope: ClassVar[Scope] = Scope.TOKEN
    by_rows: ClassVar[bool] = True
    needs_sampler_logp: ClassVar[bool] = True
    default_reduction: ClassVar[str] = "response_mean"
    default_advantage: ClassVar[str] = "group_norm"

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in the table of objectives."""

    @abstractmethod
    def rule(self, tokens: Scored) -> Ruling:
        """The weight and the value of every token, before the reduction."""

    def fit(self, tokens: TokenBatch) -> Self:
        """The same objective with what it reads off the whole batch fixed; only ``Scope.BATCH`` has any such thing."""
        if self.scope is not Scope.BATCH:
            return self
        return self.fit_scored(Scored.of(tokens, tokens.scorable(sampler=self.needs_sampler_logp).nonzero().squeeze(1)))

    def weigh(
        self, tokens: TokenBatch, *, reduction: Reduction | str | None = None, counts: Counts | None = None
    ) -> Weighting:
        """One detached weight a token.

        Args:
            tokens: a whole optimiser batch, or a micro-batch of whole responses.
            reduction: ``response_mean``, ``token_mean``, a ``Constant(max_tokens)``; default: the objective's own.
            counts: denominators of the whole optimiser batch when ``tokens`` is a part of it.

        Raises:
            InputError: the objective needs ``sampler_logp`` and there is none.
        """
        scorable = tokens.scorable(sampler=self.needs_sampler_logp)
        index = None if bool(scorable.all()) else scorable.nonzero().squeeze(1)
        scored = Scored.of(tokens, index)
        how = _reduction(reduction if reduction is not None else self.default_reduction)
        used = scored.counts if counts is None else counts
        weight, contribution, metrics = self._weigh(scored, how, used)

        def spread(x: Tensor) -> Tensor:
            return x if index is None else x.new_zeros(len(tokens)).index_copy_(0, index, x)

        return Weighting(
            weight=spread(weight),
            contribution=spread(contribution),
            scorable=scorable,
            counts=used,
            metrics=over({**metrics, "dropped_tokens": Sum(len(tokens) - len(scored.policy_logp))}),
        )

    def _weigh(self, scored: Scored, how: Reduction, counts: Counts) -> tuple[Tensor, Tensor, dict[str, Metric]]:
        """Weight, contribution and metrics, block by block where that changes nothing but the speed."""
        n = len(scored.policy_logp)
        if n <= BLOCK_TOKENS or not self.by_rows or scored.policy_logp.device.type != "cpu":
            return _apply(self, scored, how, counts)
        fitted = self.fit_scored(scored)
        weight, contribution = torch.empty_like(scored.policy_logp), torch.empty_like(scored.policy_logp)
        parts: list[dict[str, Metric]] = []
        for start in range(0, n, BLOCK_TOKENS):
            rows = slice(start, start + BLOCK_TOKENS)
            weight[rows], contribution[rows], metrics = _apply(fitted, scored.rows(rows), how, counts)
            parts.append(metrics)
        return weight, contribution, merge(parts)

    def fit_scored(self, scored: Scored) -> Self:
        """As :meth:`fit`, from the tokens that can be scored."""
        return self


def _apply(
    objective: Objective, scored: Scored, how: Reduction, counts: Counts
) -> tuple[Tensor, Tensor, dict[str, Metric]]:
    ruling = objective.rule(scored)
    factor = how.factor(scored.lengths, scored.response, counts, scored.policy_logp)
    weight = ruling.weight * factor
    return weight, ruling.value * factor, _metrics(scored, ruling, weight) | _removed(ruling, weight, factor)


def _reduction(how: Reduction | str) -> Reduction:
    return reduction(how) if isinstance(how, str) else how


def _l1(x: Tensor) -> Tensor:
    """``sum |x|``, in float64."""
    return x.abs().sum(dtype=torch.float64)


def _removed(ruling: Ruling, weight: Tensor, factor: Tensor | float) -> dict[str, Metric]:
    if not ruling.removed:
        return {}
    left = float(_l1(weight))
    gone = {name: float(_l1(x * factor)) for name, x in ruling.removed.items()}
    return {name: Mean(mass, left + mass) for name, mass in gone.items()}


def _metrics(scored: Scored, ruling: Ruling, weight: Tensor) -> dict[str, Metric]:
    """The numbers every objective reports; those about the sampler only where its log-probabilities are known."""
    n = len(scored.policy_logp)
    mass = _l1(weight)
    positive = _l1(torch.where(scored.advantage > 0, weight, 0.0))
    sums = {name: torch.count_nonzero(flag) for name, flag in ruling.flags.items()}
    sums |= {"mass_positive": positive, "mass_negative": mass - positive}
    known = scored.known_log_ratio
    if known is not None:
        sums |= {"d_bar": _l1(known), "k1": -known.sum(dtype=torch.float64), "k3": k3(known).sum(dtype=torch.float64)}
    # one transfer for all of them, so that a GPU is waited for once
    totals = cast(list[float], torch.stack([x.double() for x in sums.values()]).tolist())  # pyright: ignore
    numbers = dict(zip(sums, totals, strict=True))
    out: dict[str, Metric] = {"tokens": Sum(n)}
    out |= {name: Mean(numbers[name], n) for name in ruling.flags}
    out |= {name: Sum(numbers[name]) for name in ("mass_positive", "mass_negative")}
    if known is not None:
        out |= {name: Mean(numbers[name], len(known)) for name in ("d_bar", "k1", "k3")}
        out["ratio_overflow"] = Sum(int(torch.count_nonzero(scored.rejected(known.new_zeros(()).bool(), known))))
        if len(known):
            out["ratio_max"] = Maximum(float(bounded_ratio(known.max())))
    return out | dict(ruling.stats)
