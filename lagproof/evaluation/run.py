"""Models times tasks, with a folder for the samples: what ``lagproof eval`` does."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagproof.data.samples import Sample
from lagproof.errors import InputError, InterruptedRunError, UnknownNameError
from lagproof.evaluation.choices import TaskChoice, build, parse_tasks
from lagproof.evaluation.evaluate import Encode, ask, collect, eval_problems
from lagproof.evaluation.identity import identity
from lagproof.evaluation.result import EvalResult, GradedResponse, ModelDifference, difference
from lagproof.evaluation.settings import Settings
from lagproof.evaluation.store import Store
from lagproof.rollout.engine import Request, Sampling
from lagproof.runs.evaluation import write_result
from lagproof.tasks.prompts import representatives
from lagproof.tasks.task import Problem, Task

__all__ = [
    "Evaluation",
    "OnProgress",
    "Open",
    "Opened",
    "Settings",
    "TaskChoice",
    "evaluate",
    "opened",
    "parse_tasks",
    "run_eval",
]


@dataclass(frozen=True)
class Opened:
    """A model that is ready to be asked.

    Attributes:
        generate: samples responses.
        encode: the prompt of a problem as token ids.
        positions: tokens of a prompt and its response at most; ``None`` without an end.
    """

    generate: Callable[[Sequence[Request], Settings], Sequence[Sequence[Sample]]]
    encode: Encode
    positions: int | None = None


_RESUMES = "the same command resumes from there"

Open = Callable[[str], AbstractContextManager[Opened]]
OnProgress = Callable[[str, str, int, int], None]
"""Called with model, task, problems done and problems in all."""


@dataclass(frozen=True)
class Evaluation:
    """Every model on every task: ``results[task][model]``, and each model against the first one."""

    results: Mapping[str, Mapping[str, EvalResult]]
    differences: Mapping[str, Sequence[ModelDifference]]

    def to_dict(self) -> dict[str, Any]:
        """As plain values for ``result.json``."""
        return {
            "results": {
                task: {model: result.summary() for model, result in of_model.items()}
                for task, of_model in self.results.items()
            },
            "differences": {task: [gap.to_dict() for gap in gaps] for task, gaps in self.differences.items()},
        }


@contextmanager
def opened(name: str, on_tokens: Callable[[int], None] | None = None) -> Iterator[Opened]:
    """A model that is ready to be asked.

    Args:
        name: as ``lagproof.models.loading.load`` takes it.
        on_tokens: called with the number of tokens drawn since the last call.

    Raises:
        UsageError: no such model.
    """
    from lagproof.models.loading import load  # here: what is already sampled is counted without torch
    from lagproof.models.prompts import encode, positions
    from lagproof.rollout.hf import HFEngine

    loaded = load(name)
    engine = HFEngine.view(loaded.model, loaded.tokenizer, loaded.stop_ids, version=0, on_tokens=on_tokens)

    def generate(requests: Sequence[Request], settings: Settings) -> list[list[Sample]]:
        sampling = Sampling(
            settings.max_tokens, settings.temperature, settings.top_p, settings.top_k, record_logp=False
        )
        return engine.generate(requests, sampling)

    yield Opened(generate, lambda p: encode(loaded, p.prompt, p.template), positions(loaded.model))


def evaluate(
    models: str | Sequence[str],
    tasks: str | Sequence[str],
    *,
    out: str | Path = "runs/eval",
    options: Mapping[str, Any] | None = None,
    on_progress: OnProgress = lambda model, task, done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
    open_model: Open = opened,
    **settings: Any,
) -> Evaluation:
    """Evaluate models on tasks, and compare each with the first: ``lagproof eval`` in Python.

    A second call with the same arguments samples only what is missing in ``out``.

    Args:
        models: ``tiny-dense``, a folder, a checkpoint of a run, or a Hugging Face name; one or more.
        tasks: ``arithmetic``, ``aime24=aime24.jsonl``, as for :func:`parse_tasks`; one or more.
        out: folder for samples, tables and ``result.json``.
        options: of the tasks that have them: ``{"shots": 3}``.
        on_progress: called after every batch with model, task, problems done and problems in all.
        interrupted: asked before every batch, and before a model is opened.
        open_model: makes a model ready; called only for models with something left to ask.
        settings: fields of :class:`Settings`: ``k=4, prompts=100, temperature=0.6``.

    Returns:
        ``results[task][model]``, an :class:`EvalResult` each, and the differences to the first model.

    Raises:
        UnknownNameError: a setting, a task or an option that there is not; names the nearest one.
        UsageError: a model, a task or a setting that cannot be used, or a folder with other settings.
        InterruptedRunError: asked to stop; everything sampled so far is kept.
    """
    known = [field.name for field in dataclasses.fields(Settings)]
    if unknown := next((name for name in settings if name not in known), None):
        raise UnknownNameError("setting of an evaluation", unknown, known)
    return run_eval(
        [models] if isinstance(models, str) else models,
        parse_tasks([tasks] if isinstance(tasks, str) else tasks, options),
        Settings(**settings),
        Path(out),
        open_model,
        on_progress=on_progress,
        interrupted=interrupted,
    )


def run_eval(
    models: Sequence[str],
    choices: Sequence[TaskChoice],
    settings: Settings,
    out: Path,
    open_model: Open,
    *,
    on_progress: OnProgress = lambda model, task, done, total: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Evaluate every model on every task; what a former call has sampled is not sampled again.

    Args:
        models: names or folders; the first is the base of the comparison.
        choices: tasks with different labels.
        settings: how responses are sampled.
        out: folder for samples, tables and ``result.json``.
        open_model: makes a model ready; called only for models with something left to ask.
        on_progress: called after every batch.
        interrupted: asked before every batch, and before a model is opened.

    Raises:
        UsageError: a model, a task or a label that cannot be used, two of one name, or a folder with other settings.
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
        built |= {choice.label: build(choice) for choice in choices}
        for model in models:
            jobs = [_job(model, choice, built[choice.label], settings, out) for choice in choices]
            is_done = not any(job.left for job in jobs)
            if not is_done and interrupted():
                raise InterruptedRunError(f"stopped before {model} was asked; {_RESUMES}")
            with nullcontext() if is_done else open_model(model) as opened:
                if opened is not None:
                    _check_prompts(jobs, opened, settings.max_tokens)
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
    comparison = Evaluation(results, gaps)
    write_result(out, comparison.to_dict())
    return comparison


@dataclass
class _Job:
    """One model on one task."""

    model: str
    label: str
    task: Task
    store: Store
    problems: Sequence[Problem]
    responses: list[GradedResponse]

    @property
    def left(self) -> list[tuple[int, Problem]]:
        """Problems without a sample, with the index that their random streams derive from."""
        asked = {(response.task, response.problem_id) for response in self.responses}
        return [(i, p) for i, p in enumerate(self.problems) if (p.task, p.id) not in asked]


def _job(model: str, choice: TaskChoice, task: Task, settings: Settings, out: Path) -> _Job:
    problems = eval_problems(task, settings.prompts)
    folder = out / _slug(model) / _slug(choice.label)
    store = Store(
        folder, identity(model, choice, settings), problems, lambda asked: eval_problems(task, task.eval_size or asked)
    )
    return _Job(model, choice.label, task, store, problems, store.read())


def _ask_the_rest(
    job: _Job, opened: Opened, settings: Settings, on_progress: OnProgress, interrupted: Callable[[], bool]
) -> None:
    left, total = job.left, len(job.problems)
    done = total - len(left)

    def stop_if_asked() -> None:
        if done < total and interrupted():
            raise InterruptedRunError(f"stopped after {done} of {total} problems of {job.label}; {_RESUMES}")

    on_progress(job.model, job.label, done, total)
    stop_if_asked()
    batches = ask(
        lambda requests: opened.generate(requests, settings),
        opened.encode,
        job.task,
        left,
        k=settings.k,
        seed=settings.seed,
        stop=settings.stop,
        batch=settings.batch,
    )
    for part, graded in batches:
        job.store.append(graded)
        job.responses += graded
        done += len(part)
        on_progress(job.model, job.label, done, total)
        stop_if_asked()


def _check_prompts(jobs: Sequence[_Job], opened: Opened, max_tokens: int) -> None:
    """Find out before anything is sampled that the model cannot read the problems, or has no room for a response."""
    from lagproof.models.prompts import check_length  # here: what is already sampled is counted without torch

    telling = representatives(problem for job in jobs for _, problem in job.left)
    check_length([len(opened.encode(problem)) for problem in telling], max_tokens, opened.positions, "max_tokens")


def _finish(job: _Job, settings: Settings) -> EvalResult:
    """The result of the problems that were asked for; the table of problems is of all that have samples."""
    job.store.finish()
    result = collect(job.problems, job.responses, k=settings.k)
    others = _other_problems(job)
    of_others = collect(others, job.responses, k=settings.k)
    whole = eval_problems(job.task, job.task.eval_size or len(job.problems) + len(others)) if others else job.problems
    prompts = {(problem.task, problem.id): problem.prompt for problem in whole}
    found = [*result.problems, *of_others.problems]
    job.store.write_problems([{**p.row(), "prompt": prompts.get((p.task, p.problem_id))} for p in found])
    return result


def _other_problems(job: _Job) -> list[Problem]:
    """Problems that only an earlier call with more of them asked, as far as their samples tell."""
    asked = {(problem.task, problem.id) for problem in job.problems}
    found = {(r.task, r.problem_id): Problem(r.problem_id, "", r.gold, r.task) for r in job.responses}
    return [problem for key, problem in found.items() if key not in asked]


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "model"
