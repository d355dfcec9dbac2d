"""What a scheduler knows, and how it is written to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lagproof.errors import CheckpointError, ConfigError
from lagproof.runtime.schedule.plan import Plan

FORMAT = 2
_COUNTERS = (
    "version",
    "published",
    "batches",
    "started",
    "next_ticket",
    "trained",
    "failed",
    "late",
    "ignored",
    "zero_variance_in_row",
    "bad_in_row",
    "failed_in_row",
)


@dataclass
class Tries:
    """What was tried for a prompt that has no result yet.

    Attributes:
        starts: starts so far, for whatever reason.
        failures: starts that failed or timed out.
    """

    starts: int = 0
    failures: int = 0


@dataclass(frozen=True)
class SampledPrompt:
    """A prompt that is sampled and not trained yet."""

    ticket: int
    oldest: int
    newest: int


@dataclass(frozen=True)
class PromptCounts:
    """Prompts by what became of them: ``started = trained + buffered + running + failed + dropped``, always.

    ``buffered`` are sampled and not trained, the batch that the learner has included; ``running`` have no
    result yet, those that wait to be started again included.
    """

    started: int
    trained: int
    buffered: int
    running: int
    failed: int
    dropped: int

    @property
    def adds_up(self) -> bool:
        """Whether every prompt that was started is somewhere, once."""
        return self.started == self.trained + self.buffered + self.running + self.failed + self.dropped


@dataclass
class ScheduleState:
    """Everything that a resumed run needs, and nothing that belongs to one process (workers, clock).

    Attributes:
        version: optimiser steps trained.
        published: newest version published.
        batches: batches that the learner is done with.
        started: prompts started; the number of the next one.
        next_ticket: number of the next start.
        trained: prompts trained.
        failed: prompts given up.
        late: prompts trained although they were older than the promise.
        ignored: results and failures of attempts that nobody waited for any more.
        zero_variance_in_row: zero-variance batches since the last trained step.
        bad_in_row: steps with non-finite gradients since the last trained step.
        failed_in_row: prompts given up since the last result.
        dropped: prompts sampled and not trained, by reason: ``zero_variance``, ``non_finite``, ``late``.
        open: prompts without a result, in the order in which they were first started.
        buffer: results by prompt, in the order in which they came.
        training: results that the learner has; ``None`` while it has none.
    """

    version: int = 0
    published: int = 0
    batches: int = 0
    started: int = 0
    next_ticket: int = 0
    trained: int = 0
    failed: int = 0
    late: int = 0
    ignored: int = 0
    zero_variance_in_row: int = 0
    bad_in_row: int = 0
    failed_in_row: int = 0
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    open: dict[int, Tries] = field(default_factory=dict[int, Tries])
    buffer: dict[int, SampledPrompt] = field(default_factory=dict[int, SampledPrompt])
    training: dict[int, SampledPrompt] | None = None

    @property
    def counts(self) -> PromptCounts:
        """See :class:`PromptCounts`."""
        return PromptCounts(
            started=self.started,
            trained=self.trained,
            buffered=len(self.buffer) + len(self.training or {}),
            running=len(self.open),
            failed=self.failed,
            dropped=sum(self.dropped.values()),
        )

    @property
    def outstanding(self) -> int:
        """Prompts that are running or buffered."""
        return len(self.open) + len(self.buffer) + len(self.training or {})

    @property
    def held(self) -> list[int]:
        """Tickets of the results that are buffered or with the learner."""
        return [r.ticket for r in [*(self.training or {}).values(), *self.buffer.values()]]

    @property
    def versions(self) -> set[int]:
        """Versions behind the results that are buffered or with the learner."""
        results = [*(self.training or {}).values(), *self.buffer.values()]
        return {version for r in results for version in range(r.oldest, r.newest + 1)}

    def drop(self, reason: str, count: int) -> None:
        """Count prompts that were sampled and will not be trained."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def violation(self) -> str | None:
        """Which of the things that hold between any two events does not, in words."""
        places = [*self.open, *self.buffer, *(self.training or {})]
        if not self.counts.adds_up:
            return f"prompts do not add up: {self.counts}"
        if len(set(places)) != len(places):
            return "a prompt is in two places"
        if not all(0 <= prompt < self.started for prompt in places):
            return "a prompt is open or buffered that was never started"
        if not 0 <= self.published <= self.version <= self.batches:
            return f"published {self.published}, version {self.version}, {self.batches} batches"
        if len(set(self.held)) != len(self.held) or not all(0 <= t < self.next_ticket for t in self.held):
            return f"tickets {self.held} out of {self.next_ticket}"
        return None


def to_snapshot(plan: Plan, state: ScheduleState) -> dict[str, Any]:
    """The state as plain JSON values. The batch that the learner has goes back to the front of the buffer."""
    results = {**(state.training or {}), **state.buffer}
    return {
        "format": FORMAT,
        "plan": plan.fingerprint(),
        **{name: getattr(state, name) for name in _COUNTERS},
        "dropped": dict(state.dropped),
        "open": [[prompt, a.starts, a.failures] for prompt, a in state.open.items()],
        "buffer": [[prompt, r.ticket, r.oldest, r.newest] for prompt, r in results.items()],
    }


def from_snapshot(plan: Plan, snapshot: Mapping[str, Any]) -> ScheduleState:
    """The inverse of :func:`to_snapshot`; running prompts wait to be started again.

    Raises:
        ConfigError: the run was begun with another schedule or another number of prompts per step.
        CheckpointError: not a snapshot, or one that contradicts itself.
    """
    if snapshot.get("format") != FORMAT:
        raise CheckpointError(f"schedule snapshot has format {snapshot.get('format')!r}: this version reads {FORMAT}")
    ours, theirs = plan.fingerprint(), snapshot.get("plan")
    if theirs != ours:
        raise ConfigError(
            f"the run was begun with {theirs!r} and cannot continue with {ours!r}: keep the schedule and "
            "rollout.prompts of the run, or start a new run"
        )
    try:
        counters: dict[str, Any] = {name: int(snapshot[name]) for name in _COUNTERS}
        state = ScheduleState(
            **counters,
            dropped={str(reason): int(count) for reason, count in snapshot["dropped"].items()},
            open={int(p): Tries(int(s), int(f)) for p, s, f in snapshot["open"]},
            buffer={int(p): SampledPrompt(int(t), int(lo), int(hi)) for p, t, lo, hi in snapshot["buffer"]},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"schedule snapshot is damaged: {type(error).__name__}: {error}") from error
    if violation := state.violation():
        raise CheckpointError(f"schedule snapshot is damaged: {violation}")
    return state
