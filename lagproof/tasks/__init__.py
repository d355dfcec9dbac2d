"""The table of tasks: what the ``[task]`` section of a configuration can name. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lagproof.errors import UnknownNameError
from lagproof.settings.keys import Setting, keys
from lagproof.settings.models import to_dict
from lagproof.tasks.arithmetic import ArithmeticOptions, ArithmeticTask
from lagproof.tasks.gym import GymOptions, GymTask
from lagproof.tasks.math import DataOptions, PromptOptions, WordOptions, data_task, word_task
from lagproof.tasks.mixture import MixtureOptions, MixtureTask, Part, parts_of
from lagproof.tasks.task import Task


@dataclass(frozen=True)
class TaskInfo:
    """What the table knows of a task.

    Attributes:
        options: model whose fields are the options, each with its default.
        build: makes the task from an instance of it and the run's seed.
        summary: one line for ``--help``.
        defaults: options whose default is another one for this task.
    """

    options: type
    build: Callable[[Any, int], Task]
    summary: str
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def read(self, options: Mapping[str, Any]) -> Any:
        """The options as an instance of the dataclass."""
        return self.options(**{**self.defaults, **options})


def _arithmetic(options: ArithmeticOptions, run_seed: int) -> Task:
    return ArithmeticTask(options.terms, options.seed, options.label, run_seed)


def _math(options: DataOptions, run_seed: int) -> Task:
    """Files where a path is given; else our own word problems under the same prompt options."""
    if options.path is None and options.eval_path is None:
        shared = {f.name: getattr(options, f.name) for f in fields(PromptOptions)}
        return word_task(WordOptions(**shared), run_seed, "math")
    return data_task(options, "math")


def _mixture(options: MixtureOptions, run_seed: int) -> Task:
    parts = parts_of(options)
    built = [build(part.name, _of_part(part), run_seed) for part in parts]
    return MixtureTask(built, parts, run_seed if options.seed is None else options.seed)


def _of_part(part: Part) -> Mapping[str, Any]:
    """A data set that is only trained or only evaluated on is used whole: nothing is held out of it."""
    if info(part.name).options is not DataOptions:
        return part.options
    if not part.evaluate:
        return {"held_out": 0.0, **part.options}
    if not part.weight and "path" in part.options:
        return {"eval_path": part.options["path"], **{k: v for k, v in part.options.items() if k != "path"}}
    return part.options


def _data(name: str, summary: str, **defaults: Any) -> TaskInfo:
    return TaskInfo(DataOptions, lambda options, run_seed: data_task(options, name), summary, defaults)


TASKS: Mapping[str, TaskInfo] = {
    "arithmetic": TaskInfo(ArithmeticOptions, _arithmetic, "sums of one-digit terms, for the tiny models"),
    "words": TaskInfo(WordOptions, word_task, "one-step word problems of our own writing, without end"),
    "math": TaskInfo(DataOptions, _math, "problem and answer (MATH, MATH500, MAWPS); without a path as words"),
    "gsm8k": _data("gsm8k", "GSM8K: question, and a solution that ends in ####"),
    "aime": _data("aime", "AIME: problem and answer"),
    "amc": _data("amc", "AMC: problem and answer"),
    "dapo-math-17k": _data(
        "dapo-math-17k",
        "DAPO-Math-17k, each problem once; its prompts ask for a last line 'Answer:'",
        answer_form="marked",
    ),
    "dolci-rl-zero-math": _data("dolci-rl-zero-math", "Dolci-RL-Zero-Math: messages and ground truth"),
    "jsonl": _data("jsonl", "JSON Lines with a column map"),
    "parquet": _data("parquet", "parquet with a column map"),
    "reasoning-gym": TaskInfo(
        GymOptions, lambda options, run_seed: GymTask(options), "a generator of reasoning_gym, graded by its own scorer"
    ),
    "mixture": TaskInfo(MixtureOptions, _mixture, "several tasks with weights"),
}


def build(name: str, options: Mapping[str, Any] | None = None, run_seed: int = 0) -> Task:
    """The task ``name`` with ``options``.

    Args:
        name: in the table.
        options: those that are not the defaults.
        run_seed: what generators are trained on, and the order of a mixture, where the options have no seed.

    Raises:
        UnknownNameError: no such task, or no such option (named ``task.<option>``).
        ConfigError: an option of the wrong type or value.
        InputError: a data set that cannot be used.
    """
    found = info(name)
    return found.build(found.read(options or {}), run_seed)


def options(name: str) -> list[Setting]:
    """Options of a task: name, default, help."""
    return keys(info(name).read({}))


def resolve(name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options of a task with every default filled in, as plain TOML values; absent ones are left out."""
    return to_dict(info(name).read(options or {}))


def info(name: str) -> TaskInfo:
    """What the table knows of a task.

    Raises:
        UnknownNameError: no such task.
    """
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return TASKS[name]
