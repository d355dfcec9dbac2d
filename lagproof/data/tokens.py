"""The response tokens of an optimiser batch, laid end to end: no padding exists, so no mask can be forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lagproof.errors import InputError

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class Counts:
    """What the denominators of an optimiser batch count, over all its micro-batches and ranks.

    Attributes:
        num_responses: responses with at least one scorable token (R).
        num_tokens: scorable tokens (N).
    """

    num_responses: int
    num_tokens: int


class Needs(NamedTuple):
    """What must be known of a token, besides its policy log-probability and its advantage, for it to be scored.

    Attributes:
        sampler: ``sampler_logp``.
        anchor: ``anchor_logp``.
        age: the age in updates: ``version`` and ``learner_version``.
    """

    sampler: bool = False
    anchor: bool = False
    age: bool = False

    def __or__(self, other: Needs) -> Needs:  # type: ignore[override]
        """What either needs."""
        return Needs(*(mine or its for mine, its in zip(self, other, strict=True)))


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Response tokens end to end, or some rows of them.

    Attributes:
        policy_logp: log pi(a_t) under the policy being trained, nats, ``[N]``; may require grad.
        advantage: advantage of each token, reward units, ``[N]``; NaN marks a response without a reward.
        response: which response a token belongs to, ``[N]``, in ``[0, num_responses)``.
        num_responses: responses of the batch, also those without a token.
        sampler_logp: log mu(a_t) as the engine really sampled, nats, ``[N]``, or ``None``. NaN marks one missing token.
        group: group (prompt) of each response, ``[num_responses]``, or ``None``.
        version: policy version that sampled each token, ``[N]``, or ``None``.
        anchor_logp: log pi_anchor(a_t): the learner's own numerics at an earlier version, nats, ``[N]``, or ``None``.
            NaN marks a token whose version is no longer known; it is never filled in.
        learner_version: version of the policy being trained, updates, or ``None``.

    Raises:
        InputError: shapes that do not agree, a response index out of range, or a tensor of the wrong kind.
    """

    policy_logp: Float[Tensor, " N"]
    advantage: Float[Tensor, " N"]
    response: Int[Tensor, " N"]
    num_responses: int
    sampler_logp: Float[Tensor, " N"] | None = None
    group: Int[Tensor, " R"] | None = None
    version: Int[Tensor, " N"] | None = None
    anchor_logp: Float[Tensor, " N"] | None = None
    learner_version: int | None = None

    def __post_init__(self) -> None:
        shape = self.policy_logp.shape
        if len(shape) != 1:
            raise InputError(
                f"TokenBatch.policy_logp has shape {tuple(shape)}: must be flat, [N]; "
                "for padded [B, T] tensors use TokenBatch.from_padded"
            )
        for name in ("advantage", "response", "sampler_logp", "version", "anchor_logp"):
            value: Tensor | None = getattr(self, name)
            if value is not None and value.shape != shape:
                raise InputError(
                    f"TokenBatch.{name} has shape {tuple(value.shape)}: must be {tuple(shape)} as policy_logp"
                )
        for name in ("policy_logp", "sampler_logp", "advantage", "anchor_logp"):
            value = getattr(self, name)
            if value is not None and not value.is_floating_point():
                raise InputError(f"TokenBatch.{name} is {value.dtype}: must be a floating-point tensor")
        if self.group is not None and self.group.shape != (self.num_responses,):
            raise InputError(
                f"TokenBatch.group has shape {tuple(self.group.shape)}: must be ({self.num_responses},), one a response"
            )
        if self.response.is_floating_point():
            raise InputError(f"TokenBatch.response is {self.response.dtype}: must be integers")
        if len(self.response):
            lowest, highest = (int(x) for x in torch.aminmax(self.response))
            if lowest < 0 or highest >= self.num_responses:
                raise InputError(
                    f"TokenBatch.response has entries from {lowest} to {highest}: must be in "
                    f"[0, num_responses) = [0, {self.num_responses})"
                )

    def __len__(self) -> int:
        return self.policy_logp.shape[0]

    @property
    def age(self) -> Int[Tensor, " N"] | None:
        """Updates between the version that sampled each token and the policy; ``None`` if either is not known."""
        return None if self.version is None or self.learner_version is None else self.learner_version - self.version

    @classmethod
    def from_padded(
        cls,
        *,
        policy_logp: Float[Tensor, "B T"],
        advantage: Float[Tensor, " B"] | Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
        sampler_logp: Float[Tensor, "B T"] | None = None,
        group: Int[Tensor, " B"] | None = None,
        version: Int[Tensor, " B"] | Int[Tensor, "B T"] | None = None,
        anchor_logp: Float[Tensor, "B T"] | None = None,
        learner_version: int | None = None,
    ) -> TokenBatch:
        """Flatten padded tensors; row ``b`` is response ``b``, and only positions where ``mask`` holds are tokens.

        What padding holds (NaN, inf, huge numbers) is never read. ``policy_logp`` keeps its graph.

        Raises:
            InputError: shapes that do not agree, or a mask that is neither bool nor 0/1.
        """
        shape = policy_logp.shape
        if len(shape) != 2:
            raise InputError(f"policy_logp has shape {tuple(shape)}: must be padded, [B, T]")
        for name, value, may_be_row in (
            ("mask", mask, False),
            ("sampler_logp", sampler_logp, False),
            ("anchor_logp", anchor_logp, False),
            ("advantage", advantage, True),
            ("version", version, True),
        ):
            if value is not None and value.shape != shape and not (may_be_row and value.shape == shape[:1]):
                allowed = f"{tuple(shape)}" + (f" or {tuple(shape[:1])}" if may_be_row else "")
                raise InputError(f"{name} has shape {tuple(value.shape)}: must be {allowed}")
        mask = _as_bool(mask)
        lengths = mask.sum(1)
        response = torch.arange(shape[0], device=policy_logp.device).repeat_interleave(lengths)
        index = None if len(response) == mask.numel() else mask.reshape(-1).nonzero().squeeze(1)

        def take(value: Tensor) -> Tensor:
            if value.dim() == 1:
                return value.repeat_interleave(lengths)
            return value.reshape(-1) if index is None else value.reshape(-1)[index]

        return cls(
            policy_logp=take(policy_logp),
            advantage=take(advantage),
            response=response,
            num_responses=shape[0],
            sampler_logp=None if sampler_logp is None else take(sampler_logp),
            group=group,
            version=None if version is None else take(version),
            anchor_logp=None if anchor_logp is None else take(anchor_logp),
            learner_version=learner_version,
        )

    def rows(self, index: slice | Tensor) -> TokenBatch:
        """Some of the tokens (one micro-batch), with the responses numbered as in the whole batch."""
        return replace(
            self,
            policy_logp=self.policy_logp[index],
            advantage=self.advantage[index],
            response=self.response[index],
            sampler_logp=None if self.sampler_logp is None else self.sampler_logp[index],
            version=None if self.version is None else self.version[index],
            anchor_logp=None if self.anchor_logp is None else self.anchor_logp[index],
        )

    def scorable(self, *, sampler: bool, anchor: bool = False, age: bool = False) -> Bool[Tensor, " N"]:
        """Tokens that can be scored: advantage, policy and what else is needed are finite.

        Args:
            sampler, anchor, age: whether it is needed, see :class:`Needs`.

        Raises:
            InputError: it is needed and there is none.
        """
        ok = torch.isfinite(self.policy_logp.detach()) & torch.isfinite(self.advantage)
        if sampler:
            if self.sampler_logp is None:
                raise InputError("sampler_logp is missing: record the engine's log-probabilities")
            ok &= torch.isfinite(self.sampler_logp)
        if anchor:
            if self.anchor_logp is None:
                raise InputError("anchor_logp is missing: score the tokens with the learner's weights of their version")
            ok &= torch.isfinite(self.anchor_logp)
        if age and self.age is None:
            raise InputError("the age is missing: pass the version of each token and learner_version")
        return ok


def _as_bool(mask: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return mask
    kept = mask != 0
    if not bool(((mask == 1) | ~kept).all()):
        raise InputError(f"mask is {mask.dtype} with values other than 0 and 1: must be bool, or 0/1")
    return kept
