"""Generators of reasoning_gym, against a stand-in of its surface: the package itself is an optional extra."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lagproof import tasks
from lagproof.errors import ConfigError, InputError, UnknownNameError
from lagproof.tasks import gym
from lagproof.tasks.task import Answer

STAND_IN = """
import signal
from dataclasses import dataclass
from . import factory

def check():
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        raise RuntimeError("this is paid for by an answer")

check()

@dataclass
class Config:
    size: int
    seed: int
    step: int = 1

class Doubles:
    def __init__(self, config):
        check()
        assert config.step > 0, "step must be positive"
        self.config = config
    def __getitem__(self, index):
        n = self.config.seed + self.config.step * index
        return {"question": f"Twice {n}?", "answer": str(2 * n), "metadata": {"n": n}}
    def score_answer(self, answer, entry):
        if answer == "crash":
            raise RuntimeError("scorer broke")
        if answer == "hang":
            while True:
                pass
        if answer.startswith("["):
            return float(sum(eval(answer)) == int(entry["answer"]))
        return 1.0 if answer == entry["answer"] else 0.25

factory.DATASETS["doubles"] = (Doubles, Config)

def create_dataset(name, **options):
    cls, config = factory.DATASETS[name]
    return cls(config(**options))
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = tmp_path / "reasoning_gym"
    package.mkdir()
    (package / "__init__.py").write_text(STAND_IN)
    (package / "factory.py").write_text("DATASETS = {}\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [n for n in sys.modules if n.split(".")[0] == "reasoning_gym"]:
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()
    gym.dataset.cache_clear()
    yield
    gym.dataset.cache_clear()
    for name in [n for n in sys.modules if n.split(".")[0] == "reasoning_gym"]:
        del sys.modules[name]


@pytest.mark.usefixtures("stand_in")
def test_problems_and_scores_are_the_generators_own(tmp_path: Path) -> None:
    task = tasks.build("reasoning-gym", {"generator": "doubles", "params": {"step": 3}, "size": 10, "limit_s": 2.0})
    assert (task.name, task.size, task.eval_size) == ("doubles", 10, 1000)
    assert task.problem(2).gold == "12"
    assert task.eval_problem(0).gold == str(2 * 3 * 10)
    problem = task.problem(2)
    harm = tmp_path / "harm"
    code = f"[__import__('pathlib').Path('{harm}').touch() or 12]"
    answers = ["12", "13", "crash", "hang", "[5, 7]", code]
    said = ["12", *(f"\\boxed{{{text}}}" for text in answers)]
    grades = task.grade([Answer(problem, text) for text in said])
    task.close()
    assert [(g.reward, g.reason) for g in grades] == [
        (0.0, "unparsed"),
        (1.0, "correct"),
        (0.25, "partial"),
        (0.0, "failed"),
        (0.0, "timed_out"),
        (1.0, "correct"),
        (0.0, "failed"),  # code is refused
    ]
    assert not harm.exists()


@pytest.mark.usefixtures("stand_in")
def test_what_the_generator_does_not_take() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'doubles'"):
        tasks.build("reasoning-gym", {"generator": "double"})
    for params in ({"stp": 2}, {"step": 0}):
        with pytest.raises(ConfigError, match="doubles does not take them"):
            tasks.build("reasoning-gym", {"generator": "doubles", "params": params})
    with pytest.raises(ConfigError, match=r"task\.generator is missing"):
        tasks.build("reasoning-gym")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(InputError, match=r"pip install 'lagproof\[reasoning-gym\]'"):
        tasks.build("reasoning-gym", {"generator": "chain_sum"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("generator", "params"), [("chain_sum", {"max_terms": 3}), ("leg_counting", {}), ("polynomial_equations", {})]
)
def test_the_package_itself(generator: str, params: dict[str, int]) -> None:
    pytest.importorskip("reasoning_gym")
    task = tasks.build("reasoning-gym", {"generator": generator, "params": params, "size": 20})
    trained, held_out = (list(map(make, range(20))) for make in (task.problem, task.eval_problem))
    assert len({str(p.prompt) for p in (*trained, *held_out)}) == 40
    said = [Answer(p, f"So \\boxed{{{p.gold}}}.") for p in (trained[0], held_out[3])]
    said += [Answer(trained[0], text) for text in ("\\boxed{-1234567}", "\\boxed{nothing}", "nothing")]
    grades = task.grade(said)
    task.close()
    assert [g.reason for g in grades] == ["correct", "correct", "wrong", "wrong", "unparsed"]
    assert [g.reward for g in grades] == [1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.slow
def test_a_problem_of_the_package_with_many_right_answers_has_no_gold() -> None:
    pytest.importorskip("reasoning_gym")
    assert tasks.build("reasoning-gym", {"generator": "graph_color"}).problem(0).gold == ""


def test_scorers_may_calculate_and_nothing_else() -> None:
    import sympy

    from lagproof.tasks.gym_worker import RefusedError, no_code

    harmful = ["().__class__", "open('x')", "__import__('os')", "[x for x in (1,)]", "(lambda: 1)()", "f'{1}'"]
    with no_code():
        assert eval("1 + 2 * (3 - 0x4)") == -1
        assert eval("['a', 'b']") == ["a", "b"]
        assert sympy.parse_expr("x**2 + sqrt(2)") == sympy.Symbol("x") ** 2 + sympy.sqrt(2)
        for text in harmful:
            with pytest.raises(RefusedError):
                eval(text)
            with pytest.raises((RefusedError, SyntaxError)):
                sympy.parse_expr(text)
        with pytest.raises(RefusedError):
            exec("x = 1")
    assert eval("[x for x in (1,)]") == [1]
