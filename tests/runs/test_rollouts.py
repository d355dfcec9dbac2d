"""Samples as parquet rows, and back."""

from __future__ import annotations

import math

import pytest

from lagproof.data.samples import Finish, Group, Sample
from lagproof.errors import CheckpointError
from lagproof.runs import rollouts as record

GRADED = [(1.0, "correct"), (math.nan, "bad_gold"), (None, "")]


def groups() -> list[Group]:
    samples = [Sample([1], [2], [0], Finish.STOP, reward=reward, reason=reason) for reward, reason in GRADED]
    return [Group(0, "x", samples, {"task": "t"})]


def test_reasons_come_back_and_what_was_not_graded_has_none() -> None:
    table = record.table(record.rows(groups()))
    assert table.column("reason").to_pylist() == ["correct", "bad_gold", None]
    assert [s.reason for s in record.groups(table)[0].samples] == ["correct", "bad_gold", ""]


def test_what_another_trainer_does_not_record_may_be_null() -> None:
    rows = [row | {"text": None, "prompt_ids": None, "problem_id": None} for row in record.rows(groups())]
    (group,) = record.groups(record.table(rows))
    assert (group.problem_id, group.samples[0].text, list(group.samples[0].prompt_ids)) == ("", "", [])


def test_another_version_of_the_record_is_refused() -> None:
    table = record.table(record.rows(groups())).replace_schema_metadata({"lagproof_record_version": "0"})
    with pytest.raises(CheckpointError, match="record version 0"):
        record.groups(table)


def test_the_tokens_of_a_step_come_back_as_they_were_trained() -> None:
    lengths = (2, 0, 3)
    samples = [Sample([1], [5] * n, list(range(n)), Finish.STOP, sampler_logp=[-0.5] * n, reward=1.0) for n in lengths]
    logp = [[-0.25] * n for n in lengths]
    first = record.rows([Group(7, "x", samples[:2])], 1, logp[:2], [1.0, math.nan])
    second = record.rows([Group(9, "y", samples[2:])], 2, logp[2:], [-1.0])
    untrained = record.rows([Group(11, "z", samples[2:])])
    found = dict(record.token_batches(record.table(second + first + untrained)))
    assert list(found) == [1, 2]
    assert found[1].num_responses == 2 and found[1].response.tolist() == [0, 0]
    assert found[1].group is not None and found[1].group.tolist() == [7, 7]
    assert found[2].policy_logp.tolist() == [-0.25] * 3 and found[2].advantage.tolist() == [-1.0] * 3
    assert found[2].version is not None and found[2].version.tolist() == [0, 1, 2]
    assert found[2].sampler_logp is not None and found[2].sampler_logp.tolist() == [-0.5] * 3


def test_without_log_probabilities_of_the_sampler_there_are_none() -> None:
    sample = Sample([1], [5], [0], Finish.STOP)
    ((_, batch),) = record.token_batches(record.table(record.rows([Group(0, "x", [sample])], 1, [[-1.0]], [0.0])))
    assert batch.sampler_logp is None
