"""One optimiser step. No other room calls ``backward``, and in this one only the supervised warm start besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lagproof.data.batch import Batch
from lagproof.data.metrics import Mean, Metric, Sum, merge, over
from lagproof.data.samples import StepOutcome
from lagproof.data.slices import Key
from lagproof.data.tokens import Counts, TokenBatch
from lagproof.learner.anchor import ANCHORS
from lagproof.learner.batching import MicroBatch, items, micro_batches
from lagproof.learner.optimization import Optimization
from lagproof.metrics.balance import balance
from lagproof.metrics.mismatch import Applied, mismatch_metrics
from lagproof.metrics.responses import ages
from lagproof.models.layout import TokenLayout, layout
from lagproof.models.logprobs import response_logprobs, row_cost
from lagproof.objectives import Objective, Scope
from lagproof.objectives.reduction import Reduction
from lagproof.tensors.advantage import Advantage, has_zero_variance


@dataclass(frozen=True)
class Recipe:
    """How a batch becomes a gradient.

    Attributes:
        objective, reduction, advantage: the rule, its denominators, and what it weighs.
        temperature: that the responses were sampled with.
        anchor: a name of ``ANCHORS``.
        config: the optimiser's numbers.
    """

    objective: Objective
    reduction: Reduction
    advantage: Advantage
    temperature: float
    config: Optimization
    anchor: str = "none"


@dataclass(frozen=True, eq=False)
class StepResult:
    """What a step did.

    Attributes:
        outcome: whether the weights moved.
        metrics: typed values of the step.
        batch: with its advantage, and ``policy_logp`` unless nothing was run.
    """

    outcome: StepOutcome
    metrics: dict[Key, Metric]
    batch: Batch


@dataclass(frozen=True, eq=False)
class _Piece:
    """A micro-batch ready to run: ``tokens`` lacks only ``policy_logp``; ``rows`` are its places in the whole batch."""

    layout: TokenLayout
    tokens: TokenBatch
    rows: Tensor


@dataclass(frozen=True, eq=False)
class _Pass:
    """Forward and backward over all micro-batches of a batch.

    Attributes:
        parts: metrics of each micro-batch.
        logp: log pi of each token of the batch, detached, ``[N]``.
        applied: the weights that the tokens got.
        seen: responses and tokens that could be scored.
    """

    parts: list[dict[Key, Metric]]
    logp: Tensor
    applied: Applied
    seen: Counts


class Learner:
    """Holds the newest weights and their optimiser.

    Args:
        model: trained in place, in evaluation mode: dropout would make the policy differ from its sampler.
        recipe: see :class:`Recipe`.
        version: optimiser updates behind the weights.
    """

    def __init__(self, model: PreTrainedModel, recipe: Recipe, version: int = 0) -> None:
        self.model = model.eval()
        self.recipe = recipe
        self.version = version
        config = recipe.config
        self.optimizer = torch.optim.AdamW(
            [p for p in model.parameters() if p.requires_grad],
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self._cost = row_cost(model)

    def step(self, batch: Batch) -> StepResult:
        """Train on one optimiser batch; on any outcome but ``TRAINED`` weights and version are unchanged.

        With the anchor ``sampling_version`` the batch brings ``anchor_logp``; tokens of age 0 need none.
        """
        batch = replace(batch, advantage=self.recipe.advantage(batch.reward, batch.group))
        without_signal = has_zero_variance(batch.reward, batch.group)
        metrics = _reward_metrics(batch.reward, without_signal)
        if bool(without_signal.all()):
            return StepResult(StepOutcome.ZERO_VARIANCE, metrics, batch)
        tokens = replace(batch.tokens, learner_version=self.version)
        micros = micro_batches(items(batch), self.recipe.config.micro_batch_tokens, self._cost)
        outcome, done = self._train(tokens, [self._piece(micro, batch, tokens) for micro in micros])
        tokens = self._scored(tokens, done.logp)
        batch = replace(batch, policy_logp=done.logp, anchor_logp=tokens.anchor_logp)
        metrics |= mismatch_metrics(tokens, self.version, done.applied) | balance(tokens) | ages(tokens, self.version)
        metrics |= merge(done.parts)
        if outcome is StepOutcome.TRAINED:
            self.version += 1
        return StepResult(outcome, metrics, batch)

    def _train(self, tokens: TokenBatch, pieces: Sequence[_Piece]) -> tuple[StepOutcome, _Pass]:
        objective = self.recipe.objective
        counts = _expected_counts(tokens, objective)
        if objective.scope is Scope.BATCH and len(pieces) > 1:
            logp = self._score(tokens, pieces)
            whole = self._scored(tokens, logp)
            objective = objective.fit(whole)
            counts = _counts(whole.scorable(**objective.needs._asdict()), whole)
        done = self._accumulate(objective, counts, tokens, pieces)
        if done.seen != counts and done.seen.num_tokens > 0:
            # a token turned out to have no finite log-probability: the denominators were too large
            done = self._accumulate(objective, done.seen, tokens, pieces)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.config.grad_clip)
        is_finite = done.seen.num_tokens > 0 and bool(torch.isfinite(norm))
        if is_finite:
            done.parts.append(over({"grad_norm": Mean(float(norm), 1)}))
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return (StepOutcome.TRAINED if is_finite else StepOutcome.NON_FINITE), done

    def _accumulate(self, objective: Objective, counts: Counts, tokens: TokenBatch, pieces: Sequence[_Piece]) -> _Pass:
        """Gradients of the whole batch, micro-batch by micro-batch."""
        self.optimizer.zero_grad(set_to_none=True)
        parts: list[dict[Key, Metric]] = []
        logp = torch.full_like(tokens.advantage, torch.nan)
        weight, scorable = torch.zeros_like(logp), torch.zeros_like(logp, dtype=torch.bool)
        seen = Counts(0, 0)
        for piece in pieces:
            scored = response_logprobs(self.model, piece.layout, self.recipe.temperature, entropy=True)
            part = self._scored(piece.tokens, scored.logp)
            weighting = objective.weigh(part, reduction=self.recipe.reduction, counts=counts)
            loss = weighting.loss(scored.logp)
            loss.backward()
            logp[piece.rows] = scored.logp.detach()
            weight[piece.rows], scorable[piece.rows] = weighting.weight, weighting.scorable
            own = _counts(weighting.scorable, part)
            seen = Counts(seen.num_responses + own.num_responses, seen.num_tokens + own.num_tokens)
            assert scored.entropy is not None
            entropy = scored.entropy[weighting.scorable]
            parts.append(
                {
                    **weighting.metrics,
                    **over({"loss": Sum(float(loss.detach())), "entropy": Mean(float(entropy.sum()), len(entropy))}),
                }
            )
        return _Pass(parts, logp, Applied(weight, scorable, self.recipe.reduction, counts), seen)

    def _scored(self, tokens: TokenBatch, logp: Tensor) -> TokenBatch:
        """With the policy's log-probabilities, and the anchor that follows from them."""
        return ANCHORS[self.recipe.anchor](replace(tokens, policy_logp=logp))

    @torch.no_grad()
    def _score(self, tokens: TokenBatch, pieces: Sequence[_Piece]) -> Tensor:
        logp = torch.full_like(tokens.advantage, torch.nan)
        for piece in pieces:
            logp[piece.rows] = response_logprobs(self.model, piece.layout, self.recipe.temperature).logp
        return logp

    def _piece(self, micro: MicroBatch, batch: Batch, tokens: TokenBatch) -> _Piece:
        rows = batch.places([item.index for group in micro for item in group])
        rows_layout = layout([[item.sample for item in group] for group in micro], self._cost)
        return _Piece(rows_layout, tokens.rows(rows), rows)


def _counts(scorable: Tensor, tokens: TokenBatch) -> Counts:
    return Counts(len(torch.unique(tokens.response[scorable])), int(scorable.sum()))


def _expected_counts(tokens: TokenBatch, objective: Objective) -> Counts:
    """The counts if the policy's log-probability of every token is finite, which is known only afterwards."""
    ok = torch.isfinite(tokens.advantage)
    if objective.needs.sampler and tokens.sampler_logp is not None:
        ok &= torch.isfinite(tokens.sampler_logp)
    if objective.needs.anchor and tokens.anchor_logp is not None and tokens.age is not None:
        ok &= torch.isfinite(tokens.anchor_logp) | (tokens.age == 0)
    return _counts(ok, tokens)


def _reward_metrics(reward: Tensor, zero_variance: Tensor) -> dict[Key, Metric]:
    scored = reward[~reward.isnan()]
    return over(
        {
            "reward": Mean(float(scored.sum()), len(scored)),
            "unscored": Sum(len(reward) - len(scored)),
            "zero_variance_groups": Mean(float(zero_variance.sum()), len(zero_variance)),
        }
    )
