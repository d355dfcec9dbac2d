# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""A rollout dump, ours or another trainer's, as token batches: one for each optimiser step it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lagproof.data.tokens import TokenBatch
from lagproof.dumps import sources
from lagproof.dumps.columns import MissingColumnError
from lagproof.dumps.flat import Flat, concatenate, flatten, numbered
from lagproof.errors import InputError
from lagproof.tensors.advantage import group_norm

ROUNDED_SHARE = 0.999
"""Log-probabilities of which at least this share has only bfloat16's digits are taken to have been rounded to it."""

FEW_RESPONSES = 5
"""Below it each response may well be of a step of its own."""

PADDED_SHARE = 0.1
"""Share of responses that end with two tokens of probability exactly 1 from which on padding is suspected."""


@dataclass(frozen=True, eq=False)
class DumpBatch:
    """What one optimiser step trained on.

    Attributes:
        tokens: its tokens; every advantage is 0 if none is known.
        step: its number, ``None`` if the dump does not say.
        version: the learner's version before the step, ``None`` if no versions are known.
        reward: of each response, NaN if it has none, ``[R]``; ``None`` if the dump has none.
        entropy: of each token, nats, ``[N]``.
        truncated: whether a response was truncated, ``[R]``.
    """

    tokens: TokenBatch
    step: int | None
    version: int | None
    reward: Tensor | None
    entropy: Tensor | None
    truncated: Tensor | None


@dataclass(frozen=True, eq=False)
class Dump:
    """All of a dump.

    Attributes:
        path: where it was read from.
        batches: in the order of their steps.
        columns: the column of each role that was found.
        advantage: where the advantages come from: ``column``, ``reward`` (its group norm) or ``None``.
        knows_learner: whether the learner's version is known; if not, ages count from each step's newest version,
            and those of age 0 need not be on-policy.
        notes: what a reader of the numbers should know.
    """

    path: Path
    batches: Sequence[DumpBatch]
    columns: Mapping[str, str]
    advantage: str | None
    knows_learner: bool
    notes: Sequence[str]

    @property
    def num_tokens(self) -> int:
        return sum(len(batch.tokens) for batch in self.batches)

    @property
    def num_responses(self) -> int:
        return sum(batch.tokens.num_responses for batch in self.batches)


def read_dump(path: str | Path, mapping: Mapping[str, str] | None = None) -> Dump:
    """Read a run directory of ours, a parquet or JSON lines file, or a directory of such files.

    One row a response with lists of per-token values, or one row a token with a column ``response``. A directory
    whose files have no column ``step`` holds one step a file, in the order of the numbers in their names; one of
    folders, one step a folder.

    Args:
        path: file or directory.
        mapping: our role of a column to its name, for columns that are not recognised (``columns.ROLES``).

    Raises:
        InputError: nothing to read, a column that is missing or of the wrong kind, lists of unequal lengths, or not
            one token with both log-probabilities; says where.
    """
    path = Path(path)
    notes: list[str] = []
    read = _read_files(sources.files(path), mapping, notes)
    parts: list[Flat] = []
    columns: dict[str, str] = {}
    for source in read:
        try:
            parts.append(flatten(source, notes))
        except InputError as error:
            raise InputError(f"{source.path}: {error}") from None
        notes += source.notes
        columns |= source.columns
    is_ours = all(source.is_ours for source in read)
    flat = concatenate(parts)
    _check_tokens(flat, columns, notes)
    step = _steps(flat, [source.path for source in read], parts, notes)
    origin = _origin(flat, notes)
    batches = _batches(flat, step, is_ours, origin)
    knows_learner = is_ours or "learner_version" in flat.response
    if "version" in flat.token and not knows_learner:
        notes.append("no learner_version: ages are counted from the newest version among the tokens of each step")
    return Dump(path, batches, columns, origin, knows_learner, tuple(dict.fromkeys(notes)))


def _read_files(paths: Sequence[Path], mapping: Mapping[str, str] | None, notes: list[str]) -> list[sources.SourceFile]:
    """All that have the log-probabilities; the others are named in a note.

    Raises:
        InputError: one of them is damaged, or none has the log-probabilities.
    """
    read: list[sources.SourceFile] = []
    without: list[tuple[Path, MissingColumnError]] = []
    for path in paths:
        try:
            read.append(sources.read(path, mapping))
        except MissingColumnError as error:
            without.append((path, error))
    if not read:
        raise without[0][1]
    if without:
        names = ", ".join(path.name for path, _ in without[:4]) + (" ..." if len(without) > 4 else "")
        notes.append(f"left out, as they have no log-probabilities of both: {names}")
    return read


def _steps(flat: Flat, paths: Sequence[Path], parts: Sequence[Flat], notes: list[str]) -> NDArray[np.int64] | None:
    """The step of each response, ``None`` where all are of one."""
    step = flat.response.get("step")
    if step is not None:
        if (wrong := _is_no_step(flat, step)) is None:
            return step
        notes.append(f"column step was left out: {wrong}")
    folders = list(dict.fromkeys(path.parent for path in paths))
    units: list[Path] = [path.parent for path in paths] if len(folders) > 1 else list(paths)
    number = {unit: k for k, unit in enumerate(dict.fromkeys(units), 1)}
    if len(number) > 1:
        what = "folder" if len(folders) > 1 else "file"
        notes.append(f"no column step: one optimiser step a {what} was assumed, in the order of their names")
        return np.repeat([number[unit] for unit in units], [len(part.lengths) for part in parts])
    notes.append("no column step: all of it was taken as one optimiser batch")
    return None


def _is_no_step(flat: Flat, step: NDArray[np.int64]) -> str | None:
    """Why a column cannot be the optimiser step, in words."""
    num, num_steps = len(step), len(np.unique(step))
    if num < FEW_RESPONSES:
        return None
    if num_steps == num:
        return f"it has another value for each of the {num} responses, so that it names responses and no steps"
    if flat.group is None:
        return None
    group = numbered(flat.group)
    pairs = len(np.unique(np.stack([step, group]), axis=1).T)
    if pairs == num and len(np.unique(group)) < num:
        return "no two responses of a group have the same, so that it cuts every group apart"
    return None


def _origin(flat: Flat, notes: list[str]) -> str | None:
    if "advantage" in flat.token:
        return "column"
    if "reward" in flat.response and flat.group is not None:
        notes.append("no column advantage: computed from the rewards, (x - mean) / std of each group")
        return "reward"
    why = "no column group" if "reward" in flat.response else "no column reward"
    notes.append(f"no column advantage, and {why} to compute it from: nothing can be said by sign or about weights")
    return None


def _check_tokens(flat: Flat, columns: Mapping[str, str], notes: list[str]) -> None:
    """Refuse what cannot be used, and note what will mislead."""
    policy, sampler = flat.token["policy_logp"], flat.token["sampler_logp"]
    if not len(policy):
        raise InputError("there is not one token: nothing to look at")
    known = np.isfinite(policy) & np.isfinite(sampler)
    num_known = int(np.count_nonzero(known))
    if not num_known:
        raise InputError(
            f"not one of {len(policy)} tokens has both log-probabilities: all are missing, NaN or infinite"
        )
    if num_known < len(policy):
        missing = len(policy) - num_known
        notes.append(f"{missing} of {len(policy)} tokens lack a finite log-probability and were left out")
    for role, values in (("policy_logp", policy), ("sampler_logp", sampler)):
        above = int(np.count_nonzero(values > 1e-3))
        if above > num_known // 2:
            raise InputError(
                f"{columns[role]} is above 0 on {above} of {num_known} tokens: log-probabilities never are"
            )
        if above:
            tokens = "1 token" if above == 1 else f"{above} tokens"
            notes.append(f"{columns[role]} is above 0 on {tokens}: log-probabilities never are")
        if _rounded(values, known, num_known):
            notes.append(
                f"{columns[role]} was rounded to bfloat16: the rounding alone gives a d_bar of about .002, as much as "
                "some engines differ; keep log-probabilities in float32"
            )
    empty = int(np.count_nonzero(flat.lengths == 0))
    if empty:
        notes.append(f"{empty} of {len(flat.lengths)} responses have no token to look at, and count nowhere")
    reward = flat.response.get("reward")
    if reward is not None and "advantage" not in columns:
        unknown = int(np.count_nonzero(~np.isfinite(reward)))
        if unknown:
            notes.append(
                f"{unknown} of {len(flat.lengths)} responses have no finite {columns['reward']}, so no advantage: "
                "their tokens were left out"
            )
    padded = _padded(flat)
    if padded > PADDED_SHARE * len(flat.lengths):
        notes.append(
            f"{padded} of {len(flat.lengths)} responses end with log-probabilities of exactly 0 on both sides, as "
            "padding has: if it is padding, name its mask with --map mask=<column>"
        )


def _padded(flat: Flat) -> int:
    """Responses whose last two tokens have both log-probabilities exactly 0."""
    zero = (flat.token["policy_logp"] == 0) & (flat.token["sampler_logp"] == 0)
    last = (np.cumsum(flat.lengths) - 1)[flat.lengths >= 2]
    return int(np.count_nonzero(zero[last] & zero[last - 1]))


def _rounded(values: NDArray[np.float32], known: NDArray[np.bool_], num_known: int) -> bool:
    coarse = (values.view(np.uint32) & np.uint32(0xFFFF)) == 0
    is_zero = values == 0
    others = num_known - int(np.count_nonzero(is_zero & known))
    return others > 0 and int(np.count_nonzero(coarse & known & ~is_zero)) >= ROUNDED_SHARE * others


def _batches(flat: Flat, step: NDArray[np.int64] | None, is_ours: bool, origin: str | None) -> list[DumpBatch]:
    num_responses = len(flat.lengths)
    step_of = np.zeros(num_responses, dtype=np.int64) if step is None else step
    flat, step_of = _sorted(flat, step_of)
    group = None
    if flat.group is not None:
        group = numbered(flat.group)
    ends = np.concatenate([[0], np.cumsum(flat.lengths)])
    first = np.flatnonzero(np.concatenate([[True], step_of[1:] != step_of[:-1]]))
    out: list[DumpBatch] = []
    for a, b in zip(first, np.append(first[1:], num_responses), strict=True):
        part = _Part(flat, slice(int(a), int(b)), slice(int(ends[a]), int(ends[b])))
        out.append(_batch(part, None if step is None else int(step_of[a]), group, is_ours, origin))
    return out


@dataclass(frozen=True, eq=False)
class _Part:
    """The responses and the tokens of one step."""

    flat: Flat
    responses: slice
    tokens: slice

    def token(self, role: str) -> Tensor | None:
        values = self.flat.token.get(role)
        return None if values is None else torch.from_numpy(values[self.tokens])

    def response(self, role: str) -> Tensor | None:
        values = self.flat.response.get(role)
        return None if values is None else torch.from_numpy(values[self.responses])


def _batch(part: _Part, step: int | None, groups: NDArray[Any] | None, is_ours: bool, origin: str | None) -> DumpBatch:
    lengths = torch.from_numpy(part.flat.lengths[part.responses])
    response = torch.arange(len(lengths)).repeat_interleave(lengths)
    group = None if groups is None else torch.from_numpy(groups[part.responses])
    policy, sampler, version = part.token("policy_logp"), part.token("sampler_logp"), part.token("version")
    reward, advantage = part.response("reward"), part.token("advantage")
    assert policy is not None and sampler is not None
    if origin == "reward":
        assert reward is not None and group is not None
        advantage = group_norm(reward, group).float()[response]
    if advantage is None:
        advantage = torch.zeros_like(policy)
    learner = _learner_version(part, step, version, is_ours)
    anchor = part.token("anchor_logp")
    tokens = TokenBatch(
        *(policy, advantage, response, len(lengths), sampler, group, version),
        anchor_logp=None if anchor is None or bool(anchor.isnan().all()) else anchor,
        learner_version=learner,
    )
    return DumpBatch(
        tokens=tokens,
        step=step,
        version=learner,
        reward=reward,
        entropy=part.token("entropy"),
        truncated=part.response("truncated"),
    )


def _learner_version(part: _Part, step: int | None, version: Tensor | None, is_ours: bool) -> int | None:
    if version is None or not len(version):
        return None
    told = part.response("learner_version")
    if told is not None:
        return int(told.max())
    return step - 1 if is_ours and step is not None else int(version.max())


def _sorted(flat: Flat, step: NDArray[np.int64]) -> tuple[Flat, NDArray[np.int64]]:
    """By step, in the order of the file within each."""
    if (step[1:] >= step[:-1]).all():
        return flat, step
    order = np.argsort(step, kind="stable")
    starts = np.cumsum(flat.lengths) - flat.lengths
    lengths = flat.lengths[order]
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows = np.repeat(starts[order], lengths) + within
    token = {role: values[rows] for role, values in flat.token.items()}
    response = {role: values[order] for role, values in flat.response.items()}
    group = None if flat.group is None else flat.group.take(order)
    return Flat(lengths, token, response, group), step[order]
