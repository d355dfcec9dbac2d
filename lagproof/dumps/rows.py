"""The history that a verdict is made from: the rows of a run of ours, or rows made from a dump."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from lagproof.data.metrics import Mean, Metric, merge, over, values
from lagproof.data.rows import Row
from lagproof.data.slices import Key
from lagproof.dumps.checks import Doubt
from lagproof.dumps.dump import Dump, DumpBatch
from lagproof.errors import ConfigError, InputError
from lagproof.metrics.balance import balance
from lagproof.metrics.mismatch import mismatch_metrics
from lagproof.metrics.responses import ages
from lagproof.monitor.advice import LAGPROOF, PLAIN, Knobs
from lagproof.monitor.thresholds import SCALES, Scale, Thresholds, guess
from lagproof.runs.layout import RunLayout
from lagproof.runs.run import Run
from lagproof.settings.keys import read
from lagproof.tensors.advantage import has_zero_variance


@dataclass(frozen=True)
class Record:
    """A history, whatever it was read from.

    Attributes:
        rows: one per batch that was trained or given up.
        alarm: the thresholds it is judged by.
        objective: name of the run's objective, if it is known.
        pooled: metrics over all of it as one, where they can be had exactly (a dump); else empty.
        knows_learner: whether tokens of age 0 were sampled by the very policy that was trained.
        notes: what a reader should know.
        stopped: why a run of ours was given up, if it was.
        doubts: what must be said first.
        scale: of the model that the thresholds are for, where they are not a run's own.
        knobs: what the trainer calls its settings.
        checkpoints: steps of the checkpoints that there are.
    """

    rows: Sequence[Row]
    alarm: Thresholds
    objective: str | None = None
    pooled: Mapping[Key, float] = field(default_factory=dict[Key, float])
    knows_learner: bool = True
    notes: Sequence[str] = ()
    stopped: str | None = None
    doubts: Sequence[Doubt] = ()
    scale: Scale | None = None
    knobs: Knobs = LAGPROOF
    checkpoints: Sequence[int] = ()


def is_run(path: Path) -> bool:
    """Whether ``path`` is a run directory of ours that has a history."""
    return RunLayout(path).metrics.is_file()


def of_run(path: Path) -> Record:
    """The history of a run directory, also of one that is still running or was killed.

    Raises:
        InputError: damaged rows, or no training step.
    """
    run = Run.open(path)
    if run.damaged:
        raise InputError(f"{path}: {'; '.join(run.damaged)}: must be rows of metrics")
    rows = [row for row in run.history if row.step > 0 or row.outcome]  # not the evaluation before the first step
    tied = sum(row.outcome == "zero_variance" for row in rows)
    if len(rows) == tied and run.aborted is None:
        without = f" ({tied} {'batch' if tied == 1 else 'batches'} had no signal, and made none)" if tied else ""
        raise InputError(f"{path}: no training step is recorded yet{without}: nothing to judge")
    notes, alarm, objective = list(run.notes), Thresholds(), None
    if not run.config:
        notes.insert(0, "its configuration cannot be read: judged by the default thresholds")
    try:
        alarm = read(Thresholds, run.config.get("alarm", {}), "alarm")
        objective = run.config.get("objective", {}).get("name")
    except ConfigError as error:
        notes.append(f"its configuration cannot be read ({error}): judged by the default thresholds")
    if not run.layout.result.is_file():
        notes.append(f"the run has not finished (it has no {run.layout.result.name})")
    saved = [int(path.name.removeprefix("step-")) for path in run.layout.saved()]
    return Record(rows, alarm, objective, notes=notes, stopped=run.aborted, checkpoints=saved)


def of_dump(dump: Dump, scale: Scale | None = None) -> Record:
    """One row a step of the dump; a dump of few steps is judged over as many as it has.

    Args:
        scale: whose thresholds; ``None``: guessed from the token ids, where there are any.
    """
    typed = [metrics(batch) for batch in dump.batches]
    rows = [
        Row(number if batch.step is None else batch.step, values(part))
        for number, (batch, part) in enumerate(zip(dump.batches, typed, strict=True), 1)
    ]
    scale = scale or guess(dump.top_token)
    trainer = dump.trainer
    return Record(
        rows,
        SCALES[scale],
        pooled=values(merge(typed)),
        knows_learner=dump.knows_learner,
        notes=list(dump.notes),
        doubts=dump.doubts,
        scale=scale,
        knobs=LAGPROOF if dump.is_ours else PLAIN if trainer is None else trainer.knobs,
    )


def metrics(batch: DumpBatch) -> dict[Key, Metric]:
    """Everything that can be said of a batch of which no weights are known."""
    tokens = batch.tokens
    of_all = replace(tokens, advantage=tokens.advantage.nan_to_num())  # a mismatch needs no reward
    out = mismatch_metrics(of_all, batch.version) | balance(tokens)
    out |= {} if batch.version is None else ages(tokens, batch.version)
    lengths = torch.bincount(tokens.response, minlength=tokens.num_responses)
    named: dict[str, Metric] = {}
    named["response_tokens"] = Mean(int(lengths.sum()), len(lengths))
    if batch.reward is not None and bool(batch.reward.isfinite().any()):
        scored = batch.reward[~batch.reward.isnan()]
        named["reward"] = Mean(float(scored.sum()), len(scored))
        if tokens.group is not None:
            zero_variance = has_zero_variance(batch.reward, tokens.group)
            named["zero_variance_groups"] = Mean(float(zero_variance.sum()), len(zero_variance))
    if batch.truncated is not None:
        named["truncated"] = Mean(int(batch.truncated.sum()), len(batch.truncated))
    if batch.entropy is not None:
        known = batch.entropy[torch.isfinite(batch.entropy)]
        named["entropy"] = Mean(float(known.double().sum()), len(known))
    return out | over(named)
