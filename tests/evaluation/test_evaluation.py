"""Asking, grouping, counting and going on, with a scripted model instead of an engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import lagproof as lp
from lagproof import tasks
from lagproof.data.samples import Finish, Sample
from lagproof.data.slices import Key
from lagproof.errors import InputError, InterruptedRunError, RunDirError, UnknownNameError
from lagproof.evaluation.evaluate import eval_problems, evaluate_task
from lagproof.evaluation.run import Evaluation, Opened, Settings, TaskChoice, run_eval
from lagproof.rollout.engine import Request
from lagproof.tasks.arithmetic import ArithmeticTask
from lagproof.tasks.task import Problem


def encode(problem: Problem) -> list[int]:
    assert isinstance(problem.prompt, str)
    return [ord(c) for c in problem.prompt]


class Model:
    """Right with probability ``skill``, by the random stream of the request; counts what it was asked."""

    def __init__(self, skill: float) -> None:
        self.skill, self.asked = skill, 0

    def __call__(self, asks: Sequence[Request], _: Settings | None = None) -> list[list[Sample]]:
        return [self._answers(ask) for ask in asks]

    def _answers(self, ask: Request) -> list[Sample]:
        self.asked += 1
        expression = "".join(map(chr, ask.prompt_ids)).rstrip("=")
        value = sum(int(term) for term in expression.replace("-", "+-").split("+"))
        rng = np.random.default_rng(ask.seed)
        texts = [str(value if rng.random() < self.skill else value + 1) for _ in range(ask.samples)]
        return [Sample(ask.prompt_ids, [1] * len(t), [0] * len(t), Finish.STOP, text=t) for t in texts]


def test_lp_evaluate_is_the_command_in_python(tmp_path: Path) -> None:
    seen: list[tuple[str, str, int, int]] = []

    def ask() -> Evaluation:
        return lp.evaluate(
            "tiny-dense",
            "arithmetic",
            out=tmp_path,
            options={"terms": 2},
            on_progress=lambda *row: seen.append(row),
            k=2,
            prompts=3,
            max_tokens=12,
            batch=2,
        )

    found = ask()
    assert [done for _, _, done, _ in seen] == [0, 2, 3] and seen[-1] == ("tiny-dense", "arithmetic", 3, 3)
    result = found.results["arithmetic"]["tiny-dense"]
    assert (result.k, len(result.problems), result.missing) == (2, 3, 0)
    assert json.loads((tmp_path / "result.json").read_text()) == found.to_dict()
    del seen[:]
    assert ask().to_dict() == found.to_dict()
    assert seen == []  # nothing was missing, and no model was loaded


def test_lp_evaluate_names_what_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown setting of an evaluation 'tempreature': did you mean"):
        lp.evaluate("tiny-dense", "arithmetic", out=tmp_path, tempreature=0)
    with pytest.raises(UnknownNameError, match="did you mean 'terms'"):
        lp.evaluate("tiny-dense", "arithmetic", out=tmp_path, options={"term": 2})
    assert list(tmp_path.iterdir()) == []


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
        Key("eval/accuracy"): pytest.approx(rewards.mean()),
        Key("eval/response_tokens"): pytest.approx(result.response_tokens),
        Key("eval/truncated"): 0.0,
    }


def test_what_is_drawn_depends_on_seed_and_problem_alone() -> None:
    def texts(seed: int, prompts: int) -> list[str]:
        task = ArithmeticTask()
        result = evaluate_task(Model(0.5), encode, task, eval_problems(task, prompts), k=2, seed=seed)
        return [r.text for p in result.problems for r in p.responses]

    assert texts(0, 30)[:20] == texts(0, 10)
    assert texts(1, 10) != texts(0, 10)


def test_problems_drawn_by_seed_are_others_for_each_seed_and_none_twice() -> None:
    task = ArithmeticTask()

    def ids(seed: int | None) -> list[str]:
        return [problem.id for problem in eval_problems(task, 256, seed)]

    assert ids(None) == [f"arithmetic-eval-{i}" for i in range(256)]
    assert ids(3) == ids(3) != ids(4)
    assert len(set(ids(3))) == 256
    # 256 of 10,000 for each of two seeds: 6.6 are expected in both; the first ones would share all
    assert len({*ids(3)} & {*ids(4)}) < 20
    everything = eval_problems(task, None, 3)
    assert sorted(p.id for p in everything) == sorted(p.id for p in eval_problems(task, None))


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
    weak = models.models["weak"]
    with pytest.raises(InterruptedRunError, match="stopped after 4 of 25 problems of arithmetic"):
        run_eval(["weak"], CHOICES, SETTINGS, tmp_path / "cut", models, interrupted=lambda: bool(weak.asked))
    assert weak.asked == 4
    assert run_eval(["weak"], CHOICES, SETTINGS, tmp_path / "cut", models).to_dict() == whole
    assert models.models["weak"].asked == 50
    again = Models()
    assert run_eval(["weak"], CHOICES, replace(SETTINGS, batch=9), tmp_path / "cut", again).to_dict() == whole
    assert again.opened == []


def test_nothing_more_is_asked_and_no_model_is_opened_once_it_was_told_to_stop(tmp_path: Path) -> None:
    models = Models()
    told: list[tuple[str, str, int, int]] = []

    def stop() -> bool:
        return told[-1:] == [("weak", "short", 25, 25)]

    with pytest.raises(InterruptedRunError, match="stopped before strong was asked; the same command resumes"):
        run_eval(
            ["weak", "strong"],
            CHOICES,
            SETTINGS,
            tmp_path,
            models,
            on_progress=lambda *row: told.append(row),
            interrupted=stop,
        )
    assert models.opened == ["weak"]
    strong = models.models["strong"]
    with pytest.raises(InterruptedRunError, match="stopped after 0 of 25 problems of arithmetic"):
        run_eval(["strong"], CHOICES, SETTINGS, tmp_path, models, interrupted=lambda: "strong" in models.opened)
    assert strong.asked == 0


def test_more_problems_are_added_and_other_settings_are_refused(tmp_path: Path) -> None:
    models = Models()
    run_eval(["weak"], CHOICES[:1], SETTINGS, tmp_path, models)
    more = run_eval(["weak"], CHOICES[:1], replace(SETTINGS, prompts=30), tmp_path, models)
    assert models.models["weak"].asked == 30
    assert len(more.results["arithmetic"]["weak"].problems) == 30
    with pytest.raises(RunDirError, match=r"other settings: k = 3 there, 2 here; temperature = 1\.0 there, 0\.0 here;"):
        run_eval(["weak"], CHOICES[:1], replace(SETTINGS, k=2, temperature=0.0), tmp_path, models)


def test_samples_that_ended_at_other_strings_are_not_gone_on_with(tmp_path: Path) -> None:
    run_eval(["weak"], CHOICES[:1], replace(SETTINGS, stop=(";",)), tmp_path, Models())
    for stop in (None, (), (",",)):
        with pytest.raises(
            RunDirError, match=r'other settings: stop = \[";"\] there, ("of the task"|\[\]|\[","\]) here;'
        ):
            run_eval(["weak"], CHOICES[:1], replace(SETTINGS, stop=stop), tmp_path, Models())
    with pytest.raises(InputError, match=r"stop = .*not empty"):
        Settings(stop=(";", ""))


def test_each_problem_says_what_ends_its_answer() -> None:
    plain = {"name": "words", "prompt": "plain"}
    task = tasks.build("mixture", {"tasks": [plain, {"name": "words", "label": "chat"}, {"name": "arithmetic"}]})
    asked: list[Request] = []

    def generate(asks: Sequence[Request]) -> list[list[Sample]]:
        asked.extend(asks)
        return [[Sample(a.prompt_ids, [1], [0], Finish.STOP, text="1")] for a in asks]

    evaluate_task(generate, lambda prompt: [1], task, eval_problems(task, 6), k=1, seed=0)
    assert [a.stop for a in asked] == [("\nQuestion:",), (), ()] * 2
    asked.clear()
    evaluate_task(generate, lambda prompt: [1], task, eval_problems(task, 3), k=1, seed=0, stop=[";"])
    assert [a.stop for a in asked] == [(";",)] * 3


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    models = Models()
    with pytest.raises(InterruptedRunError):
        run_eval(["weak"], CHOICES, SETTINGS, tmp_path, models, interrupted=lambda: bool(models.models["weak"].asked))
    (part,) = (tmp_path / "weak" / "arithmetic").glob("part-*")
    part.write_bytes(b"")
    with pytest.raises(RunDirError, match=f"{part.name}: cannot be read.*take it away"):
        run_eval(["weak"], CHOICES, SETTINGS, tmp_path, Models())


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


def test_tasks_without_an_end_need_a_number() -> None:
    class Endless(ArithmeticTask):
        @property
        def eval_size(self) -> int | None:
            return None

    with pytest.raises(InputError, match="say how many"):
        eval_problems(Endless(), None)
    with pytest.raises(InputError, match="k = 0"):
        evaluate_task(Model(1), encode, ArithmeticTask(), eval_problems(ArithmeticTask(), 1), k=0, seed=0)
