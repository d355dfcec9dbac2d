"""The table of an evaluation, and what is said below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lagproof.data.table import Column, Table, TableRow, Value
from lagproof.evaluation.result import EvalResult
from lagproof.evaluation.run import Evaluation

Names = Mapping[str, str]


def results(found: Evaluation) -> Table:
    """One row a model and task, of a mixture also one for each of its tasks; below, what was left out of the numbers
    and the differences to the first model."""
    short = short_names(list(dict.fromkeys(model for of_model in found.results.values() for model in of_model)))
    k = max(result.k for of_model in found.results.values() for result in of_model.values())
    columns = [
        Column("task", align="left", wrap=True),
        Column("model", align="left", wrap=True),
        Column(f"avg@{k}", format=".3f"),
        Column("95 %"),
        Column(f"pass@{k}", format=".3f"),
        Column(f"maj@{k}", format=".3f"),
        Column("tokens", format=".0f"),
        Column("truncated", format=".0%"),
    ]
    rows: list[TableRow] = []
    for task, of_model in found.results.items():
        for model, result in of_model.items():
            rows.append(TableRow([task, short[model], *_numbers(result)]))
            parts = result.by_task()
            rows += [
                TableRow([f"  {name}", short[model], *_numbers(part)]) for name, part in parts.items() if len(parts) > 1
            ]
    return Table("", columns, [rows], notes=[*_left_out(found, short), *_differences(found, short)])


def short_names(models: Sequence[str]) -> dict[str, str]:
    """The fewest last parts of each path that no other one ends in: ``tiny-moe``, ``a/checkpoints/step-000040``."""
    parts = {model: Path(model).parts for model in models}
    out: dict[str, str] = {}
    for model, own in parts.items():
        others = [of_other for other, of_other in parts.items() if other != model]
        apart = (n for n in range(1, len(own) + 1) if all(of_other[-n:] != own[-n:] for of_other in others))
        n = next(apart, None)
        out[model] = model if n is None else Path(*own[-n:]).as_posix()
    return out


def _numbers(result: EvalResult) -> list[Value]:
    interval = result.interval
    return [
        result.accuracy,
        None if interval is None else f"{interval.low:.3f}-{interval.high:.3f}",
        result.pass_at(result.k),
        result.majority,
        result.response_tokens,
        result.truncated,
    ]


def _left_out(found: Evaluation, short: Names) -> Iterator[str]:
    for task, of_model in found.results.items():
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


def _differences(found: Evaluation, short: Names) -> Iterator[str]:
    for task, gaps in found.differences.items():
        for gap in gaps:
            within = "" if gap.interval is None else f", 95 % {gap.interval.low:+.3f} to {gap.interval.high:+.3f}"
            pair = f"{short[gap.other]} - {short[gap.base]}"
            yield f"{task}: {pair} = {gap.mean:+.3f}{within}, {gap.problems} problems"
