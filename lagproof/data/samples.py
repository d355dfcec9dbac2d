"""Samples and groups: what a rollout engine returns and what a learner trains on. Imports no torch.

Per-token values are read-only numpy arrays, often slices of one array of the whole call of an engine: no Python object
a token, and a group goes to another process as a few buffers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ids = NDArray[np.int32]
Versions = NDArray[np.int64]
Logps = NDArray[np.float32]


class Finish(StrEnum):
    """Why a response ended."""

    STOP = "stop"  # the model said so: the last response token is a stop token, or completes a stop string
    LENGTH = "length"  # max_tokens were sampled without either
    ABORTED = "aborted"  # the engine was asked to give up


class StepOutcome(StrEnum):
    """What became of a batch that was handed to the learner."""

    TRAINED = "trained"  # the optimiser stepped: the version is one more
    ZERO_VARIANCE = "zero_variance"  # the rewards of every group were all equal: no signal, nothing was run
    NON_FINITE = "non_finite"  # the gradient, or every log-probability, was not finite: the weights are as they were


def token_ids(ids: ArrayLike) -> Ids:
    """Token ids as a sample keeps them; an array that is one already is returned as it is."""
    return _array(ids, np.int32)


def ends(lengths: Sequence[int]) -> NDArray[np.int64]:
    """Offsets of things laid end to end: thing ``i`` is ``[offsets[i], offsets[i + 1])``; one more than things."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Support:
    """Token ids that top-k/top-p kept at each of T positions, end to end.

    Attributes:
        ids: ``[S]``, int32.
        counts: ids of each position, ``[T]``, int32, adding up to S; 0 where nothing was truncated.
    """

    ids: Ids
    counts: Ids

    def __post_init__(self) -> None:
        for name in ("ids", "counts"):
            object.__setattr__(self, name, _array(getattr(self, name), np.int32))
        if self.counts.sum() != len(self.ids):
            raise ValueError(f"Support.counts add up to {self.counts.sum()} for {len(self.ids)} ids: must be equal")

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Support:
        """From the ids of each position."""
        flat = np.fromiter((i for row in rows for i in row), np.int32)
        return cls(flat, np.array([len(row) for row in rows], np.int32))

    @classmethod
    def none(cls, positions: int) -> Support:
        """That of so many positions at which nothing was truncated."""
        return cls(np.zeros(0, np.int32), np.zeros(positions, np.int32))

    @classmethod
    def joined(cls, parts: Sequence[Support]) -> Support:
        """The positions of several, end to end."""
        return cls(np.concatenate([p.ids for p in parts]), np.concatenate([p.counts for p in parts]))

    def rows(self) -> list[Ids]:
        """The ids of each position."""
        return np.split(self.ids, np.cumsum(self.counts)[:-1]) if len(self.counts) else []

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True, eq=False)
class Sample:
    """One response, exactly as it was sampled; ids are never produced by tokenising text again.

    Whatever sequence a field is made from, it is kept as a read-only array.

    Attributes:
        prompt_ids: token ids of the prompt, ``[P]``, int32.
        response_ids: token ids that were sampled, those that ended it included, ``[T]``, int32.
        version: policy version behind each response token, ``[T]``, int64: optimiser updates behind the weights.
            Several in one response where the engine took new weights while it was sampled.
        finish: why the response ended.
        sampler_logp: log-probability of each response token under the distribution it was drawn from (after
            temperature, top-k and top-p), nats, ``[T]``, float32; ``None`` if it was not recorded. NaN marks one
            missing token.
        support: token ids that top-k/top-p kept at each position; ``None`` if nothing was truncated. Rows of ids are
            taken too.
        text: the response as text up to what ended it, for grading and for reading.
        reward: ``None`` until graded, NaN if it could not be graded.
        reason: of the reward, in one word; empty until graded.
        experts: chosen experts of every input position that was run (prompt and response), if routing was recorded.

    Raises:
        ValueError: per-token values of another length than ``response_ids``.
    """

    prompt_ids: Ids
    response_ids: Ids
    version: Versions
    finish: Finish
    sampler_logp: Logps | None = None
    support: Support | None = None
    text: str = ""
    reward: float | None = None
    reason: str = ""
    experts: Any = None

    def __post_init__(self) -> None:
        for name, dtype in _DTYPES:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _array(value, dtype))
        if self.support is not None and not isinstance(self.support, Support):  # pyright: ignore[reportUnnecessaryIsInstance]
            object.__setattr__(self, "support", Support.of(self.support))
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


@dataclass(frozen=True, eq=False)
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

    @property
    def versions(self) -> set[int]:
        """The policy versions behind its tokens."""
        return {int(v) for s in self.samples if len(s.version) for v in _distinct(s.version)}


_DTYPES = (
    ("prompt_ids", np.int32),
    ("response_ids", np.int32),
    ("version", np.int64),
    ("sampler_logp", np.float32),
)


def _array(value: Any, dtype: Any) -> Any:
    array = np.asarray(value, dtype)
    if array.flags.writeable:  # the caller may keep writing into an array of its own type
        array = array.view()
        array.flags.writeable = False
    return array


def _distinct(version: Versions) -> Versions:
    """The values of an array that mostly holds one."""
    return version[:1] if version[0] == version[-1] and (version == version[0]).all() else np.unique(version)
