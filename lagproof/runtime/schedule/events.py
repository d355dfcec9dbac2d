"""What the scheduler is called with and what it asks for: frozen data, nothing else.

Every event can be written as JSON and read back, so that the events of a run are a complete record of its
schedule: a second scheduler that is fed the record gives the same commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from lagproof.data.samples import StepOutcome
from lagproof.errors import InputError


class DiscardReason(StrEnum):
    """Why a result is not trained."""

    SUPERSEDED = "superseded"  # of an attempt that was given up: another attempt has the prompt
    LATE = "late"  # older than the age bound, under ``late="drop"``
    FAILED = "failed"  # the last attempt failed as well


class StopReason(StrEnum):
    """Why a run ends. Only the first two are a success."""

    FINISHED = "finished"  # every step was trained
    DATA_ENDED = "data_ended"  # every prompt was used before the last step
    NO_SIGNAL = "no_signal"  # too many batches in a row had zero variance
    NON_FINITE = "non_finite"  # too many steps in a row had gradients that are not finite
    SAMPLES_FAILED = "samples_failed"  # too many prompts in a row failed for good
    WORKERS_LOST = "workers_lost"  # more rollout workers were lost than may be replaced

    @property
    def success(self) -> bool:
        """Whether the run did what it was asked to do."""
        return self in (StopReason.FINISHED, StopReason.DATA_ENDED)


@dataclass(frozen=True)
class Begin:
    """The workers that are there at the start have joined: go. Nothing is asked for before it."""


@dataclass(frozen=True)
class WorkerJoined:
    """A rollout worker is ready.

    Attributes:
        worker: its number. That of a lost worker may be used again once no news of the lost one can arrive.
        version: optimiser updates behind the weights that it holds. A worker that holds less than the newest
            publication gets no prompt until it reports ``WeightsLoaded``.
        slots: prompts that it takes at once; ``None`` for any number.
    """

    worker: int
    version: int
    slots: int | None = None


@dataclass(frozen=True)
class WorkerLost:
    """A rollout worker is gone, or its replacement did not come; ``reason`` is the original error."""

    worker: int
    reason: str


@dataclass(frozen=True)
class WeightsLoaded:
    """A worker samples with this version from now on; ``None``: every worker does."""

    worker: int | None
    version: int


@dataclass(frozen=True)
class SampleFinished:
    """All responses to one prompt are sampled and graded; the runtime holds them under the ticket.

    Attributes:
        ticket: of the :class:`Start` that asked for them.
        oldest: smallest version among their tokens.
        newest: largest version among their tokens; equal to ``oldest`` unless weights are swapped in flight.
    """

    ticket: int
    oldest: int
    newest: int


@dataclass(frozen=True)
class SampleFailed:
    """An attempt gave no result."""

    ticket: int
    reason: str


@dataclass(frozen=True)
class StepFinished:
    """The learner is done with the batch that it was given."""

    batch: int
    outcome: StepOutcome = StepOutcome.TRAINED


@dataclass(frozen=True)
class Tick:
    """The time of a clock that only goes forward, seconds. Needed only where attempts have a time limit."""

    now_s: float


Event = Begin | WorkerJoined | WorkerLost | WeightsLoaded | SampleFinished | SampleFailed | StepFinished | Tick


@dataclass(frozen=True)
class Start:
    """Sample one prompt.

    Attributes:
        ticket: names this attempt; never used twice in a run, also after a resume.
        prompt: running number of the prompt in the run, from 0, also over epochs.
        worker: who samples it.
        attempt: 1 for the first start of this prompt.
        version: what the worker holds; no token may come from an earlier version.
    """

    ticket: int
    prompt: int
    worker: int
    attempt: int
    version: int


@dataclass(frozen=True)
class Train:
    """Take one optimiser step on the results of these tickets, in this order; answered by
    :class:`StepFinished`.

    The results are not asked for again, whatever the outcome.
    """

    batch: int
    tickets: tuple[int, ...]


@dataclass(frozen=True)
class Publish:
    """Make the learner's present weights available; every worker answers with :class:`WeightsLoaded`."""

    version: int


@dataclass(frozen=True)
class Cancel:
    """Nobody waits for this attempt any more."""

    ticket: int


@dataclass(frozen=True)
class Discard:
    """Release what is held under this ticket: it will not be trained.

    ``prompt`` is ``None`` for a result of an attempt that was given up, whose prompt another attempt has.
    """

    ticket: int
    prompt: int | None
    reason: DiscardReason
    detail: str


@dataclass(frozen=True)
class Replace:
    """Bring up a worker in place of the lost one; answered by ``WorkerJoined`` or ``WorkerLost``."""

    worker: int


@dataclass(frozen=True)
class Stop:
    """The run is over; no command follows. ``detail`` says why, with the original error if there is one."""

    reason: StopReason
    detail: str


Command = Start | Train | Publish | Cancel | Discard | Replace | Stop

_EVENTS: dict[str, type[Event]] = {
    "begin": Begin,
    "worker_joined": WorkerJoined,
    "worker_lost": WorkerLost,
    "weights_loaded": WeightsLoaded,
    "sample_finished": SampleFinished,
    "sample_failed": SampleFailed,
    "step_finished": StepFinished,
    "tick": Tick,
}
_NAMES = {kind: name for name, kind in _EVENTS.items()}


def to_json(event: Event) -> dict[str, Any]:
    """The event as plain JSON values: ``{"event": "step_finished", "batch": 3, "outcome": "trained"}``."""
    fields = {name: str(v) if isinstance(v, StrEnum) else v for name, v in asdict(event).items()}
    return {"event": _NAMES[type(event)], **fields}


def from_json(record: Mapping[str, Any]) -> Event:
    """The inverse of :func:`to_json`.

    Raises:
        InputError: no such event, or its fields are not those of the event.
    """
    fields = dict(record)
    kind = _EVENTS.get(str(fields.pop("event", None)))
    if kind is None:
        raise InputError(f"schedule record {dict(record)!r}: 'event' must be one of {', '.join(sorted(_EVENTS))}")
    try:
        if kind is StepFinished:
            fields["outcome"] = StepOutcome(fields["outcome"])
        return kind(**fields)
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(f"schedule record {dict(record)!r}: not a {kind.__name__} event: {error}") from error
