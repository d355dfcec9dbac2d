"""What an evaluation shows: progress, how it is stopped, the table and what stands below it."""

from __future__ import annotations

import io
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from lagproof.cli.evaluating import EvaluationEvents, evaluate, readable, show
from lagproof.cli.progress import PlainLines
from lagproof.data.samples import Finish
from lagproof.errors import InterruptedRunError, PromptError
from lagproof.evaluation.result import EvalResult, GradedResponse, ModelDifference, ProblemResult
from lagproof.evaluation.run import Evaluation, Settings, opened, parse_tasks
from lagproof.evaluation.statistics import Interval
from lagproof.evaluation.tables import short_names
from lagproof.runtime.interrupt import interruptible
from lagproof.tasks.task import Problem

SETTINGS = Settings(k=2, prompts=3, max_tokens=12, batch=2)


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
    assert list(short_names(models).values()) == expected


def result(**rewards: float) -> EvalResult:
    def problem(task: str, reward: float) -> ProblemResult:
        said = GradedResponse("1", task, 0, reward, "", "1", 4, Finish.STOP, "", "1")
        return ProblemResult("1", task, "1", 1, [said])

    return EvalResult(1, [problem(task, reward) for task, reward in rewards.items()])


def shown(comparison: Evaluation) -> list[str]:
    text = io.StringIO()
    show(comparison, Console(file=text, width=120))
    return [line for line in text.getvalue().splitlines() if line.strip("- ")]


def table(comparison: Evaluation) -> list[list[str]]:
    return [line.split()[:3] for line in shown(comparison)]


def test_a_mixture_has_a_row_for_each_of_its_tasks() -> None:
    models = {f"{run}/step-000040": result(easy=1.0, hard=0.0) for run in "ab"}
    found = table(Evaluation({"mixture": models, "[x]": {"a/step-000040": result(t=1.0)}}, {}))
    assert found[1:] == [
        ["mixture", "a/step-000040", "0.500"],
        ["easy", "a/step-000040", "1.000"],
        ["hard", "a/step-000040", "0.000"],
        ["mixture", "b/step-000040", "0.500"],
        ["easy", "b/step-000040", "1.000"],
        ["hard", "b/step-000040", "0.000"],
        ["[x]", "a/step-000040", "1.000"],
    ]


def test_what_was_left_out_of_the_numbers_is_said() -> None:
    def problem(name: str, *rewards: float) -> ProblemResult:
        said = [GradedResponse(name, "t", i, r, "", "1", 4, Finish.STOP, "", "1") for i, r in enumerate(rewards)]
        return ProblemResult(name, "t", "1", 2, said)

    whole = EvalResult(2, [problem("a", 1.0, 0.0)])
    some = EvalResult(2, [problem("a", 1.0), problem("b"), problem("c", math.nan, math.nan)])
    _, *_, skipped, missing = shown(Evaluation({"[t]": {"x/whole": whole, "x/some": some}}, {}))
    assert skipped == "[t] some: 1 of 3 problems skipped: their right answer cannot be read"
    assert missing == "[t] some: 3 of 6 samples missing: they count as wrong"
    assert len(shown(Evaluation({"t": {"whole": whole}}, {}))) == 2


def test_differences_have_the_short_names_of_the_table() -> None:
    base, other = "a/long/path/to/checkpoints/step-000010", "another/long/path/to/checkpoints/step-000020"
    results = {"t": {base: result(t=0.0), other: result(t=1.0)}}
    gaps = [
        ModelDifference(base, other, 16, -0.125, Interval(-0.359, 0.094)),
        ModelDifference(base, other, 16, 1.0, None),
    ]
    assert shown(Evaluation(results, {"t": gaps}))[-2:] == [
        "t: step-000020 - step-000010 = -0.125, 95 % -0.359 to +0.094, 16 problems",
        "t: step-000020 - step-000010 = +1.000, 16 problems",
    ]


def test_a_first_line_is_shown_before_the_heavy_libraries_are_read() -> None:
    code = "import sys, lagproof.cli.evaluating; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_lines_in_a_file(tmp_path: Path) -> None:
    text = io.StringIO()
    evaluate(["tiny-dense"], parse_tasks(["arithmetic"]), SETTINGS, tmp_path, Console(file=text, width=80))
    assert text.getvalue().splitlines()[:4] == [
        "loading tiny-dense",
        "arithmetic  tiny-dense: 0/3 problems",
        "arithmetic  tiny-dense: 2/3 problems",
        "arithmetic  tiny-dense: 3/3 problems",
    ]
    again = io.StringIO()
    evaluate(["tiny-dense"], parse_tasks(["arithmetic"]), SETTINGS, tmp_path, Console(file=again, width=80))
    assert again.getvalue().splitlines() == text.getvalue().splitlines()[4:]


def test_within_a_batch_a_file_has_a_line_every_half_minute() -> None:
    text, clock = io.StringIO(), [0.0]
    events = EvaluationEvents(PlainLines(Console(file=text, width=20), now=lambda: clock[0]), ["m"])
    events.problems("m", "t", 0, 8)
    for clock[0] in (10.0, 29.0, 31.0, 40.0, 60.0, 62.0):
        events.tokens(7)
    events.problems("m", "t", 4, 8)
    for clock[0] in (70.0, 93.0):
        events.tokens(1)
    assert text.getvalue().splitlines() == [
        "t  m: 0/8 problems",
        "sampling: 21 tokens of this batch so far",
        "sampling: 42 tokens of this batch so far",
        "t  m: 4/8 problems",
        "sampling: 2 tokens of this batch so far",
    ]


class Recorded:
    """A display that keeps what it is given."""

    def __init__(self) -> None:
        self.bars: dict[str, tuple[float | None, float | None, str]] = {}
        self.said: list[str] = []

    def say(self, text: str, style: str | None = None) -> None:
        self.said.append(text)

    def log(self, text: str) -> None: ...

    def beat(self, text: object) -> None: ...

    def status(self, text: str) -> None: ...

    def bar(self, name: str, done: float | None = None, total: float | None = None, note: str = "") -> None:
        self.bars[name] = (done, total, note)

    def drop(self, name: str) -> None:
        self.bars.pop(name, None)


def test_one_bar_for_what_goes_on() -> None:
    shown = Recorded()
    events = EvaluationEvents(shown, ["x/[m]"])
    events.loading("x/[m]")
    assert shown.bars == {"loading [m]": (None, None, "")}
    events.problems("x/[m]", "t", 2, 8)
    assert shown.bars == {"t  [m]": (2, 8, "")}
    events.tokens(5)
    events.tokens(6)
    assert shown.bars == {"t  [m]": (2, 8, "11 tokens")}
    events.problems("x/[m]", "t", 4, 8)
    assert shown.bars == {"t  [m]": (4, 8, "")} and shown.said == []
    events.problems("x/[m]", "t", 8, 8)
    assert shown.bars == {} and shown.said == ["t  x/[m]: 8/8 problems"]


@pytest.mark.parametrize(("temperature", "k", "said"), [(0.0, 3, True), (0.0, 1, False), (1.0, 3, False)])
def test_greedy_samples_are_said_to_be_the_same(temperature: float, k: int, said: bool, tmp_path: Path) -> None:
    text = io.StringIO()
    settings = Settings(k=k, prompts=2, max_tokens=4, temperature=temperature)
    evaluate(["tiny-dense"], parse_tasks(["arithmetic"]), settings, tmp_path, Console(file=text, width=80))
    line = "temperature 0 is greedy: the 3 samples of a problem are all the same, and -k 1 is enough"
    assert text.getvalue().splitlines()[0] == (line if said else "loading tiny-dense")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([{"role": "user", "content": "1+1="}], "^tiny-dense has no chat template, .*: add --set prompt=plain, "),
        ("One and one?", "^tiny-dense has no tokens for 'One and one.' .* for example smollm2 "),
    ],
)
def test_what_a_model_cannot_read_is_said_in_the_words_of_this_command(prompt: object, message: str) -> None:
    with opened("tiny-dense") as model, pytest.raises(PromptError, match=message):
        readable("tiny-dense", model.encode)(Problem("p", prompt, "2", "t"))  # type: ignore[arg-type]


@pytest.fixture
def signals() -> Iterator[None]:
    """Ctrl-C as in a terminal: a process that a script starts in the background inherits that it is ignored."""
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for s, handler in before.items():
        signal.signal(s, handler)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_answered_at_once_and_the_second_stops(
    first: int, signals: None, capfd: pytest.CaptureFixture[str]
) -> None:
    for args, unit in (((), "step"), (("batch",), "batch")):
        with interruptible(*args) as interrupted:
            assert not interrupted()
            signal.raise_signal(first)
            assert interrupted()
            assert capfd.readouterr().err == (
                f"stopping: this {unit} is finished and saved first; a second Ctrl-C stops at once\n"
            )
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)


def test_nobody_needs_to_hear_it(signals: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> int:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(os, "write", closed)
    with interruptible() as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert interrupted()


def test_ctrl_c_within_a_batch_saves_it_and_says_so(
    tmp_path: Path, signals: None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def interrupt(_: EvaluationEvents, drawn: int) -> None:
        seen.append(drawn)
        if len(seen) == 1:
            signal.raise_signal(signal.SIGINT)
            assert "this batch is finished and saved first" in capfd.readouterr().err

    def ask() -> None:
        evaluate(["tiny-dense"], parse_tasks(["arithmetic"]), SETTINGS, tmp_path, Console(file=io.StringIO()))

    with monkeypatch.context() as patch:
        patch.setattr(EvaluationEvents, "tokens", interrupt)
        with pytest.raises(InterruptedRunError, match="stopped after 2 of 3 problems of arithmetic"):
            ask()
    assert sum(seen) > 4
    ask()
    assert len((tmp_path / "tiny-dense" / "arithmetic" / "problems.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(("where", "presses"), [("loading", 1), ("tokens", 2)])
def test_ctrl_c_while_it_loads_or_again_within_a_batch_stops_at_once(
    where: str, presses: int, tmp_path: Path, signals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        for _ in range(presses):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(EvaluationEvents, where, interrupt)
    with pytest.raises(InterruptedRunError, match="stopped at once; the same command resumes from the last batch"):
        evaluate(["tiny-dense"], parse_tasks(["arithmetic"]), SETTINGS, tmp_path, Console(file=io.StringIO()))
    assert not list(tmp_path.rglob("*.parquet"))


def test_names_of_models_are_folded_and_never_cut() -> None:
    text = io.StringIO()
    names = [f"a/checkpoints-of-a-long-name-{end}" for end in "XY"]
    show(Evaluation({"arithmetic": {name: result(t=1.0) for name in names}}, {}), Console(file=text, width=70))
    assert "\u2026" not in text.getvalue() and re.search("X.*Y", text.getvalue(), re.DOTALL)
