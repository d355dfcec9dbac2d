"""Samples as the rows of one forward: which ids, which positions see which, and where each response token is scored.

A response token is scored by the logits of the position before it, so the last token of a response is never an input.

Two layouts:

* one row a response: ``prompt response padding``, plainly causal;
* one row a group: ``prompt response response ... padding``, where every response sees the prompt and itself only and
  its positions restart after the prompt. The prompt is run once for the whole group.

Cost of a row of ``L`` positions, in tokens: ``L + pairs / pairs_per_token``. A causal row scores ``L**2 / 2`` pairs of
positions, a row under a mask of its own all ``L**2`` of them. The cheaper layout is taken; one row a response on a tie.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lagproof.data.samples import Sample
from lagproof.errors import InputError

Groups = Sequence[Sequence[Sample]]


@dataclass(frozen=True)
class RowCost:
    """What of a model decides between the layouts; ``models.logprobs.row_cost`` reads it off a model.

    Attributes:
        shares_prompts: whether rows with a mask and positions of their own are exact for the model.
        pairs_per_token: pairs of positions that cost attention as much as one position costs everything else.
    """

    shares_prompts: bool = True
    pairs_per_token: float = 512.0


@dataclass(frozen=True, eq=False)
class Support:
    """Token ids that top-k/top-p kept for each of N response tokens, end to end.

    Attributes:
        ids: ``[S]``.
        counts: ``[N]``, adding up to S; 0 where nothing was cut off.
    """

    ids: Tensor
    counts: Tensor


@dataclass(frozen=True, eq=False)
class Layout:
    """One forward over B rows of L positions that scores N response tokens, sample by sample in the given order.

    Attributes:
        input_ids: ``[B, L]``; 0 at padding, which nothing real sees and nothing scores.
        position_ids: ``[B, L]``, or ``None`` where a row simply counts up.
        visible: ``[B, 1, L, L]`` bool, query by key, or ``None`` for plainly causal rows.
        score_at: index into the B * L positions whose logits score a response token, ``[N]``.
        targets: the response tokens, ``[N]``.
        support: what the distribution they were sampled from was restricted to, ``None`` where it never was.
    """

    input_ids: Tensor
    position_ids: Tensor | None
    visible: Tensor | None
    score_at: Tensor
    targets: Tensor
    support: Support | None

    @property
    def num_input_tokens(self) -> int:
        """Positions that are run, padding included."""
        return self.input_ids.numel()


def layout(groups: Groups, cost: RowCost | None = None) -> Layout:
    """Lay the samples of some groups out as rows; samples without a response token take no part.

    Args:
        groups: samples that share a prompt, group by group.
        cost: of the model that will run the rows.

    Raises:
        InputError: a prompt without a token (nothing could score the first response token), samples of one group
            with different prompts, or a token outside its own support.
    """
    cost = cost or RowCost()
    groups = [kept for group in groups if (kept := [s for s in group if len(s.response_ids)])]
    _check(groups)
    if _shares(groups, cost):
        ids, positions, segments, score_at = _group_rows(groups)
        visible = _visible(segments)
    else:
        ids, score_at = _response_rows(groups)
        positions = visible = None
    samples = [s for group in groups for s in group]
    targets = torch.tensor([t for s in samples for t in s.response_ids], dtype=torch.long)
    return Layout(ids, positions, visible, score_at, targets, _support(samples))


def input_tokens(groups: Groups, cost: RowCost | None = None) -> int:
    """``layout(groups, cost).num_input_tokens``, padding included, without building it."""
    groups = [kept for group in groups if (kept := [s for s in group if len(s.response_ids)])]
    rows = _group_widths(groups) if _shares(groups, cost or RowCost()) else _response_widths(groups)
    return len(rows) * max(rows, default=0)


def _response_widths(groups: Groups) -> list[int]:
    return [len(s.prompt_ids) + len(s.response_ids) - 1 for group in groups for s in group]


def _group_widths(groups: Groups) -> list[int]:
    return [len(group[0].prompt_ids) + sum(len(s.response_ids) - 1 for s in group) for group in groups]


def _shares(groups: Groups, cost: RowCost) -> bool:
    if not cost.shares_prompts or not groups:
        return False
    one_each, one_a_group = _response_widths(groups), _group_widths(groups)
    plain, shared = max(one_each), max(one_a_group)
    plain_cost = len(one_each) * (plain + plain**2 / 2 / cost.pairs_per_token)
    shared_cost = len(one_a_group) * (shared + shared**2 / cost.pairs_per_token)
    return shared_cost < plain_cost


def _response_rows(groups: Groups) -> tuple[Tensor, Tensor]:
    samples = [s for group in groups for s in group]
    width = max(_response_widths(groups), default=0)
    rows: list[list[int]] = []
    score_at: list[int] = []
    for row, s in enumerate(samples):
        ids = [*s.prompt_ids, *s.response_ids[:-1]]
        first = row * width + len(s.prompt_ids) - 1
        score_at.extend(range(first, first + len(s.response_ids)))
        rows.append(ids + [0] * (width - len(ids)))
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), width), torch.tensor(score_at, dtype=torch.long)


def _group_rows(groups: Groups) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ids, positions and segments ``[B, L]`` (0: prompt, then one number a response), and where tokens are scored."""
    width = max(_group_widths(groups))
    rows: list[list[int]] = []
    positions: list[list[int]] = []
    segments: list[list[int]] = []
    score_at: list[int] = []
    for row, group in enumerate(groups):
        prompt = list(group[0].prompt_ids)
        ids, position, segment = prompt, list(range(len(prompt))), [0] * len(prompt)
        start = row * width
        for number, s in enumerate(group, 1):
            score_at.append(start + len(prompt) - 1)
            inputs = len(s.response_ids) - 1
            score_at.extend(range(start + len(ids), start + len(ids) + inputs))
            ids = [*ids, *s.response_ids[:-1]]
            position.extend(range(len(prompt), len(prompt) + inputs))
            segment.extend([number] * inputs)
        padding = [0] * (width - len(ids))
        rows.append(ids + padding)
        positions.append(position + padding)
        segments.append(segment + [len(group) + 1] * len(padding))  # padding sees itself: no query sees nothing
    as_tensor = [torch.tensor(x, dtype=torch.long) for x in (rows, positions, segments, score_at)]
    return as_tensor[0], as_tensor[1], as_tensor[2], as_tensor[3]


def _visible(segments: Tensor) -> Tensor:
    """Keys that are not later, of the prompt or of the query's own segment."""
    width = segments.shape[1]
    not_later = torch.ones(width, width, dtype=torch.bool).tril()
    key, query = segments[:, None, None, :], segments[:, None, :, None]
    return not_later & ((key == 0) | (key == query))


def _support(samples: Sequence[Sample]) -> Support | None:
    if all(s.support is None for s in samples):
        return None
    kept = [row for s in samples for row in (s.support or ((),) * len(s.response_ids))]
    flat = torch.tensor(list(itertools.chain.from_iterable(kept)), dtype=torch.long)
    return Support(flat, torch.tensor([len(row) for row in kept], dtype=torch.long))


def _check(groups: Groups) -> None:
    for group in groups:
        prompt = list(group[0].prompt_ids)
        if not prompt:
            raise InputError("a sample has an empty prompt: must have at least one token to score a response from")
        for s in group:
            if s.prompt_ids is not group[0].prompt_ids and list(s.prompt_ids) != prompt:
                raise InputError("samples of one group have different prompts: give each prompt a group of its own")
            for token, kept in zip(s.response_ids, s.support or (), strict=False):
                if token not in kept and len(kept):
                    raise InputError(
                        f"token {token} was sampled from a support that lacks it: the support must be recorded "
                        "with the token, in the same order"
                    )
