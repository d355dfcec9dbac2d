"""Several tasks in one run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from lagproof import tasks
from lagproof.errors import ConfigError, InputError, UnknownNameError
from lagproof.tasks.mixture import _quotas
from lagproof.tasks.task import Answer

THREE_TO_ONE = {"tasks": [{"name": "words", "weight": 3}, {"name": "arithmetic", "terms": 3}]}


def test_each_task_has_its_share_in_every_thousand() -> None:
    task = tasks.build("mixture", THREE_TO_ONE)
    assert task.size is None
    for block in (0, 7):
        shares = Counter(task.problem(1000 * block + i).task for i in range(1000))
        assert shares == {"words": 750, "arithmetic": 250}
    first = [task.problem(i).task for i in range(40)]
    assert len(set(first)) == 2


def test_every_problem_of_a_part_comes_once_an_epoch(tmp_path: Path) -> None:
    rows = [{"id": str(i), "problem": f"{i}?", "answer": "1"} for i in range(37)]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"tasks": [{"name": "jsonl", "path": str(path), "held_out": 0.0}, {"name": "arithmetic"}]}
    task = tasks.build("mixture", options)
    ids = [p.id for p in map(task.problem, range(3000)) if p.task == "jsonl"]
    for epoch in range(len(ids) // 37):
        assert len(set(ids[37 * epoch : 37 * epoch + 37])) == 37
    again = tasks.build("mixture", options)
    assert [again.problem(i).id for i in (2999, 5, 1234)] == [task.problem(i).id for i in (2999, 5, 1234)]


def test_grades_go_to_the_task_of_the_problem() -> None:
    task = tasks.build("mixture", THREE_TO_ONE)
    problems = [task.problem(i) for i in range(30)]
    right = [p.gold if p.task == "arithmetic" else f"\\boxed{{{p.gold}}}" for p in problems]
    grades = task.grade([Answer(p, text) for p, text in zip(problems, right, strict=True)])
    assert {g.reason for g in grades} == {"correct"}
    assert task.grade([]) == []
    task.close()


def test_one_task_twice_under_two_labels() -> None:
    parts = [{"name": "arithmetic", "terms": n, "label": label} for n, label in ((2, "short"), (4, "long"))]
    task = tasks.build("mixture", {"tasks": parts})
    problems = [task.problem(i) for i in range(40)]
    assert {(p.task, p.id.split("-")[0], len(p.prompt)) for p in problems} == {
        ("short", "short", 4),
        ("long", "long", 8),
    }
    assert {g.reason for g in task.grade([Answer(p, p.gold) for p in problems])} == {"correct"}


def test_a_label_may_begin_like_a_metric() -> None:
    labels = ["evaluate", "timed", "ages", "x/eval"]
    task = tasks.build("mixture", {"tasks": [{"name": "words", "label": label} for label in labels]})
    assert {task.problem(i).task for i in range(100)} == set(labels)


def test_evaluation_takes_turns() -> None:
    task = tasks.build("mixture", THREE_TO_ONE)
    assert task.eval_size == 10_000
    assert Counter(task.eval_problem(i).task for i in range(10)) == {"words": 5, "arithmetic": 5}


def data(path: Path, problems: int, **columns: str) -> str:
    """A file of problems with the ids 0, 1, ..."""
    rows = [{"id": str(i), **{name: text.format(i) for name, text in columns.items()}} for i in range(problems)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_train_on_one_kind_of_data_and_evaluate_on_two_others(tmp_path: Path) -> None:
    """20 problems with solutions are trained on, all of them; 3 and 2 with plain answers are evaluated on."""
    trained = data(tmp_path / "a.jsonl", 20, question="{}?", answer="so #### {}")
    aime, amc = (data(tmp_path / f"{name}.jsonl", n, problem="{}?", answer="{}") for name, n in (("b", 3), ("c", 2)))
    task = tasks.build(
        "mixture",
        {
            "tasks": [
                {"name": "aime", "label": "aime24", "path": aime, "weight": 0},
                {"name": "gsm8k", "path": trained, "evaluate": False},
                {"name": "amc", "label": "amc23", "eval_path": amc, "weight": 0.0},
            ]
        },
    )
    problems = [task.problem(i) for i in range(40)]
    assert {p.task for p in problems} == {"gsm8k"}
    assert {p.id for p in problems[:20]} == {p.id for p in problems[20:]} == {str(i) for i in range(20)}
    evaluated = [task.eval_problem(i) for i in range(task.eval_size or 0)]
    assert [(p.task, p.id) for p in evaluated] == [
        ("aime24", "0"),
        ("amc23", "0"),
        ("aime24", "1"),
        ("amc23", "1"),
        ("aime24", "2"),
    ]
    grades = task.grade([Answer(p, f"\\boxed{{{p.id}}}") for p in (*problems[:3], *evaluated)])
    assert {g.reason for g in grades} == {"correct"}
    task.close()


def test_an_evaluation_file_of_another_kind_leads_to_a_mixture(tmp_path: Path) -> None:
    solved = data(tmp_path / "a.jsonl", 3, question="{}?", answer="#### {}")
    other = data(tmp_path / "b.jsonl", 3, problem="{}?", answer="{}")
    with pytest.raises(
        InputError, match=r"b\.jsonl, line 1: no question column.* a mixture, this one with weight = 0$"
    ):
        tasks.build("gsm8k", {"path": solved, "eval_path": other})
    with pytest.raises(InputError, match=r"set task\.question_column, or name the task 'jsonl'[^;]*$"):
        tasks.build("gsm8k", {"path": other})


def test_the_order_is_the_runs_unless_the_mixture_has_its_own(tmp_path: Path) -> None:
    parts = [{"name": "jsonl", "path": data(tmp_path / "a.jsonl", 50, problem="{}?", answer="1")}, {"name": "words"}]

    def order(run_seed: int, **options: object) -> list[tuple[str, str]]:
        task = tasks.build("mixture", {"tasks": parts, **options}, run_seed)
        return [(p.task, p.id) for p in map(task.problem, range(60))]

    assert order(1) == order(1) == order(2, seed=1)
    assert order(0) == order(1, seed=0)
    assert [task for task, _ in order(1)] != [task for task, _ in order(2)]
    assert [i for task, i in order(1) if task == "jsonl"] != [i for task, i in order(2) if task == "jsonl"]


@pytest.mark.parametrize("name", ["words", "arithmetic", "math"])
def test_a_generator_trains_on_the_runs_problems_and_evaluates_on_the_same_ones(name: str) -> None:
    def drawn(run_seed: int, **options: object) -> tuple[list[object], list[object]]:
        task = tasks.build(name, options, run_seed)
        return [task.problem(i).prompt for i in range(20)], [task.eval_problem(i).prompt for i in range(20)]

    assert drawn(1)[0] != drawn(2)[0]
    assert drawn(1)[1] == drawn(2)[1] == drawn(0)[1]
    if name != "math":
        assert drawn(1)[0] == drawn(2, seed=1)[0]
        assert drawn(0) == drawn(3, seed=0)
        assert drawn(3, seed=1)[1] != drawn(3)[1]


def test_quotas_sum_to_a_block_and_starve_nobody() -> None:
    for weights in ([1, 1, 1], [1, 1e-9], [0.3, 0.3, 0.4], [5] * 7):
        quotas = _quotas(weights)
        assert sum(quotas) == 1000
        assert min(quotas) >= 1


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ([], ConfigError, "task.tasks is empty"),
        (["words"], ConfigError, r"task\.tasks\[0\] = 'words': must be a table with a name"),
        ([{"name": "words"}, {"name": "words"}], ConfigError, "give each its own label"),
        ([{"name": "words", "weight": 0}], ConfigError, "must be finite and >= 0, and one of them > 0"),
        ([{"name": "words", "weight": float("inf")}], ConfigError, "must be finite and >= 0, and one of them > 0"),
        ([{"name": "words", "weight": float("nan")}], ConfigError, "must be finite and >= 0, and one of them > 0"),
        ([{"name": "words", "weight": -1}], ConfigError, "must be finite and >= 0, and one of them > 0"),
        ([{"name": "words", "weight": "x"}], ConfigError, r"weight = 'x'"),
        ([{"name": "words", "evaluate": 0}], ConfigError, "evaluate = 0: must be true | false"),
        ([{"name": "words", "weight": 0, "evaluate": False}], ConfigError, "leave it out, or one of the two"),
        ([{"name": "mixture", "tasks": [{"name": "words"}]}], ConfigError, r"task\.tasks\[0\] is a mixture"),
        (
            [{"name": "words"}, {"name": "words", "label": "eval"}],
            ConfigError,
            r"tasks\[1\]\.label = 'eval': metrics of",
        ),
        ([{"name": "words", "label": "time"}], ConfigError, "label = 'time'"),
        ([{"name": "words", "label": "probe/x"}], ConfigError, "label = 'probe/x'"),
        ([{"name": "words", "label": "age_32-63"}], ConfigError, "label = 'age_32-63'"),
        ([{"name": "wrds"}], UnknownNameError, "did you mean 'words'"),
    ],
)
def test_mixtures_that_cannot_be(parts: list[object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tasks.build("mixture", {"tasks": parts})


def test_a_negative_seed() -> None:
    with pytest.raises(ConfigError, match=r"task\.seed = -1: must be >= 0"):
        tasks.build("mixture", {**THREE_TO_ONE, "seed": -1})
    with pytest.raises(ConfigError, match=r"task\.seed = -1: must be >= 0"):
        tasks.build("reasoning-gym", {"generator": "chain_sum", "seed": -1})


def test_a_part_without_training_problems(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"problem": "?", "answer": "1"}) + "\n")
    with pytest.raises(InputError, match="nothing to train on: set its path, or weight = 0"):
        tasks.build("mixture", {"tasks": [{"name": "jsonl", "eval_path": str(path)}]})
