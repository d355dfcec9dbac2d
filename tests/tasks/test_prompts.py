"""Which problems tell of all whether a model can read them, and arguments of chat templates."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from lagproof import tasks
from lagproof.errors import ConfigError
from lagproof.evaluation.identity import differences, identity
from lagproof.evaluation.run import Settings, TaskChoice
from lagproof.tasks.prompts import representatives
from lagproof.tasks.task import Problem


def chat(name: str, *roles: str, text: str = "a") -> Problem:
    return Problem(name, [{"role": role, "content": text} for role in roles], "1", "t")


def test_the_longest_problem_and_one_of_each_order_of_roles_are_looked_at():
    plain = [chat(f"p{i}", "user") for i in range(100)]
    told = [*plain, chat("long", "user", text="a" * 9), *plain, chat("system", "system", "user"), *plain]
    found = {problem.id for problem in representatives(told)}
    assert {"p0", "long", "system"} <= found
    assert len(found) < 30


def test_arguments_of_the_template_reach_every_problem_and_its_shots_are_in_the_same_prompt():
    options = {"chat_template_kwargs": {"enable_thinking": False}, "shots": 1}
    task = tasks.build("words", options)
    for problem in (task.problem(0), task.eval_problem(0)):
        assert problem.template == {"enable_thinking": False}
        assert [m["role"] for m in problem.prompt] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chat_template_kwargs": {"enable_thinking": True}, "prompt": "plain"}, "is for chat"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "add_generation_prompt: is set by lagproof"),
        ({"chat_template_kwargs": 3}, "chat_template_kwargs = 3: expected table, got int"),
    ],
)
def test_arguments_that_cannot_be(options, message):
    with pytest.raises(ConfigError, match=message):
        tasks.build("words", options)


def test_an_evaluation_with_other_arguments_is_another_evaluation():
    def made(thinking: bool) -> dict:
        options = {"chat_template_kwargs": {"enable_thinking": thinking}}
        return identity("m", TaskChoice("words", "words", options), Settings())

    assert made(True) == made(True)
    assert differences(made(True), made(False)) == [
        'task.chat_template_kwargs = {"enable_thinking": true} there, {"enable_thinking": false} here'
    ]


@pytest.mark.parametrize(
    ("question", "asked"),
    [("What is 1 + 1?", True), ('What is 1 + 1? End with a line "Answer: ".', False)],
)
def test_dapo_rows_whose_question_is_bare_are_told_the_form(tmp_path, question, asked):
    row = {"prompt": question, "reward_model": {"ground_truth": "2"}, "extra_info": {"index": "a1"}, "solution": "2"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    with closing(tasks.build("dapo-math-17k", {"path": str(tmp_path / "a.jsonl"), "held_out": 0.0})) as task:
        (message,) = task.problem(0).prompt
        assert message["content"].startswith(question)
        assert message["content"].count("Answer:") == 1
        assert (message["content"] == question) is not asked
