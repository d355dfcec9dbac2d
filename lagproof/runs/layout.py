"""Where the files of a run lie in its directory.

::

    config.toml                    the resolved configuration
    data.json                      what the files of the task were: sizes and digests
    metrics.jsonl                  a row for each optimiser batch, and one of the evaluation before the first
    schedule.jsonl                 the events of its scheduler: what happened, in order
    alarms.jsonl                   alarms, in the order in which they fired
    notes.txt                      what was said to the person who ran it
    rollouts/step-000040.parquet   trained responses, up to and including that step
    checkpoints/step-000040/       see ``checkpoints.py``
    result.json                    how it ended; a run without it has not finished
    lock                           the process that runs it
    learner.lock                   the process that writes its rollouts and checkpoints, if it is another
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunLayout:
    """The paths of a run; none need exist."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def data(self) -> Path:
        return self.path / "data.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def schedule(self) -> Path:
        return self.path / "schedule.jsonl"

    @property
    def alarms(self) -> Path:
        return self.path / "alarms.jsonl"

    @property
    def notes(self) -> Path:
        return self.path / "notes.txt"

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def learner_lock(self) -> Path:
        return self.path / "learner.lock"

    def rollout_files(self) -> list[Path]:
        """In the order of their steps."""
        return sorted(self.rollouts.glob("*.parquet"))

    def rollouts_of(self, step: int) -> Path:
        """The file whose last step this is."""
        return self.rollouts / f"step-{step:06d}.parquet"

    def checkpoint_of(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:06d}"

    def saved(self) -> list[Path]:
        """Complete-looking checkpoints, oldest first."""
        return sorted(p for p in self.checkpoints.glob("step-*") if p.is_dir())


def is_run(path: Path) -> bool:
    """Whether a directory holds a run that has started, damaged or not."""
    layout = RunLayout(path)
    return layout.config.is_file() or layout.metrics.is_file()
