"""What another objective would have done with exactly these tokens: weights against weights, nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lagproof.data.metrics import Metric, Metrics, Same, flat, merge
from lagproof.data.slices import AgeBand, Key, Slice
from lagproof.dumps.choices import Choice, baseline_choice, beside, weighable, with_rewards
from lagproof.dumps.dump import Dump, read_dump
from lagproof.dumps.tally import Mass, Tally
from lagproof.errors import InputError
from lagproof.metrics.ccdf import CCDF, LogRatioCCDF, log_ratio_ccdf
from lagproof.metrics.slices import slices
from lagproof.objectives import Finding

SAMPLE_EDGES = np.logspace(-3, 5, 8 * 16 + 1)
"""Sixteen edges a decade for the samples of a finding."""


@dataclass(frozen=True)
class ObjectiveEffect:
    """One objective against the baseline.

    Attributes:
        choice: what was compared.
        differs: share of the tokens whose weight differs.
        cosine: of the two vectors of weights, ``None`` if one of them is 0.
        mass: of all tokens under ``None``, and of each sign and age.
        stats: the objective's own numbers over all tokens: clipped shares, SAT's ``q``, ...
        finding: what can be said of it in particular; :attr:`tails` are those of its samples.
    """

    choice: Choice
    differs: float
    cosine: float | None
    mass: Mapping[Slice | None, Mass]
    stats: Mapping[str, float]
    finding: Finding | None

    @cached_property
    def tails(self) -> Mapping[str, CCDF]:
        """How the samples of the finding are spread, by what they are of."""
        samples = {} if self.finding is None else self.finding.samples
        return {words: CCDF.of(x.numpy(), edges=SAMPLE_EDGES) for words, x in samples.items()}

    @property
    def ages(self) -> list[AgeBand]:
        """The youngest first."""
        return [part for part in self.mass if isinstance(part, AgeBand)]

    def together(self, names: Sequence[Slice]) -> Mass:
        """The mass of several parts; it adds up."""
        found = [self.mass[name] for name in names if name in self.mass]
        return Mass(*(sum(getattr(m, what) for m in found) for what in ("baseline", "other", "kept")))

    def to_dict(self) -> dict[str, Any]:
        return {
            "objective": self.choice.label,
            "advantage": self.choice.advantage,
            "reduction": self.choice.reduction,
            "differs": self.differs,
            "cosine": self.cosine,
            **self.mass[None].shares,
            "groups": {of.flat: {**m.shares, "mass": m.other} for of, m in self.mass.items() if of is not None},
            "stats": dict(self.stats),
            "finding": None if self.finding is None else {"sentence": self.finding.sentence, **self.finding.numbers},
        }


@dataclass(frozen=True)
class WhatIf:
    """What :func:`whatif` found.

    Attributes:
        path: of the dump.
        baseline: the objective that the others are compared with.
        tokens: with both log-probabilities and an advantage, over the steps.
        steps: that were weighed.
        comparisons: the baseline first.
        cosines: of the vectors of weights of each two of the comparisons, ``[K][K]``.
        ccdf: of the log-ratios of tokens and of responses.
        notes: what a reader should know.
    """

    path: str
    baseline: str
    tokens: int
    steps: int
    comparisons: Sequence[ObjectiveEffect]
    cosines: Sequence[Sequence[float | None]]
    ccdf: Mapping[str, LogRatioCCDF]
    notes: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "path": self.path,
            "baseline": self.baseline,
            "tokens": self.tokens,
            "steps": self.steps,
            "objectives": [c.to_dict() for c in self.comparisons],
            "cosines": [list(row) for row in self.cosines],
            "notes": list(self.notes),
        }


def whatif(
    path: str | Path,
    objectives: Sequence[str] | None = None,
    mapping: Mapping[str, str] | None = None,
    baseline: str | None = None,
) -> WhatIf:
    """Weigh the tokens of a dump by several objectives, each with the advantage and the reduction it brings.

    A run that set ``learner.advantage`` or ``learner.reduction`` itself keeps them for every objective. Advantages
    other than the recorded ones are computed from the rewards, where there are any.

    Args:
        path: a run directory of ours with its rollouts, or what ``read_dump`` reads.
        objectives: names, each with options after colons (``sat-grpo:alpha=0.8:kernel=exp``); ``None``: all that read
            nothing that the dump lacks.
        mapping: our role of a dump's column to its name.
        baseline: the objective that the others are compared with; ``None``: the run's own, for a dump ``grpo``.

    Raises:
        InputError: the dump cannot be used, or has no advantages.
        UnknownNameError, ConfigError: an objective or an option that does not exist.
    """
    path = Path(path)
    now = baseline_choice(path, baseline)
    dump = read_dump(path, mapping)
    notes = [*(doubt.sentence for doubt in dump.doubts), *dump.notes]
    names = objectives or weighable(dump, notes)
    chosen = [now, *(beside(text, now) for text in dict.fromkeys(names) if text != now.label)]
    if dump.advantage is None:
        raise InputError(
            f"{path}: has no advantages, and no rewards with groups to compute them from: weights cannot be compared; "
            "name the columns with --map advantage=<column>, or --map reward=<column> and --map group=<column>"
        )
    tally = Tally([with_rewards(choice, dump, notes) for choice in chosen])
    for batch in dump.batches:
        tally.add(batch)
    if not tally.gram[0, 0]:
        raise InputError(f"{path}: every weight of {now.label} is 0: there is no gradient to compare with")
    return WhatIf(
        path=str(path),
        baseline=now.label,
        tokens=sum(int(batch.tokens.scorable(sampler=True).sum()) for batch in dump.batches),
        steps=len(dump.batches),
        comparisons=_comparisons(tally, dump),
        cosines=tally.cosines,
        ccdf=log_ratio_ccdf(batch.tokens for batch in dump.batches),
        notes=notes,
    )


def _comparisons(tally: Tally, dump: Dump) -> list[ObjectiveEffect]:
    by_age = all(batch.version is not None for batch in dump.batches)
    tokens = [batch.tokens for batch in dump.batches]
    return [
        ObjectiveEffect(
            choice=choice,
            differs=tally.differs[k],
            cosine=tally.cosines[0][k],
            mass={of: tally.mass(k, chosen) for of, chosen in slices(tally.sums["tokens"][k], by_age=by_age).items()},
            stats=flat(merge(_of_no_step(part) for part in tally.metrics[k])),
            finding=choice.objective.finding(tokens, tally.metrics[k]),
        )
        for k, choice in enumerate(tally.choices)
    ]


def _of_no_step(metrics: Metrics) -> dict[Key, Metric]:
    """Without the numbers that belong to one step (a batch quantile)."""
    return {name: metric for name, metric in metrics.items() if not isinstance(metric, Same)}
