# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""Samples as parquet: what a run writes of every trained token, and how buffered samples survive a restart.

One row a response; per-token values are lists. Readable by anything that reads parquet. ``RECORD_VERSION`` stands in
the schema's metadata and changes when a column changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
from torch import Tensor

from lagproof.data.batch import Batch
from lagproof.data.samples import Finish, Group, Sample, Support, ends
from lagproof.data.tokens import TokenBatch
from lagproof.errors import CheckpointError

RECORD_VERSION = 1

pc: Any = pyarrow.compute  # makes its functions when it is imported: no checker sees them
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
        pa.field("anchor_logp", pa.list_(pa.float32())),  # nats, the learner at the version that sampled; null: none
        pa.field("support", pa.list_(pa.list_(pa.int32()))),
        pa.field("text", pa.string()),
        pa.field("info", pa.string(), nullable=False),  # JSON
    ],
    metadata={"lagproof_record_version": str(RECORD_VERSION)},
)

COLUMNS_OF_TOKENS = ("step", "group", "advantage", "policy_logp", "sampler_logp", "anchor_logp", "version")
"""What :func:`token_batches` reads."""


def table(batch: Batch, step: int | None = None) -> pa.Table:
    """A batch as a table of :data:`SCHEMA`, one row a response.

    Args:
        batch: trained, or only sampled; what the learner has not filled in is null, and so is an advantage of NaN.
        step: the step that trained it.
    """
    samples = batch.samples
    group_of = batch.group.tolist()
    prompt = [batch.groups[g].prompt for g in group_of]
    info = [json.dumps(dict(group.info), sort_keys=True) for group in batch.groups]
    advantage = pa.nulls(len(samples), pa.float64()) if batch.advantage is None else _or_null(batch.advantage)
    policy_logp = None if batch.policy_logp is None else _slices(batch, batch.policy_logp)
    anchor_logp = None if batch.anchor_logp is None else _slices(batch, batch.anchor_logp)
    columns = {
        "step": pa.array([step] * len(samples), pa.int64()),
        "prompt": pa.array(prompt, pa.int64()),
        "problem_id": pa.array([batch.groups[g].problem_id for g in group_of], pa.string()),
        "group": pa.array(prompt, pa.int64()),
        "sample": pa.array([i for group in batch.groups for i in range(len(group.samples))], pa.int32()),
        "reward": _or_null(batch.reward),
        "reason": pa.array([s.reason or None for s in samples], pa.string()),
        "advantage": advantage,
        "finish": pa.array([str(s.finish) for s in samples], pa.string()),
        "prompt_ids": _lists([s.prompt_ids for s in samples], np.int32),
        "response_ids": _lists([s.response_ids for s in samples], np.int32),
        "version": _slices(batch, batch.version),
        "sampler_logp": _lists([s.sampler_logp for s in samples], np.float32),
        "policy_logp": pa.nulls(len(samples), pa.list_(pa.float32())) if policy_logp is None else policy_logp,
        "anchor_logp": pa.nulls(len(samples), pa.list_(pa.float32())) if anchor_logp is None else anchor_logp,
        "support": _supports([s.support for s in samples]),
        "text": pa.array([s.text for s in samples], pa.string()),
        "info": pa.array([info[g] for g in group_of], pa.string()),
    }
    return pa.Table.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)


def _lists(parts: Sequence[np.ndarray | None], kind: type[np.generic]) -> pa.ListArray:
    """A column of lists, null where there is none, without a Python object a value."""
    present = [part for part in parts if part is not None]
    offsets = ends([0 if part is None else len(part) for part in parts])
    values = np.concatenate(present) if present else np.zeros(0, kind)
    return pa.ListArray.from_arrays(_offsets(offsets, [part is None for part in parts]), pa.array(values))


def _supports(parts: Sequence[Support | None]) -> pa.ListArray:
    """As :func:`_lists`, of lists of lists."""
    present = [part for part in parts if part is not None]
    inner = _lists(Support.joined(present).rows() if present else [], np.int32)
    offsets = ends([0 if part is None else len(part) for part in parts])
    return pa.ListArray.from_arrays(_offsets(offsets, [part is None for part in parts]), inner)


def _slices(batch: Batch, values: Tensor) -> pa.ListArray:
    """Values of tokens as lists, one a response."""
    return pa.ListArray.from_arrays(_offsets(batch.offsets.numpy(), []), pa.array(values.numpy()))


def _offsets(offsets: np.ndarray, missing: Sequence[bool]) -> pa.Array:
    """Offsets as arrow wants them: that of a null list is null."""
    return pa.array(offsets, pa.int32(), mask=np.array([*missing, False]) if any(missing) else None)


def _or_null(values: Tensor) -> pa.Array:
    return pa.array(values.numpy(), pa.float64(), mask=values.isnan().numpy())


def groups(records: pa.Table) -> list[Group]:
    """The inverse of :func:`table`, without what the learner added; arrays are views of the table's.

    Raises:
        CheckpointError: written by another version of the record.
    """
    found = (records.schema.metadata or {}).get(b"lagproof_record_version", b"none").decode()
    if found != str(RECORD_VERSION):
        raise CheckpointError(f"record version {found}: this lagproof reads version {RECORD_VERSION}")
    samples = _samples(records)
    names = ("prompt", "sample", "problem_id", "info")
    prompts, numbers, problems, infos = (records[name].to_pylist() for name in names)
    members: dict[int, list[int]] = {}
    for row, prompt in enumerate(prompts):
        members.setdefault(prompt, []).append(row)
    return [
        Group(
            prompt,
            problems[rows[0]] or "",
            [samples[row] for row in sorted(rows, key=numbers.__getitem__)],
            json.loads(infos[rows[0]]),
        )
        for prompt, rows in members.items()
    ]


def _samples(records: pa.Table) -> list[Sample]:
    lists = {name: _parts(records[name]) for name in ("prompt_ids", "response_ids", "version", "sampler_logp")}
    plain = {name: records[name].to_pylist() for name in ("finish", "text", "reward", "reason", "support")}
    return [
        Sample(
            prompt_ids=np.zeros(0, np.int32) if prompt_ids is None else prompt_ids,
            response_ids=lists["response_ids"][i],
            version=lists["version"][i],
            finish=Finish(plain["finish"][i]),
            sampler_logp=lists["sampler_logp"][i],
            support=None if plain["support"][i] is None else Support.of(plain["support"][i]),
            text=plain["text"][i] or "",
            reward=plain["reward"][i],
            reason=plain["reason"][i] or "",
        )
        for i, prompt_ids in enumerate(lists["prompt_ids"])
    ]


def _parts(column: pa.ChunkedArray) -> list[Any]:
    """Of each row of a column of lists its values, ``None`` where it is null."""
    values = pc.list_flatten(column).to_numpy()
    lengths, valid = pc.list_value_length(column).fill_null(0).to_pylist(), pc.is_valid(column).to_pylist()
    offsets = ends(lengths).tolist()
    return [values[offsets[i] : offsets[i + 1]] if ok else None for i, ok in enumerate(valid)]


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
                anchor_logp=None if part["anchor_logp"].null_count else _flat(part, "anchor_logp", np.float32),
            ),
        )


def _flat(part: pa.Table, column: str, kind: type[np.generic]) -> Tensor:
    """The values of a column of lists, end to end."""
    return torch.from_numpy(pc.list_flatten(part[column]).to_numpy().astype(kind))
