"""Samples as parquet rows, and back."""

from __future__ import annotations

import math

import pyarrow as pa

from lagproof.data.samples import Finish, Group, Sample
from lagproof.runs import rollouts as record

GRADED = [(1.0, "correct"), (math.nan, "bad_gold"), (None, "")]


def groups() -> list[Group]:
    samples = [Sample([1], [2], [0], Finish.STOP, reward=reward, reason=reason) for reward, reason in GRADED]
    return [Group(0, "x", samples, {"task": "t"})]


def test_reasons_come_back_and_what_was_not_graded_has_none() -> None:
    table = record.table(record.rows(groups()))
    assert table.column("reason").to_pylist() == ["correct", "bad_gold", None]
    assert [s.reason for s in record.groups(table)[0].samples] == ["correct", "bad_gold", ""]


def test_a_file_from_before_there_were_reasons_is_read() -> None:
    table = record.table(record.rows(groups()))
    before: pa.Table = table.drop_columns(["reason"])
    assert [(s.reward, s.reason) for s in record.groups(before)[0].samples] == [(1.0, ""), (None, ""), (None, "")]
