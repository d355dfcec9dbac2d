"""Samples as parquet rows, and back."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from lagproof.data.batch import Batch
from lagproof.data.samples import Finish, Group, Sample
from lagproof.errors import CheckpointError
from lagproof.runs import rollouts as record

GRADED = [(1.0, "correct"), (math.nan, "bad_gold"), (None, "")]


def groups() -> list[Group]:
    samples = [Sample([1], [2], [0], Finish.STOP, reward=reward, reason=reason) for reward, reason in GRADED]
    return [Group(0, "x", samples, {"task": "t"})]


def trained(group: Group, advantage: list[float]) -> Batch:
    batch = Batch.of([group])
    return replace(
        batch,
        policy_logp=torch.full((batch.num_tokens,), -0.25),
        advantage=torch.tensor(advantage, dtype=torch.float64),
    )


def test_reasons_come_back_and_what_was_not_graded_has_none() -> None:
    table = record.table(Batch.of(groups()))
    assert table.column("reason").to_pylist() == ["correct", "bad_gold", None]
    assert [s.reason for s in record.groups(table)[0].samples] == ["correct", "bad_gold", ""]


def test_what_another_trainer_does_not_record_may_be_null() -> None:
    table = record.table(Batch.of(groups()))
    for name in ("text", "prompt_ids", "problem_id"):
        field = table.schema.field(name)
        table = table.set_column(table.schema.get_field_index(name), field, pa.nulls(len(table), field.type))
    (group,) = record.groups(table)
    assert (group.problem_id, group.samples[0].text, list(group.samples[0].prompt_ids)) == ("", "", [])


def test_another_version_of_the_record_is_refused() -> None:
    table = record.table(Batch.of(groups())).replace_schema_metadata({"lagproof_record_version": "0"})
    with pytest.raises(CheckpointError, match="record version 0"):
        record.groups(table)


def test_the_tokens_of_a_step_come_back_as_they_were_trained() -> None:
    lengths = (2, 0, 3)
    samples = [Sample([1], [5] * n, list(range(n)), Finish.STOP, sampler_logp=[-0.5] * n, reward=1.0) for n in lengths]
    first = record.table(trained(Group(7, "x", samples[:2]), [1.0, math.nan]), 1)
    second = record.table(trained(Group(9, "y", samples[2:]), [-1.0]), 2)
    untrained = record.table(Batch.of([Group(11, "z", samples[2:])]))
    found = dict(record.token_batches(pa.concat_tables([second, first, untrained])))
    assert list(found) == [1, 2]
    assert found[1].num_responses == 2 and found[1].response.tolist() == [0, 0]
    assert found[1].group is not None and found[1].group.tolist() == [7, 7]
    assert found[2].policy_logp.tolist() == [-0.25] * 3 and found[2].advantage.tolist() == [-1.0] * 3
    assert found[2].version is not None and found[2].version.tolist() == [0, 1, 2]
    assert found[2].sampler_logp is not None and found[2].sampler_logp.tolist() == [-0.5] * 3


def test_without_log_probabilities_of_the_sampler_there_are_none() -> None:
    sample = Sample([1], [5], [0], Finish.STOP)
    ((_, batch),) = record.token_batches(record.table(trained(Group(0, "x", [sample]), [0.0]), 1))
    assert batch.sampler_logp is None


def test_held_groups_come_back_as_they_were_sampled() -> None:
    """Several versions in one response, a missing log-probability, none at all, nothing sampled, truncated support."""
    samples = [
        Sample([1, 2], [5, 6, 7], [3, 3, 4], Finish.STOP, [-0.5, math.nan, -0.1], text="ab", reward=1.0, reason="r"),
        Sample([1, 2], [8], [4], Finish.LENGTH, None, [[8, 9]]),
        Sample([1, 2], [], [], Finish.ABORTED, []),
        Sample([1, 2], [4, 4], [3, 4], Finish.STOP, [-1.0, -2.0], [[], [4, 5, 6]], reward=math.nan),
    ]
    before = [Group(3, "p", samples[:3], {"task": "t", "gold": "1"}), Group(1, "q", samples[3:])]
    table = record.table(Batch.of(before))
    assert table["sampler_logp"].null_count == table["support"].null_count - 1 == 1
    assert table["policy_logp"].null_count == table["advantage"].null_count == 4
    after = record.groups(table)
    assert [(g.prompt, g.problem_id, g.info) for g in after] == [(g.prompt, g.problem_id, g.info) for g in before]
    for a, b in zip([s for g in after for s in g.samples], samples, strict=True):
        for name in ("prompt_ids", "response_ids", "version"):
            assert (
                np.array_equal(getattr(a, name), getattr(b, name)) and getattr(a, name).dtype == getattr(b, name).dtype
            )
        assert (a.sampler_logp is None) is (b.sampler_logp is None) and (a.support is None) is (b.support is None)
        if b.sampler_logp is not None:
            assert np.array_equal(a.sampler_logp, b.sampler_logp, equal_nan=True)
        if b.support is not None:
            assert (a.support.ids.tolist(), a.support.counts.tolist()) == (
                b.support.ids.tolist(),
                b.support.counts.tolist(),
            )
        assert (a.finish, a.text, a.reason) == (b.finish, b.text, b.reason)
    assert [s.reward for g in after for s in g.samples] == [1.0, None, None, None]
