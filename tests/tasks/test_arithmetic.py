"""Sums of one-digit terms."""

from __future__ import annotations

import ast
import re

import pytest

import lagproof.tasks as tasks
from lagproof.data.samples import Finish
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.tasks.arithmetic import ArithmeticTask
from lagproof.tasks.task import Answer


def value(expression: str) -> int:
    """Left to right, read by Python's own parser: independent of how the task adds up."""

    def walk(node: ast.expr) -> int:
        if isinstance(node, ast.Constant):
            return int(node.value)  # type: ignore[arg-type]
        assert isinstance(node, ast.BinOp)
        left, right = walk(node.left), walk(node.right)
        return left + right if isinstance(node.op, ast.Add) else left - right

    return walk(ast.parse(expression, mode="eval").body)


def test_worked_examples_are_right_and_short() -> None:
    task = ArithmeticTask()
    for index in range(300):
        prompt, completion = task.worked_example(index)
        assert re.fullmatch(r"\d([+-]\d){3}=", prompt)
        assert set(prompt + completion) <= set("0123456789+-=,")
        assert len(completion) <= 11
        assert [int(s) for s in completion.split(",")] == [value(prompt[:end]) for end in (3, 5, 7)]


def test_problem_golds_are_the_final_sums() -> None:
    task = ArithmeticTask(terms=3, seed=5)
    for index in range(100):
        for problem in (task.problem(index), task.eval_problem(index)):
            assert isinstance(problem.prompt, str)
            assert problem.gold == str(value(problem.prompt.rstrip("=")))
            assert problem.task == "arithmetic"


def test_problems_depend_on_seed_split_and_index_alone() -> None:
    task = ArithmeticTask(seed=1)
    backwards = [task.problem(i).prompt for i in reversed(range(50))]
    assert [ArithmeticTask(seed=1).problem(i).prompt for i in range(50)] == backwards[::-1]
    assert [ArithmeticTask(seed=2).problem(i).prompt for i in range(50)] != backwards[::-1]
    assert len({task.problem(i).id for i in range(50)} | {task.eval_problem(i).id for i in range(50)}) == 100


def test_evaluation_problems_are_never_trained_on() -> None:
    held_out = {ArithmeticTask(seed=0).eval_problem(i).prompt for i in range(1500)}
    trained = {ArithmeticTask(seed=1).problem(i).prompt for i in range(1500)}
    worked = {ArithmeticTask(seed=2).worked_example(i)[0] for i in range(1500)}
    assert not held_out & (trained | worked)


@pytest.mark.parametrize(
    ("text", "finish", "reward", "reason"),
    [
        ("12,3,6", Finish.STOP, 1.0, "correct"),
        ("9,9,6", Finish.STOP, 1.0, "correct"),  # only the last sum counts
        ("12,3,7", Finish.STOP, 0.0, "wrong"),
        ("12,3,66", Finish.STOP, 0.0, "wrong"),
        ("12,3,06", Finish.STOP, 0.0, "wrong"),
        ("12,6,3", Finish.STOP, 0.0, "wrong"),
        ("12,3,6", Finish.LENGTH, 0.0, "truncated"),
        ("", Finish.STOP, 0.0, "wrong"),
    ],
)
def test_grading(text: str, finish: Finish, reward: float, reason: str) -> None:
    task = ArithmeticTask()
    problem = next(p for p in map(task.problem, range(10_000)) if p.gold == "6")
    (grade,) = task.grade([Answer(problem, text, finish)])
    assert (grade.reward, grade.reason) == (reward, reason)


def test_the_table_builds_it_and_names_what_is_wrong() -> None:
    assert tasks.build("arithmetic", {"terms": 3}) == ArithmeticTask(terms=3)
    assert [name for name, _, _ in tasks.options("arithmetic")] == ["terms", "seed", "label"]
    assert tasks.resolve("arithmetic", {"seed": 7}) == {"terms": 4, "seed": 7}
    with pytest.raises(UnknownNameError, match="did you mean 'arithmetic'"):
        tasks.build("arithmetics")
    with pytest.raises(UnknownNameError, match=r"'task\.term'.*did you mean 'task\.terms'"):
        tasks.build("arithmetic", {"term": 3})
    with pytest.raises(ConfigError, match=r"task\.terms = 1: must be >= 2"):
        tasks.build("arithmetic", {"terms": 1})
    with pytest.raises(ConfigError, match=r"task\.terms = 'four': expected int"):
        tasks.build("arithmetic", {"terms": "four"})
