"""The page itself: sections in, one HTML text out, everything inside it. All HTML is in ``templates/``."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import jinja2
from markupsafe import Markup

from lagproof.data.table import Style, Table
from lagproof.report import colours
from lagproof.runs.files import write_text, writing


@dataclass(frozen=True)
class Panel:
    """One chart under its heading, with the legend of its own curves where the figure has none.

    Attributes:
        id: of its place on the page; given by :func:`render`.
    """

    heading: str
    spec: Mapping[str, Any]
    legend: Mapping[str, int] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True)
class Figure:
    """A section of charts that share a legend.

    Attributes:
        title, caption: text; what the axes and the points are.
        legend: label and number (see ``colours.py``) of each curve, where all panels share them; a click shows one.
        panels: the charts, side by side where the page is wide enough; without any, the section is its caption.
    """

    kind: ClassVar[str] = "figure"
    title: str
    caption: str
    legend: Mapping[str, int]
    panels: Sequence[Panel]

    @property
    def columns(self) -> int:
        """On a wide page, so that no row is left with a single panel where that can be helped."""
        return {1: 1, 2: 2, 4: 2, 8: 4}.get(len(self.panels), 3)


@dataclass(frozen=True)
class Numbers:
    """A table as a section; ``keys`` are the numbers of the curves behind names of rows."""

    kind: ClassVar[str] = "numbers"
    table: Table
    keys: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Alarms:
    """Severity and sentence of each alarm."""

    kind: ClassVar[str] = "alarms"
    alarms: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class JudgedClaim:
    """A claim, what the runs say of it, and the numbers that decide it."""

    text: str
    verdict: str
    style: Style
    lines: Sequence[str]


@dataclass(frozen=True)
class Claims:
    """Claims with their verdicts; one with more than ``max_open`` lines shows them when asked."""

    kind: ClassVar[str] = "claims"
    max_open: ClassVar[int] = 4
    claims: Sequence[JudgedClaim]


@dataclass(frozen=True)
class Notes:
    """Sentences under a heading."""

    kind: ClassVar[str] = "notes"
    title: str
    sentences: Sequence[str]


Section = Figure | Numbers | Alarms | Claims | Notes


@dataclass(frozen=True)
class Page:
    """Everything on a page, in the order in which it is read.

    Attributes:
        title: heading.
        lead: what was run, in a line or two.
        verdict: the findings: what each is about (may be empty) and the sentence; ``bad`` if one is a failure.
        sections: charts, tables, lists.
        files: heading and text of what can be unfolded at the end (configurations).
        command: what made the data, for a shell.
        problems: what could not be read.
    """

    title: str
    lead: str
    verdict: Sequence[tuple[str, str]]
    bad: bool
    sections: Sequence[Section]
    files: Sequence[tuple[str, str]]
    command: str | None
    problems: Sequence[str]

    @property
    def footer(self) -> str:
        """Where and with what the page is made."""
        torch, ours = (importlib.metadata.version(name) for name in ("torch", "lagproof"))
        return (
            f"Page made with lagproof {ours} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}, torch {torch}."
        )


def render(page: Page) -> str:
    """The page as HTML."""
    specs: dict[str, Mapping[str, Any]] = {}
    sections = [_numbered(part, specs) if isinstance(part, Figure) else part for part in page.sections]
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=replace(page, sections=sections),
            specs=specs,
            config=colours.CONFIG,
            themes={"light": colours.LIGHT, "dark": colours.DARK},
            bundle=_bundle() if specs else "",
        )
    )


def save(page: Page, path: Path) -> Path:
    """Write the page; a reader sees all of it or nothing.

    Raises:
        RunDirError: it cannot be written.
    """
    text = render(page)
    with writing(path, "choose another with --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(text, path)
    return path


def _numbered(figure: Figure, specs: dict[str, Mapping[str, Any]]) -> Figure:
    """The figure with an id for each panel, under which ``specs`` holds its chart."""
    panels: list[Panel] = []
    for panel in figure.panels:
        name = f"chart{len(specs)}"
        specs[name] = {**panel.spec, "description": f"{figure.title}. {panel.heading}".strip()}
        panels.append(replace(panel, id=name))
    return replace(figure, panels=panels)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lagproof.report"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.globals |= {"num_colours": colours.NUM_COLOURS, "dash": colours.dash, "tint": _tint}
    return environment


def _tint(share: float) -> str:
    """Percent of colour; squared, so that .9 and 1 can be told apart."""
    return f"{60.0 * min(1.0, abs(share)) ** 2:.0f}"


SNIPPET = "window.vegaEmbed = vegaEmbed;"
"""All that the page's own script needs of the bundle."""


@functools.cache
def _bundle() -> Markup:
    """Vega, Vega-Lite and Vega-Embed as one script without imports."""
    import vl_convert  # here: 40 MB that only drawing needs

    return Markup(vl_convert.javascript_bundle(SNIPPET).replace("</script", "<\\/script"))
