"""Several tasks in one run, each with its share of the problems and its own metrics. Imports no torch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, islice
from typing import Any

import numpy as np

from lagproof.errors import ConfigError, InputError
from lagproof.settings.keys import key
from lagproof.settings.models import model
from lagproof.tasks.task import Answer, Grade, Problem, Task, position

_BLOCK = 1000
_MAX_EVAL = 10_000
RESERVED = ("eval", "time", "probe", "graded", "positive", "negative", "age")
"""Names that metrics of the whole run begin with; ``age`` with a number behind it."""
_TAKEN = re.compile(rf"(?:{'|'.join(RESERVED)})(?:_\d[\d-]*)?(?:/.*)?")


@model("task")
class MixtureOptions:
    """Options of a mixture."""

    tasks: list[Any] = key(
        list, "tables with name, weight (1; 0: evaluated only), evaluate (true), and that task's options"
    )
    seed: int | None = key(None, "order of the tasks and of their problems; absent: the run's", ge=0)


@dataclass(frozen=True)
class Part:
    """One task of a mixture.

    Attributes:
        name: in the table of tasks.
        weight: its share of what is trained on, in proportion to the others; 0 for a task that is only evaluated on.
        evaluate: whether it is evaluated on.
        options: of that task.
    """

    name: str
    weight: float = 1.0
    evaluate: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


class MixtureTask:
    """An endless stream in which each task has its share in every thousand problems.

    Which task a place of the stream belongs to, and which of its problems comes there, depend on the seed and the
    place alone. Evaluation takes one problem of each task in turn, until a task has no more.

    Args:
        tasks: as they were built, in the order of ``parts``.
        parts: weights, and which tasks are evaluated on.
        seed: of the order.

    Raises:
        ConfigError: no task, two of one name, a name that metrics have, or weights that are none.
        InputError: a task without problems for what it is there for.
    """

    def __init__(self, tasks: Sequence[Task], parts: Sequence[Part], seed: int = 0) -> None:
        if not tasks:
            raise ConfigError("task.tasks is empty: must name at least one task, for example [{name = 'words'}]")
        names = [task.name for task in tasks]
        if len(set(names)) < len(names):
            raise ConfigError(f"task.tasks are named {', '.join(names)}: give each its own label, metrics go by it")
        if taken := [name for name in names if _TAKEN.fullmatch(name)]:
            raise ConfigError(
                f"task.tasks[{names.index(taken[0])}].label = {taken[0]!r}: metrics of the whole run are named so; "
                f"must be another than {', '.join(RESERVED)}"
            )
        weights = [part.weight for part in parts]
        if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
            raise ConfigError(f"task.tasks have the weights {weights}: must be finite and >= 0, and one of them > 0")
        for task, part in zip(tasks, parts, strict=True):
            if part.weight and task.size == 0:
                raise InputError(
                    f"task {task.name!r} has nothing to train on: set its path, or weight = 0 to evaluate on it only"
                )
        self._tasks, self._seed = list(tasks), seed
        self._trained = [task for task, weight in zip(tasks, weights, strict=True) if weight]
        self._quota = _quotas([weight for weight in weights if weight])
        self._by_name = dict(zip(names, tasks, strict=True))
        sizes = [task.eval_size if part.evaluate else 0 for task, part in zip(tasks, parts, strict=True)]
        self._evaluation = list(islice(_in_turn(sizes), _MAX_EVAL))

    @property
    def name(self) -> str:
        return "mixture"

    @property
    def size(self) -> int | None:
        return None

    @property
    def eval_size(self) -> int | None:
        return len(self._evaluation)

    @property
    def data(self) -> Mapping[str, Any] | None:
        return {task.name: dict(task.data) for task in self._tasks if task.data is not None} or None

    def problem(self, index: int) -> Problem:
        block, place = divmod(index, _BLOCK)
        part, rank = _block(self._quota, self._seed, block)[place]
        cursor = block * self._quota[part] + rank
        task = self._trained[part]
        return task.problem(position(cursor, task.size, self._seed)[1])

    def eval_problem(self, index: int) -> Problem:
        part, place = self._evaluation[index]
        return self._tasks[part].eval_problem(place)

    def grade(self, answers: Sequence[Answer]) -> list[Grade]:
        grades: dict[int, Grade] = {}
        for name, task in self._by_name.items():
            own = [i for i, answer in enumerate(answers) if answer.problem.task == name]
            grades |= zip(own, task.grade([answers[i] for i in own]), strict=True)
        return [grades[i] for i in range(len(answers))]

    def key(self, answer: Answer) -> str | None:
        return self._by_name[answer.problem.task].key(answer)

    def close(self) -> None:
        for task in self._tasks:
            task.close()


def parts_of(options: MixtureOptions) -> list[Part]:
    """The tables of a mixture.

    Raises:
        ConfigError: what is no table with a name or is a mixture itself, a weight that is no number, or a task
            that is neither trained nor evaluated on.
    """
    out = []
    for number, table in enumerate(options.tasks):
        if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
            raise ConfigError(f"task.tasks[{number}] = {table!r}: must be a table with a name")
        if table["name"] == "mixture":
            raise ConfigError(f"task.tasks[{number}] is a mixture: must be one task; name its tasks here, with weights")
        weight, evaluate = table.get("weight", 1.0), table.get("evaluate", True)
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise ConfigError(f"task.tasks[{number}].weight = {weight!r}: must be a number >= 0")
        if not isinstance(evaluate, bool):
            raise ConfigError(f"task.tasks[{number}].evaluate = {evaluate!r}: must be true | false")
        if not weight and not evaluate:
            raise ConfigError(
                f"task.tasks[{number}] has weight = 0 and evaluate = false: leave it out, or one of the two"
            )
        own = {k: v for k, v in table.items() if k not in ("name", "weight", "evaluate")}
        out.append(Part(table["name"], float(weight), evaluate, own))
    return out


def _quotas(weights: Sequence[float]) -> tuple[int, ...]:
    """Problems of each task in a block: the nearest whole shares that sum to it, at least one each."""
    shares = np.asarray(weights, dtype=float) / np.sum(weights) * _BLOCK
    quotas = np.maximum(np.floor(shares), 1).astype(int)
    while quotas.sum() < _BLOCK:
        quotas[np.argmax(shares - quotas)] += 1
    while quotas.sum() > _BLOCK:
        quotas[np.argmax(np.where(quotas > 1, quotas - shares, -np.inf))] -= 1
    return tuple(quotas.tolist())


@lru_cache(maxsize=4)
def _block(quotas: tuple[int, ...], seed: int, block: int) -> list[tuple[int, int]]:
    """Task and its rank within the block, for each place of a block."""
    order = np.random.default_rng([seed, block]).permutation(np.repeat(np.arange(len(quotas)), quotas))
    ranks = [0] * len(quotas)
    out = []
    for part in order.tolist():
        out.append((part, ranks[part]))
        ranks[part] += 1
    return out


def _in_turn(sizes: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    for place in count():
        left = [part for part, size in enumerate(sizes) if size is None or place < size]
        if not left:
            return
        yield from ((part, place) for part in left)
