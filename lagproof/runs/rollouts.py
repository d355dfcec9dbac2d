# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""Samples as parquet: what a run writes of every trained token, and how buffered samples survive a restart.

One row a response; per-token values are lists. Readable by anything that reads parquet. ``RECORD_VERSION`` stands in
the schema's metadata and changes when a column changes its meaning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from lagproof.data.samples import Finish, Group, Sample
from lagproof.errors import CheckpointError

RECORD_VERSION = 1

SCHEMA = pa.schema(
    [
        pa.field("step", pa.int64()),  # optimiser step that trained it, from 1; null while buffered
        pa.field("prompt", pa.int64(), nullable=False),  # running number of the prompt in the run
        pa.field("problem_id", pa.string(), nullable=False),
        pa.field("group", pa.int64(), nullable=False),  # the same for all responses to one prompt
        pa.field("sample", pa.int32(), nullable=False),  # number within the group
        pa.field("reward", pa.float64()),  # null: not graded
        pa.field("reason", pa.string()),  # of the reward, in one word; null: not graded
        pa.field("advantage", pa.float64()),
        pa.field("finish", pa.string(), nullable=False),
        pa.field("prompt_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("response_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("version", pa.list_(pa.int64()), nullable=False),  # policy version that sampled each token
        pa.field("sampler_logp", pa.list_(pa.float32())),  # nats; null: not recorded
        pa.field("policy_logp", pa.list_(pa.float32())),  # nats, at the step that trained it
        pa.field("support", pa.list_(pa.list_(pa.int32()))),
        pa.field("text", pa.string(), nullable=False),
        pa.field("info", pa.string(), nullable=False),  # JSON
    ],
    metadata={"lagproof_record_version": str(RECORD_VERSION)},
)


def rows(
    groups: Iterable[Group],
    step: int | None = None,
    policy_logp: Sequence[Sequence[float]] | None = None,
    advantage: Sequence[float] | None = None,
) -> list[dict[str, Any]]:
    """Groups as rows of :data:`SCHEMA`.

    Args:
        groups: in the order of ``policy_logp`` and ``advantage``.
        step: the step that trained them.
        policy_logp: of each response, ``R`` rows.
        advantage: of each response, ``[R]``; NaN becomes null.
    """
    out: list[dict[str, Any]] = []
    for group in groups:
        for number, s in enumerate(group.samples):
            r = len(out)
            out.append(
                {
                    "step": step,
                    "prompt": group.prompt,
                    "problem_id": group.problem_id,
                    "group": group.prompt,
                    "sample": number,
                    "reward": _or_null(s.reward),
                    "reason": s.reason or None,
                    "advantage": None if advantage is None else _or_null(advantage[r]),
                    "finish": str(s.finish),
                    "prompt_ids": list(s.prompt_ids),
                    "response_ids": list(s.response_ids),
                    "version": list(s.version),
                    "sampler_logp": None if s.sampler_logp is None else list(s.sampler_logp),
                    "policy_logp": None if policy_logp is None else list(policy_logp[r]),
                    "support": None if s.support is None else [list(kept) for kept in s.support],
                    "text": s.text,
                    "info": json.dumps(dict(group.info), sort_keys=True),
                }
            )
    return out


def table(records: list[dict[str, Any]]) -> pa.Table:
    """Rows as an arrow table."""
    return pa.Table.from_pylist(records, schema=SCHEMA)


def groups(records: pa.Table) -> list[Group]:
    """The inverse of :func:`rows`, without what the learner added.

    Raises:
        CheckpointError: written by another version of the record.
    """
    found = (records.schema.metadata or {}).get(b"lagproof_record_version", b"none").decode()
    if found != str(RECORD_VERSION):
        raise CheckpointError(f"record version {found}: this lagproof reads version {RECORD_VERSION}")
    by_prompt: dict[int, list[dict[str, Any]]] = {}
    for row in records.to_pylist():
        by_prompt.setdefault(row["prompt"], []).append(row)
    return [_group(prompt, members) for prompt, members in by_prompt.items()]


def _group(prompt: int, members: list[dict[str, Any]]) -> Group:
    samples = [
        Sample(
            prompt_ids=row["prompt_ids"],
            response_ids=row["response_ids"],
            version=row["version"],
            finish=Finish(row["finish"]),
            sampler_logp=row["sampler_logp"],
            support=row["support"],
            text=row["text"],
            reward=row["reward"],
            reason=row.get("reason") or "",  # files of the first release have no such column
        )
        for row in sorted(members, key=lambda row: row["sample"])
    ]
    return Group(prompt, members[0]["problem_id"], samples, json.loads(members[0]["info"]))


def _or_null(x: float | None) -> float | None:
    return None if x is None or math.isnan(x) else x
