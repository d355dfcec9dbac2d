"""What ``lagproof eval`` does around an evaluation: opens models, shows progress, prints the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from lagproof.cli import tables
from lagproof.cli.progress import Display, display
from lagproof.cli.tables import say
from lagproof.errors import InterruptedRunError, PromptError
from lagproof.evaluation.evaluate import Encode
from lagproof.evaluation.run import Evaluation, Opened, Settings, TaskChoice, opened, run_eval
from lagproof.evaluation.tables import results, short_names
from lagproof.runtime.interrupt import interruptible
from lagproof.tasks.task import Problem


def evaluate(
    models: Sequence[str], choices: Sequence[TaskChoice], settings: Settings, out: Path, console: Console
) -> None:
    """Evaluate, with a bar in a terminal and plain lines elsewhere.

    Raises:
        UsageError: a model, a task or a folder that cannot be used.
        InterruptedRunError: asked to stop, after a batch or at once.
    """
    if settings.temperature == 0 and settings.k > 1:
        said = f"temperature 0 is greedy: the {settings.k} samples of a problem are all the same, and -k 1 is enough"
        say(said, console)
    interrupted: Callable[[], bool] = lambda: False  # noqa: E731

    with display(console) as shown:
        events = EvaluationEvents(shown, models)

        @contextmanager
        def opening(model: str) -> Iterator[Opened]:
            nonlocal interrupted
            events.loading(model)
            with opened(model, events.tokens) as ready, interruptible("batch") as interrupted:
                yield replace(ready, encode=readable(model, ready.encode))

        try:
            found = run_eval(
                models, choices, settings, out, opening, on_progress=events.problems, interrupted=lambda: interrupted()
            )
        except KeyboardInterrupt:
            raise InterruptedRunError("stopped at once; the same command resumes from the last batch saved") from None
    show(found, console)
    say(f"samples and tables: {out}", console)


def readable(name: str, encode: Encode) -> Encode:
    """``encode``, which says what this command line can do where a model cannot read a prompt."""

    def encoded(problem: Problem) -> Sequence[int]:
        try:
            return encode(problem)
        except PromptError as error:
            if isinstance(problem.prompt, str):
                remedy = "name a model that reads text, for example smollm2"
            else:
                remedy = "add --set prompt=plain, or name a model that was trained to chat, for example smollm2"
            raise PromptError(name, error.problem, f"{remedy} (the tiny models read only --task arithmetic)") from error

    return encoded


def show(found: Evaluation, console: Console) -> None:
    """Print the table, what was left out of the numbers, and the differences to the first model."""
    table = results(found)
    tables.show(replace(table, notes=()), console)
    for note in table.notes:
        say(note, console)


class EvaluationEvents:
    """The events of an evaluation in words: one bar of problems, with the tokens of the batch so far."""

    def __init__(self, shown: Display, models: Sequence[str]) -> None:
        self._shown, self._short = shown, short_names(models)
        self._bar, self._done, self._total, self._drawn = "", 0, 0, 0

    def loading(self, model: str) -> None:
        self._shown.log(f"loading {model}")
        self._start(f"loading {self._short[model]}")
        self._shown.bar(self._bar)

    def problems(self, model: str, task: str, done: int, total: int) -> None:
        self._start(f"{task}  {self._short[model]}")
        self._done, self._total, self._drawn = done, total, 0
        self._shown.bar(self._bar, done, total)
        if done == total:
            self._shown.drop(self._bar)
        said = f"{task}  {model}: {done}/{total} problems"
        self._shown.say(said) if done == total else self._shown.log(said)

    def tokens(self, drawn: int) -> None:
        self._drawn += drawn
        self._shown.bar(self._bar, self._done, self._total, f"{self._drawn} tokens")
        self._shown.beat(lambda: f"sampling: {self._drawn} tokens of this batch so far")

    def _start(self, bar: str) -> None:
        if bar != self._bar:
            self._shown.drop(self._bar)
            self._bar = bar
