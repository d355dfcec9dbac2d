"""Generators of the ``reasoning-gym`` package by name, graded by their own scorers. Imports no torch.

The package is an optional extra. Some scorers evaluate parts of an answer, so they run in killable processes that
take from Python what could do more than calculate.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import logging
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from lagproof.errors import ConfigError, InputError, UnknownNameError
from lagproof.grading.extract import extract
from lagproof.grading.grader import Notices
from lagproof.grading.pool import FAILED, TIMED_OUT, Pool
from lagproof.settings.keys import key
from lagproof.settings.models import model
from lagproof.tasks.math import PromptOptions
from lagproof.tasks.task import Answer, Grade, Problem

log = logging.getLogger(__name__)
_EVAL_SIZE = 1000


@model("task")
class GymOptions(PromptOptions):
    """Options of a generator."""

    generator: str | None = key(None, "a name of reasoning_gym, such as chain_sum")
    params: dict[str, Any] = key(dict, "options of the generator itself")
    seed: int = key(0, "which problems", ge=0)
    size: int = key(10_000, "problems to train on; a thousand more to evaluate on", ge=1)


class GymTask:
    """Problems from one generator. Reward: what its scorer says of the marked answer, in [0, 1]."""

    def __init__(self, options: GymOptions) -> None:
        if options.generator is None:
            raise ConfigError("task.generator is missing: name a generator of reasoning_gym, such as chain_sum")
        check(options.generator)
        self._options, self._generator = options, options.generator
        self._prompting = options.prompting()
        self._params = json.dumps(
            {**options.params, "seed": options.seed, "size": options.size + _EVAL_SIZE}, sort_keys=True
        )
        self._pool = Pool(options.limits(), "lagproof.tasks.gym_worker", (self._generator, self._params))
        self._failures = Notices(
            log, "the scorer of %s failed on an answer, which gets no reward: %s", f"failures of {self.name}'s scorer"
        )
        item(self._generator, self._params, 0)  # wrong parameters are wrong now, not in the middle of a run

    @property
    def name(self) -> str:
        return self._options.label or self._generator

    @property
    def size(self) -> int | None:
        return self._options.size

    @property
    def eval_size(self) -> int | None:
        return _EVAL_SIZE

    @property
    def data(self) -> None:
        return None

    def problem(self, index: int) -> Problem:
        return self._problem("train", index, index)

    def eval_problem(self, index: int) -> Problem:
        return self._problem("eval", index, index + self._options.size)

    def grade(self, answers: Sequence[Answer]) -> list[Grade]:
        said = [extract(self._prompting.truncate(answer.text), self._prompting.form) for answer in answers]
        asked = [i for i, text in enumerate(said) if text is not None]
        questions = [(str(answers[i].problem.info["index"]), str(said[i])) for i in asked]
        replies = dict(zip(asked, self._pool.ask(questions), strict=True))
        grades = [_grade(replies[i].word if i in replies else "unparsed") for i in range(len(answers))]
        for reply in replies.values():
            if reply.word == FAILED:
                self._failures.add(reply.detail, self.name, reply.detail)
        return grades

    def key(self, answer: Answer) -> str | None:
        return extract(self._prompting.truncate(answer.text), self._prompting.form)

    def close(self) -> None:
        self._pool.close()
        self._failures.close()

    def _problem(self, split: str, number: int, index: int) -> Problem:
        found = item(self._generator, self._params, index)
        prompt = self._prompting.prompt(str(found["question"]))
        gold = "" if found["answer"] is None else str(found["answer"])  # some problems have many right answers
        identity = f"{self.name}-{split}-{number}"
        return Problem(identity, prompt, gold, self.name, {"index": index}, self._prompting.stop)


def check(generator: str) -> None:
    """Whether the package is installed and has the generator.

    Raises:
        InputError: the extra is not installed.
        UnknownNameError: no such generator.
    """
    if importlib.util.find_spec("reasoning_gym") is None:
        raise InputError("task reasoning-gym needs the package of that name: pip install 'lagproof[reasoning-gym]'")
    known = importlib.import_module("reasoning_gym.factory").DATASETS
    if generator not in known:
        raise UnknownNameError("generator of reasoning_gym", generator, known)


@lru_cache(maxsize=8)
def dataset(generator: str, params: str) -> Any:
    """The generator with its parameters (JSON).

    Raises:
        ConfigError: parameters that it does not take.
    """
    library = importlib.import_module("reasoning_gym")
    try:
        return library.create_dataset(generator, **json.loads(params))
    except (TypeError, ValueError, AssertionError) as error:
        own = {key: value for key, value in json.loads(params).items() if key not in ("seed", "size")}
        kinds = importlib.import_module("reasoning_gym.factory").DATASETS[generator][1]
        known = [f.name for f in dataclasses.fields(kinds) if f.name not in ("seed", "size")]
        raise ConfigError(
            f"task.params = {own}: {generator} does not take them: {error}; it has {', '.join(known)}"
        ) from error


def item(generator: str, params: str, index: int) -> Any:
    """Problem ``index`` of a generator: ``question``, ``answer``, ``metadata``."""
    return dataset(generator, params)[index]


def score(data: Any, entry: Any, answer: str) -> str:
    """What the generator's own scorer says of an answer, as text; only for the killable processes."""
    return repr(float(data.score_answer(answer=answer, entry=entry)))


def _grade(word: str) -> Grade:
    if word in ("unparsed", TIMED_OUT, FAILED):
        return Grade(0.0, word)
    reward = float(word)
    if math.isnan(reward):
        return Grade(reward, "bad_gold")
    reward = min(1.0, max(0.0, reward))
    return Grade(reward, "correct" if reward == 1 else "wrong" if reward == 0 else "partial")
