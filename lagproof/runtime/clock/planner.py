"""What a schedule would do with so many engines and learners: the scheduler over a simulated clock, without a model."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from lagproof.errors import ConfigError
from lagproof.runs import lags
from lagproof.runtime.clock.cluster import SimulatedCluster
from lagproof.runtime.clock.durations import Lengths, PromptLengths
from lagproof.runtime.schedule import (
    Admission,
    Begin,
    Command,
    Discard,
    Event,
    MaxAge,
    Periodic,
    Plan,
    Publish,
    Scheduler,
    Start,
    Threshold,
    Train,
)
from lagproof.settings.keys import require

UNENDING = 10**9
"""Optimiser steps of a plan that is watched only for a while, so that it does not run out of work at its end."""
BUSY = 0.98
"""Share of its time that a busy learner trains."""
MOST_LAG = 32
"""Largest lag that is tried."""


@dataclass(frozen=True)
class Hardware:
    """What samples and trains.

    Responses are drawn side by side, each at ``engine_tokens_per_s / (slots * samples)``, however many there are:
    memory bandwidth sets the pace of a decoding step, and it is shared by all. A slot is taken until the longest
    response of its prompt has ended.

    Attributes:
        workers: rollout engines, >= 1.
        slots: prompts that an engine samples at once, >= 1.
        engine_tokens_per_s: response tokens of one engine with all slots busy, > 0.
        learners: data-parallel replicas of the learner, >= 1; together they are that much faster.
        learner_tokens_per_s: response tokens of one replica, forward and backward, > 0.
        step_s: seconds of an optimiser step besides its tokens, >= 0.
        publish_s: seconds until a publication has reached the engines, >= 0; both sides work on.
        in_flight: whether engines swap weights while they sample.

    Raises:
        ConfigError: a value out of range.
    """

    workers: int
    slots: int
    engine_tokens_per_s: float
    learners: int
    learner_tokens_per_s: float
    step_s: float = 0.0
    publish_s: float = 0.0
    in_flight: bool = False

    def __post_init__(self) -> None:
        for name in ("workers", "slots", "learners"):
            require(getattr(self, name) >= 1, name, getattr(self, name), ">= 1")
        for name in ("engine_tokens_per_s", "learner_tokens_per_s"):
            require(getattr(self, name) > 0, name, getattr(self, name), "> 0")
        for name in ("step_s", "publish_s"):
            require(getattr(self, name) >= 0, name, getattr(self, name), ">= 0")

    def sample_s(self, longest: int, samples: int) -> float:
        """Seconds of a prompt whose longest response has so many tokens."""
        return longest * self.slots * samples / self.engine_tokens_per_s

    def train_s(self, tokens: int) -> float:
        """Seconds of an optimiser step on so many response tokens."""
        return self.step_s + tokens / (self.learners * self.learner_tokens_per_s)


@dataclass(frozen=True)
class Workload:
    """What is sampled and trained.

    Attributes:
        prompts: per step.
        samples: per prompt.
        lengths: of responses.
        steps: optimiser steps that are measured, after those in which the pipeline fills.
        seed: of all lengths; prompt ``i`` has the same under every schedule.

    Raises:
        ConfigError: a value out of range.
    """

    prompts: int
    samples: int
    lengths: Lengths
    steps: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("prompts", "samples", "steps"):
            require(getattr(self, name) >= 1, name, getattr(self, name), ">= 1")


@dataclass(frozen=True)
class Forecast:
    """What one schedule would do, measured once the pipeline is full.

    Attributes:
        name: of the schedule.
        seconds: that the measured steps take.
        steps: measured.
        tokens: response tokens trained in them.
        learner_wait: share of the time in which the learner has no batch.
        rollout_wait: share of the slots' time in which nothing is sampled.
        ages: prompts trained, by how many versions old the oldest token of each was.
        promised: the age that the schedule promises.
        late: prompts trained although they were older.
        dropped: prompts dropped because they were older.
    """

    name: str
    seconds: float
    steps: int
    tokens: int
    learner_wait: float
    rollout_wait: float
    ages: Mapping[int, int]
    promised: int
    late: int
    dropped: int

    @property
    def tokens_per_s(self) -> float:
        """Response tokens trained a second."""
        return self.tokens / self.seconds

    @property
    def step_s(self) -> float:
        """Seconds from one optimiser step to the next, on average."""
        return self.seconds / self.steps

    @property
    def mean_age(self) -> float:
        """Versions, of the prompts trained."""
        return sum(age * n for age, n in self.ages.items()) / sum(self.ages.values())

    @property
    def busy(self) -> bool:
        """Whether the learner hardly waits."""
        return self.learner_wait <= 1 - BUSY

    def quantile(self, share: float) -> int:
        """The smallest age that at least this share of the prompts does not exceed."""
        total, seen = sum(self.ages.values()), 0
        for age, n in sorted(self.ages.items()):
            seen += n
            if seen >= share * total:
                return age
        raise AssertionError((share, self.ages))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        derived = {"tokens_per_s": self.tokens_per_s, "step_s": self.step_s, "mean_age": self.mean_age}
        return asdict(self) | {"ages": {str(a): n for a, n in sorted(self.ages.items())}} | derived


def forecast(
    name: str,
    admission: Admission,
    hardware: Hardware,
    work: Workload,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Forecast:
    """Run the scheduler of a schedule over a simulated clock.

    Args:
        name: of the schedule.
        admission: the schedule.
        hardware, work: see there.
        on_step: called after each step with how many are done and how many there are.
    """
    plan = Plan(admission, work.prompts, UNENDING)
    simulation = _Simulation(plan, hardware, work)
    warm_up = 2 * (plan.max_age + 1) + 2
    simulation.run_to(warm_up, lambda done: on_step(done, warm_up + work.steps))
    begin = simulation.reading()
    simulation.run_to(warm_up + work.steps, lambda done: on_step(done, warm_up + work.steps))
    end = simulation.reading()
    seconds = end.now_s - begin.now_s
    return Forecast(
        name=name,
        seconds=seconds,
        steps=work.steps,
        tokens=end.tokens - begin.tokens,
        learner_wait=max(0.0, 1 - (end.learning_s - begin.learning_s) / seconds),
        rollout_wait=max(0.0, 1 - (end.sampling_s - begin.sampling_s) / seconds / simulation.cluster.num_slots),
        ages=dict(sorted((simulation.ages - begin.ages).items())),
        promised=plan.max_age,
        late=end.late - begin.late,
        dropped=end.dropped - begin.dropped,
    )


@dataclass(frozen=True)
class _Reading:
    now_s: float
    sampling_s: float
    learning_s: float
    tokens: int
    ages: Counter[int]
    late: int
    dropped: int


class _Simulation:
    """A scheduler, a cluster, and the few things about a prompt that are measured."""

    def __init__(self, plan: Plan, hardware: Hardware, work: Workload) -> None:
        self.scheduler = Scheduler(plan)
        self.cluster = SimulatedCluster(hardware.workers, hardware.slots, in_flight=hardware.in_flight)
        self.ages: Counter[int] = Counter()
        self._hardware, self._work = hardware, work
        self._lengths = PromptLengths(work.lengths, work.samples, work.seed)
        self._started: dict[int, tuple[int, int]] = {}  # ticket: tokens, oldest version
        self._tokens = 0
        self._todo = deque(self.scheduler.handle(*self.cluster.join(), Begin()))

    def run_to(self, version: int, on_step: Callable[[int], None]) -> None:
        """Until so many steps are trained."""
        while self.scheduler.version < version:
            while self._todo:
                self._execute(self._todo.popleft())
            events = self.cluster.next()
            assert events, "the schedule waits for something that cannot come"
            for event in events:
                self._take(event, on_step)

    def reading(self) -> _Reading:
        cluster, scheduler = self.cluster, self.scheduler
        return _Reading(
            cluster.now_s,
            cluster.sampling_s,
            cluster.learning_s,
            self._tokens,
            Counter(self.ages),
            scheduler.late,
            scheduler.dropped.get("late", 0),
        )

    def _execute(self, command: Command) -> None:
        match command:
            case Start():
                longest, tokens = self._lengths.of(command.prompt)
                self._started[command.ticket] = (tokens, command.version)
                self.cluster.start(command.ticket, command.worker, self._hardware.sample_s(longest, self._work.samples))
            case Train():
                trained = [self._started.pop(ticket) for ticket in command.tickets]
                tokens = sum(tokens for tokens, _ in trained)
                self._tokens += tokens
                self.ages.update(self.scheduler.version - oldest for _, oldest in trained)
                self.cluster.train(command.batch, self._hardware.train_s(tokens))
            case Publish():
                self.cluster.publish(command.version, self._hardware.publish_s)
            case Discard():
                self._started.pop(command.ticket, None)
            case _:
                raise AssertionError(f"{command} cannot happen where nothing fails and nothing ends")

    def _take(self, event: Event, on_step: Callable[[int], None]) -> None:
        before = self.scheduler.version
        self._todo.extend(self.scheduler.handle(event))
        if self.scheduler.version > before:
            on_step(self.scheduler.version)


@dataclass(frozen=True)
class Capacity:
    """What each side could do if it never waited for the other, tokens trained a second.

    Attributes:
        sampling: of all engines: slots over the mean seconds of a prompt, times its mean tokens.
        learning: of the learner.
    """

    sampling: float
    learning: float


def capacity(hardware: Hardware, work: Workload) -> Capacity:
    """See :class:`Capacity`; over the first prompts of the workload."""
    lengths = PromptLengths(work.lengths, work.samples, work.seed)
    drawn = [lengths.of(prompt) for prompt in range(max(work.prompts, 4096))]
    seconds = sum(hardware.sample_s(longest, work.samples) for longest, _ in drawn) / len(drawn)
    tokens = sum(total for _, total in drawn) / len(drawn)
    slots = hardware.workers * hardware.slots
    batch = work.prompts * tokens
    return Capacity(slots / seconds * tokens, batch / hardware.train_s(round(batch)))


def smallest_lag(
    hardware: Hardware,
    work: Workload,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Forecast | None:
    """What the smallest lag at which the learner is busy would do; ``None``: none up to ``MOST_LAG``.

    Fixed lags come first (``k3``: weights every step), then configured lags (``3``: weights every third step, which
    stops engines less often). The lags 0, 1, 2, 4, ... are tried, as long as that helps, and then those between the
    last two by halving: the learner waits the less, the further sampling is ahead.
    """
    limits = capacity(hardware, work)
    if limits.sampling < BUSY * limits.learning:
        return None

    def tried(name: str) -> Forecast:
        return forecast(name, admission(name), hardware, work, on_step)

    return _smallest("k", tried) or _smallest("", tried)


def _smallest(family: str, tried: Callable[[str], Forecast]) -> Forecast | None:
    low, high, before = -1, 0, 0.0
    while not (found := tried(f"{family}{high}")).busy:
        low, high = high, max(1, 2 * high)
        if high > MOST_LAG or found.tokens_per_s < 1.01 * before:
            return None
        before = found.tokens_per_s
    while high - low > 1:
        middle = (low + high) // 2
        now = tried(f"{family}{middle}")
        if now.busy:
            high, found = middle, now
        else:
            low = middle
    return found


@dataclass(frozen=True)
class Plans:
    """Schedules side by side on the same hardware and work.

    Attributes:
        hardware, work: see there.
        capacity: of each side.
        forecasts: of each schedule.
        smallest: that of the smallest lag at which the learner is busy; see :func:`smallest_lag`.
    """

    hardware: Hardware
    work: Workload
    capacity: Capacity
    forecasts: Sequence[Forecast]
    smallest: Forecast | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        work = {name: getattr(self.work, name) for name in ("prompts", "samples", "steps", "seed")}
        return {
            "hardware": asdict(self.hardware),
            "work": work | {"lengths": self.work.lengths.describe()},
            "capacity": asdict(self.capacity),
            "schedules": [f.to_dict() for f in self.forecasts],
            "smallest_lag": None if self.smallest is None else self.smallest.name,
        }


def plan(
    names: Sequence[str],
    hardware: Hardware,
    work: Workload,
    on_step: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Plans:
    """Compare schedules by name, and find the smallest lag.

    Args:
        names: ``k3`` (weights every step, 3 batches ahead), or those of comparisons: ``4``, ``s0.5n4``, ``a2n1drop``.
        hardware, work: see there.
        on_step: called with the schedule and how many of its steps are done.

    Raises:
        ConfigError: a name that is none, or a schedule that cannot work.
    """
    chosen = {name: admission(name) for name in names}
    found = [forecast(name, a, hardware, work, partial(on_step, name)) for name, a in chosen.items()]
    smallest = smallest_lag(hardware, work, partial(on_step, "the smallest lag"))
    if smallest is not None and smallest.name not in chosen:
        found.append(smallest)
    return Plans(hardware, work, capacity(hardware, work), found, smallest)


def admission(name: str) -> Admission:
    """The schedule behind a name.

    Raises:
        ConfigError: there is none, or it cannot work.
    """
    if (match := re.fullmatch(r"k([0-9]+)", name)) is not None:
        return Periodic(1, int(match[1]))
    if name.isdecimal():
        return Periodic(max(int(name), 1), int(name))
    if lags.THRESHOLD.fullmatch(name) or lags.BOUND.fullmatch(name):
        keys = lags.to_schedule(name)
        every = keys["broadcast_every"]
        if "max_age" in keys:
            return MaxAge(keys["max_age"], keys["late"], every)
        return Threshold(keys["staleness_threshold"], every)
    raise ConfigError(
        f"schedule {name!r}: must be k3 (weights every step, 3 batches ahead), 4 (n = k = 4), s0.5n4 (threshold 0.5, "
        "n = 4) or a2n1 (age at most 2, n = 1; a2n1drop drops what is older)"
    )
