"""Advantages from the rewards of groups.

Groups are formed by id, never by position, and may have any number of responses. A reward that is NaN (an unscored
response) is left out of every mean and spread and its advantage is NaN, which keeps its tokens out of the loss. A
group whose scored rewards are all equal, and a group with one scored response, give exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from lagproof.tensors.segments import segment_count, segment_extreme, segment_sum

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

Advantage = Callable[["Float[Tensor, ' R']", "Int[Tensor, ' R']"], "Float[Tensor, ' R']"]


def group_norm(reward: Float[Tensor, " R"], group: Int[Tensor, " R"], eps: float = 1e-6) -> Float[Tensor, " R"]:
    """``(x - mean) / (std + eps)`` in each group, with the sample standard deviation (GRPO)."""
    centred, segment, size, scored = _centre(reward, group)
    square = torch.where(scored, centred, torch.zeros_like(centred)).square()
    variance = segment_sum(square, segment, size.numel()) / (size - 1).clamp(min=1)
    return centred / (variance.sqrt() + eps)[segment]


def group_center(reward: Float[Tensor, " R"], group: Int[Tensor, " R"]) -> Float[Tensor, " R"]:
    """``x - mean`` in each group (Dr. GRPO)."""
    return _centre(reward, group)[0]


def leave_one_out(reward: Float[Tensor, " R"], group: Int[Tensor, " R"]) -> Float[Tensor, " R"]:
    """``x`` minus the mean of the others, ``n / (n - 1) (x - mean)`` (RLOO)."""
    centred, segment, size, _ = _centre(reward, group)
    n = size[segment].to(centred.dtype)
    return centred * n / (n - 1).clamp(min=1)


def gpg(reward: Float[Tensor, " R"], group: Int[Tensor, " R"]) -> Float[Tensor, " R"]:
    """``alpha (x - mean)``, ``alpha = B / (B - M)``; M scored responses of B are in groups that are all equal.

    All groups equal: every advantage is 0. Source: GPG, arXiv:2504.02546, the factor of its equation for the
    gradient estimate, with F_norm = 1.
    """
    centred, segment, size, scored = _centre(reward, group)
    moved = segment_count(segment[scored & (centred != 0)], size.numel()) > 0
    informative = (moved[segment] & scored).sum()
    alpha = scored.sum() / informative.clamp(min=1)
    return centred * alpha


def optimal(reward: Float[Tensor, " R"], group: Int[Tensor, " R"], beta: float = 1.0) -> Float[Tensor, " R"]:
    """``x - V``, ``V = beta log mean exp(x / beta)`` in each group: optimal under a KL bound.

    ``mean x <= V <= max x``, so the advantages of a group do not add up to 0. Source: OAPL, arXiv:2602.19362.
    """
    centred, segment, size, scored = _centre(reward, group)
    terms = torch.where(scored, torch.exp(torch.where(scored, centred, 0.0) / beta), 0.0)
    mean = segment_sum(terms, segment, size.numel()) / size.clamp(min=1)
    return centred - beta * torch.log(mean)[segment]


def has_zero_variance(reward: Float[Tensor, " R"], group: Int[Tensor, " R"]) -> Bool[Tensor, " G"]:
    """Whether the scored rewards of a group are all equal (also: at most one is scored); one entry a group, by id."""
    centred, segment, size, scored = _centre(reward, group)
    return segment_count(segment[scored & (centred != 0)], size.numel()) == 0


def _centre(reward: Tensor, group: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``x - mean`` (exactly 0 in an all-equal group), group numbers 0.., scored per group, scored per response."""
    if reward.dim() != 1 or reward.shape != group.shape:
        raise ValueError(f"rewards {tuple(reward.shape)} and groups {tuple(group.shape)}: must both be [R]")
    reward = reward.float() if reward.dtype in (torch.float16, torch.bfloat16) else reward
    segment = cast(Tensor, torch.unique(group, return_inverse=True)[1])  # pyright: ignore
    num_groups = int(segment.max()) + 1 if segment.numel() else 0
    scored = ~torch.isnan(reward)
    size = segment_count(segment[scored], num_groups)
    known = torch.where(scored, reward, torch.zeros_like(reward))
    mean = segment_sum(known, segment, num_groups) / size.clamp(min=1)
    lowest = segment_extreme(reward[scored], segment[scored], num_groups, "amin")
    highest = segment_extreme(reward[scored], segment[scored], num_groups, "amax")
    # the mean of eight times 0.9 is not 0.9 in binary: an all-equal group is 0 by rule, not by arithmetic
    centred = torch.where((lowest == highest)[segment], torch.zeros_like(reward), reward - mean[segment])
    return torch.where(scored, centred, torch.full_like(reward, torch.nan)), segment, size, scored


ADVANTAGES: dict[str, Advantage] = {
    "group_norm": group_norm,
    "group_center": group_center,
    "leave_one_out": leave_one_out,
    "gpg": gpg,
    "optimal": optimal,
}
"""Every advantage by its name in ``learner.advantage``."""
