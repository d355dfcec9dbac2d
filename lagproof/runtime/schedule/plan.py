"""Everything that a scheduler has to know in advance."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lagproof.config import LearnerConfig
from lagproof.runtime.schedule.admission import Admission
from lagproof.settings.keys import require


@dataclass(frozen=True)
class FailureLimits:
    """When to give up.

    Attributes:
        attempts: starts of one prompt that may fail or time out before the prompt is given up, >= 1. Starts
            that end because a worker is lost do not count.
        failed_prompts: prompts in a row that were given up, with no result in between, before the run stops,
            >= 1.
        zero_variance_batches: batches without a signal before the run stops, >= 1; a trained step starts the count
            again.
        bad_steps: the same for gradients that are not finite, >= 1.
        restarts: rollout workers that are replaced before the run stops, >= 0.
        sample_timeout_s: seconds that one attempt may take, > 0; ``None`` for no limit.
    """

    attempts: int = 3
    failed_prompts: int = 8
    zero_variance_batches: int = LearnerConfig.max_zero_variance_batches
    bad_steps: int = LearnerConfig.max_bad_steps
    restarts: int = 3
    sample_timeout_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("attempts", "failed_prompts", "zero_variance_batches", "bad_steps"):
            require(getattr(self, name) >= 1, f"limits.{name}", getattr(self, name), ">= 1")
        require(self.restarts >= 0, "limits.restarts", self.restarts, ">= 0")
        timeout = self.sample_timeout_s
        require(timeout is None or timeout > 0, "limits.sample_timeout_s", timeout, "> 0; absent for no limit")


@dataclass(frozen=True)
class Plan:
    """Everything that a scheduler has to know in advance.

    Attributes:
        admission: the schedule.
        prompts_per_step: prompts of one optimiser step (B), >= 1.
        steps: optimiser steps to train, >= 1.
        num_prompts: prompts that exist, over all epochs, >= 1; ``None`` where they never end.
        limits: when to give up.

    Raises:
        ConfigError: a value out of range.
    """

    admission: Admission
    prompts_per_step: int
    steps: int
    num_prompts: int | None = None
    limits: FailureLimits = FailureLimits()

    def __post_init__(self) -> None:
        require(self.prompts_per_step >= 1, "rollout.prompts", self.prompts_per_step, ">= 1")
        require(self.steps >= 1, "steps", self.steps, ">= 1")
        if self.num_prompts is not None:
            require(self.num_prompts >= 1, "prompts in the task", self.num_prompts, ">= 1: the data set is empty")

    @property
    def max_age(self) -> int:
        """The age that the schedule promises; see each schedule for what may exceed it."""
        return self.admission.max_age(self.prompts_per_step)

    def fingerprint(self) -> dict[str, Any]:
        """What must not change between a snapshot and its restoration, as plain JSON values."""
        fields = asdict(self.admission)
        return {
            "schedule": type(self.admission).__name__,
            **fields,
            "prompts_per_step": self.prompts_per_step,
        }
