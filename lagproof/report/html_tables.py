"""The tables of a comparison as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from lagproof.experiments.claims import ClaimVerdict, Judged
from lagproof.experiments.comparison import Findings
from lagproof.experiments.tables import NOTHING, any_alarm, collapsed, interval, notes, number, rang
from lagproof.report.page import swatch

NUMBERS = {
    "final": ("final", ".3f"),
    "d_bar": ("d_bar", ".4f"),
    "k3": ("k3", ".4f"),
    "scale_positive": ("S+", ".3f"),
    "scale_negative": ("S−", ".3f"),
    "clipped": ("clipped", ".2%"),
    "changed": ("SAT changed", ".2%"),
}
DIFFERENCES = {
    "accuracy": ("accuracy", "+.3f"),
    "d_bar": ("d_bar", "+.4f"),
    "k3": ("k3", "+.4f"),
}


def results(findings: Findings, keys: Mapping[str, int]) -> str:
    """The main table with what one has to know to read it; empty without results."""
    cells = findings.cells
    if not cells:
        return ""
    with_interval = any(len(cell.seeds) > 1 for cell in cells)
    shown = {name: head for name, head in NUMBERS.items() if any(name in cell.estimates for cell in cells)}
    headings = ["lag", "seeds", "accuracy", *(["95 % interval"] if with_interval else []), "min"]
    headings += [heading for heading, _ in shown.values()] + ["collapsed"]
    rows: list[str] = []
    for i, cell in enumerate(cells):
        e = cell.estimates
        values = [str(cell.lag), str(len(cell.seeds)), number(e, "accuracy", ".3f")]
        values += [interval(e, "accuracy", ".3f")] if with_interval else []
        values.append(NOTHING if cell.worst is None else f"{cell.worst:.3f}")
        values += [number(e, name, form) for name, (_, form) in shown.items()]
        values.append(collapsed(cell))
        kinds = ["first"] if i == 0 or cells[i - 1].lag != cell.lag else []
        kinds += ["collapsed"] if cell.collapsed else []
        rows.append(row(swatch(keys[cell.label]) + escape(cell.label), values, kinds))
    remarks = "".join(f"<li>{escape(note)}</li>" for note in notes(findings))
    return f'<section><h2>Results</h2>{table(["objective", *headings], rows)}<ul class="notes">{remarks}</ul></section>'


def alarms(findings: Findings, keys: Mapping[str, int]) -> str:
    """When the first alarm of each cell rang; empty where none did."""
    cells = findings.cells
    if not any_alarm(cells):
        return ""
    rows: list[str] = []
    for i, cell in enumerate(cells):
        first = i == 0 or cells[i - 1].lag != cell.lag
        values = [str(cell.lag), rang(cell.first_alarm), rang(cell.first_red)]
        rows.append(row(swatch(keys[cell.label]) + escape(cell.label), values, ["first"] if first else []))
    caption = '<p class="caption">The step: median over the seeds in which one rang, range, and how many seeds.</p>'
    headings = ["objective", "lag", "first alarm", "first red alarm"]
    return f"<section><h2>First alarms</h2>{caption}{table(headings, rows)}</section>"


def differences(findings: Findings, keys: Mapping[str, int]) -> str:
    """Paired differences; empty without any."""
    found = findings.differences
    if not found:
        return ""
    with_interval = any(len(difference.seeds) > 1 for difference in found)
    headings = ["minus", "lag", "seeds"]
    for heading, _ in DIFFERENCES.values():
        headings += [heading, "95 % interval"] if with_interval else [heading]
    rows: list[str] = []
    for i, difference in enumerate(found):
        values = [difference.baseline, str(difference.lag), str(len(difference.seeds))]
        for name, (_, form) in DIFFERENCES.items():
            values.append(number(difference.estimates, name, form))
            values += [interval(difference.estimates, name, form)] if with_interval else []
        first = i == 0 or found[i - 1].lag != difference.lag
        rows.append(row(swatch(keys[difference.label]) + escape(difference.label), values, ["first"] if first else []))
    caption = (
        '<p class="caption">Each run minus the baseline\'s run of the same seed and lag, then the mean over seeds.</p>'
    )
    return f"<section><h2>Differences, seed by seed</h2>{caption}{table(['objective', *headings], rows)}</section>"


MAX_OPEN = 4
"""Lines of numbers that a claim shows without being asked."""
CLASSES = {ClaimVerdict.HOLDS: "yes", ClaimVerdict.FAILS: "no", ClaimVerdict.UNDECIDED: "open"}


def claims(findings: Findings) -> str:
    """Each claim with its verdict and the numbers that decide it; empty without any."""
    if not findings.claims:
        return ""
    return f"<section><h2>Claims</h2>{''.join(map(_claim, findings.claims))}</section>"


def _claim(judged: Judged) -> str:
    lines = "".join(f"<li>{escape(part.line)}</li>" for part in judged.parts)
    verdict = f'<span class="judged {CLASSES[judged.verdict]}">{escape(judged.verdict)}</span>'
    shown = " open" if len(judged.parts) <= MAX_OPEN else ""
    numbers = f"<details{shown}><summary>The numbers</summary><ul class=notes>{lines}</ul></details>"
    return f'<div class="claim"><p>{escape(judged.claim.text)} {verdict}</p>{numbers}</div>'


def row(name: str, values: Sequence[str], kinds: Sequence[str] = ()) -> str:
    """A row of a table; ``name`` is HTML, the values are text."""
    cells = "".join(f"<td{' class=range' if v.startswith('[') else ''}>{escape(v)}</td>" for v in values)
    return f'<tr class="{" ".join(kinds)}"><td class="name">{name}</td>{cells}</tr>'


def table(headings: Sequence[str], rows: Sequence[str]) -> str:
    """Rows under headings, of which the first is that of the names; wider ones scroll."""
    head = "".join(
        f'<th scope="col"{" class=name" if i == 0 else ""}>{escape(heading)}</th>' for i, heading in enumerate(headings)
    )
    body = "".join(rows)
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
