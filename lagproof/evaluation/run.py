"""Models times tasks, with a folder for the samples: what ``lagproof eval`` does."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lagproof import tasks
from lagproof.data.samples import Sample
from lagproof.errors import InputError, InterruptedRunError, UnknownNameError
from lagproof.evaluation.evaluate import Ask, Encode, ask, collect, eval_problems
from lagproof.evaluation.result import Difference, EvalResult, Response, difference
from lagproof.evaluation.store import Store, write_json
from lagproof.tasks.task import Problem, Task


@dataclass(frozen=True)
class TaskChoice:
    """A task to evaluate on: its label, its name in the table, and its options."""

    label: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """How responses are sampled.

    Attributes:
        k: samples a problem.
        prompts: problems of a task at most; ``None`` for all.
        max_tokens: response tokens at most.
        temperature: 0 is greedy.
        top_p: nucleus mass.
        top_k: tokens kept, 0 for all.
        seed: of the random streams.
        batch: problems in one call of the engine; what was sampled is on disk after each.
        stop: strings that end a response; ``None`` for the task's own.
    """

    k: int = 1
    prompts: int | None = None
    max_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    batch: int = 8
    stop: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, ok, allowed in (
            ("k", self.k >= 1, ">= 1"),
            ("prompts", self.prompts is None or self.prompts >= 1, ">= 1"),
            ("max_tokens", self.max_tokens >= 1, ">= 1"),
            ("temperature", self.temperature >= 0, ">= 0; 0 is greedy"),
            ("top_p", 0 < self.top_p <= 1, "in (0, 1]"),
            ("top_k", self.top_k >= 0, ">= 0; 0 keeps every token"),
            ("seed", self.seed >= 0, ">= 0"),
            ("batch", self.batch >= 1, ">= 1"),
            ("stop", all(self.stop or ()), "strings that are not empty"),
        ):
            if not ok:
                raise InputError(f"{name} = {getattr(self, name)}: must be {allowed}")


@dataclass(frozen=True)
class Opened:
    """A model that is ready to be asked."""

    generate: Callable[[Sequence[Ask], Settings], Sequence[Sequence[Sample]]]
    encode: Encode


Open = Callable[[str], AbstractContextManager[Opened]]
OnProgress = Callable[[str, str, int, int], None]
"""Told model, task, problems done and problems in all."""


@dataclass(frozen=True)
class Comparison:
    """Every model on every task: ``results[task][model]``, and each model against the first one."""

    results: Mapping[str, Mapping[str, EvalResult]]
    differences: Mapping[str, Sequence[Difference]]

    def to_dict(self) -> dict[str, Any]:
        """As plain values for ``result.json``."""
        return {
            "results": {
                task: {model: result.summary() for model, result in of_model.items()}
                for task, of_model in self.results.items()
            },
            "differences": {task: [dataclasses.asdict(gap) for gap in gaps] for task, gaps in self.differences.items()},
        }


def parse_tasks(texts: Sequence[str], options: Mapping[str, Any] | None = None) -> list[TaskChoice]:
    """``aime24=FILE``, ``gsm8k=FOLDER``, ``mine=FILE`` or ``arithmetic``.

    The label picks the task of the table that it begins with (``aime24``: ``aime``) or that begins with it (``dapo``),
    case aside; any other label reads the file by its usual columns. All of a file is evaluated on; of a folder, its
    split ``test``.

    Args:
        texts: what was typed.
        options: further options; each goes to the tasks that have it.

    Raises:
        InputError: a label without its file.
        UnknownNameError: a task without a file that is not in the table, or an option that no task has.
    """
    choices = [_parse_task(text) for text in texts]
    known = {choice.label: [name for name, _, _ in tasks.options(choice.name)] for choice in choices}
    for key in options or {}:
        if not any(key in names for names in known.values()):
            raise UnknownNameError("task option", key, sorted({name for names in known.values() for name in names}))
    shared = options or {}
    return [
        TaskChoice(c.label, c.name, {**c.options, **{k: v for k, v in shared.items() if k in known[c.label]}})
        for c in choices
    ]


def run_eval(
    models: Sequence[str],
    choices: Sequence[TaskChoice],
    settings: Settings,
    out: Path,
    open_model: Open,
    *,
    on_progress: OnProgress = lambda model, task, done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Comparison:
    """Evaluate every model on every task; what a former call has sampled is not sampled again.

    Args:
        models: names or folders; the first is the base of the comparison.
        choices: tasks with different labels.
        settings: how responses are sampled.
        out: folder for samples, tables and ``result.json``.
        open_model: makes a model ready; called only for models with something left to ask.
        on_progress: told after every batch.
        interrupted: asked after every batch.

    Raises:
        UsageError: a model or a task that cannot be used, two of one name, or a folder with other settings.
        InterruptedRunError: asked to stop; everything sampled so far is kept.
    """
    for kind, names in (("model", models), ("task", [choice.label for choice in choices])):
        if not names:
            raise InputError(f"no {kind} to evaluate: give at least one")
        if len(set(names)) < len(names):
            raise InputError(f"{kind}s {', '.join(names)}: each may be named once")
    results: dict[str, dict[str, EvalResult]] = {choice.label: {} for choice in choices}
    built: dict[str, Task] = {}
    try:
        built |= {choice.label: tasks.build(choice.name, choice.options) for choice in choices}
        for model in models:
            jobs = [_job(model, choice, built[choice.label], settings, out) for choice in choices]
            with open_model(model) if any(job.left for job in jobs) else nullcontext() as opened:
                for job in jobs:
                    if opened is not None:
                        _ask_the_rest(job, opened, settings, on_progress, interrupted)
                    results[job.label][model] = _finish(job, settings)
    finally:
        for task in built.values():
            task.close()
    gaps = {
        label: [gap for other in models[1:] if (gap := difference(of_model, models[0], other)) is not None]
        for label, of_model in results.items()
    }
    comparison = Comparison(results, gaps)
    write_json(out / "result.json", comparison.to_dict())
    return comparison


@dataclass
class _Job:
    """One model on one task."""

    model: str
    label: str
    task: Task
    store: Store
    problems: Sequence[Problem]
    responses: list[Response]

    @property
    def left(self) -> list[tuple[int, Problem]]:
        """Problems without a sample, with the index that their random streams derive from."""
        asked = {(response.task, response.problem_id) for response in self.responses}
        return [(i, p) for i, p in enumerate(self.problems) if (p.task, p.id) not in asked]


def _job(model: str, choice: TaskChoice, task: Task, settings: Settings, out: Path) -> _Job:
    problems = eval_problems(task, settings.prompts)
    folder = out / _slug(model) / _slug(choice.label)
    store = Store(
        folder, _identity(model, choice, settings), problems, lambda asked: eval_problems(task, task.eval_size or asked)
    )
    return _Job(model, choice.label, task, store, problems, store.read())


def _ask_the_rest(
    job: _Job, opened: Opened, settings: Settings, on_progress: OnProgress, interrupted: Callable[[], bool]
) -> None:
    left, total = job.left, len(job.problems)
    done = total - len(left)
    on_progress(job.model, job.label, done, total)
    batches = ask(
        lambda asks: opened.generate(asks, settings),
        opened.encode,
        job.task,
        left,
        k=settings.k,
        seed=settings.seed,
        batch=settings.batch,
    )
    for part, graded in batches:
        job.store.append(graded)
        job.responses += graded
        done += len(part)
        on_progress(job.model, job.label, done, total)
        if done < total and interrupted():
            raise InterruptedRunError(
                f"stopped after {done} of {total} problems of {job.label}; the same command goes on from there"
            )


def _finish(job: _Job, settings: Settings) -> EvalResult:
    job.store.finish()
    result = collect(job.problems, job.responses, k=settings.k)
    job.store.write_problems([problem.row() for problem in result.problems])
    return result


def _parse_task(text: str) -> TaskChoice:
    label, separator, path = (part.strip() for part in text.partition("="))
    if separator and not path:
        raise InputError(f"--task {text}: no file after the sign; must be LABEL=FILE, for example aime24=aime24.jsonl")
    lower = label.lower()
    if not separator:
        return TaskChoice(label, lower)
    begins = [name for name in tasks.TASKS if lower.startswith(name)]
    begun = [name for name in tasks.TASKS if len(label) >= 3 and name.startswith(lower)]
    name = max(begins, key=len) if begins else begun[0] if len(begun) == 1 else "jsonl"
    return TaskChoice(label, name, {"eval_path": path, "label": label})


def _identity(model: str, choice: TaskChoice, settings: Settings) -> dict[str, Any]:
    """What the samples depend on; the number of problems and the batch may change."""
    sampling = {k: v for k, v in dataclasses.asdict(settings).items() if k not in ("prompts", "batch")}
    weights = {
        file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in sorted(Path(model).glob("*.safetensors"))
    }
    options = tasks.resolve(choice.name, choice.options)
    stop = "of the task" if settings.stop is None else list(settings.stop)
    return {"model": model, "weights": weights, "task": choice.name, "options": options, **sampling, "stop": stop}


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "model"
