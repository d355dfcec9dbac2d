"""What is shown while something goes on, with and without a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from lagproof.cli.comparing import CellEvents
from lagproof.cli.progress import Bars, PlainLines, display
from lagproof.cli.training import Training
from lagproof.config import Config
from lagproof.data.rows import Row
from lagproof.experiments.pool import CellOutcome
from lagproof.experiments.worker import Ending, Job
from lagproof.monitor.alarm import Alarm, Severity

JOBS = [Job("sat-grpo-lag16-seed4", Config(steps=240), False), Job("grpo-lag1-seed0", Config(steps=240), True)]


def terminal() -> Console:
    return Console(file=io.StringIO(), width=80, height=30, force_terminal=True, color_system=None)


def file(every_s: float = 1e9) -> tuple[PlainLines, io.StringIO]:
    text = io.StringIO()
    return PlainLines(Console(file=text, width=40), every_s=every_s), text


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_file_gets_no_bars() -> None:
    text = io.StringIO()
    with display(Console(file=text)) as shown:
        assert isinstance(shown, PlainLines)
        shown.bar("x", 1, 2)
        shown.status("y")
        shown.log("a line [m]")
    assert text.getvalue() == "a line [m]\n"


def test_a_file_has_a_line_every_half_minute_of_silence() -> None:
    text, clock = io.StringIO(), [0.0]
    lines = PlainLines(Console(file=text), now=lambda: clock[0])
    for clock[0] in (10.0, 31.0, 40.0, 59.0):
        lines.beat(lambda: f"at {clock[0]:.0f}")
    lines.log("new")
    for clock[0] in (88.0, 89.5):
        lines.beat(lambda: f"at {clock[0]}")
    assert text.getvalue().splitlines() == ["at 31", "new", "at 89.5"]


def test_a_terminal_gets_bars_lines_that_stay_and_a_line_below() -> None:
    console = terminal()
    with display(console) as shown:
        assert isinstance(shown, Bars)
        shown.bar("[x]", 120, 240)
        shown.bar("[x]", total=240, note="reward 0.5")
        shown.bar("gone")
        shown.drop("gone")
        shown.drop("never there")
        shown.status("d_bar 0.1")
        shown.say("stopping")
        shown.log("only in a file")
    for part in ("[x]", "120/240", "reward 0.5", "d_bar 0.1", "stopping"):
        assert part in written(console)
    assert "only in a file" not in written(console)


def test_a_run_in_a_file_has_a_line_now_and_then() -> None:
    shown, text = file()
    events = Training(shown, 60)
    events.loading("tiny-dense")
    events.row(Row.parse({"step": 0, "eval/accuracy": 0.25, "time/tokens_per_s": 0.0}))
    for step in range(1, 7):
        events.tokens(100)
        measured = {"reward": 0.5, "d_bar": 0.01234, "age_mean": 1.0, "time/tokens_per_s": 1000.0}
        events.row(Row.parse({"step": step, **measured}))
    events.alarm(Alarm(4, "mismatch", Severity.RED, "d_bar [x] left its band"))
    events.row(Row.parse({"step": 7, "outcome": "zero_variance"}))
    assert text.getvalue().splitlines() == [
        "loading tiny-dense",
        "step 0/60  acc 0.250",
        "step 3/60  reward 0.500  d_bar 0.0123  age 1.0  tok/s 1000",
        "step 6/60  reward 0.500  d_bar 0.0123  age 1.0  tok/s 1000",
        "red alarm at step 4: d_bar [x] left its band",
        "step 7/60  not trained: zero_variance",
    ]


def test_a_run_in_a_terminal_keeps_the_last_accuracy_in_sight() -> None:
    console = terminal()
    with display(console) as shown:
        events = Training(shown, 60)
        events.loading("tiny-dense")
        events.row(Row.parse({"step": 0, "eval/accuracy": 0.25}))
        events.tokens(5000)
        events.row(Row.parse({"step": 1, "reward": 0.5, "d_bar": 0.01234}))
    for part in ("1/60", "reward 0.500  acc 0.250  d_bar 0.0123"):
        assert part in written(console)


def test_a_line_for_each_cell_that_ends() -> None:
    shown, text = file()
    view = CellEvents(shown, JOBS, 12)
    view.started(JOBS[0])
    view.step(JOBS[0], {"step": 230, "reward": 0.5, "d_bar": 0.0512345, "eval/accuracy": 0.61})
    view.step(JOBS[0], {"step": 240, "reward": 0.5, "d_bar": 0.0412345})
    view.tick()
    view.ended(JOBS[0], CellOutcome(0, Ending.FINISHED, "finished", 41.4))
    view.ended(JOBS[1], CellOutcome(1, Ending.FAILED, "ConfigError: no such model [x]", 0.6))
    assert text.getvalue().splitlines() == [
        "[11/12] sat-grpo-lag16-seed4: 41 s, accuracy 0.61 d_bar 0.0412",
        "[12/12] grpo-lag1-seed0: failed after 1 s: ConfigError: no such model [x]",
    ]


def test_a_heartbeat_says_what_runs() -> None:
    shown, text = file(every_s=0.0)
    view = CellEvents(shown, JOBS, 12)
    view.started(JOBS[0])
    view.step(JOBS[0], {"step": 24, "reward": 0.5})
    view.tick()
    first, second = text.getvalue().splitlines()
    assert first == "10 of 12 done; running: nothing yet"
    assert second.startswith("10 of 12 done; about 0 s left; running: sat-grpo-lag16-seed4 step 24/240 reward 0.5")


def test_an_interrupted_cell_is_not_done() -> None:
    shown, text = file()
    view = CellEvents(shown, JOBS, 2)
    view.step(JOBS[0], {"step": 7})
    view.ended(JOBS[0], CellOutcome(0, Ending.INTERRUPTED, "asked to stop", 3.0))
    assert text.getvalue() == "[0/2] sat-grpo-lag16-seed4: interrupted at step 7 of 240\n"


def test_a_comparison_in_a_terminal_has_bars_that_fit() -> None:
    console = terminal()
    with display(console) as shown:
        view = CellEvents(shown, JOBS, 12)
        view.started(JOBS[0])
        view.step(JOBS[0], {"step": 120, "reward": 0.5, "d_bar": 0.0512345})
        view.tick()
        view.say("stopping")
        view.started(JOBS[1])
        view.ended(JOBS[1], CellOutcome(1, Ending.FAILED, "no", 1.0))
    for part in ("sat-grpo-lag16-seed4", "120/240", "reward 0.5 d_bar 0.0512", "10 of 12 cells", "stopping", "failed"):
        assert part in written(console)
