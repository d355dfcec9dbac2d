"""Both sides of a run in one process, at work at once on a simulated clock: deterministic, and out of order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from torch import Tensor

from lagproof.config import Config
from lagproof.data.samples import Group
from lagproof.data.slices import Key
from lagproof.data.streams import Purpose, stream
from lagproof.rollout.engine import WeightSwap
from lagproof.runtime.clock.cluster import SimulatedCluster
from lagproof.runtime.clock.durations import lognormal
from lagproof.runtime.executor import Happening, Moment, Sampled
from lagproof.runtime.inline import finished
from lagproof.runtime.schedule import SampleFinished, Start, StepFinished, Train, WeightsLoaded, WorkerJoined
from lagproof.runtime.trainer import Trainer
from lagproof.runtime.watch import Watch
from lagproof.runtime.worker import Evaluator, RolloutWorker


@dataclass
class _Sampling:
    """A prompt that a worker samples.

    Attributes:
        start: the command.
        began_s: when.
        token_s: seconds of one token of each of its responses.
        group: its responses if no weights arrive any more before it is finished.
        swaps: weights that have arrived since it began.
    """

    start: Start
    began_s: float
    token_s: float
    group: Group
    swaps: list[WeightSwap] = field(default_factory=list[WeightSwap])

    @property
    def ends_s(self) -> float:
        """When its longest response has ended."""
        return self.began_s + self.token_s * max(len(sample.response_ids) for sample in self.group.samples)


class SimulatedExecutor:
    """Executes commands at simulated times, and tells when they are done in the order of these times.

    A prompt is sampled in a call of its own when it starts, which says how long it takes; if weights arrive meanwhile
    and are taken in flight, it is sampled again from its start with the swap at its place: the same random stream gives
    the same tokens up to there. An evaluation takes no time.

    Args:
        config: resolved.
        trainer: the learning side.
        worker: the rollout side: one engine, which takes the weights of each simulated worker in turn.
        evaluator: of the trainer's own model.
        watch: counts simulated seconds from now on.
        held: groups by ticket, of a restored run.
    """

    def __init__(
        self,
        config: Config,
        trainer: Trainer,
        worker: RolloutWorker,
        evaluator: Evaluator,
        watch: Watch,
        held: Mapping[int, Group] | None = None,
    ) -> None:
        self._seed, self._clock, self._rollout = config.seed, config.clock, config.rollout
        self._trainer, self._worker, self._evaluator = trainer, worker, evaluator
        self._held: dict[int, Group] = dict(held or {})
        published, weights = trainer.channel.fetch()
        slots = config.clock.slots or -(-config.rollout.prompts // config.rollout.workers)
        self._cluster = SimulatedCluster(config.rollout.workers, slots, published, in_flight=config.rollout.in_flight)
        self._weights: dict[int, Mapping[str, Tensor]] = {published: weights}
        self._running: dict[int, _Sampling] = {}
        self._train: Train | None = None
        self._read = (0.0, 0.0, 0.0)
        watch.follow(lambda: self._cluster.now_s)

    def join(self) -> Sequence[WorkerJoined]:
        return self._cluster.join()

    def sample(self, starts: Sequence[Start]) -> Sequence[Happening]:
        for start in starts:
            token_s = self._clock.token_s * self._factor(self._clock.tail, 1, start.prompt, start.attempt)
            now_s = self._cluster.now_s
            begun = _Sampling(start, now_s, token_s, self._sampled(start, ()))
            self._running[start.ticket] = begun
            self._cluster.start(start.ticket, start.worker, begun.ends_s - now_s)
        return ()

    def train(self, command: Train) -> Sequence[Happening]:
        clock = self._clock
        tokens = sum(len(s.response_ids) for ticket in command.tickets for s in self._held[ticket].samples)
        seconds = clock.step_s + clock.train_token_s * tokens
        self._train = command
        self._cluster.train(command.batch, seconds * self._factor(clock.jitter, 2, command.batch))
        return ()

    def publish(self, version: int, in_flight: Collection[int]) -> Sequence[Happening]:
        self._trainer.publish(version, in_flight)
        needed = {sampling.start.version for sampling in self._running.values()}
        self._weights = {v: w for v, w in self._weights.items() if v in needed}
        self._weights[version] = self._trainer.channel.fetch()[1]
        self._cluster.publish(version, self._clock.publish_s * self._factor(self._clock.jitter, 3, version))
        return ()

    def evaluate(self, step: int) -> Mapping[Key, float] | None:
        return self._evaluator.evaluate(step)

    def waits(self) -> Mapping[str, float]:
        cluster, (now_s, learning_s, sampling_s) = self._cluster, self._read
        self._read = (cluster.now_s, cluster.learning_s, cluster.sampling_s)
        passed = cluster.now_s - now_s
        learned, sampled = cluster.learning_s - learning_s, (cluster.sampling_s - sampling_s) / cluster.num_slots
        # rounding may make the differences a little less than nothing
        return {"learner_wait": max(0.0, passed - learned), "rollout_wait": max(0.0, passed - sampled)}

    def discard(self, ticket: int) -> None:
        self._held.pop(ticket, None)

    def cancel(self, ticket: int) -> Sequence[Happening]:
        self._running.pop(ticket, None)
        self._cluster.cancel(ticket)
        return ()

    def restart(self, worker: int) -> NoReturn:
        raise AssertionError(f"worker {worker} is replaced: cannot happen with workers that never fail")

    def save(self, moment: Moment, held: Sequence[int]) -> None:
        self._trainer.save(moment, {ticket: self._held[ticket] for ticket in held})

    def wait(self) -> Sequence[Happening]:
        events = self._cluster.next()
        assert events, "nothing is under way, and the scheduler waits for something"
        return [self._happened(event) for event in events]

    def _happened(self, event: Happening) -> Happening:
        match event:
            case SampleFinished(ticket):
                sampling = self._running.pop(ticket)
                self._held[ticket] = sampling.group
                return Sampled((finished(sampling.start, sampling.group),))
            case StepFinished():
                assert self._train is not None
                command, self._train = self._train, None
                return self._trainer.train(command, [self._held.pop(ticket) for ticket in command.tickets])
            case WeightsLoaded(None, version):
                self._swap(version)
                return event
            case _:
                return event

    def _swap(self, version: int) -> None:
        """Every response that is being sampled goes on with these weights."""
        for ticket, sampling in self._running.items():
            drawn = int((self._cluster.now_s - sampling.began_s) / sampling.token_s)
            swap = WeightSwap(drawn, version, self._weights[version], self._rollout.recompute_cache)
            sampling.swaps.append(swap)
            sampling.group = self._sampled(sampling.start, sampling.swaps)
            self._cluster.finish_at(ticket, sampling.ends_s)

    def _sampled(self, start: Start, swaps: Sequence[WeightSwap]) -> Group:
        engine = self._worker.engine
        if engine.version != start.version:
            engine.load(start.version, self._weights[start.version])
        return self._worker.sample([start.prompt], swaps)[0]

    def _factor(self, sigma: float, kind: int, *index: int) -> float:
        if sigma == 0:
            return 1.0
        return float(lognormal(np.random.default_rng(stream(self._seed, Purpose.CLOCK, kind, *index)), sigma))
