"""Asking, grouping, counting and going on, with a scripted model instead of an engine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from lagproof import tasks
from lagproof.data.samples import Finish, Sample
from lagproof.errors import InputError, InterruptedRunError, RunDirError, UnknownNameError
from lagproof.evaluation.evaluate import Ask, collect, eval_problems, evaluate_task
from lagproof.evaluation.result import EvalResult, ProblemResult, Response, difference
from lagproof.evaluation.run import Opened, Settings, TaskChoice, parse_tasks, run_eval
from lagproof.tasks.arithmetic import ArithmeticTask
from lagproof.tasks.task import Problem


def encode(prompt: object) -> list[int]:
    assert isinstance(prompt, str)
    return [ord(c) for c in prompt]


class Model:
    """Right with probability ``skill``, by the random stream of the request; counts what it was asked."""

    def __init__(self, skill: float) -> None:
        self.skill, self.asked = skill, 0

    def __call__(self, asks: Sequence[Ask], _: Settings | None = None) -> list[list[Sample]]:
        return [self._answers(ask) for ask in asks]

    def _answers(self, ask: Ask) -> list[Sample]:
        self.asked += 1
        expression = "".join(map(chr, ask.prompt_ids)).rstrip("=")
        value = sum(int(term) for term in expression.replace("-", "+-").split("+"))
        rng = np.random.default_rng(ask.seed)
        texts = [str(value if rng.random() < self.skill else value + 1) for _ in range(ask.samples)]
        return [Sample(ask.prompt_ids, [1] * len(t), [0] * len(t), Finish.STOP, text=t) for t in texts]


def response(problem: str, sample: int = 0, reward: float = 1.0, **other: object) -> Response:
    values: dict[str, object] = {
        "task": "t",
        "reason": "correct" if reward == 1 else "wrong",
        "key": str(reward),
        "tokens": 4,
        "finish": Finish.STOP,
        "text": "same text",
        "gold": "5",
    }
    return Response(problem, sample=sample, reward=reward, **{**values, **other})  # type: ignore[arg-type]


def problems(*names: str) -> list[Problem]:
    return [Problem(name, "same text", "5", "t") for name in names]


def test_average_and_pass_follow_from_the_rewards() -> None:
    model, task = Model(0.6), ArithmeticTask()
    seen: list[tuple[int, int]] = []
    asked = eval_problems(task, 50)
    result = evaluate_task(
        model, encode, task, asked, k=4, seed=3, on_progress=lambda done, all_: seen.append((done, all_))
    )
    rewards = np.array([[r.reward for r in p.responses] for p in result.problems])
    assert rewards.shape == (50, 4)
    assert result.accuracy == pytest.approx(rewards.mean())
    assert result.pass_at(1) == pytest.approx(rewards.mean())
    assert result.pass_at(4) == pytest.approx(rewards.any(axis=1).mean())
    assert result.majority is not None
    assert result.majority > rewards.mean()
    assert result.interval is not None
    assert result.interval.low < rewards.mean() < result.interval.high
    assert seen == [(50, 50)]
    assert result.metrics() == {
        "eval/accuracy": pytest.approx(rewards.mean()),
        "eval/response_tokens": pytest.approx(result.response_tokens),
        "eval/truncated": 0.0,
    }


def test_what_is_drawn_depends_on_seed_and_problem_alone() -> None:
    def texts(seed: int, prompts: int) -> list[str]:
        task = ArithmeticTask()
        result = evaluate_task(Model(0.5), encode, task, eval_problems(task, prompts), k=2, seed=seed)
        return [r.text for p in result.problems for r in p.responses]

    assert texts(0, 30)[:20] == texts(0, 10)
    assert texts(1, 10) != texts(0, 10)


def test_items_are_grouped_by_id_and_not_by_text() -> None:
    result = collect(
        problems("a", "b"), [response("b", 1, 0.0), response("a", 0), response("b", 0), response("a", 1)], k=2
    )
    assert [p.average for p in result.problems] == [1.0, 0.5]


def test_missing_samples_are_counted_and_not_averaged_away() -> None:
    aborted = response("b", 1, finish=Finish.ABORTED, reward=0.0, tokens=99)
    came = [response("a", 0), response("a", 1), response("b", 0), aborted]
    result = collect(problems("a", "b", "c"), came, k=2)
    assert result.missing == 3
    assert result.accuracy == pytest.approx((1 + 0.5 + 0) / 3)
    assert result.pass_at(2) == pytest.approx(2 / 3)
    assert result.pass_at(1) == pytest.approx((1 + 0.5 + 0) / 3)
    assert result.response_tokens == 4.0
    assert result.metrics()["eval/missing"] == 3


def test_a_problem_whose_gold_cannot_be_read_is_skipped_and_counted() -> None:
    bad = [response("b", i, math.nan, reason="bad_gold") for i in range(2)]
    result = collect(problems("a", "b"), [response("a", 0), response("a", 1, 0.0), *bad], k=2)
    assert (result.accuracy, result.skipped) == (0.5, 1)
    assert result.problems[1].row()["average"] is None
    nothing = collect(problems("b"), bad, k=2)
    assert (nothing.accuracy, nothing.interval, nothing.majority) == (None, None, None)
    assert "eval/accuracy" not in nothing.metrics()


def test_lengths_come_from_the_tokens_also_of_truncated_responses() -> None:
    """F67: lengths 4 (ended) and 8 (truncated): mean 6, largest 8, truncated .5."""
    came = [response("a", 0, tokens=4), response("a", 1, 0.0, tokens=8, finish=Finish.LENGTH)]
    summary = collect(problems("a"), came, k=2).summary()
    assert (summary["response_tokens"], summary["response_tokens_max"], summary["truncated"]) == (6.0, 8, 0.5)


def test_a_mixture_is_reported_by_task_too() -> None:
    parts = [
        ProblemResult("1", "easy", "5", 1, [response("1")]),
        ProblemResult("1", "hard", "5", 1, [response("1", reward=0.0)]),
        ProblemResult("2", "hard", "5", 1, [response("2", reward=0.0)]),
    ]
    metrics = EvalResult(1, parts).metrics()
    assert metrics["eval/accuracy"] == pytest.approx(1 / 3)
    assert (metrics["eval/easy/accuracy"], metrics["eval/hard/accuracy"]) == (1.0, 0.0)


def test_paired_differences_are_taken_by_problem() -> None:
    rewards = np.random.default_rng(0).integers(0, 2, size=200).astype(float)
    names = [str(i) for i in range(200)]
    base = collect(problems(*names), [response(n, 0, r) for n, r in zip(names, rewards, strict=True)], k=1)
    better = rewards.copy()
    better[np.flatnonzero(rewards == 0)[:5]] = 1.0
    other = collect(problems(*names[::-1]), [response(n, 0, r) for n, r in zip(names, better, strict=True)], k=1)
    gap = difference({"base": base, "other": other}, "base", "other")
    assert gap is not None
    assert gap.mean == pytest.approx(5 / 200)
    assert gap.interval is not None
    assert base.interval is not None
    assert 0 < gap.interval.low < gap.mean < gap.interval.high
    assert gap.interval.high - gap.interval.low < 0.5 * (base.interval.high - base.interval.low)
    assert difference({"a": base, "b": collect(problems("x"), [response("x")], k=1)}, "a", "b") is None


class Models:
    """Stands for loading: opens scripted models and remembers which were opened."""

    def __init__(self) -> None:
        self.models = {"weak": Model(0.3), "strong": Model(0.8)}
        self.opened: list[str] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[Opened]:
        self.opened.append(name)
        yield Opened(self.models[name], encode)


CHOICES = [TaskChoice("arithmetic", "arithmetic"), TaskChoice("short", "arithmetic", {"terms": 2})]
SETTINGS = Settings(k=3, prompts=25, seed=1, batch=4)


def test_models_and_tasks_give_a_comparison_and_files(tmp_path: Path) -> None:
    told: list[tuple[str, str, int, int]] = []
    comparison = run_eval(
        ["weak", "strong"], CHOICES, SETTINGS, tmp_path, Models(), on_progress=lambda *row: told.append(row)
    )
    (gap,) = comparison.differences["short"]
    assert (gap.base, gap.other, gap.problems) == ("weak", "strong", 25)
    assert gap.interval is not None
    assert gap.interval.low > 0
    assert told[0] == ("weak", "arithmetic", 0, 25)
    assert told[-1] == ("strong", "short", 25, 25)
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["results"]["short"]["weak"]["average"] == comparison.results["short"]["weak"].accuracy
    assert set(written["results"]["short"]["weak"]["pass"]) == {"1", "2", "3"}
    rows = pq.read_table(tmp_path / "weak" / "short" / "samples.parquet").to_pylist()
    assert len(rows) == 75
    assert not list((tmp_path / "weak" / "short").glob("part-*"))
    table = [json.loads(line) for line in (tmp_path / "weak" / "short" / "problems.jsonl").read_text().splitlines()]
    assert [row["samples"] for row in table] == [3] * 25
    assert sum(row["correct"] for row in table) == sum(row["reward"] for row in rows)


def test_an_interrupted_evaluation_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = run_eval(["weak"], CHOICES, SETTINGS, tmp_path / "whole", Models()).to_dict()
    models = Models()
    with pytest.raises(InterruptedRunError, match="stopped after 4 of 25 problems of arithmetic"):
        run_eval(["weak"], CHOICES, SETTINGS, tmp_path / "cut", models, interrupted=lambda: True)
    assert models.models["weak"].asked == 4
    assert run_eval(["weak"], CHOICES, SETTINGS, tmp_path / "cut", models).to_dict() == whole
    assert models.models["weak"].asked == 50
    again = Models()
    assert run_eval(["weak"], CHOICES, replace(SETTINGS, batch=9), tmp_path / "cut", again).to_dict() == whole
    assert again.opened == []


def test_more_problems_are_added_and_other_settings_are_refused(tmp_path: Path) -> None:
    models = Models()
    run_eval(["weak"], CHOICES[:1], SETTINGS, tmp_path, models)
    more = run_eval(["weak"], CHOICES[:1], replace(SETTINGS, prompts=30), tmp_path, models)
    assert models.models["weak"].asked == 30
    assert len(more.results["arithmetic"]["weak"].problems) == 30
    with pytest.raises(RunDirError, match="other values of k, temperature"):
        run_eval(["weak"], CHOICES[:1], replace(SETTINGS, k=2, temperature=0.0), tmp_path, models)


def test_samples_that_ended_at_other_strings_are_not_gone_on_with(tmp_path: Path) -> None:
    run_eval(["weak"], CHOICES[:1], replace(SETTINGS, stop=(";",)), tmp_path, Models())
    for stop in (None, (), (",",)):
        with pytest.raises(RunDirError, match="other values of stop"):
            run_eval(["weak"], CHOICES[:1], replace(SETTINGS, stop=stop), tmp_path, Models())
    with pytest.raises(InputError, match=r"stop = .*not empty"):
        Settings(stop=(";", ""))


def test_each_problem_says_what_ends_its_answer() -> None:
    plain = {"name": "words", "prompt": "plain"}
    task = tasks.build("mixture", {"tasks": [plain, {"name": "words", "label": "chat"}, {"name": "arithmetic"}]})
    asked: list[Ask] = []

    def generate(asks: Sequence[Ask]) -> list[list[Sample]]:
        asked.extend(asks)
        return [[Sample(a.prompt_ids, [1], [0], Finish.STOP, text="1")] for a in asks]

    evaluate_task(generate, lambda prompt: [1], task, eval_problems(task, 6), k=1, seed=0)
    assert [a.stop for a in asked] == [("\nQuestion:",), (), ()] * 2


@contextmanager
def fives(name: str) -> Iterator[Opened]:
    """A model that always says 5."""
    yield Opened(lambda asks, _: [[Sample([1], [1], [0], Finish.STOP, text="5")] for _ in asks], lambda p: [1])


def test_samples_of_one_data_set_are_not_taken_for_those_of_another(tmp_path: Path) -> None:
    data = tmp_path / "x.jsonl"
    choice = TaskChoice("t", "jsonl", {"eval_path": str(data), "label": "t", "prompt": "plain"})

    def evaluate(*rows: tuple[str, str], prompts: int | None = None) -> int:
        lines = [json.dumps({"id": f"p{i}", "problem": q, "answer": a}) for i, (q, a) in enumerate(rows)]
        data.write_text("\n".join(lines))
        found = run_eval(["m"], [choice], Settings(prompts=prompts), tmp_path / "out", fives)
        return len(found.results["t"]["m"].problems)

    first = [("a", "5"), ("b", "6"), ("c", "7")]
    assert evaluate(*first, ("d", "8"), prompts=3) == 3
    file = tmp_path / "out" / "m" / "t" / "settings.json"
    kept = file.read_text()
    for rows, message in (
        ([*first[:2], ("c", "70")], "t/p2 has another right answer;"),
        ([("x", "5"), *first[1:]], "t/p0 has another prompt;"),
        ([("x", "0")], "t/p0 has another prompt and another right answer, t/p1 is gone, t/p2 is gone;"),
    ):
        with pytest.raises(RunDirError, match=f"the data has changed since its problems were asked: {message}"):
            evaluate(*rows)
    assert file.read_text() == kept
    more = [*first, ("d", "8"), ("e", "9")]
    assert [evaluate(*more, prompts=n) for n in (2, 5, 1)] == [2, 5, 1]
    with pytest.raises(
        RunDirError, match=r"t/p0 .*, t/p1 .*, t/p2 [^,]*, and 2 more problems differ; give the same data"
    ):
        evaluate(*[("x", "0")] * 5)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InterruptedRunError):
        run_eval(["weak"], CHOICES, SETTINGS, tmp_path, Models(), interrupted=lambda: True)
    (part,) = (tmp_path / "weak" / "arithmetic").glob("part-*")
    part.write_bytes(b"")
    with pytest.raises(RunDirError, match=f"{part.name}: cannot be read.*take it away"):
        run_eval(["weak"], CHOICES, SETTINGS, tmp_path, Models())


def test_task_choices(tmp_path: Path) -> None:
    parsed = parse_tasks(["aime24=a.jsonl", "amc23=b", "math500=c", "dapo=d", "mine=e.jsonl", "arithmetic"])
    names = ["aime", "amc", "math", "dapo-math-17k", "jsonl", "arithmetic"]
    assert [choice.name for choice in parsed] == names
    assert parsed[0] == TaskChoice("aime24", "aime", {"eval_path": "a.jsonl", "label": "aime24"})
    shouted = parse_tasks(["AIME24=a.jsonl", "GSM8K=b", "DAPO=c", "Arithmetic"])
    assert [choice.name for choice in shouted] == ["aime", "gsm8k", "dapo-math-17k", "arithmetic"]
    assert shouted[0] == TaskChoice("AIME24", "aime", {"eval_path": "a.jsonl", "label": "AIME24"})
    shared = parse_tasks(["aime24=a.jsonl", "arithmetic"], {"shots": 3, "terms": 5})
    assert [dict(choice.options).get("shots") for choice in shared] == [3, None]
    assert [dict(choice.options).get("terms") for choice in shared] == [None, 5]
    with pytest.raises(UnknownNameError, match="did you mean 'shots'"):
        parse_tasks(["aime24=a.jsonl"], {"shot": 3})
    with pytest.raises(UnknownNameError, match="did you mean 'arithmetic'"):
        parse_tasks(["arithmetik"])
    with pytest.raises(InputError, match="no file after the sign"):
        parse_tasks(["aime24="])


def test_every_label_is_evaluated_on_its_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"problem": f"{i}+1=", "answer": str(i + 1)}) + "\n" for i in range(7)))
    choices = parse_tasks([f"mine={file}"], {"prompt": "plain", "instruction": "", "answer_form": "whole"})
    task = tasks.build(choices[0].name, choices[0].options)
    assert (task.name, task.eval_size) == ("mine", 7)


@pytest.mark.parametrize(
    ("models", "choices", "message"),
    [
        ([], CHOICES, "no model to evaluate"),
        (["weak"], [], "no task to evaluate"),
        (["weak", "weak"], CHOICES, "each may be named once"),
        (["weak"], [CHOICES[0], CHOICES[0]], "each may be named once"),
    ],
)
def test_what_cannot_be_evaluated(tmp_path: Path, models: list[str], choices: list[TaskChoice], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_eval(models, choices, SETTINGS, tmp_path, Models())


@pytest.mark.parametrize("field", ["k", "prompts", "max_tokens", "batch", "temperature", "top_p", "top_k", "seed"])
def test_settings_are_checked(field: str) -> None:
    with pytest.raises(InputError, match=f"{field} = -1: must be"):
        Settings(**{field: -1})


def test_tasks_without_an_end_need_a_number() -> None:
    class Endless(ArithmeticTask):
        @property
        def eval_size(self) -> int | None:
            return None

    with pytest.raises(InputError, match="say how many"):
        eval_problems(Endless(), None)
    with pytest.raises(InputError, match="k = 0"):
        evaluate_task(Model(1), encode, ArithmeticTask(), eval_problems(ArithmeticTask(), 1), k=0, seed=0)
