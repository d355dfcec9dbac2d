"""Samples as the rows of one forward: which ids, which positions see which, and where each response token is scored.

A response token is scored by the logits of the position before it, so the last token of a response is never an input.

Two layouts:

* one row a response: ``prompt response padding``, plainly causal;
* one tree a group: the prompt, then every distinct beginning of its responses once, depth first. A position sees its
  ancestors and itself only, and counts from the root, so it computes what it would in a row of its own. What responses
  share, the prompt at least, is run once; its gradients add up. Trees are packed into rows, longest first, each into
  the emptiest.

Cost of a row of ``L`` positions, in positions: ``L + pairs / pairs_per_token``. A causal row attends to ``L**2 / 2``
pairs of positions, a row under a mask of its own computes all ``L**2`` of them. The cheapest packing is taken; one row
a response on a tie.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lagproof.data.samples import Ids, Sample, Support
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
class TokenLayout:
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


def layout(groups: Groups, cost: RowCost | None = None) -> TokenLayout:
    """Lay the samples of some groups out as rows; samples without a response token take no part.

    Args:
        groups: samples that share a prompt, group by group.
        cost: of the model that will run the rows.

    Raises:
        InputError: a prompt without a token (nothing could score the first response token), samples of one group
            with different prompts, or a token outside its own support.
    """
    groups = _with_tokens(groups)
    _check(groups)
    samples = [s for group in groups for s in group]
    cost = cost or RowCost()
    trees = [_tree(group) for group in groups] if cost.shares_prompts else []
    packing = _packing(groups, [len(tree.ids) for tree in trees], cost)
    if packing is None:
        ids, score_at = _response_rows(samples)
        positions = visible = None
    else:
        ids, positions, visible, score_at = _tree_rows(trees, packing)
    targets = np.concatenate([s.response_ids for s in samples]) if samples else np.zeros(0)
    targets = torch.from_numpy(targets.astype(np.int64))
    return TokenLayout(ids, positions, visible, score_at, targets, _support(samples))


def input_tokens(groups: Groups, cost: RowCost | None = None) -> int:
    """Positions of ``layout(groups, cost)``, padding included, without building it."""
    groups = _with_tokens(groups)
    cost = cost or RowCost()
    packing = _packing(groups, [_tree_size(group) for group in groups] if cost.shares_prompts else [], cost)
    if packing is not None:
        return len(packing.rows) * packing.width
    widths = _response_widths(groups)
    return len(widths) * max(widths, default=0)


def _with_tokens(groups: Groups) -> list[list[Sample]]:
    return [kept for group in groups if (kept := [s for s in group if len(s.response_ids)])]


def _response_widths(groups: Groups) -> list[int]:
    return [len(s.prompt_ids) + len(s.response_ids) - 1 for group in groups for s in group]


def _response_rows(samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
    width = max(_response_widths([samples]), default=0)
    rows: list[list[int]] = []
    score_at: list[int] = []
    for row, s in enumerate(samples):
        ids = [*s.prompt_ids.tolist(), *s.response_ids[:-1].tolist()]
        first = row * width + len(s.prompt_ids) - 1
        score_at.extend(range(first, first + len(s.response_ids)))
        rows.append(ids + [0] * (width - len(ids)))
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), width), torch.tensor(score_at, dtype=torch.long)


@dataclass(frozen=True)
class _Packing:
    """Which trees share a row: ``rows`` of tree numbers, ``width`` positions each."""

    rows: list[list[int]]
    width: int


def _packing(groups: Groups, sizes: Sequence[int], cost: RowCost) -> _Packing | None:
    """The cheapest way to pack trees of these sizes into rows, ``None`` if one row a response is no dearer."""
    if not sizes:
        return None
    widths = _response_widths(groups)
    plain = max(widths)
    best, best_cost = None, len(widths) * (plain + plain**2 / 2 / cost.pairs_per_token)
    most = math.ceil(sum(sizes) / max(sizes))
    fewest = math.ceil(most / 3)
    for num_rows in range(fewest, most + 1, max(1, (most - fewest) // 6)):
        packing = _balanced(sizes, num_rows)
        packed_cost = num_rows * (packing.width + packing.width**2 / cost.pairs_per_token)
        if packed_cost < best_cost:
            best, best_cost = packing, packed_cost
    return best


def _balanced(sizes: Sequence[int], num_rows: int) -> _Packing:
    """Longest first, each into the row that is emptiest."""
    rows: list[list[int]] = [[] for _ in range(num_rows)]
    loads = [(0, row) for row in range(num_rows)]
    for tree in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        load, row = loads[0]
        rows[row].append(tree)
        heapq.heapreplace(loads, (load + sizes[tree], row))
    return _Packing(rows, max(load for load, _ in loads))


@dataclass(frozen=True)
class _Tree:
    """The distinct beginnings of a group's sequences, depth first; node ``n`` has the descendants ``n + 1 .. end[n]``.

    Attributes:
        ids, depth, end: of each node.
        score_at: the node that scores each response token, sample by sample.
    """

    ids: list[int]
    depth: list[int]
    end: list[int]
    score_at: list[int]


def _tree(group: Sequence[Sample]) -> _Tree:
    root = len(group[0].prompt_ids)
    ids, depth, end = group[0].prompt_ids.tolist(), list(range(root)), [0] * root
    inputs = [s.response_ids[:-1].tolist() for s in group]
    paths: list[list[int]] = [[] for _ in group]
    path: list[int] = []
    before: list[int] = []
    for i in sorted(range(len(group)), key=inputs.__getitem__):
        shared = _common(before, inputs[i])
        for node in path[shared:]:
            end[node] = len(ids)
        path = path[:shared] + list(range(len(ids), len(ids) + len(inputs[i]) - shared))
        ids += inputs[i][shared:]
        depth += range(root + shared, root + len(inputs[i]))
        end += [0] * (len(ids) - len(end))
        paths[i], before = path, inputs[i]
    for node in (*range(root), *path):
        end[node] = len(ids)
    return _Tree(ids, depth, end, [node for path in paths for node in (root - 1, *path)])


def _tree_size(group: Sequence[Sample]) -> int:
    """Number of nodes: in sorted order, what each response adds to the one before."""
    inputs = sorted(s.response_ids[:-1].tolist() for s in group)
    size = len(group[0].prompt_ids) + sum(map(len, inputs))
    return size - sum(_common(a, b) for a, b in itertools.pairwise(inputs))


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


def _tree_rows(trees: Sequence[_Tree], packing: _Packing) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ids, positions ``[B, L]``, visibility ``[B, 1, L, L]``, and where tokens are scored, tree by tree."""
    width = packing.width
    ids: list[int] = []
    positions: list[int] = []
    ends: list[int] = []
    starts = [0] * len(trees)
    for row, members in enumerate(packing.rows):
        for number in members:
            tree, start = trees[number], len(ids)
            starts[number] = start
            ids += tree.ids
            positions += tree.depth
            ends += [start - row * width + end for end in tree.end]
        padding = (row + 1) * width - len(ids)
        ids += [0] * padding
        positions += [0] * padding
        ends += range(width - padding + 1, width + 1)  # padding sees itself: no position may see nothing
    score_at = [start + node for start, tree in zip(starts, trees, strict=True) for node in tree.score_at]
    shape = (len(packing.rows), width)
    not_later = torch.ones(width, width, dtype=torch.bool).tril()
    query = torch.arange(width)[:, None]
    visible = not_later & (query < torch.tensor(ends).reshape(shape)[:, None, None, :])
    return torch.tensor(ids).reshape(shape), torch.tensor(positions).reshape(shape), visible, torch.tensor(score_at)


def _support(samples: Sequence[Sample]) -> Support | None:
    if all(s.support is None for s in samples):
        return None
    return Support.joined([Support.none(len(s.response_ids)) if s.support is None else s.support for s in samples])


def _check(groups: Groups) -> None:
    for group in groups:
        prompt = group[0].prompt_ids
        if not len(prompt):
            raise InputError("a sample has an empty prompt: must have at least one token to score a response from")
        for s in group:
            if s.prompt_ids is not prompt and not np.array_equal(s.prompt_ids, prompt):
                raise InputError("samples of one group have different prompts: give each prompt a group of its own")
            if s.support is not None and len(lacking := _lacking(s.response_ids, s.support)):
                raise InputError(
                    f"token {lacking[0]} was sampled from a support that lacks it: the support must be recorded "
                    "with the token, in the same order"
                )


def _lacking(tokens: Ids, support: Support) -> Ids:
    """The tokens that are not in their own support."""
    position = np.repeat(np.arange(len(tokens)), support.counts)
    found = np.bincount(position[support.ids == tokens[position]], minlength=len(tokens))
    return tokens[(support.counts > 0) & (found == 0)]
