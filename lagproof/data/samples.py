"""Samples and groups: what a rollout engine returns and what a learner trains on. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Finish(StrEnum):
    """Why a response ended."""

    STOP = "stop"  # the model said so: the last response token is a stop token, or completes a stop string
    LENGTH = "length"  # max_tokens were sampled without either
    ABORTED = "aborted"  # the engine was told to give up


@dataclass(frozen=True)
class Sample:
    """One response, exactly as it was sampled; ids are never produced by tokenising text again.

    Attributes:
        prompt_ids: token ids of the prompt, ``[P]``.
        response_ids: token ids that were sampled, those that ended it included, ``[T]``.
        version: policy version behind each response token, ``[T]``: optimiser updates behind the weights.
        finish: why the response ended.
        sampler_logp: log-probability of each response token under the distribution it was drawn from (after
            temperature, top-k and top-p), nats, ``[T]``; ``None`` if it was not recorded. NaN marks one missing token.
        support: token ids that top-k/top-p kept at each position, ``T`` rows; ``None`` if nothing was cut off.
        text: the response as text up to what ended it, for grading and for reading.
        reward: ``None`` until graded, NaN if it could not be graded.
        reason: of the reward, in one word; empty until graded.
        experts: chosen experts of every input position that was run (prompt and response), if routing was recorded.
    """

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    version: Sequence[int]
    finish: Finish
    sampler_logp: Sequence[float] | None = None
    support: Sequence[Sequence[int]] | None = None
    text: str = ""
    reward: float | None = None
    reason: str = ""
    experts: Any = None

    def __post_init__(self) -> None:
        n = len(self.response_ids)
        for name in ("version", "sampler_logp", "support"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise ValueError(f"Sample.{name} has {len(value)} entries for {n} response tokens: must be equal")

    @property
    def truncated(self) -> bool:
        """Whether the response did not end by itself."""
        return self.finish is not Finish.STOP

    @property
    def scored(self) -> bool:
        """Whether there is a reward that is a number."""
        return self.reward is not None and not math.isnan(self.reward)


@dataclass(frozen=True)
class Group:
    """The samples of one prompt.

    Attributes:
        prompt: running number of the prompt in the run; unique, also over epochs.
        problem_id: the task's own id of the problem.
        samples: the responses, in the order of their random streams.
        info: anything the task wants to keep for reading (gold answer, task name).
    """

    prompt: int
    problem_id: str
    samples: Sequence[Sample]
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
