"""Objectives that need only the policy being trained: no sampler log-probability, no version tag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from lagproof.data.metrics import Sum
from lagproof.errors import ConfigError
from lagproof.objectives.base import Objective, Ruling, Scope, Scored
from lagproof.tensors.segments import segment_sum


@dataclass(frozen=True)
class Naive(Objective):
    """The likelihood of each response, weighed by its advantage; the baseline that collapses on stale data.

    Formula:     J = 1/R sum_g 1/m_g sum_t A log pi(a_t)
    Weight:      A
    Inputs:      policy_logp [N] nats; advantage [N] reward units
    Options:     none
    Invariants:  on fresh samples this is REINFORCE; on stale ones nothing bounds the push on negative responses
    Source:      the naive loss of ASymPO: Asymmetric-Scale Policy Optimization for asynchronous LLM post-training
    Raises:      nothing
    """

    needs_sampler_logp: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return "naive"

    def rule(self, tokens: Scored) -> Ruling:
        return Ruling(tokens.advantage, tokens.advantage * tokens.policy_logp)


@dataclass(frozen=True)
class GPG(Objective):
    """Group policy gradient: naive with GPG's advantage and the mean over tokens.

    Formula:     J = 1/N sum_t A log pi(a_t),   A = alpha (x - mean),   alpha = B / (B - M)
    Weight:      A
    Inputs:      policy_logp [N] nats; advantage [N] reward units, made with advantage = "gpg"
    Options:     none; alpha belongs to the advantage (M: responses in groups whose rewards are all equal)
    Invariants:  as naive
    Source:      GPG, arXiv:2504.02546, with F_norm = 1
    Raises:      nothing
    """

    needs_sampler_logp: ClassVar[bool] = False
    default_reduction: ClassVar[str] = "token_mean"
    default_advantage: ClassVar[str] = "gpg"

    @property
    def name(self) -> str:
        return "gpg"

    def rule(self, tokens: Scored) -> Ruling:
        return Ruling(tokens.advantage, tokens.advantage * tokens.policy_logp)


@dataclass(frozen=True)
class SPO(Objective):
    """Scaled policy optimisation: negative responses are scaled down by one fixed number.

    Formula:     J = 1/R sum_g 1/m_g sum_t A~ log pi(a_t),   A~ = A if A >= 0 else alpha A
    Weight:      A~
    Inputs:      policy_logp [N] nats; advantage [N] reward units
    Options:     alpha: dimensionless, in [0, 1]; 1 is naive, 0 is fine-tuning on the good answers
    Invariants:  positive responses have naive's weight
    Source:      ASymPO: Asymmetric-Scale Policy Optimization for asynchronous LLM post-training, its SPO
    Raises:      ConfigError if alpha is outside [0, 1]
    """

    alpha: float = 0.2
    needs_sampler_logp: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise ConfigError(f"objective.alpha = {self.alpha}: must be in [0, 1]; 1 is naive, 0 drops the negatives")

    @property
    def name(self) -> str:
        return "spo"

    def rule(self, tokens: Scored) -> Ruling:
        a = tokens.advantage
        weight = torch.where(a >= 0, a, self.alpha * a)
        return Ruling(weight, weight * tokens.policy_logp)


@dataclass(frozen=True)
class ASymPO(Objective):
    """Divides each response by its own mean negative log-probability, so that positive and negative ones balance.

    Formula:     L = -J = 1/R sum_g A_g S_g / sg(S_g),   S_g = 1/m_g sum_t -log pi(a_t)
    Weight:      A / S_g
    Inputs:      policy_logp [N] nats; advantage [N] reward units, one value a response
    Options:     min_scale: floor of S_g, nats, > 0; each response it is used on is counted (asympo/floored)
    Invariants:  with response_mean L = 1/R sum_g A_g: 0 for groups whose advantages add up to 0, whatever the scales
                 are (Theorem 2), so the loss says nothing; look at the mass of each sign. For a constant advantage a
                 response's weight times S_g is A
    Source:      ASymPO: Asymmetric-Scale Policy Optimization for asynchronous LLM post-training. The floor is ours:
                 a response of probability 1 would have an unbounded weight
    Raises:      ConfigError if min_scale is not > 0
    """

    min_scale: float = 0.01
    scope: ClassVar[Scope] = Scope.RESPONSE
    by_rows: ClassVar[bool] = False  # it counts the responses at the floor
    needs_sampler_logp: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.min_scale > 0.0:
            raise ConfigError(f"objective.min_scale = {self.min_scale}: must be > 0, nats")

    @property
    def name(self) -> str:
        return "asympo"

    def rule(self, tokens: Scored) -> Ruling:
        total = segment_sum(-tokens.policy_logp, tokens.response, len(tokens.lengths))
        scale = total / tokens.lengths.clamp(min=1).to(total.dtype)
        floored = (scale < self.min_scale) & (tokens.lengths > 0)
        weight = tokens.advantage / scale.clamp(min=self.min_scale)[tokens.response]
        return Ruling(
            weight,
            weight * tokens.policy_logp,
            stats={"asympo/floored": Sum(int(torch.count_nonzero(floored)))},
        )
