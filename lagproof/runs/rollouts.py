# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""Samples as parquet: what a run writes of every trained token, and how buffered samples survive a restart.

One row a response; per-token values are lists. Readable by anything that reads parquet. ``RECORD_VERSION`` stands in
the schema's metadata and changes when a column changes its meaning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from lagproof.data.samples import Finish, Group, Sample
from lagproof.data.tokens import TokenBatch
from lagproof.errors import CheckpointError

RECORD_VERSION = 1

SCHEMA = pa.schema(
    [
        pa.field("step", pa.int64()),  # optimiser step that trained it, from 1; null while buffered
        pa.field("prompt", pa.int64(), nullable=False),  # running number of the prompt in the run
        pa.field("problem_id", pa.string()),  # null, as the prompt and the text below: not recorded
        pa.field("group", pa.int64(), nullable=False),  # the same for all responses to one prompt
        pa.field("sample", pa.int32(), nullable=False),  # number within the group
        pa.field("reward", pa.float64()),  # null: not graded
        pa.field("reason", pa.string()),  # of the reward, in one word; null: not graded
        pa.field("advantage", pa.float64()),
        pa.field("finish", pa.string(), nullable=False),
        pa.field("prompt_ids", pa.list_(pa.int32())),
        pa.field("response_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("version", pa.list_(pa.int64()), nullable=False),  # policy version that sampled each token
        pa.field("sampler_logp", pa.list_(pa.float32())),  # nats; null: not recorded
        pa.field("policy_logp", pa.list_(pa.float32())),  # nats, at the step that trained it
        pa.field("support", pa.list_(pa.list_(pa.int32()))),
        pa.field("text", pa.string()),
        pa.field("info", pa.string(), nullable=False),  # JSON
    ],
    metadata={"lagproof_record_version": str(RECORD_VERSION)},
)

COLUMNS_OF_TOKENS = ("step", "group", "advantage", "policy_logp", "sampler_logp", "version")
"""What :func:`token_batches` reads."""


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


def token_batches(records: pa.Table) -> Iterator[tuple[int, TokenBatch]]:
    """Each step of a table, and the tokens that it trained; responses without ``policy_logp`` are left out.

    Args:
        records: with :data:`COLUMNS_OF_TOKENS`, each response's lists of one length.
    """
    trained = records.filter(pc.and_(pc.is_valid(records["step"]), pc.is_valid(records["policy_logp"])))
    for step in sorted(pc.unique(trained["step"]).to_pylist()):
        part = trained.filter(pc.equal(trained["step"], step)).combine_chunks()
        lengths = torch.from_numpy(pc.list_value_length(part["policy_logp"]).to_numpy().astype(np.int64))
        response = torch.arange(len(lengths)).repeat_interleave(lengths)
        advantage = part["advantage"].to_numpy().astype(np.float32)  # null is NaN here
        yield (
            step,
            TokenBatch(
                policy_logp=_flat(part, "policy_logp", np.float32),
                advantage=torch.from_numpy(advantage)[response],
                response=response,
                num_responses=len(lengths),
                sampler_logp=None if part["sampler_logp"].null_count else _flat(part, "sampler_logp", np.float32),
                group=torch.from_numpy(part["group"].to_numpy().copy()),
                version=_flat(part, "version", np.int64),
            ),
        )


def _flat(part: pa.Table, column: str, kind: type[np.generic]) -> Tensor:
    """The values of a column of lists, end to end."""
    return torch.from_numpy(pc.list_flatten(part[column]).to_numpy().astype(kind))


def _group(prompt: int, members: list[dict[str, Any]]) -> Group:
    samples = [
        Sample(
            prompt_ids=row["prompt_ids"] or [],
            response_ids=row["response_ids"],
            version=row["version"],
            finish=Finish(row["finish"]),
            sampler_logp=row["sampler_logp"],
            support=row["support"],
            text=row["text"] or "",
            reward=row["reward"],
            reason=row["reason"] or "",
        )
        for row in sorted(members, key=lambda row: row["sample"])
    ]
    return Group(prompt, members[0]["problem_id"] or "", samples, json.loads(members[0]["info"]))


def _or_null(x: float | None) -> float | None:
    return None if x is None or math.isnan(x) else x
