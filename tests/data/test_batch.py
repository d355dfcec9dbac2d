"""Samples as arrays, and a batch of them end to end."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from lagproof.data.batch import Batch
from lagproof.data.samples import Finish, Group, Sample, Support


def sample(n: int, logp: list[float] | None, version: list[int] | None = None, reward: float | None = 1.0) -> Sample:
    return Sample([1, 2], range(10, 10 + n), version or [0] * n, Finish.STOP, logp, reward=reward)


GROUPS = [
    Group(7, "a", [sample(2, [-1.0, math.nan], [3, 4]), sample(0, [])]),
    Group(9, "b", [sample(1, None, [5], None), sample(3, [-2.0, -3.0, -4.0], reward=math.nan)]),
]


def test_a_batch_is_laid_end_to_end_and_nothing_missing_is_replaced() -> None:
    batch = Batch.of(GROUPS)
    assert batch.offsets.tolist() == [0, 2, 2, 3, 6]
    assert batch.response.tolist() == [0, 0, 2, 3, 3, 3] and batch.group.tolist() == [0, 0, 1, 1]
    assert batch.version.tolist() == [3, 4, 5, 0, 0, 0]
    assert batch.sampler_logp is not None and batch.sampler_logp.dtype == torch.float32
    assert str(batch.sampler_logp.tolist()) == "[-1.0, nan, nan, -2.0, -3.0, -4.0]"
    assert str(batch.reward.tolist()) == "[1.0, 1.0, nan, nan]" and batch.reward.dtype == torch.float64
    assert (batch.num_responses, batch.num_tokens) == (4, 6)
    assert batch.places([3, 0]).tolist() == [3, 4, 5, 0, 1]
    assert Batch.of([Group(0, "x", [sample(1, None)])]).sampler_logp is None
    assert Batch.of([]).num_tokens == 0


def test_its_tokens_are_what_an_objective_sees() -> None:
    batch = replace(Batch.of(GROUPS), advantage=torch.tensor([0.5, -0.5, math.nan, 2.0], dtype=torch.float64))
    tokens = batch.tokens
    assert (
        str(tokens.advantage.tolist()) == "[0.5, 0.5, nan, 2.0, 2.0, 2.0]" and tokens.advantage.dtype == torch.float32
    )
    assert bool(tokens.policy_logp.isnan().all()) and tokens.num_responses == 4
    assert replace(batch, policy_logp=torch.arange(6.0)).tokens.policy_logp.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_sample_keeps_read_only_arrays_and_leaves_those_of_others_alone() -> None:
    ids = np.array([4, 5], np.int32)
    s = Sample(ids, ids, [0, 1], Finish.STOP, np.array([-0.1, -0.2]))
    assert (s.response_ids.dtype, s.version.dtype, s.sampler_logp.dtype) == (np.int32, np.int64, np.float32)
    with pytest.raises(ValueError, match="read-only"):
        s.response_ids[0] = 1
    ids[0] = 9  # still the caller's
    assert replace(s, reward=1.0).response_ids is s.response_ids


def test_a_slice_travels_without_the_array_it_is_a_slice_of() -> None:
    whole = np.arange(100_000, dtype=np.int32)
    s = Sample([1], whole[5:8], np.full(3, 2), Finish.STOP)
    there = pickle.dumps(s)
    assert len(there) < 2000
    assert pickle.loads(there).response_ids.tolist() == [5, 6, 7]


def test_the_versions_of_a_group() -> None:
    assert [group.versions for group in GROUPS] == [{3, 4}, {0, 5}]
    assert Group(0, "x", [sample(0, None)]).versions == set()
    assert Group(0, "x", [sample(3, None, [1, 2, 1])]).versions == {1, 2}  # its first is its last


def test_a_support_from_rows_and_back() -> None:
    support = Support.of([[3, 4], [], [5]])
    assert (support.ids.tolist(), support.counts.tolist(), len(support)) == ([3, 4, 5], [2, 0, 1], 3)
    assert [row.tolist() for row in support.rows()] == [[3, 4], [], [5]]
    assert Support.joined([support, Support.none(2)]).counts.tolist() == [2, 0, 1, 0, 0]
    with pytest.raises(ValueError, match="add up to 2 for 3 ids"):
        Support(np.array([1, 2, 3]), np.array([1, 1]))
    with pytest.raises(ValueError, match="support has 3 entries for 2 response tokens"):
        Sample([1], [3, 4], [0, 0], Finish.STOP, support=support)
