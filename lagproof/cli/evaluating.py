"""What ``lagproof eval`` does around an evaluation: opens models, shows progress, prints the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from lagproof.data.samples import Sample
from lagproof.evaluation.evaluate import Ask
from lagproof.evaluation.result import EvalResult
from lagproof.evaluation.run import Comparison, Opened, Settings, TaskChoice, run_eval
from lagproof.models.loading import encode, load
from lagproof.rollout.engine import Request, Sampling
from lagproof.rollout.hf import HFEngine
from lagproof.runtime.train import interruptible


def evaluate(
    models: Sequence[str], choices: Sequence[TaskChoice], settings: Settings, out: Path, console: Console
) -> None:
    """Evaluate, with a bar in a terminal and a line a model and task elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    short = tails(models)
    with interruptible() as interrupted, Progress(*columns, console=console, disable=not console.is_terminal) as shown:
        bars: dict[tuple[str, str], int] = {}

        def told(model: str, task: str, done: int, total: int) -> None:
            key = (model, task)
            if key not in bars:
                bars[key] = shown.add_task(f"{task}  {short[model]}", total=total)
            shown.update(bars[key], completed=done)  # type: ignore[arg-type]
            if not console.is_terminal:
                console.print(f"{task}  {model}: {done}/{total} problems", highlight=False, soft_wrap=True)

        comparison = run_eval(models, choices, settings, out, opened, on_progress=told, interrupted=interrupted)
    show(comparison, console)
    console.print(f"samples and tables: {out}", highlight=False, soft_wrap=True)


@contextmanager
def opened(name: str) -> Iterator[Opened]:
    """A model that is ready to be asked."""
    loaded = load(name)
    engine = HFEngine.view(loaded.model, loaded.tokenizer, loaded.stop_ids, version=0)

    def generate(asks: Sequence[Ask], settings: Settings) -> list[list[Sample]]:
        sampling = Sampling(
            settings.max_tokens, settings.temperature, settings.top_p, settings.top_k, record_logp=False
        )
        stop = settings.stop
        return engine.generate(
            [Request(a.prompt_ids, a.samples, a.seed, a.stop if stop is None else stop) for a in asks], sampling
        )

    yield Opened(generate, lambda prompt: encode(loaded, prompt))


def show(comparison: Comparison, console: Console) -> None:
    """One row a model and task, of a mixture also one for each of its tasks; differences to the first model below."""
    short = tails(list(dict.fromkeys(model for of_model in comparison.results.values() for model in of_model)))
    k = max(result.k for of_model in comparison.results.values() for result in of_model.values())
    heads = ("task", "model", f"avg@{k}", "95 %", f"pass@{k}", f"maj@{k}", "tokens", "cut")
    table = Table(*(Column(head, no_wrap=head != "model") for head in heads), box=box.SIMPLE, pad_edge=False)
    for task, of_model in comparison.results.items():
        for model, result in of_model.items():
            table.add_row(escape(task), escape(short[model]), *_cells(result))
            parts = result.by_task()
            for name, part in parts.items() if len(parts) > 1 else ():
                table.add_row(escape(f"  {name}"), escape(short[model]), *_cells(part))
    console.print(table)
    for task, gaps in comparison.differences.items():
        for gap in gaps:
            within = "" if gap.interval is None else f", 95 % {gap.interval.low:+.3f} to {gap.interval.high:+.3f}"
            console.print(
                f"{task}: {gap.other} - {gap.base} = {gap.mean:+.3f}{within}, paired over {gap.problems} problems",
                highlight=False,
                soft_wrap=True,
                markup=False,
            )


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
