# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""A rollout dump, ours or another trainer's, as token batches: one for each optimiser step it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lagproof.data.tokens import TokenBatch
from lagproof.dumps import sources
from lagproof.dumps.checks import Doubt, checked
from lagproof.dumps.columns import MissingColumnError
from lagproof.dumps.flat import Flat, concatenate, flatten, numbered
from lagproof.dumps.trainers import TrainerFormat, of_columns
from lagproof.errors import InputError
from lagproof.tensors.advantage import group_norm

FEW_RESPONSES = 5
"""Below it each response may well be of a step or of a group of its own."""


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
        doubts: what must be said first.
        top_token: the largest token id that was seen, where there are any.
        is_ours: whether a run of ours wrote it.
    """

    path: Path
    batches: Sequence[DumpBatch]
    columns: Mapping[str, str]
    advantage: str | None
    knows_learner: bool
    notes: Sequence[str]
    doubts: Sequence[Doubt] = ()
    top_token: int | None = None
    is_ours: bool = False

    @property
    def trainer(self) -> TrainerFormat | None:
        """Whose columns they are, where that is known."""
        return of_columns(self.columns)

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
    flat, doubts = checked(flat, columns, notes, is_ours=is_ours)
    _note_responses(flat, columns, notes)
    step = _steps(flat, [source.path for source in read], parts, notes)
    flat, origin = _origin(flat, step, columns, notes)
    batches = _batches(flat, step, is_ours, origin)
    knows_learner = is_ours or "learner_version" in flat.response
    if "version" in flat.token and not knows_learner:
        notes.append("no learner_version: ages are counted from the newest version among the tokens of each step")
    top_token = max((source.top_token for source in read if source.top_token is not None), default=None)
    notes = list(dict.fromkeys(notes))
    return Dump(path, batches, columns, origin, knows_learner, notes, doubts, top_token, is_ours)


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


def _origin(
    flat: Flat, step: NDArray[np.int64] | None, columns: Mapping[str, str], notes: list[str]
) -> tuple[Flat, str | None]:
    """Where advantages come from; without groups of which each has one response."""
    if flat.group is not None and (lonely := _of_one(flat, step, columns)) is not None:
        notes.append(lonely)
        flat = replace(flat, group=None)
        if "advantage" not in flat.token:
            return flat, None
    if "advantage" in flat.token:
        return flat, "column"
    reward = flat.response.get("reward")
    has_rewards = reward is not None and bool(np.isfinite(reward).any())
    if has_rewards and flat.group is not None:
        notes.append("no column advantage: computed from the rewards, (x - mean) / std of each group")
        return flat, "reward"
    why = "no column group" if has_rewards else "no column reward" if reward is None else "no reward that is a number"
    notes.append(f"no column advantage, and {why} to compute it from: nothing can be said by sign or about weights")
    return flat, None


def _of_one(flat: Flat, step: NDArray[np.int64] | None, columns: Mapping[str, str]) -> str | None:
    """What is said where each group has one response."""
    assert flat.group is not None
    group, num = numbered(flat.group), len(flat.lengths)
    pairs = group[None] if step is None else np.stack([step, group])
    if num < FEW_RESPONSES or len(np.unique(pairs, axis=1).T) < num:
        return None
    return (
        f"each group has one response: no advantage can be computed from rewards; is {columns['group']} the prompt's? "
        "If not, name the column that is with --map group=<column>"
    )


def _note_responses(flat: Flat, columns: Mapping[str, str], notes: list[str]) -> None:
    """Responses that count nowhere, or not everywhere."""
    keep = flat.response.get("keep", np.ones(len(flat.lengths), dtype=np.bool_))
    empty = int(np.count_nonzero((flat.lengths == 0) & keep))
    if empty:
        notes.append(f"{empty} of {len(flat.lengths)} responses have no token to look at, and count nowhere")
    reward = flat.response.get("reward")
    if reward is not None and "advantage" not in columns:
        unknown = int(np.count_nonzero(~np.isfinite(reward)))
        if unknown:
            notes.append(
                f"{unknown} of {len(flat.lengths)} responses have no finite {columns['reward']}, so no advantage: "
                "their tokens count for the mismatch, and for nothing by sign or about weights"
            )


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
