"""Mathematics in words: published data sets, files with a column map, and a generator. Imports no torch."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lagproof.errors import DataChoiceError, InputError
from lagproof.grading.extract import Form
from lagproof.grading.grader import Grader
from lagproof.grading.pool import Limits
from lagproof.settings.keys import key
from lagproof.settings.models import model
from lagproof.tasks.files import RowSource, has_split, rows
from lagproof.tasks.prompts import Prompting
from lagproof.tasks.schemas import SCHEMAS, Columns, Item, Schema, digest, items, unique_column
from lagproof.tasks.task import Answer, Grade, Problem
from lagproof.tasks.words import word_problem

log = logging.getLogger(__name__)
_TRAIN, _EVAL = 0, 1


@model("task")
class PromptOptions:
    """Options that every task in words has."""

    label: str | None = key(None, "name in metrics; absent: the task's own")
    prompt: Literal["chat", "plain"] = key("chat", "chat (the model's chat template) | plain")
    answer_form: Form = key(Form.BOXED, f"where the answer is: {' | '.join(Form)}", strict=False)
    instruction: str | None = key(None, "asks for the form; absent: the usual sentence")
    system: str | None = key(None, "system message, chat only; absent: the data set's own")
    shots: int = key(0, "worked examples in front of the question", ge=0)
    chat_template_kwargs: dict[str, Any] = key(dict, "arguments of the chat template, such as enable_thinking = false")
    limit_s: float = key(Limits.time_s, "wall-clock limit of grading one answer", gt=0)
    memory_mib: int = key(Limits.memory_mib, "memory limit of grading one answer", ge=64)
    graders: int = key(Limits.workers, "grading processes at most; started when first needed", ge=1)

    def prompting(self) -> Prompting:
        """How questions are put."""
        return Prompting(
            *(self.prompt, self.answer_form, self.instruction, self.system, self.shots, self.chat_template_kwargs)
        )

    def limits(self) -> Limits:
        """What grading one answer may cost."""
        return Limits(self.limit_s, self.memory_mib, self.graders)


@model("task")
class WordOptions(PromptOptions):
    """Options of the generator."""

    seed: int | None = key(None, "which problems; absent: the run's to train on, 0 to evaluate on", ge=0)
    largest: int = key(20, "largest number in a problem, >= 4", ge=4)


@model("task")
class DataOptions(PromptOptions):
    """Options of a data set."""

    path: str | None = key(None, "a file, a folder, or a Hugging Face data set name")
    split: str = key("train", "files of the folder, or split, to train on")
    subset: str | None = key(None, "configuration of a Hugging Face data set")
    eval_path: str | None = key(None, "problems to evaluate on; absent: as path")
    eval_split: str = key("test", "files of the folder, or split, to evaluate on")
    held_out: float = key(
        0.1, "share of path evaluated on and not trained on where there is no other; 0: both on all", ge=0, lt=1
    )
    question_column: str | None = key(None, "dotted path; absent: the usual names")
    gold_column: str | None = key(None, "dotted path; absent: the usual names")
    id_column: str | None = key(None, "dotted path; absent: the usual names, or numbers")

    def columns(self) -> Columns:
        """The columns that were chosen."""
        return Columns(self.question_column, self.gold_column, self.id_column)


@dataclass(frozen=True)
class Problems:
    """Training and evaluation problems by index; a size of ``None`` never ends.

    Attributes:
        data: of the files they were read from, as :attr:`lagproof.tasks.task.Task.data`.
    """

    size: int | None
    eval_size: int | None
    train: Callable[[int], Item]
    evaluation: Callable[[int], Item]
    data: Mapping[str, Any] | None = None


class MathTask:
    """Problems with a right answer, put as a prompt and graded by what the response says.

    Reward: 1 for a right answer, NaN where the data set's own answer cannot be read, else 0. Whether the response
    was truncated does not matter by itself: without its end it has no answer.
    """

    def __init__(self, name: str, problems: Problems, options: PromptOptions) -> None:
        self._name, self._problems = name, problems
        self._prompting = options.prompting()
        self._grader = Grader(options.answer_form, options.limits())

    @property
    def name(self) -> str:
        return self._name

    @property
    def size(self) -> int | None:
        return self._problems.size

    @property
    def eval_size(self) -> int | None:
        return self._problems.eval_size

    @property
    def data(self) -> Mapping[str, Any] | None:
        return self._problems.data

    def problem(self, index: int) -> Problem:
        return self._problem(self._problems.train(index))

    def eval_problem(self, index: int) -> Problem:
        return self._problem(self._problems.evaluation(index))

    def grade(self, answers: Sequence[Answer]) -> list[Grade]:
        return self._grader.grade([(a.problem.gold, self._prompting.truncate(a.text)) for a in answers])

    def key(self, answer: Answer) -> str | None:
        return self._grader.key(answer.problem.gold, self._prompting.truncate(answer.text))

    def close(self) -> None:
        self._grader.close()

    def _problem(self, item: Item) -> Problem:
        prompt, stop = self._prompting.prompt(item.question), self._prompting.stop
        return Problem(item.id, prompt, item.gold, self._name, stop=stop, template=self._prompting.template)


def word_task(options: WordOptions, run_seed: int = 0, name: str = "words") -> MathTask:
    """Word problems without end; one question in eight is only evaluated on.

    Args:
        options: of the generator.
        run_seed: which problems are trained on where the options have no seed.
        name: of the task where the options have no label.
    """
    seeds = (run_seed, 0) if options.seed is None else (options.seed, options.seed)

    def item(split: int, index: int) -> Item:
        made = word_problem(seeds[split], split, index, options.largest, held_out=split == _EVAL)
        identity = f"words-{('train', 'eval')[split]}-{index}"
        return Item(identity, made.question, made.answer, identity)

    problems = Problems(None, 10_000, lambda i: item(_TRAIN, i), lambda i: item(_EVAL, i))
    return MathTask(options.label or name, problems, options)


def data_task(options: DataOptions, name: str) -> MathTask:
    """A data set. Only ``eval_path`` given: all of it is evaluated on and nothing trained on.

    Raises:
        InputError: nothing to read, or rows that cannot be used.
    """
    schema = SCHEMAS[name]
    if options.path is None and options.eval_path is None:
        published = f", for example {schema.published}" if schema.published else ""
        raise DataChoiceError(
            f"task {name!r} needs task.path: a .jsonl or .parquet file, a folder of them, "
            f"or a Hugging Face data set name{published}",
            "path",
        )
    train, evaluation = _splits(options, schema)
    data = {"problems": len(train), "evaluated": len(evaluation), "digest": digest([*train, *evaluation])}
    problems = Problems(len(train), len(evaluation), train.__getitem__, evaluation.__getitem__, data)
    return MathTask(options.label or name, problems, options)


def _splits(options: DataOptions, schema: Schema) -> tuple[list[Item], list[Item]]:
    unique = unique_column(schema, options.columns())

    def read(source: RowSource, advice: str = "") -> list[Item]:
        held = list(rows(source, unique))
        try:
            found = items(held, schema, options.columns())
        except InputError as error:
            raise InputError(f"{error}{advice}") from error
        if not found:
            raise InputError(f"{source.path}: the data set is empty; must have at least one problem")
        return found

    train = [] if options.path is None else read(RowSource(options.path, options.split, options.subset))
    place = options.eval_path or options.path
    assert place is not None
    test = RowSource(place, options.eval_split, options.subset)
    if options.eval_path is None and not has_split(test):
        return _hold_out(train, options)
    advice = "; task.eval_path is read as task.path is: make data sets of two kinds a mixture, this one with weight = 0"
    return train, read(test, advice if train and options.eval_path else "")


def _hold_out(found: list[Item], options: DataOptions) -> tuple[list[Item], list[Item]]:
    """A fixed random share for evaluation, the rest for training, both in the order of the data set."""
    count = math.ceil(options.held_out * len(found))
    if count == 0:
        return found, found
    said = f"{options.path}: has no split {options.eval_split!r}"
    if len(found) < 2:
        log.warning("%s and one problem, which is both trained on and evaluated on", said)
        return found, found
    log.warning(
        "%s: %d of its %d problems are evaluated on and not trained on (task.held_out = %s)",
        *(said, count, len(found), options.held_out),
    )
    chosen = set(np.random.default_rng(len(found)).permutation(len(found))[:count].tolist())
    return [x for i, x in enumerate(found) if i not in chosen], [x for i, x in enumerate(found) if i in chosen]
