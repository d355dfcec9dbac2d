"""Who samples which prompt with which weights, when to broadcast, what is trained: pure, no clock, no wait,
no I/O.

::

    events in                                        commands out
    Begin WorkerJoined WorkerLost WeightsLoaded      Start Train Publish
    SampleFinished SampleFailed StepFinished Tick    Cancel Discard Replace Stop

The unit is one prompt with its group of samples. ``docs/lag.md`` describes the schedules.
"""

from lagproof.runtime.schedule.admission import Admission, MaxAge, Periodic, Threshold, ages
from lagproof.runtime.schedule.events import (
    Begin,
    Cancel,
    Command,
    Discard,
    DiscardReason,
    Event,
    Publish,
    Replace,
    SampleFailed,
    SampleFinished,
    Start,
    StepFinished,
    StepOutcome,
    Stop,
    StopReason,
    Tick,
    Train,
    WeightsLoaded,
    WorkerJoined,
    WorkerLost,
    from_json,
    to_json,
)
from lagproof.runtime.schedule.plan import FailureLimits, Plan
from lagproof.runtime.schedule.scheduler import PromptCounts, Scheduler

__all__ = [
    "Admission",
    "Begin",
    "Cancel",
    "Command",
    "Discard",
    "DiscardReason",
    "Event",
    "FailureLimits",
    "MaxAge",
    "Periodic",
    "Plan",
    "PromptCounts",
    "Publish",
    "Replace",
    "SampleFailed",
    "SampleFinished",
    "Scheduler",
    "Start",
    "StepFinished",
    "StepOutcome",
    "Stop",
    "StopReason",
    "Threshold",
    "Tick",
    "Train",
    "WeightsLoaded",
    "WorkerJoined",
    "WorkerLost",
    "ages",
    "from_json",
    "to_json",
]
