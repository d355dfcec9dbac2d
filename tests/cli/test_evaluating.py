"""The table of an evaluation."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lagproof.cli.evaluating import show, tails
from lagproof.data.samples import Finish
from lagproof.evaluation.result import EvalResult, ProblemResult, Response
from lagproof.evaluation.run import Comparison


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (["tiny-dense", "owner/model"], ["tiny-dense", "model"]),
        (
            ["runs/a/checkpoints/step-000040", "/x/b/checkpoints/step-000040", "runs/a/checkpoints/step-000050"],
            ["a/checkpoints/step-000040", "b/checkpoints/step-000040", "step-000050"],
        ),
        (["a/x", "b/a/x"], ["a/x", "b/a/x"]),
        (["./only/"], ["only"]),
        (["one/model", "other/model"], ["one/model", "other/model"]),
    ],
)
def test_models_are_told_apart_by_the_end_of_their_paths(models: list[str], expected: list[str]) -> None:
    assert list(tails(models).values()) == expected


def result(**rewards: float) -> EvalResult:
    def problem(task: str, reward: float) -> ProblemResult:
        said = Response("1", task, 0, reward, "", "1", 4, Finish.STOP, "", "1")
        return ProblemResult("1", task, "1", 1, [said])

    return EvalResult(1, [problem(task, reward) for task, reward in rewards.items()])


def table(comparison: Comparison) -> list[list[str]]:
    text = io.StringIO()
    show(comparison, Console(file=text, width=120))
    return [line.split()[:3] for line in text.getvalue().splitlines() if line.strip() and "\u2500" not in line]


def test_a_mixture_has_a_row_for_each_of_its_tasks() -> None:
    models = {f"{run}/step-000040": result(easy=1.0, hard=0.0) for run in "ab"}
    found = table(Comparison({"mixture": models, "[x]": {"a/step-000040": result(t=1.0)}}, {}))
    assert found[1:] == [
        ["mixture", "a/step-000040", "0.500"],
        ["easy", "a/step-000040", "1.000"],
        ["hard", "a/step-000040", "0.000"],
        ["mixture", "b/step-000040", "0.500"],
        ["easy", "b/step-000040", "1.000"],
        ["hard", "b/step-000040", "0.000"],
        ["[x]", "a/step-000040", "1.000"],
    ]
