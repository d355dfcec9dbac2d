"""What ``lagproof eval`` does around an evaluation: opens models, shows progress, prints the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from lagproof.cli.progress import LINE_EVERY_S
from lagproof.data.samples import Sample
from lagproof.errors import InputError, InterruptedRunError
from lagproof.evaluation.evaluate import Ask
from lagproof.evaluation.result import EvalResult
from lagproof.evaluation.run import Evaluation, Opened, Settings, TaskChoice, run_eval
from lagproof.runtime.interrupt import interruptible


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
        console.print(said, highlight=False, soft_wrap=True)
    interrupted: Callable[[], bool] = lambda: False  # noqa: E731

    with display(models, console) as shown:

        @contextmanager
        def opening(model: str) -> Iterator[Opened]:
            nonlocal interrupted
            shown.loading(model)
            with opened(model, shown.tokens) as ready, interruptible("batch") as interrupted:
                yield ready

        try:
            comparison = run_eval(
                models, choices, settings, out, opening, on_progress=shown.problems, interrupted=lambda: interrupted()
            )
        except KeyboardInterrupt:
            raise InterruptedRunError("stopped at once; the same command goes on from the last batch saved") from None
    show(comparison, console)
    console.print(f"samples and tables: {out}", highlight=False, soft_wrap=True)


@contextmanager
def opened(name: str, on_tokens: Callable[[int], None] | None = None) -> Iterator[Opened]:
    """A model that is ready to be asked."""
    from lagproof.models.loading import load
    from lagproof.rollout.engine import Request, Sampling
    from lagproof.rollout.hf import HFEngine

    loaded = load(name)
    engine = HFEngine.view(loaded.model, loaded.tokenizer, loaded.stop_ids, version=0, on_tokens=on_tokens)

    def generate(asks: Sequence[Ask], settings: Settings) -> list[list[Sample]]:
        sampling = Sampling(
            settings.max_tokens, settings.temperature, settings.top_p, settings.top_k, record_logp=False
        )
        stop = settings.stop
        return engine.generate(
            [Request(a.prompt_ids, a.samples, a.seed, a.stop if stop is None else stop) for a in asks], sampling
        )

    yield Opened(generate, lambda prompt: _encode(name, loaded, prompt))


def _encode(name: str, loaded: Any, prompt: Any) -> list[int]:
    """Token ids of a prompt; what a model cannot read is said in the words of this command line."""
    from lagproof.models.loading import encode

    if not isinstance(prompt, str) and not loaded.tokenizer.chat_template:
        raise InputError(
            f"{name} has no chat template, and the prompts are chat messages: add --set prompt=plain, or name a model "
            "that was trained to chat, for example smollm2 (the tiny models read only --task arithmetic)"
        )
    try:
        return encode(loaded, prompt)
    except InputError as error:
        said = str(error).replace(f"{loaded.source} ", f"{name} ").replace("model = 'smollm2'", "smollm2")
        raise InputError(said) from error


class Display(Protocol):
    """Told what happens in an evaluation."""

    def loading(self, model: str) -> None: ...

    def problems(self, model: str, task: str, done: int, total: int) -> None: ...

    def tokens(self, drawn: int) -> None: ...


@contextmanager
def display(models: Sequence[str], console: Console) -> Iterator[Display]:
    """One bar if ``console`` is a terminal, with a line above it for what is done; else lines."""
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(tails(models), progress)


class Lines:
    """A line a batch, and within a slow one now and then."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console, self._now, self._last, self._drawn = console, now, now(), 0

    def loading(self, model: str) -> None:
        self._print(f"loading {model}")

    def problems(self, model: str, task: str, done: int, total: int) -> None:
        self._drawn = 0
        self._print(f"{task}  {model}: {done}/{total} problems")

    def tokens(self, drawn: int) -> None:
        self._drawn += drawn
        if self._now() - self._last >= LINE_EVERY_S:
            self._print(f"sampling: {self._drawn} tokens of this batch so far")

    def _print(self, text: str) -> None:
        self._last = self._now()
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


class Bar:
    """A bar of problems, with the tokens of the batch so far in front of it."""

    def __init__(self, short: dict[str, str], progress: Progress) -> None:
        self._short, self._progress = short, progress
        self._row, self._what, self._drawn = progress.add_task("", total=None, visible=False), "", 0

    def loading(self, model: str) -> None:
        self._start(f"loading {escape(self._short[model])}", None, 0)

    def problems(self, model: str, task: str, done: int, total: int) -> None:
        what = escape(f"{task}  {self._short[model]}")
        if what != self._what:
            self._start(what, total, done)
        self._drawn = 0
        self._progress.update(self._row, completed=done, description=what)
        if done == total:
            self._progress.console.print(f"{what}: {done}/{total} problems", highlight=False, soft_wrap=True)

    def tokens(self, drawn: int) -> None:
        self._drawn += drawn
        self._progress.update(self._row, description=f"{self._what}  {self._drawn} tokens")

    def _start(self, what: str, total: int | None, done: int) -> None:
        self._progress.remove_task(self._row)
        self._row, self._what = self._progress.add_task(what, total=total, completed=done), what


def show(comparison: Evaluation, console: Console) -> None:
    """One row a model and task, of a mixture also one for each of its tasks; below, what was left out of the numbers
    and the differences to the first model."""
    short = tails(list(dict.fromkeys(model for of_model in comparison.results.values() for model in of_model)))
    k = max(result.k for of_model in comparison.results.values() for result in of_model.values())
    heads = ("task", "model", f"avg@{k}", "95 %", f"pass@{k}", f"maj@{k}", "tokens", "cut")
    table = Table(
        *(Column(head, no_wrap=head != "model", overflow="fold") for head in heads), box=box.SIMPLE, pad_edge=False
    )
    for task, of_model in comparison.results.items():
        for model, result in of_model.items():
            table.add_row(escape(task), escape(short[model]), *_cells(result))
            parts = result.by_task()
            for name, part in parts.items() if len(parts) > 1 else ():
                table.add_row(escape(f"  {name}"), escape(short[model]), *_cells(part))
    console.print(table)
    for line in [*_left_out(comparison, short), *_differences(comparison, short)]:
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _left_out(comparison: Evaluation, short: dict[str, str]) -> Iterator[str]:
    for task, of_model in comparison.results.items():
        for model, result in of_model.items():
            all_ = len(result.problems)
            if result.skipped:
                yield (
                    f"{task} {short[model]}: {result.skipped} of {all_} problems skipped: "
                    "their right answer cannot be read"
                )
            if result.missing:
                yield (
                    f"{task} {short[model]}: {result.missing} of {all_ * result.k} samples missing: they count as wrong"
                )


def _differences(comparison: Evaluation, short: dict[str, str]) -> Iterator[str]:
    for task, gaps in comparison.differences.items():
        for gap in gaps:
            within = "" if gap.interval is None else f", 95 % {gap.interval.low:+.3f} to {gap.interval.high:+.3f}"
            pair = f"{short[gap.other]} - {short[gap.base]}"
            yield f"{task}: {pair} = {gap.mean:+.3f}{within}, {gap.problems} problems"


def tails(models: Sequence[str]) -> dict[str, str]:
    """The fewest last parts of each path that no other one ends in: ``tiny-moe``, ``a/checkpoints/step-000040``."""
    parts = {model: Path(model).parts for model in models}
    out: dict[str, str] = {}
    for model, own in parts.items():
        others = [of_other for other, of_other in parts.items() if other != model]
        apart = (n for n in range(1, len(own) + 1) if all(of_other[-n:] != own[-n:] for of_other in others))
        n = next(apart, None)
        out[model] = model if n is None else Path(*own[-n:]).as_posix()
    return out


def _cells(result: EvalResult) -> list[str]:
    interval = result.interval
    return [
        _number(result.accuracy),
        "-" if interval is None else f"{interval.low:.3f}-{interval.high:.3f}",
        _number(result.pass_at(result.k)),
        _number(result.majority),
        _number(result.response_tokens, ".0f"),
        _number(result.truncated, ".0%"),
    ]


def _number(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None else format(value, form)
