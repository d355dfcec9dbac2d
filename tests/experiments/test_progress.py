"""What a comparison shows while it runs, with and without a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from lagproof.config import Config
from lagproof.experiments.pool import CellOutcome
from lagproof.experiments.progress import Bars, Lines, Tally, watching
from lagproof.experiments.worker import Ending, Job

JOBS = [Job("sat-grpo-lag16-seed4", Config(steps=240), False), Job("grpo-lag1-seed0", Config(steps=240), True)]


def lines(text: io.StringIO) -> list[str]:
    return text.getvalue().splitlines()


def test_a_line_for_each_cell_that_ends() -> None:
    text = io.StringIO()
    view = Lines(Console(file=text, width=40), Tally(JOBS, 12), every_s=1e9)
    view.started(JOBS[0])
    view.step(JOBS[0], {"step": 230, "reward": 0.5, "d_bar": 0.0512345, "eval/accuracy": 0.61})
    view.step(JOBS[0], {"step": 240, "reward": 0.5, "d_bar": 0.0412345})
    view.tick()
    view.ended(JOBS[0], CellOutcome(0, Ending.FINISHED, "finished", 41.4))
    view.ended(JOBS[1], CellOutcome(1, Ending.FAILED, "ConfigError: no such model [x]", 0.6))
    assert lines(text) == [
        "[11/12] sat-grpo-lag16-seed4: 41 s, accuracy 0.61 d_bar 0.0412",
        "[12/12] grpo-lag1-seed0: failed after 1 s: ConfigError: no such model [x]",
    ]


def test_a_heartbeat_says_what_runs() -> None:
    text = io.StringIO()
    view = Lines(Console(file=text, width=40), Tally(JOBS, 12), every_s=0.0)
    view.tick()
    view.started(JOBS[0])
    view.step(JOBS[0], {"step": 24, "reward": 0.5})
    view.tick()
    first, second = lines(text)
    assert first == "10 of 12 done; running: nothing yet"
    assert second.startswith("10 of 12 done; about 0 s left; running: sat-grpo-lag16-seed4 step 24/240 reward 0.5")


def test_an_interrupted_cell_is_not_done() -> None:
    tally = Tally(JOBS, 2)
    tally.see(JOBS[0], {"step": 7})
    said = tally.end(JOBS[0], CellOutcome(0, Ending.INTERRUPTED, "asked to stop", 3.0))
    assert said == "[0/2] sat-grpo-lag16-seed4: interrupted at step 7 of 240" and tally.ended == 0


def test_a_file_gets_no_bars() -> None:
    text = io.StringIO()
    with watching(Console(file=text), JOBS, 2) as view:
        assert isinstance(view, Lines)


def test_a_terminal_gets_bars_that_fit() -> None:
    text = io.StringIO()
    console = Console(file=text, width=80, height=30, force_terminal=True, color_system=None)
    with watching(console, JOBS, 12) as view:
        assert isinstance(view, Bars)
        view.started(JOBS[0])
        view.step(JOBS[0], {"step": 120, "reward": 0.5, "d_bar": 0.0512345})
        view.tick()
        view.say("stopping")
        view.started(JOBS[1])
        view.ended(JOBS[1], CellOutcome(1, Ending.FAILED, "no", 1.0))
    shown = text.getvalue()
    for part in ("sat-grpo-lag16-seed4", "120/240", "reward 0.5 d_bar 0.0512", "10 of 12 cells", "stopping", "failed"):
        assert part in shown
