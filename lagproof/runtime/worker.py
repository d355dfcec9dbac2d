"""The rollout side: prompts to graded groups, and what the weights are worth on the evaluation problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from lagproof.config import Config
from lagproof.data.samples import Group, Sample
from lagproof.data.slices import Key
from lagproof.data.streams import Purpose, stream
from lagproof.errors import InputError, RunStoppedError
from lagproof.evaluation.evaluate import eval_problems, evaluate_task
from lagproof.models.loading import Loaded
from lagproof.models.prompts import check_length, encode, positions
from lagproof.rollout.engine import Engine, Request, Sampling, WeightSwap
from lagproof.rollout.hf import HFEngine
from lagproof.runtime.watch import Watch
from lagproof.tasks.prompts import representatives
from lagproof.tasks.task import Answer, Grade, Problem, Task, position

CHECKED_PROBLEMS = 512
"""Problems of a generator whose prompts are looked at before a run; of a data set all that it will draw."""


class RolloutWorker:
    """Samples and grades the prompts of a run by their running numbers.

    Args:
        config: resolved.
        task: whose problems the prompts are.
        loaded: whose tokenizer reads them.
        engine: that samples.
        watch: for the seconds spent on sampling and on grading.
    """

    def __init__(self, config: Config, task: Task, loaded: Loaded, engine: Engine, watch: Watch) -> None:
        self._config, self._task, self._loaded, self._watch = config, task, loaded, watch
        self.engine = engine
        rollout = config.rollout
        self._sampling = Sampling(
            max_tokens=rollout.max_tokens,
            temperature=rollout.temperature,
            top_p=rollout.top_p,
            top_k=rollout.top_k,
            record_logp=rollout.record_logp,
        )

    @classmethod
    def build(
        cls,
        config: Config,
        task: Task,
        loaded: Loaded,
        watch: Watch,
        on_tokens: Callable[[int], None] | None = None,
    ) -> RolloutWorker:
        """With an engine of its own, on a copy of the model."""
        precision = config.rollout.precision
        engine = HFEngine(loaded.model, loaded.tokenizer, loaded.stop_ids, precision, on_tokens=on_tokens)
        return cls(config, task, loaded, engine, watch)

    def sample(self, prompts: Sequence[int], swaps: Sequence[WeightSwap] = ()) -> list[Group]:
        """The group of each prompt, sampled in one call of the engine with the weights that it holds, and graded.

        Args:
            prompts: their running numbers.
            swaps: weights that it takes meanwhile.
        """
        rollout, seed = self._config.rollout, self._config.seed
        problems = [self._problem(prompt) for prompt in prompts]
        requests = [
            Request(
                encode(self._loaded, problem.prompt, problem.template),
                rollout.samples,
                stream(seed, Purpose.SAMPLE, prompt),
                problem.stop if rollout.stop is None else rollout.stop,
            )
            for prompt, problem in zip(prompts, problems, strict=True)
        ]
        with self._watch.on("sample"):
            sampled = self._generate(requests, swaps)
        _check_samples(sampled, requests, self.engine.version)
        with self._watch.on("grade"):
            graded = self._grade(problems, sampled)
        return [
            Group(prompt, problem.id, samples, {"task": problem.task, "gold": problem.gold})
            for prompt, problem, samples in zip(prompts, problems, graded, strict=True)
        ]

    def _generate(self, requests: Sequence[Request], swaps: Sequence[WeightSwap]) -> list[list[Sample]]:
        if not swaps:
            return self.engine.generate(requests, self._sampling)
        assert isinstance(self.engine, HFEngine), f"a {type(self.engine).__name__} takes no weights in flight"
        return self.engine.generate_in_flight(requests, self._sampling, swaps)

    def _problem(self, prompt: int) -> Problem:
        order_seed = stream(self._config.seed, Purpose.ORDER)
        return self._task.problem(position(prompt, self._task.size, order_seed, self._config.rollout.prompts)[1])

    def _grade(self, problems: Sequence[Problem], sampled: Sequence[Sequence[Sample]]) -> list[list[Sample]]:
        answers = [
            Answer(problem, sample.text, sample.finish)
            for problem, samples in zip(problems, sampled, strict=True)
            for sample in samples
        ]
        grades = iter(self._task.grade(answers))
        return [[_graded(sample, next(grades)) for sample in samples] for samples in sampled]


class Evaluator:
    """Evaluates a model as it is at the moment, always on the same problems with the same random streams.

    Args:
        config: resolved.
        task: whose evaluation problems are asked.
        loaded: the model; no copy is made.
        watch: for the seconds spent.
        on_tokens: called with the number of tokens just drawn.
    """

    def __init__(
        self, config: Config, task: Task, loaded: Loaded, watch: Watch, on_tokens: Callable[[int], None] | None = None
    ) -> None:
        self._config, self._task, self._loaded, self._watch = config, task, loaded, watch
        self._on_tokens = on_tokens

    @cached_property
    def _problems(self) -> list[Problem]:
        """Kept: drawing them can take longer than answering."""
        return problems_of(self._config, self._task)

    def evaluate(self, version: int) -> Mapping[Key, float]:
        """``eval/...`` of the model's present weights, which are this version."""
        loaded, config = self._loaded, self._config
        sampling = Sampling(config.rollout.max_tokens, config.eval.temperature, record_logp=False)
        engine = HFEngine.view(
            loaded.model, loaded.tokenizer, loaded.stop_ids, version=version, on_tokens=self._on_tokens
        )
        with self._watch.on("eval"):
            return evaluate_task(
                lambda requests: engine.generate(requests, sampling),
                lambda problem: encode(loaded, problem.prompt, problem.template),
                self._task,
                self._problems,
                k=config.eval.k,
                seed=config.seed,
                stop=config.rollout.stop,
            ).metrics()


def problems_of(config: Config, task: Task) -> list[Problem]:
    """What a run evaluates on."""
    return eval_problems(task, config.eval.prompts, config.seed if config.eval.problems == "by_seed" else None)


def check_prompts(config: Config, task: Task, loaded: Loaded) -> None:
    """Find out before anything is written that the model cannot read the problems, or has no room for a response."""
    num_drawn = config.steps * config.rollout.prompts
    order_seed = stream(config.seed, Purpose.ORDER)
    places = range(num_drawn if task.data is not None else min(num_drawn, CHECKED_PROBLEMS))
    indices = dict.fromkeys(position(place, task.size, order_seed, config.rollout.prompts)[1] for place in places)
    found = representatives(task.problem(index) for index in indices)
    if config.eval.every:
        if task.eval_size == 0:
            raise InputError(f"eval.every = {config.eval.every}: the task {task.name!r} has no problems to evaluate on")
        found += representatives(problems_of(config, task))
    lengths = [len(encode(loaded, problem.prompt, problem.template)) for problem in found]
    check_length(lengths, config.rollout.max_tokens, positions(loaded.model), "rollout.max_tokens")


def _graded(sample: Sample, grade: Grade) -> Sample:
    return replace(sample, reward=grade.reward, reason=grade.reason)


def _check_samples(sampled: Sequence[Sequence[Sample]], requests: Sequence[Request], version: int) -> None:
    """Refuse what no engine may return, before it is trained on."""
    if len(sampled) != len(requests):
        raise RunStoppedError(f"the engine answered {len(sampled)} of {len(requests)} prompts")
    for samples, request in zip(sampled, requests, strict=True):
        if len(samples) != request.samples:
            raise RunStoppedError(f"the engine returned {len(samples)} of the {request.samples} samples of a prompt")
        for sample in samples:
            if not isinstance(sample, Sample) or not len(sample.response_ids):
                raise RunStoppedError(f"the engine returned a {type(sample).__name__} without a token")
            if sample.version.max() > version:
                raise RunStoppedError(f"the engine returned tokens of version {sample.version.max()} and has {version}")
            if not np.array_equal(sample.prompt_ids, request.prompt_ids):
                raise RunStoppedError("the engine returned an answer to another prompt than was asked")
