"""Ask a model every problem of a task ``k`` times: the same code in training and on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from lagproof.data.samples import Sample
from lagproof.data.streams import Purpose, stream
from lagproof.errors import InputError
from lagproof.evaluation.result import EvalResult, GradedResponse, ProblemResult
from lagproof.rollout.engine import Request
from lagproof.tasks.task import Answer, Problem, Task, position


class Generate(Protocol):
    """Samples responses; an engine with its settings filled in."""

    def __call__(self, requests: Sequence[Request], /) -> Sequence[Sequence[Sample]]:
        """The responses to each prompt, in order; fewer than asked for where some were lost."""
        ...


Encode = Callable[[Problem], Sequence[int]]
"""The prompt of a problem as token ids."""
OnProgress = Callable[[int, int], None]
"""Called with the problems done and the problems in all."""


def evaluate_task(
    generate: Generate,
    encode: Encode,
    task: Task,
    problems: Sequence[Problem],
    *,
    k: int,
    seed: int,
    stop: Sequence[str] | None = None,
    on_progress: OnProgress | None = None,
) -> EvalResult:
    """Ask all problems at once.

    Args:
        generate: the engine.
        encode: the prompt of a problem to token ids.
        task: grades the answers.
        problems: of the task, for example :func:`eval_problems`.
        k: samples per problem.
        seed: the stream of a problem is a function of ``(seed, index of the problem)`` alone.
        stop: strings that end a response; ``None`` for those of its problem.
        on_progress: called when it is done.

    Raises:
        InputError: ``k`` < 1.
    """
    if k < 1:
        raise InputError(f"k = {k}: must be >= 1")
    found = ask(generate, encode, task, list(enumerate(problems)), k=k, seed=seed, stop=stop)
    batches = [responses for _, responses in found]
    if on_progress is not None:
        on_progress(len(problems), len(problems))
    return collect(problems, [response for batch in batches for response in batch], k=k)


def eval_problems(task: Task, prompts: int | None, seed: int | None = None) -> list[Problem]:
    """Problems of the evaluation side of a task.

    Args:
        task: the task.
        prompts: how many at most; ``None`` for all.
        seed: draws them without replacement, so that runs of different seeds differ in their problems too, and an
            interval over seeds holds the sampling error of both; ``None`` for the first ones.

    Raises:
        InputError: there are none, or a task without end and no number of prompts.
    """
    size = task.eval_size if prompts is None or task.eval_size is None else min(prompts, task.eval_size)
    count = prompts if size is None else size
    if count is None:
        raise InputError(f"task {task.name!r} has no end: say how many problems to evaluate on")
    if count < 1:
        raise InputError(f"task {task.name!r} has no problems to evaluate on")
    if seed is None:
        return [task.eval_problem(index) for index in range(count)]
    order = stream(seed, Purpose.EVAL_PROBLEMS)
    return [task.eval_problem(position(place, task.eval_size, order)[1]) for place in range(count)]


def ask(
    generate: Generate,
    encode: Encode,
    task: Task,
    problems: Sequence[tuple[int, Problem]],
    *,
    k: int,
    seed: int,
    stop: Sequence[str] | None = None,
    batch: int | None = None,
) -> Iterator[tuple[list[Problem], list[GradedResponse]]]:
    """Sample and grade problems, one batch at a time.

    Args:
        generate, encode, task, k, seed, stop: as in :func:`evaluate_task`.
        problems: with the index that their random streams derive from.
        batch: problems in one call of the engine; ``None`` for all.

    Yields:
        The problems of a batch and their graded responses.
    """
    size = batch or max(1, len(problems))
    for start in range(0, len(problems), size):
        part = problems[start : start + size]
        sampled = generate(
            [
                Request(encode(p), k, problem_seed(seed, index), p.stop if stop is None else tuple(stop))
                for index, p in part
            ]
        )
        yield [problem for _, problem in part], _graded(task, [problem for _, problem in part], sampled)


def problem_seed(seed: int, index: int) -> int:
    """A 63-bit seed for one problem."""
    return stream(seed, Purpose.EVALUATE, index)


def collect(problems: Sequence[Problem], responses: Sequence[GradedResponse], *, k: int) -> EvalResult:
    """Group responses by the id of their problem.

    Args:
        problems: every problem that was asked.
        responses: in any order.
        k: samples that were asked for.
    """
    grouped: dict[tuple[str, str], list[GradedResponse]] = {}
    for response in responses:
        grouped.setdefault((response.task, response.problem_id), []).append(response)
    results = [
        ProblemResult(p.id, p.task, p.gold, k, sorted(grouped.get((p.task, p.id), []), key=lambda r: r.sample))
        for p in problems
    ]
    return EvalResult(k, results)


def _graded(task: Task, problems: Sequence[Problem], sampled: Sequence[Sequence[Sample]]) -> list[GradedResponse]:
    pairs = [(p, number, s) for p, ss in zip(problems, sampled, strict=True) for number, s in enumerate(ss)]
    answers = [Answer(problem, sample.text, sample.finish) for problem, _, sample in pairs]
    grades = task.grade(answers)
    return [
        GradedResponse(
            problem_id=problem.id,
            task=problem.task,
            sample=number,
            reward=grade.reward,
            reason=grade.reason,
            key=task.key(answer),
            tokens=len(sample.response_ids),
            finish=sample.finish,
            text=sample.text,
            gold=problem.gold,
        )
        for (problem, number, sample), answer, grade in zip(pairs, answers, grades, strict=True)
    ]
