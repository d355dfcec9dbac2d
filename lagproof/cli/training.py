"""What ``lagproof train`` does around a run: progress, alarms as they fire, and the last line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lagproof.cli.progress import Display, display
from lagproof.cli.tables import say
from lagproof.config import Config
from lagproof.data.rows import Row
from lagproof.errors import ConfigError
from lagproof.monitor.alarm import Alarm
from lagproof.runs.writer import RunWriter

LINES = 20
"""Lines of steps in a file, besides those of evaluations."""


def train(
    config: Path | None, overrides: Sequence[str], resume: Path | None, replay: Path | None, console: Console
) -> None:
    """Start a run, resume one, or repeat the schedule of one.

    Raises:
        ConfigError: a configuration that is not allowed.
        LagproofError: the run failed, or was asked to stop.
    """
    settings = _settings(config, overrides, resume, replay)
    with display(console) as shown:
        events = Training(shown, settings.steps)
        events.loading(settings.model)
        from lagproof.runtime.train import train as run  # here: seconds, and what is wrong with a key is said by now

        result = run(
            settings,
            resume=resume is not None,
            on_step=events.row,
            on_tokens=events.tokens,
            on_alarm=events.alarm,
            on_note=events.note,
        )
    accuracy = result.metrics.get("eval/accuracy")
    said = "" if accuracy is None else f", accuracy {accuracy:.3f}"
    steps = f"{result.steps} step{'' if result.steps == 1 else 's'}"
    say(f"{result.reason} after {steps}{said}: {result.run_dir}", console)


def _settings(config: Path | None, overrides: Sequence[str], resume: Path | None, replay: Path | None) -> Config:
    if resume is not None and replay is not None:
        raise ConfigError("--resume and --replay exclude each other: a replay starts at the first event of its run")
    path = resume or replay
    if path is None:
        return Config.load(config, overrides)
    option = "--resume" if replay is None else "--replay"
    if config is not None:
        raise ConfigError(f"{option} takes the configuration from the run directory: leave CONFIG out")
    own = {"run_dir": str(path)}
    if replay is not None:
        own = {"run_dir": f"{str(path).rstrip('/')}-replay", "replay": str(path), "runtime": "inline"}
    return Config.of_table(RunWriter.open(path).config() | own, overrides)


class Training:
    """The events of a run in words."""

    def __init__(self, shown: Display, steps: int) -> None:
        self._shown, self._steps = shown, steps
        self._drawn, self._accuracy, self._loading = 0, "", ""

    def loading(self, model: str) -> None:
        self._loading = f"loading {model}"
        self._shown.log(self._loading)
        self._shown.bar(self._loading)

    def row(self, row: Row) -> None:
        self._started(row.step)
        accuracy = row.get("eval/accuracy")
        if accuracy is not None:
            self._accuracy = f"acc {accuracy:.3f}"
        self._shown.status(summary(row, self._accuracy))
        said = f"step {row.step}/{self._steps}  {summary(row)}"
        if row.step % max(1, self._steps // LINES) == 0 or accuracy is not None or row.outcome is not None:
            self._shown.log(said)
        else:
            self._shown.beat(lambda: said)
        self._drawn = 0

    def tokens(self, drawn: int) -> None:
        self._started(None)
        self._drawn += drawn
        self._shown.beat(lambda: f"sampling: {self._drawn} tokens of this step so far")
        if self._drawn > 4096 or drawn < 64:  # quick steps need no counter
            self._shown.status(f"sampling {self._drawn} tokens  {self._accuracy}")

    def note(self, text: str) -> None:
        self._shown.say(text)

    def alarm(self, alarm: Alarm) -> None:
        self._shown.say(sentence(alarm), "bold red" if alarm.severity == "red" else "yellow")

    def _started(self, step: int | None) -> None:
        self._shown.drop(self._loading)
        self._shown.bar("step", step, self._steps)


def sentence(alarm: Alarm) -> str:
    """An alarm as a line."""
    return f"{alarm.severity} alarm at step {alarm.step}: {alarm.sentence}"


def summary(row: Row, accuracy: str = "") -> str:
    """Reward, accuracy, mismatch, age and speed of one row, as far as it has them."""
    if row.outcome is not None:
        return f"not trained: {row.outcome}"
    parts = [
        f"{label} {value:{form}}"
        for label, key, form in (
            ("reward", "reward", ".3f"),
            ("acc", "eval/accuracy", ".3f"),
            ("d_bar", "d_bar", ".4f"),
            ("age", "age_mean", ".1f"),
            ("tok/s", "time/tokens_per_s", ".0f"),
        )
        if (value := row.get(key)) is not None
        and (label != "tok/s" or value > 0)  # none were trained before the first step
    ]
    if accuracy and row.get("eval/accuracy") is None:
        parts.insert(1, accuracy)
    return "  ".join(parts)
