"""Word problems of our own: right, short, and apart from those that are evaluated on."""

from __future__ import annotations

import re

import pytest

from lagproof import tasks
from lagproof.data.samples import Finish
from lagproof.errors import ConfigError
from lagproof.tasks.task import Answer
from lagproof.tasks.words import _STORIES, word_problem


def test_answers_follow_from_the_numbers_in_the_text() -> None:
    signs = {re.sub(r"\{\w\}", "#", story): sign for story, sign in _STORIES}
    seen = set()
    for index in range(400):
        problem = word_problem(0, 0, index, largest=30, held_out=False)
        numbers = sorted(map(int, re.findall(r"\d+", problem.question)))
        assert len(numbers) == 2
        right = {"+": sum(numbers), "-": numbers[1] - numbers[0]}
        sign = problem.step.split()[1]
        assert int(problem.answer) == right[sign]
        assert 0 < int(problem.answer) <= 30
        assert max(numbers) <= 30
        seen.add(sign)
    assert seen == {"+", "-"} == set(signs.values())


def test_evaluation_problems_are_not_trained_on() -> None:
    held_out = {word_problem(0, 1, i, 20, held_out=True).question for i in range(1000)}
    trained = {word_problem(5, 0, i, 20, held_out=False).question for i in range(1000)}
    assert not held_out & trained


def test_the_task_asks_and_grades() -> None:
    task = tasks.build("words", {"largest": 9})
    problem = task.problem(3)
    assert problem == tasks.build("words", {"largest": 9}).problem(3)
    assert isinstance(problem.prompt, list)
    assert problem.prompt[-1]["content"].endswith("\\boxed{}.")
    right, wrong, cut = task.grade(
        [
            Answer(problem, f"It is \\boxed{{{problem.gold}}}."),
            Answer(problem, "It is \\boxed{99}."),
            Answer(problem, f"It is {problem.gold}", Finish.LENGTH),
        ]
    )
    task.close()
    assert [(g.reward, g.reason) for g in (right, wrong, cut)] == [(1, "correct"), (0, "wrong"), (0, "unparsed")]


@pytest.mark.parametrize("option", [{"largest": 3}, {"seed": -1}, {"shots": -1}, {"prompt": "xml"}])
def test_options_are_checked(option: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"task.{next(iter(option))} = .* must be"):
        tasks.build("words", option)
