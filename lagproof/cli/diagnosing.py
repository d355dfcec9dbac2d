"""Verdicts and comparisons as text of 80 columns; plain where it is piped."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lagproof.dumps.doctor import Status, Verdict
from lagproof.dumps.whatif import Comparison, WhatIf
from lagproof.dumps.words import particular, percent
from lagproof.metrics.bins import bands
from lagproof.monitor.alarm import Severity

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
        "tokens clipped above and below; -: it has no such clip.\n"
    )
    console.print(_overall(found.comparisons))
    if any(name in c.mass for c in found.comparisons for name in ("positive/", "negative/")):
        console.print("\nBy sign of the advantage")
        console.print(_by_sign(found.comparisons))
    if len(found.comparisons[0].ages) > 1:
        console.print("\nRemoved, by age of the token in updates")
        console.print(_by_age(found.comparisons))
    _section(console, "In particular", [particular(c) for c in found.comparisons if c.finding is not None])
    _section(console, "Notes", found.notes)


def _overall(comparisons: Sequence[Comparison]) -> Table:
    table = _table("objective", "differs", "kept", "removed", "added", "cosine", "up", "down")
    for number, c in enumerate(comparisons):
        shares = c.mass[""].shares
        table.add_row(
            escape(c.choice.label) + (" (now)" if number == 0 else ""),
            percent(c.differs),
            *(percent(shares.get(name)) for name in ("kept", "removed", "added")),
            "-" if c.cosine is None else f"{c.cosine:.3f}",
            percent(c.stats.get("clipped_high")),
            percent(c.stats.get("clipped_low")),
        )
    return table


def _by_sign(comparisons: Sequence[Comparison]) -> Table:
    table = _table("objective", "A>0 kept", "removed", "added", "A<0 kept", "removed", "added")
    for c in comparisons[1:]:
        cells: list[str] = []
        for side in ("positive/", "negative/"):
            shares = c.mass[side].shares if side in c.mass else {}
            cells += [percent(shares.get(name)) for name in ("kept", "removed", "added")]
        table.add_row(escape(c.choice.label), *cells)
    return table


def _by_age(comparisons: Sequence[Comparison]) -> Table:
    """Neighbouring ages share a column where there are many; masses add up."""
    columns = bands(comparisons[0].ages, AGE_COLUMNS)
    table = _table("objective", *columns)
    for c in comparisons[1:]:
        removed = (c.together(names).shares.get("removed") for names in columns.values())
        table.add_row(escape(c.choice.label), *map(percent, removed))
    return table


def _table(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number == 0 else "right", overflow="fold")
    return table


def _section(console: Console, title: str, sentences: Iterable[str]) -> None:
    listed = list(sentences)
    if listed:
        console.print(f"\n{title}")
    for sentence in listed:
        console.print(Text(_wrapped(f"  - {sentence}", console, 4)))


def _wrapped(text: str, console: Console, indent: int = 0) -> str:
    return textwrap.fill(text, console.width, subsequent_indent=" " * indent, break_on_hyphens=False)
