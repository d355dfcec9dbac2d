"""An optimiser batch in micro-batches under a token budget; how it is split never changes the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lagproof.data.batch import Batch
from lagproof.data.samples import Sample
from lagproof.models.layout import RowCost, input_tokens


@dataclass(frozen=True)
class BatchItem:
    """One response of an optimiser batch.

    Attributes:
        index: its number in the batch.
        group: number of its group in the batch.
        sample: the response.
    """

    index: int
    group: int
    sample: Sample


MicroBatch = list[list[BatchItem]]
"""Items by group; a group that is larger than the budget is spread over several micro-batches."""


def items(batch: Batch, responses: int | None = None) -> list[BatchItem]:
    """The first responses of a batch (``None``: all) that have a token."""
    chosen = zip(batch.group.tolist(), batch.samples[:responses], strict=False)
    return [BatchItem(i, group, sample) for i, (group, sample) in enumerate(chosen) if len(sample.response_ids)]


def micro_batches(chosen: Sequence[BatchItem], budget_tokens: int, cost: RowCost) -> list[MicroBatch]:
    """Greedy, longest group first, so that rows of one micro-batch have similar lengths.

    A response that alone exceeds the budget gets a micro-batch of its own: it is never truncated.

    Args:
        chosen: responses with at least one token.
        budget_tokens: positions of one forward at most, padding included.
        cost: of the model, which decides how rows are laid out.
    """
    groups = _by_group(chosen)
    if _tokens(groups, cost) <= budget_tokens:
        return [groups] if groups else []
    pieces = [piece for group in groups for piece in _split(group, budget_tokens, cost)]
    pieces.sort(key=lambda piece: -max(len(t.sample.response_ids) for t in piece))
    out: list[MicroBatch] = []
    for piece in pieces:
        if out and _tokens([*out[-1], piece], cost) <= budget_tokens:
            out[-1].append(piece)
        else:
            out.append([piece])
    return out


def _by_group(chosen: Sequence[BatchItem]) -> list[list[BatchItem]]:
    groups: dict[int, list[BatchItem]] = {}
    for item in chosen:
        groups.setdefault(item.group, []).append(item)
    return list(groups.values())


def _split(group: list[BatchItem], budget_tokens: int, cost: RowCost) -> list[list[BatchItem]]:
    if _tokens([group], cost) <= budget_tokens:
        return [group]
    pieces: list[list[BatchItem]] = []
    for item in group:
        if pieces and _tokens([[*pieces[-1], item]], cost) <= budget_tokens:
            pieces[-1].append(item)
        else:
            pieces.append([item])
    return pieces


def _tokens(groups: MicroBatch, cost: RowCost) -> int:
    return input_tokens([[t.sample for t in group] for group in groups], cost)
