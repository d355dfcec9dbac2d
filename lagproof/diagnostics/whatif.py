"""What another objective would have done with exactly these tokens: weights against weights, nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lagproof import rules
from lagproof.config import Config, from_dict, parse_override, read_toml
from lagproof.data.metrics import Metric, Same, merge, values
from lagproof.data.tokens import TokenBatch
from lagproof.diagnostics.bins import NUM_CELLS, cells, groups
from lagproof.diagnostics.dump import Batch, Dump, read_dump
from lagproof.diagnostics.findings import Finding, finding
from lagproof.errors import InputError
from lagproof.rules import Objective
from lagproof.rules.reduction import Reduction, reduction
from lagproof.tensors.advantage import ADVANTAGES

SAME = 1e-5
"""Weights are taken to differ if they do by more than this share of the larger one."""

DEFAULT_PRESENT = "grpo"


@dataclass(frozen=True)
class Choice:
    """An objective with everything that makes its weights.

    Attributes:
        label: what it is called in tables: its name, with the options that were given.
        advantage: ``recorded``, or the name of the one that is computed from the rewards.
        max_tokens: the fixed length of the reduction ``constant``.
    """

    label: str
    objective: Objective
    advantage: str
    reduction: str
    max_tokens: int | None = None

    @property
    def how(self) -> Reduction:
        return reduction(self.reduction, self.max_tokens)


@dataclass(frozen=True)
class Mass:
    """Gradient mass ``sum |w|`` of some tokens under the present objective, and what becomes of it.

    Attributes:
        present, other: under each of the two.
        kept: what both put on the same token with the same sign, ``sum min(|w|, |w'|)``.
    """

    present: float
    other: float
    kept: float

    @property
    def shares(self) -> dict[str, float]:
        """``kept``, ``removed`` and ``added`` as shares of the present mass; nothing where there is none."""
        if self.present <= 0:
            return {}
        kept, removed, added = self.kept, self.present - self.kept, self.other - self.kept
        named = (("kept", kept), ("removed", removed), ("added", added))
        return {name: max(0.0, x) / self.present for name, x in named}


@dataclass(frozen=True)
class Comparison:
    """One objective against the present one.

    Attributes:
        choice: what was compared.
        differs: share of the tokens whose weight differs.
        cosine: of the two vectors of weights, ``None`` if one of them is 0.
        mass: of all tokens under ``""``, of ``positive/``, ``negative/`` and ``age_7/``.
        stats: the objective's own numbers over all tokens: clipped shares, SAT's ``q``, ...
        finding: what can be said of it in particular.
    """

    choice: Choice
    differs: float
    cosine: float | None
    mass: Mapping[str, Mass]
    stats: Mapping[str, float]
    finding: Finding | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "objective": self.choice.label,
            "advantage": self.choice.advantage,
            "reduction": self.choice.reduction,
            "differs": self.differs,
            "cosine": self.cosine,
            **self.mass[""].shares,
            "groups": {name.rstrip("/"): {**m.shares, "mass": m.other} for name, m in self.mass.items() if name},
            "stats": dict(self.stats),
            "finding": None if self.finding is None else {"sentence": self.finding.sentence, **self.finding.numbers},
        }


@dataclass(frozen=True)
class WhatIf:
    """What :func:`whatif` found.

    Attributes:
        path: of the dump.
        present: what the others are compared with.
        tokens, steps: that were weighed.
        comparisons: the present one first.
        notes: what a reader should know.
    """

    path: str
    present: str
    tokens: int
    steps: int
    comparisons: Sequence[Comparison]
    notes: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "path": self.path,
            "present": self.present,
            "tokens": self.tokens,
            "steps": self.steps,
            "objectives": [c.to_dict() for c in self.comparisons],
            "notes": list(self.notes),
        }


def whatif(
    path: str | Path,
    objectives: Sequence[str] | None = None,
    mapping: Mapping[str, str] | None = None,
    present: str | None = None,
) -> WhatIf:
    """Weigh the tokens of a dump by several objectives, each with the advantage and the reduction it brings.

    A run that set ``learner.advantage`` or ``learner.reduction`` itself keeps them for every objective. Advantages
    other than the recorded ones are computed from the rewards, where there are any.

    Args:
        path: a run directory of ours with its rollouts, or what ``read_dump`` reads.
        objectives: names, each with options after colons (``sat-grpo:alpha=0.8:kernel=exp``); ``None``: all names.
        mapping: our role of a dump's column to its name.
        present: what the others are compared with; ``None``: the run's own objective, for a dump ``grpo``.

    Raises:
        InputError: the dump cannot be used, or has no advantages.
        UnknownNameError, ConfigError: an objective or an option that does not exist.
    """
    path = Path(path)
    now = _present(path, present)
    chosen = [now, *(_choice(text, now) for text in objectives or rules.TABLE if text != now.label)]
    dump = read_dump(path, mapping)
    if dump.advantage is None:
        raise InputError(
            f"{path}: has no advantages, and no rewards with groups to compute them from: weights cannot be compared; "
            "name the columns with --map advantage=<column>, or --map reward=<column> and --map group=<column>"
        )
    notes = list(dump.notes)
    chosen = [_with_rewards(choice, dump, notes) for choice in chosen]
    tallies = [_Tally() for _ in chosen]
    for batch in dump.batches:
        _weigh(batch, chosen, tallies)
    if not tallies[0].by_cell("present").sum():
        raise InputError(f"{path}: every weight of {now.label} is 0: there is no gradient to compare with")
    by_age = all(batch.version is not None for batch in dump.batches)
    compared = [t.result(c, dump, by_age=by_age) for c, t in zip(chosen, tallies, strict=True)]
    return WhatIf(str(path), now.label, dump.num_tokens, len(dump.batches), compared, notes)


def _present(path: Path, name: str | None) -> Choice:
    file = path / "config.toml"
    if name is None and file.is_file():
        config = from_dict(Config, read_toml(file))
        objective = rules.objective(config.objective.name, **config.objective.options)
        learner = config.learner
        how = objective.default_reduction if learner.reduction == "auto" else learner.reduction
        advantage = objective.default_advantage if learner.advantage == "auto" else learner.advantage
        kept = "recorded" if advantage == objective.default_advantage else "recorded, as set"
        return Choice(objective.name, objective, kept, how, config.rollout.max_tokens)
    label = name or DEFAULT_PRESENT
    objective = parse(label)
    return Choice(label, objective, "recorded", objective.default_reduction)


def parse(text: str) -> Objective:
    """``name`` or ``name:option=value:option=value``; values as in TOML."""
    name, *options = text.split(":")
    return rules.objective(name, **dict(parse_override(option) for option in options))


def _choice(text: str, now: Choice) -> Choice:
    """An objective beside the present one: its own advantage and reduction, unless the run had set them itself."""
    objective = parse(text)
    own = now.objective
    how = objective.default_reduction if now.reduction == own.default_reduction else now.reduction
    same = objective.default_advantage == own.default_advantage or now.advantage == "recorded, as set"
    return Choice(text, objective, "recorded" if same else objective.default_advantage, how, now.max_tokens)


def _with_rewards(choice: Choice, dump: Dump, notes: list[str]) -> Choice:
    """The recorded advantages where others cannot be computed."""
    has = all(batch.reward is not None and batch.tokens.group is not None for batch in dump.batches)
    if choice.advantage in ADVANTAGES and not has:
        notes.append(
            f"{choice.label} brings the advantage {choice.advantage}, which needs the rewards of groups: "
            "the recorded one was used"
        )
        return replace(choice, advantage="recorded")
    return choice


@dataclass(eq=False)
class _Tally:
    """Sums over the steps, by cell (sign and age) where they are asked for by group."""

    sums: dict[str, NDArray[np.float64]] = field(default_factory=dict[str, "NDArray[np.float64]"])
    dot: float = 0.0
    square: float = 0.0
    present_square: float = 0.0
    metrics: list[Mapping[str, Metric]] = field(default_factory=list[Mapping[str, Metric]])

    def by_cell(self, name: str) -> NDArray[np.float64]:
        return self.sums.get(name, np.zeros(NUM_CELLS))

    def add(self, cell: NDArray[np.intp], present: Tensor, other: Tensor, counted: Tensor) -> None:
        p, w = present.double(), other.double()
        smaller = torch.minimum(p.abs(), w.abs())
        largest = torch.maximum(p.abs(), w.abs())
        named = {
            "present": p.abs(),
            "other": w.abs(),
            "kept": torch.where(p * w > 0, smaller, 0.0),
            "differs": ((w - p).abs() > SAME * largest).double(),
            "tokens": counted.double(),
        }
        for name, x in named.items():
            self.sums[name] = self.by_cell(name) + np.bincount(cell, weights=x.numpy(), minlength=NUM_CELLS)
        self.dot += float(p @ w)
        self.square += float(w @ w)
        self.present_square += float(p @ p)

    def result(self, choice: Choice, dump: Dump, *, by_age: bool) -> Comparison:
        mass = {
            name: Mass(*(float(self.by_cell(what)[chosen].sum()) for what in ("present", "other", "kept")))
            for name, chosen in groups(self.by_cell("tokens"), by_age=by_age).items()
        }
        norm = (self.square * self.present_square) ** 0.5
        return Comparison(
            choice=choice,
            differs=float(self.by_cell("differs").sum()) / max(float(self.by_cell("tokens").sum()), 1.0),
            cosine=self.dot / norm if norm > 0 else None,
            mass=mass,
            stats=values(merge(_of_no_step(part) for part in self.metrics)),
            finding=finding(choice.objective, [batch.tokens for batch in dump.batches], self.metrics),
        )


def _weigh(batch: Batch, chosen: Sequence[Choice], tallies: Sequence[_Tally]) -> None:
    cell = cells(batch.tokens, batch.version)
    present: Tensor | None = None
    counted: Tensor | None = None
    for choice, tally in zip(chosen, tallies, strict=True):
        weighting = choice.objective.weigh(_tokens(batch, choice), reduction=choice.how)
        if present is None or counted is None:
            present, counted = weighting.weight, weighting.scorable
        tally.add(cell, present, weighting.weight, counted | weighting.scorable)
        tally.metrics.append(weighting.metrics)


def _of_no_step(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Without the numbers that belong to one step (a batch quantile)."""
    return {name: metric for name, metric in metrics.items() if not isinstance(metric, Same)}


def _tokens(batch: Batch, choice: Choice) -> TokenBatch:
    if choice.advantage not in ADVANTAGES:
        return batch.tokens
    assert batch.reward is not None and batch.tokens.group is not None
    advantage = ADVANTAGES[choice.advantage](batch.reward, batch.tokens.group)
    return replace(batch.tokens, advantage=advantage.float()[batch.tokens.response])
