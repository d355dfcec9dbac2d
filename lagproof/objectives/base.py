"""One form for every objective: a rule that turns log-probabilities and advantages into one detached weight a token.

For every objective here the gradient of the maximised ``J`` is ``sum_t w_t grad log pi(a_t)`` with ``w_t`` detached.
The rule is written once per objective; selection of the tokens that can be scored, blocks, the reduction and the loss
that a training loop calls ``backward`` on are written once for all of them, around the rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

from lagproof.data.metrics import Metric, Metrics, Sum, over
from lagproof.data.rows import Row
from lagproof.data.tokens import Counts, Needs, TokenBatch
from lagproof.errors import InputError
from lagproof.objectives.apply import apply
from lagproof.objectives.masks import MASKS, Mask, masked, parse_mask
from lagproof.objectives.options import option, options_of
from lagproof.objectives.reduction import Reduction, reduction
from lagproof.objectives.scorable import Responses, Scope, ScorableTokens, TokenWeights
from lagproof.objectives.weighting import Weighting

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class Finding:
    """What can be said of an objective in particular on some tokens.

    Attributes:
        sentence: in words; starts with the objective's name.
        numbers: those of the sentence, by name.
        samples: values whose distribution is worth a figure, by what they are of.
    """

    sentence: str
    numbers: Mapping[str, float]
    samples: Mapping[str, Float[Tensor, " S"]] = field(default_factory=dict[str, Tensor])


@dataclass(frozen=True)
class Objective(ABC):
    """A frozen piece of data and a few lines of maths; the dataclass fields are the options.

    Class attributes, with which an objective declares itself whole:
        name: in configurations and in ``lp.objective``.
        known_as: what else people call the rule, in small letters.
        unit: what is weighed as one, a token or a response.
        rule_needs: what else than the policy the rule reads, in its default form.
        default_reduction, default_advantage: what the source of the objective uses.
        colour: which of the eight colours it has on every page, as long as that is free; ``None``: any.
        caveats: what to know before it is used, a clause each.
        advice: what to try while it is on, by the name of the alarm; ``{mismatch}`` and ``{negative_side}`` stand
            for the remedies for these alarms.
        remedies: what it is a remedy for: the name of an alarm, and how it is then named.
    """

    name: ClassVar[str]
    known_as: ClassVar[tuple[str, ...]] = ()
    unit: ClassVar[Scope] = Scope.TOKEN
    rule_needs: ClassVar[Needs] = Needs(sampler=True)
    default_reduction: ClassVar[str] = "response_mean"
    default_advantage: ClassVar[str] = "group_norm"
    colour: ClassVar[int | None] = None
    caveats: ClassVar[tuple[str, ...]] = ()
    advice: ClassVar[Mapping[str, str]] = {}
    remedies: ClassVar[Mapping[str, str]] = {}
    masks: tuple[str, ...] = option(
        (),
        "0/1 factors on top, as 'seq-mask(stat=k3_mean, high=0.01)': " + " | ".join(MASKS),
        shared=True,
    )

    def __post_init__(self) -> None:
        for known in options_of(type(self)):
            known.check(getattr(self, known.name))
        assert isinstance(self._masks, tuple)  # parsed, so that a wrong one is refused here
        self.check()

    @cached_property
    def _masks(self) -> tuple[Mask, ...]:
        return tuple(parse_mask(text) for text in self.masks)

    def check(self) -> None:  # noqa: B027  most have nothing to say
        """Raise ConfigError where options exclude each other."""

    @property
    def scope(self) -> Scope:
        """What the rule and its masks must see at once to be exact."""
        return max([self.rule_scope, *(mask.scope for mask in self._masks)], key=list(Scope).index)

    @property
    def rule_scope(self) -> Scope:
        """What :meth:`rule` must see at once to be exact."""
        return self.unit

    @property
    def needs(self) -> Needs:
        """What else than the policy has to be known of a token that this objective can score."""
        return Needs(*(any(of) for of in zip(self.reads(), *(mask.needs for mask in self._masks), strict=True)))

    def reads(self) -> Needs:
        """What :meth:`rule` reads with these options."""
        return self.rule_needs

    @property
    def limits(self) -> tuple[float, float] | None:
        """The ``|log-ratio|`` of a unit at which a clip begins, on the way up and down; ``None`` without a clip."""
        return None

    @abstractmethod
    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        """The weight and the value of every token, before the reduction."""

    def response_stats(self, responses: Responses) -> Mapping[str, Metric]:
        """Metrics of the objective's own that count responses and not tokens."""
        return {}

    def finding(self, batches: Sequence[TokenBatch], metrics: Sequence[Metrics]) -> Finding | None:
        """What can be said of this objective in particular; ``None`` where there is nothing.

        Args:
            batches: one a step.
            metrics: of its weighting of each.
        """
        return None

    def idle(self, rows: Sequence[Row]) -> str | None:
        """That this objective was another one on most of a run, and by what arithmetic; ``None`` where it was not.

        Args:
            rows: of ``metrics.jsonl``, from runs with these options.
        """
        return None

    def fitted(self, tokens: ScorableTokens) -> Self:
        """The same objective with what it reads off the whole batch fixed; only ``Scope.BATCH`` has any such thing."""
        return self

    def fit(self, tokens: TokenBatch) -> Self:
        """As :meth:`fitted`, of a whole optimiser batch; its micro-batches are then weighed as the whole."""
        return self.fitted(self.scorable(tokens)) if self.scope is Scope.BATCH else self

    def scorable(self, tokens: TokenBatch) -> ScorableTokens:
        """The tokens that this objective can score.

        Raises:
            InputError: the objective needs ``sampler_logp`` and there is none.
        """
        return _select(tokens, self._mask(tokens))[0]

    def weigh(
        self, tokens: TokenBatch, *, reduction: Reduction | str | None = None, counts: Counts | None = None
    ) -> Weighting:
        """One detached weight a token.

        Args:
            tokens: a whole optimiser batch, or a micro-batch of whole responses.
            reduction: ``response_mean``, ``token_mean``, a ``Constant(max_tokens)``, or ``sum``, no denominator at
                all; default: the objective's own.
            counts: denominators of the whole optimiser batch when ``tokens`` is a part of it.

        Raises:
            InputError: the objective needs ``sampler_logp`` and there is none.
        """
        mask = self._mask(tokens)
        scorable, index = _select(tokens, mask)
        lengths = scorable.responses.lengths
        used = Counts(int(torch.count_nonzero(lengths)), len(scorable)) if counts is None else counts
        how = _reduction(self.default_reduction if reduction is None else reduction)
        rule = masked(self.fitted(scorable).rule, self._masks)
        weight, contribution, metrics = apply(rule, scorable, how, used)

        def spread(x: Tensor) -> Tensor:
            return x if index is None else x.new_zeros(len(tokens)).index_copy_(0, index, x)

        own = self.response_stats(scorable.responses)
        dropped: dict[str, Metric] = {"dropped_tokens": Sum(len(tokens) - len(scorable))}
        if self.needs.anchor and tokens.anchor_logp is not None:
            dropped["missing_anchor"] = Sum(int(torch.count_nonzero(~torch.isfinite(tokens.anchor_logp))))
        return Weighting(spread(weight), spread(contribution), mask, used, over({**metrics, **own, **dropped}))

    def _mask(self, tokens: TokenBatch) -> Tensor:
        from lagproof.objectives import without  # here: the table is made of the classes below this one

        needs = self.needs
        if needs.sampler and tokens.sampler_logp is None:
            raise InputError(
                f"sampler_logp is missing: {self.name} compares the policy with the sampler; record the engine's "
                f"log-probabilities, or choose one that needs none ({', '.join(without('sampler'))})"
            )
        if needs.anchor and tokens.anchor_logp is None:
            raise InputError(
                f"anchor_logp is missing: {self.name} compares the policy with the anchor, what the learner itself "
                "gave the tokens at an earlier version; score them with those weights, or choose one without an anchor "
                f"({', '.join(without('anchor'))})"
            )
        if needs.age and tokens.age is None:
            raise InputError(
                f"the age of the tokens is missing: {self.name} needs it; pass the version that sampled each token and "
                "learner_version (lp.loss: age)"
            )
        return tokens.scorable(**needs._asdict())


def _select(tokens: TokenBatch, mask: Tensor) -> tuple[ScorableTokens, Tensor | None]:
    """The tokens of a mask and their index, ``None`` where they are all."""
    index = None if bool(mask.all()) else mask.nonzero().squeeze(1)
    return ScorableTokens.of(tokens, index), index


def _reduction(how: Reduction | str) -> Reduction:
    return reduction(how) if isinstance(how, str) else how
