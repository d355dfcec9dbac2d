"""One call for anybody's training loop: tensors in, a differentiable scalar and a dict of numbers out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lagproof.data.tokens import Counts, TokenBatch
from lagproof.errors import ConfigError, InputError
from lagproof.objectives import objective
from lagproof.objectives.reduction import Reduction, TokenMean, TokenSum
from lagproof.objectives.reduction import reduction as reduction_by_name

LARGEST_LOGP = 1e-3
"""Above 0 by no more than this a log-probability is rounding of half precision."""


def loss(
    name: str,
    *,
    policy_logp: Tensor,
    advantage: Tensor,
    mask: Tensor | None = None,
    sampler_logp: Tensor | None = None,
    anchor_logp: Tensor | None = None,
    age: Tensor | None = None,
    response: Tensor | None = None,
    reduction: str | None = None,
    max_tokens: int | None = None,
    num_responses: int | None = None,
    num_tokens: int | None = None,
    **options: Any,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of an objective, minimised, and its numbers.

    Args:
        name: a name of ``lp.OBJECTIVES``.
        policy_logp: log pi(a_t), nats, with a graph: ``[B, T]`` with ``mask``, or flat ``[N]`` with ``response``.
        advantage: reward units: ``[B]``, ``[B, T]`` or ``[N]``. NaN marks a response without a reward.
        mask: ``[B, T]`` bool, True on response tokens; what lies elsewhere is never read.
        sampler_logp: log mu(a_t), nats, shaped as ``policy_logp``; the objectives of the current policy need none.
        anchor_logp: log pi_anchor(a_t), the learner at an earlier version, nats, shaped as ``policy_logp``; for the
            objectives of three policies.
        age: updates since a token was sampled: ``[B]``, ``[B, T]`` or ``[N]`` integers; for those that read it.
        response: ``[N]`` integers, which response a flat token belongs to.
        reduction: ``response_mean`` | ``token_mean`` | ``constant`` | ``sum``; default: the objective's own.
        max_tokens: the fixed length of ``constant``.
        num_responses, num_tokens: counts of the whole optimiser batch when this is one micro-batch of it; the losses
            of the micro-batches then add up to that of the batch (do not divide by their number again).
        **options: of the objective; SAT's ``q`` is one of them, for trainers that show one micro-batch at a time.

    Returns:
        A scalar whose value is ``-J`` and whose gradient is ``-weight``, and plain floats under stable names.

    Raises:
        UnknownNameError, ConfigError: an objective, a reduction or an option that does not exist or is not allowed.
        InputError: shapes that do not agree, a missing ``sampler_logp``, ``anchor_logp`` or ``age``, positive
            log-probabilities, or log-probabilities that are all missing.
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"name is {type(name).__name__}: must be a name of lp.OBJECTIVES, for example 'grpo', with the objective's "
            "options as further arguments; of an lp.objective(...) call weigh(tokens)"
        )
    given = {"policy_logp": policy_logp, "sampler_logp": sampler_logp, "anchor_logp": anchor_logp}
    for argument, value in {**given, "mask": mask, "response": response, "age": age}.items():
        if value is not None and not isinstance(value, Tensor):
            raise InputError(
                f"{argument} is {type(value).__name__}: must be a tensor; make it one with torch.as_tensor"
            )
    advantage = torch.as_tensor(advantage, device=policy_logp.device)
    if not advantage.is_floating_point():
        advantage = advantage.to(torch.float32)
    built = objective(name, **options)
    how = reduction_by_name(reduction or built.default_reduction, max_tokens)
    if mask is not None:
        tokens = TokenBatch.from_padded(
            policy_logp=policy_logp,
            sampler_logp=sampler_logp,
            advantage=advantage,
            mask=mask,
            anchor_logp=anchor_logp,
            version=None if age is None else -age,
            learner_version=0,
        )
    elif response is not None:
        num = int(response.max()) + 1 if response.numel() else 0
        tokens = TokenBatch(
            *(policy_logp, advantage, response, num, sampler_logp),
            version=None if age is None else -age,
            anchor_logp=anchor_logp,
            learner_version=0,
        )
    else:
        raise InputError(
            "neither mask nor response: pass mask with padded [B, T] tensors, or response with flat [N] ones"
        )
    for argument, of_tokens in (
        ("policy_logp", tokens.policy_logp),
        ("sampler_logp", tokens.sampler_logp if built.needs.sampler else None),
        ("anchor_logp", tokens.anchor_logp if built.needs.anchor else None),
    ):
        if of_tokens is not None:
            _check_logp(argument, of_tokens.detach())
    counts = _counts(how, num_responses, num_tokens)
    weighting = built.weigh(tokens, reduction=how, counts=counts)
    _check_counts(tokens.response[weighting.scorable], num_responses, num_tokens)
    return weighting.loss(tokens.policy_logp), weighting.stats


def _check_logp(argument: str, logp: Tensor) -> None:
    """What no softmax gives, on the tokens of responses."""
    if not logp.numel():
        return
    largest = float(torch.where(torch.isfinite(logp), logp, -torch.inf).max())
    if largest > LARGEST_LOGP:
        raise InputError(
            f"{argument} has a token with {largest:.4g}: a log-probability is <= 0; pass log-probabilities in nats, "
            "neither probabilities, nor logits, nor negative log-likelihoods"
        )
    if largest == -math.inf:
        raise InputError(
            f"{argument} is missing (NaN or infinite) on all {logp.numel()} tokens: nothing can be learned from them; "
            "leave such a batch out, and see why nothing was recorded"
        )


def _counts(how: Reduction, num_responses: int | None, num_tokens: int | None) -> Counts | None:
    """The counts of the whole batch; the one that this reduction divides by must be among them."""
    if num_responses is None and num_tokens is None:
        return None
    if isinstance(how, TokenSum):
        return Counts(num_responses or 0, num_tokens or 0)
    needed, given = ("num_tokens", num_tokens) if isinstance(how, TokenMean) else ("num_responses", num_responses)
    if given is None or given < 1:
        raise ConfigError(
            f"{needed} = {given}: {type(how).__name__} divides by it, must be >= 1 and count the whole batch"
        )
    return Counts(num_responses or 0, num_tokens or 0)


def _check_counts(scored: Tensor, num_responses: int | None, num_tokens: int | None) -> None:
    """The whole batch cannot be smaller than this part of it; ``scored``: the response of each scorable token."""
    own = {} if num_tokens is None else {"num_tokens": (num_tokens, len(scored))}
    if num_responses is not None:
        own["num_responses"] = (num_responses, int(torch.count_nonzero(torch.bincount(scored))))
    for name, (given, found) in own.items():
        if given < found:
            raise ConfigError(f"{name} = {given}: this micro-batch alone has {found}; it must count the whole batch")
