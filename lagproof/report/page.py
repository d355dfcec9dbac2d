"""The page itself: parts in, one HTML text out, everything inside it."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from lagproof.errors import RunDirError
from lagproof.report import colours


@dataclass(frozen=True)
class Panel:
    """One chart under its heading, with the legend of its own curves where the figure has none."""

    heading: str
    spec: Mapping[str, Any]
    legend: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """A section of charts that share a legend.

    Attributes:
        title, caption: text; what the axes and the points are.
        legend: label and number (see ``colours.py``) of each curve, where all panels share them; a click shows one.
        panels: the charts, side by side where the page is wide enough.
    """

    title: str
    caption: str
    legend: Mapping[str, int]
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Page:
    """Everything on a page, in the order in which it is read.

    Attributes:
        title: heading.
        lead: what was run, in a line or two.
        verdict: the findings, a sentence each, or what it is about and the sentence; ``bad`` if one is a failure.
        sections: charts, and tables as HTML; a figure without a panel is its caption only.
        files: heading and text of what can be unfolded at the end (configurations).
        command: what made the data, for a shell.
        problems: what could not be read.
        footer: where and with what it was made.
    """

    title: str
    lead: str
    verdict: Sequence[str | tuple[str, str]]
    bad: bool
    sections: Sequence[Figure | str]
    files: Sequence[tuple[str, str]]
    command: str | None
    problems: Sequence[str]
    footer: str


def render(page: Page) -> str:
    """The page as HTML."""
    specs: dict[str, Mapping[str, Any]] = {}
    sections = [part if isinstance(part, str) else _figure(part, specs) for part in page.sections]
    kind = "verdict bad" if page.bad else "verdict"
    body = [
        f"<h1>{escape(page.title)}</h1>",
        f'<p class="lead">{escape(page.lead)}</p>' if page.lead else "",
        f'<ul class="{kind}">{_verdict(page.verdict)}</ul>' if page.verdict else "",
        "<noscript><p>The charts need JavaScript, which is inside this file; the numbers below do not.</p></noscript>",
        *sections,
        _origin(page),
    ]
    return _fill(
        _read("page.html"),
        title=escape(page.title),
        style=_style(),
        body="\n".join(part for part in body if part),
        bundle=_bundle() if specs else "",
        charts=_json({"config": colours.CONFIG, "specs": specs}),
        themes=_json({"light": colours.LIGHT, "dark": colours.DARK}),
    )


def save(page: Page, path: Path) -> Path:
    """Write the page; a reader sees all of it or nothing.

    Raises:
        RunDirError: it cannot be written.
    """
    text = render(page)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.tmp")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise RunDirError(f"{path}: cannot be written: {error.strerror or error}; choose another with --out") from error
    return path


def swatch(number: int) -> str:
    """A short piece of a curve, for legends and tables."""
    dashes = " ".join(map(str, colours.dash(number)))
    pattern = "" if number < colours.NUM_COLOURS else f' stroke-dasharray="{dashes}"'
    line = f'<line x1="0" y1="4" x2="22" y2="4" stroke="var(--c{number % colours.NUM_COLOURS})"{pattern}/>'
    return f'<svg class="swatch" viewBox="0 0 22 8" aria-hidden="true">{line}</svg>'


def _figure(figure: Figure, specs: dict[str, Mapping[str, Any]]) -> str:
    parts = [f"<h2>{escape(figure.title)}</h2>", f'<p class="caption">{escape(figure.caption)}</p>']
    if len(figure.legend) > 1 and figure.panels:
        parts.append(_legend(figure.legend, clickable=True))
    if figure.panels:
        parts.append(f'<div class="panels" style="--columns: {_columns(len(figure.panels))}">')
        for panel in figure.panels:
            name = f"chart{len(specs)}"
            specs[name] = {**panel.spec, "description": f"{figure.title}. {panel.heading}".strip()}
            legend = _legend(panel.legend, clickable=False) if len(panel.legend) > 1 else "<div></div>"
            chart = f'<div class="chart" id="{name}"></div>'
            parts.append(f'<div class="panel"><h3>{escape(panel.heading)}</h3>{legend}{chart}</div>')
        parts.append("</div>")
    return f"<section>{''.join(parts)}</section>"


def _columns(num_panels: int) -> int:
    """Columns on a wide page, so that no row is left with a single panel where that can be helped."""
    return {1: 1, 2: 2, 4: 2, 8: 4}.get(num_panels, 3)


def _legend(curves: Mapping[str, int], *, clickable: bool) -> str:
    items = [(number, swatch(number) + escape(label)) for label, number in curves.items()]
    if not clickable:
        return f'<div class="legend">{"".join(f"<span>{text}</span>" for _, text in items)}</div>'
    buttons = [f'<button type="button" data-key="o{n}" aria-pressed="false">{text}</button>' for n, text in items]
    return f'<div class="legend" role="group" aria-label="Show one curve">{"".join(buttons)}</div>'


def alarm_list(alarms: Sequence[tuple[str, str]]) -> str:
    """Severity and sentence of each alarm as a section; empty without any."""
    if not alarms:
        return ""
    items = "".join(
        f'<li class="{"red" if severity == "red" else "yellow"}">{escape(sentence)}</li>'
        for severity, sentence in alarms
    )
    return f'<section><h2>Alarms</h2><ul class="alarms">{items}</ul></section>'


def _origin(page: Page) -> str:
    parts = ["<h2>How it was made</h2>"]
    if page.command:
        parts.append(f"<pre>{escape(page.command)}</pre>")
    parts += [
        f"<details><summary>{escape(heading)}</summary><pre>{escape(text)}</pre></details>"
        for heading, text in page.files
    ]
    if page.problems:
        parts.append(f'<p>What could not be read:</p><ul class="notes">{_items(page.problems)}</ul>')
    parts.append(f'<p class="caption">{escape(page.footer)}</p>')
    return f"<section>{''.join(parts)}</section>"


def _verdict(findings: Sequence[str | tuple[str, str]]) -> str:
    return "".join(
        f"<li>{escape(found)}</li>"
        if isinstance(found, str)
        else f"<li><strong>{escape(found[0])}</strong> {escape(found[1])}</li>"
        for found in findings
    )


def _items(sentences: Sequence[str]) -> str:
    return "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)


def _style() -> str:
    def variables(theme: Mapping[str, str]) -> str:
        return " ".join(f"--{name}: {value};" for name, value in theme.items())

    return _fill(_read("page.css"), light=variables(colours.LIGHT), dark=variables(colours.DARK))


SNIPPET = "window.vegaEmbed = vegaEmbed;"
"""All that the page's own script needs of the bundle."""


@functools.cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script without imports."""
    import vl_convert  # here: 40 MB that only drawing needs

    return vl_convert.javascript_bundle(SNIPPET).replace("</script", "<\\/script")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _read(name: str) -> str:
    return (resources.files("lagproof.report") / name).read_text(encoding="utf-8")


def _fill(template: str, **parts: str) -> str:
    """Put each part in its ``{{place}}``, once; what a part contains is left alone."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)
