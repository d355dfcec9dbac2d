"""Verdicts and comparisons as text of 80 columns; plain where it is piped."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lagproof.diagnostics.alarm import Severity
from lagproof.diagnostics.doctor import Status, Verdict
from lagproof.diagnostics.whatif import Comparison, Mass, WhatIf

_STYLE = {Status.HEALTHY: "green", Status.WATCH: "yellow", Status.SICK: "red"}
_SEVERITY = {Severity.YELLOW: "yellow", Severity.RED: "red"}
AGE_COLUMNS = 6


def verdict(found: Verdict, console: Console) -> None:
    """Print a verdict: words, alarms, evidence, advice, notes."""
    console.print(Text(_wrapped(found.sentence, console), style=f"bold {_STYLE[found.status]}"))
    if found.alarms:
        console.print("\nAlarms")
    for alarm in found.alarms:
        when, how = f"  step {alarm.step:>5}  ", f"{alarm.severity!s:<6}"
        lines = _wrapped(f"{when}{how}  {alarm.sentence}", console, len(when) + len(how) + 2)
        console.print(Text.assemble(when, (how, _SEVERITY[alarm.severity]), lines[len(when) + len(how) :]))
    _section(console, "Evidence", found.evidence)
    _section(console, "What to try", found.advice)
    _section(console, "Notes", found.notes)


def whatif(found: WhatIf, console: Console) -> None:
    """Print what other objectives would have done: all tokens, by sign, by age, and what is particular to some."""
    steps = f"{found.steps} step{'s' if found.steps != 1 else ''}"
    console.print(
        f"{found.tokens} tokens of {steps}, weighed by each objective and compared with {escape(found.present)}.\n"
        "differs: tokens with another weight; kept, removed, added: gradient mass, as\n"
        "shares of the present one; cosine: of the two vectors of weights; up, down:\n"
        "tokens clipped above and below."
    )
    console.print(_overall(found.comparisons))
    if any(name in c.mass for c in found.comparisons for name in ("positive/", "negative/")):
        console.print("By sign of the advantage")
        console.print(_by_sign(found.comparisons))
    ages = [name for name in found.comparisons[0].mass if name.startswith("age_")]
    if len(ages) > 1:
        console.print("Removed, by age of the token in updates")
        console.print(_by_age(found.comparisons, ages))
    _section(console, "In particular", [_of(c) for c in found.comparisons if c.finding is not None])
    _section(console, "Notes", found.notes)


def _of(comparison: Comparison) -> str:
    assert comparison.finding is not None
    label, sentence = comparison.choice.label, comparison.finding.sentence
    return f"{label}: {sentence}" if ":" in label else sentence


def _overall(comparisons: Sequence[Comparison]) -> Table:
    table = _table("objective", "differs", "kept", "removed", "added", "cosine", "up", "down")
    for number, c in enumerate(comparisons):
        shares = c.mass[""].shares
        table.add_row(
            escape(c.choice.label) + (" (now)" if number == 0 else ""),
            _percent(c.differs),
            *(_percent(shares.get(name)) for name in ("kept", "removed", "added")),
            "-" if c.cosine is None else f"{c.cosine:.3f}",
            _percent(c.stats.get("clipped_high")),
            _percent(c.stats.get("clipped_low")),
        )
    return table


def _by_sign(comparisons: Sequence[Comparison]) -> Table:
    table = _table("objective", "A>0 kept", "removed", "added", "A<0 kept", "removed", "added")
    for c in comparisons[1:]:
        cells: list[str] = []
        for side in ("positive/", "negative/"):
            shares = c.mass[side].shares if side in c.mass else {}
            cells += [_percent(shares.get(name)) for name in ("kept", "removed", "added")]
        table.add_row(escape(c.choice.label), *cells)
    return table


def _by_age(comparisons: Sequence[Comparison], ages: Sequence[str]) -> Table:
    """Neighbouring ages share a column where there are many; masses add up."""
    size = -(-len(ages) // AGE_COLUMNS)
    columns = [ages[i : i + size] for i in range(0, len(ages), size)]
    table = _table("objective", *(_span(column) for column in columns))
    for c in comparisons[1:]:
        table.add_row(
            escape(c.choice.label), *(_percent(_together(c.mass, column).get("removed")) for column in columns)
        )
    return table


def _together(mass: Mapping[str, Mass], names: Sequence[str]) -> dict[str, float]:
    found = [mass[name] for name in names if name in mass]
    return Mass(*(sum(getattr(m, what) for m in found) for what in ("present", "other", "kept"))).shares


def _span(ages: Sequence[str]) -> str:
    first = ages[0].removeprefix("age_").rstrip("/").split("-")[0]
    last = ages[-1].removeprefix("age_").rstrip("/").split("-")[-1]
    return first if first == last else f"{first}-{last}"


def _table(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number == 0 else "right", overflow="fold")
    return table


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{share:.1%}" if share < 9.995 else f"{share:.0f}x"


def _section(console: Console, title: str, sentences: Iterable[str]) -> None:
    listed = list(sentences)
    if listed:
        console.print(f"\n{title}")
    for sentence in listed:
        console.print(Text(_wrapped(f"  - {sentence}", console, 4)))


def _wrapped(text: str, console: Console, indent: int = 0) -> str:
    return textwrap.fill(text, console.width, subsequent_indent=" " * indent, break_on_hyphens=False)
