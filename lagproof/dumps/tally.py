"""Weights of several objectives on the same tokens, added up by sign, by age and against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lagproof.data.metrics import Metrics, merge
from lagproof.data.tokens import Counts, Needs, TokenBatch
from lagproof.dumps.choices import Choice
from lagproof.dumps.dump import DumpBatch
from lagproof.metrics.slices import NUM_CELLS, cells, pieces
from lagproof.objectives import Objective
from lagproof.objectives.base import Weighting
from lagproof.tensors.segments import segment_count

SAME = 1e-5
"""Weights are taken to differ if they do by more than this share of the larger one."""

BLOCK_TOKENS = 1 << 15
"""Tokens that are added up together: what that needs stays in the processor's cache."""


@dataclass(frozen=True)
class Mass:
    """Gradient mass ``sum |w|`` of some tokens under the baseline, and what becomes of it.

    Attributes:
        baseline, other: under each of the two.
        kept: what both put on the same token with the same sign, ``sum min(|w|, |w'|)``.
    """

    baseline: float
    other: float
    kept: float

    @property
    def shares(self) -> dict[str, float]:
        """``kept``, ``removed`` and ``added`` as shares of the baseline's mass; nothing where there is none."""
        if self.baseline <= 0:
            return {}
        kept, removed, added = self.kept, self.baseline - self.kept, self.other - self.kept
        named = (("kept", kept), ("removed", removed), ("added", added))
        return {name: max(0.0, x) / self.baseline for name, x in named}


class Tally:
    """Sums over the steps for each choice, the baseline first.

    Args:
        choices: what is compared.

    Attributes:
        sums: by name, of the tokens of each cell (see ``bins.py``): ``mass`` is ``sum |w|``, ``kept`` as in
            :class:`Mass`, ``differs`` counts the tokens with another weight, ``tokens`` those that one of the two
            could score, each ``[K, NUM_CELLS]``.
        gram: ``w_i . w_j``, ``[K, K]``.
        metrics: of each choice, those of each step.
    """

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.choices = choices
        names = ("mass", "kept", "differs", "tokens")
        self.sums = {name: np.zeros((len(choices), NUM_CELLS)) for name in names}
        self.gram = np.zeros((len(choices), len(choices)))
        self.metrics: list[list[Metrics]] = [[] for _ in choices]

    def add(self, batch: DumpBatch) -> None:
        """Weigh the tokens of a step."""
        rows = list(pieces(batch.tokens))
        with_advantage = {choice.advantage: choice.tokens(batch) for choice in self.choices}
        tokens = [with_advantage[choice.advantage] for choice in self.choices]
        ready: list[tuple[Objective, Counts | None]] = [(choice.objective, None) for choice in self.choices]
        if len(rows) > 1:
            ready = _ready(self.choices, tokens)
        parts: list[list[Metrics]] = [[] for _ in self.choices]
        for piece in rows:
            weighed: list[Weighting] = []
            for choice, own, (objective, counts), part in zip(self.choices, tokens, ready, parts, strict=True):
                weighed.append(objective.weigh(own.rows(piece), reduction=choice.how, counts=counts))
                part.append(weighed[-1].metrics)
            self._add_weights(batch.tokens.rows(piece), batch.version, weighed)
        for steps, part in zip(self.metrics, parts, strict=True):
            steps.append(merge(part))

    def mass(self, number: int, chosen: NDArray[np.intp]) -> Mass:
        """What becomes of the baseline's mass of some cells under the choice with this number."""
        mass, kept = self.sums["mass"][:, chosen].sum(axis=1), self.sums["kept"][number, chosen].sum()
        return Mass(float(mass[0]), float(mass[number]), float(kept))

    @property
    def differs(self) -> list[float]:
        """Share of the tokens whose weight differs from the baseline, for each choice."""
        shares = self.sums["differs"].sum(axis=1) / np.maximum(self.sums["tokens"].sum(axis=1), 1.0)
        return [float(share) for share in shares]

    @property
    def cosines(self) -> list[list[float | None]]:
        """Of each two vectors of weights over all steps, ``[K][K]``; ``None`` where one of them is 0."""
        norm = np.sqrt(np.outer(np.diag(self.gram), np.diag(self.gram)))
        return [
            [float(dot / n) if n > 0 else None for dot, n in zip(dots, norms, strict=True)]
            for dots, norms in zip(self.gram, norm, strict=True)
        ]

    def _add_weights(self, tokens: TokenBatch, version: int | None, weighed: Sequence[Weighting]) -> None:
        for start in range(0, len(tokens), BLOCK_TOKENS):
            rows = slice(start, start + BLOCK_TOKENS)
            cell = cells(tokens.rows(rows), version)
            weight = torch.stack([w.weight[rows] for w in weighed]).double()
            scorable = torch.stack([w.scorable[rows] for w in weighed])
            self.gram += (weight @ weight.T).numpy()
            for name, x in _compared(weight, scorable).items():
                for total, values in zip(self.sums[name], x.numpy(), strict=True):
                    total += cell.sums(values)


def _compared(weight: Tensor, scorable: Tensor) -> dict[str, Tensor]:
    """Each objective's weights against the first one's, ``[K, n]``."""
    size = weight.abs()
    far = (weight - weight[0]).abs() > SAME * torch.maximum(size, size[0])
    return {
        "mass": size,
        "kept": torch.where(weight * weight[0] > 0, torch.minimum(size, size[0]), 0.0),
        "differs": far,
        "tokens": scorable | scorable[0],
    }


def _ready(choices: Sequence[Choice], tokens: Sequence[TokenBatch]) -> list[tuple[Objective, Counts | None]]:
    """Objectives and denominators with which the weights of a piece are those of the whole batch."""
    counts: dict[tuple[str, Needs], Counts] = {}
    for choice, own in zip(choices, tokens, strict=True):
        key = (choice.advantage, choice.objective.needs)
        if key not in counts:
            ok = own.scorable(**choice.objective.needs._asdict())
            lengths = segment_count(own.response if bool(ok.all()) else own.response[ok], own.num_responses)
            counts[key] = Counts(int(torch.count_nonzero(lengths)), int(torch.count_nonzero(ok)))
    return [
        (choice.objective.fit(own), counts[choice.advantage, choice.objective.needs])
        for choice, own in zip(choices, tokens, strict=True)
    ]
