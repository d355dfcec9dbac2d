"""An optimiser batch, laid end to end once: what the learner trains on and what a run writes down."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lagproof.data.samples import Group, Sample, ends
from lagproof.data.tokens import TokenBatch

if TYPE_CHECKING:
    from jaxtyping import Float, Int


@dataclass(frozen=True, eq=False)
class Batch:
    """Groups, and their R responses and N response tokens end to end, in the order of groups and samples.

    Attributes:
        groups: as the engine and the task made them.
        offsets: first token of each response and the end, ``[R + 1]``: response ``i`` is
            ``[offsets[i], offsets[i + 1])``.
        response: response of each token, ``[N]``.
        group: place of each response's group in ``groups``, ``[R]``.
        version: policy version that sampled each token, ``[N]``.
        sampler_logp: log mu(a_t), nats, float32, ``[N]``; NaN where it was not recorded, ``None`` if nowhere.
        reward: of each response, float64, ``[R]``; NaN where there is none.
        advantage: of each response, reward units, float64, ``[R]``; ``None`` until the learner has it.
        policy_logp: log pi(a_t) before the step, nats, float32, ``[N]``, detached; ``None`` until it was scored.
        anchor_logp: log pi_anchor(a_t), the learner at an earlier version, nats, float32, ``[N]``; NaN where it is not
            known, ``None`` if nowhere.
    """

    groups: tuple[Group, ...]
    offsets: Int[Tensor, " R1"]
    response: Int[Tensor, " N"]
    group: Int[Tensor, " R"]
    version: Int[Tensor, " N"]
    sampler_logp: Float[Tensor, " N"] | None
    reward: Float[Tensor, " R"]
    advantage: Float[Tensor, " R"] | None = None
    policy_logp: Float[Tensor, " N"] | None = None
    anchor_logp: Float[Tensor, " N"] | None = None

    @classmethod
    def of(cls, groups: Sequence[Group]) -> Batch:
        """Lay groups end to end."""
        samples = [sample for group in groups for sample in group.samples]
        lengths = [len(s.response_ids) for s in samples]
        reward = [math.nan if s.reward is None else s.reward for s in samples]
        return cls(
            groups=tuple(groups),
            offsets=torch.from_numpy(ends(lengths)),
            response=torch.from_numpy(np.repeat(np.arange(len(samples)), lengths)),
            group=torch.from_numpy(np.repeat(np.arange(len(groups)), [len(g.samples) for g in groups])),
            version=torch.from_numpy(_joined([s.version for s in samples], np.int64)),
            sampler_logp=_sampler_logp(samples),
            reward=torch.tensor(reward, dtype=torch.float64),
        )

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The responses, ``[R]``."""
        return tuple(sample for group in self.groups for sample in group.samples)

    @property
    def num_responses(self) -> int:
        """R."""
        return len(self.reward)

    @property
    def num_tokens(self) -> int:
        """N."""
        return len(self.response)

    def places(self, responses: Sequence[int]) -> Int[Tensor, " n"]:
        """Where the tokens of some responses lie among the N, response by response."""
        first, last = self.offsets[:-1].tolist(), self.offsets[1:].tolist()
        return torch.cat([torch.arange(first[i], last[i]) for i in responses])

    @property
    def tokens(self) -> TokenBatch:
        """What an objective sees; ``policy_logp`` is NaN, unknown, until the model has scored the tokens."""
        assert self.advantage is not None, "the learner fills in the advantage first"
        unknown = torch.full((self.num_tokens,), torch.nan)
        return TokenBatch(
            policy_logp=unknown if self.policy_logp is None else self.policy_logp,
            advantage=self.advantage.float()[self.response],
            response=self.response,
            num_responses=self.num_responses,
            sampler_logp=self.sampler_logp,
            group=self.group,
            version=self.version,
            anchor_logp=self.anchor_logp,
        )


def _sampler_logp(samples: Sequence[Sample]) -> Tensor | None:
    if all(s.sampler_logp is None for s in samples):
        return None
    parts = [
        np.full(len(s.response_ids), np.nan, np.float32) if s.sampler_logp is None else s.sampler_logp for s in samples
    ]
    return torch.from_numpy(_joined(parts, np.float32))


def _joined(parts: Sequence[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)
