"""Colours that stay apart for colour-blind eyes on a light and on a dark page, and the theme of every chart.

A chart names a colour as ``"@c3"`` or ``"@ink"``; the page replaces the names when it draws, so that a chart follows
the reader's light or dark setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LIGHT = {
    "c0": "#0c5dc5",
    "c1": "#b4540f",
    "c2": "#158a54",
    "c3": "#9e579d",
    "c4": "#c08c01",
    "c5": "#5a5a5a",
    "c6": "#3797e8",
    "c7": "#534000",
    "ink": "#1d2126",
    "muted": "#5b6470",
    "grid": "#e4e7eb",
    "axis": "#aab2bc",
    "alarm": "#b3261e",
    "warning": "#a86a00",
    "h0": "#dbe6f4",
    "h1": "#8db4e2",
    "h2": "#3f6fbf",
    "h3": "#3a1259",
}
DARK = {
    "c0": "#749af7",
    "c1": "#ea6c44",
    "c2": "#1fd797",
    "c3": "#c5a0ce",
    "c4": "#f7c846",
    "c5": "#8a908c",
    "c6": "#c5f7f1",
    "c7": "#eaf795",
    "ink": "#e6e9ed",
    "muted": "#a2abb6",
    "grid": "#2b3138",
    "axis": "#5b6672",
    "alarm": "#ff7b72",
    "warning": "#e3b341",
    "h0": "#253650",
    "h1": "#3f6fb0",
    "h2": "#8fbbe0",
    "h3": "#fbf3b4",
}
NUM_COLOURS = 8
NUM_HEAT = 4
"""``h0`` ... of a heat strip, from what is hardly there to what stands out."""
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
"""Above eight curves the colours repeat with another dash."""


def assign(labels: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """A number for each label: colour ``number % 8``, dash ``number // 8``.

    Args:
        labels: distinct, in the order of the page.
        names: the objective behind each; it has the same colour on every page, as long as that is free.
    """
    from lagproof.objectives import OBJECTIVES  # here: the objectives need torch, themes and charts do not

    preferred = {name: info.colour for name, info in OBJECTIVES.items()}
    out: dict[str, int] = {}
    for label, name in zip(labels, names, strict=True):
        wanted = preferred.get(name)
        if wanted is not None and wanted not in out.values():
            out[label] = wanted
    free = (number for number in range(len(labels) + NUM_COLOURS) if number not in set(out.values()))
    return {label: out[label] if label in out else next(free) for label in labels}


def colour(number: int) -> str:
    """Its name in a chart."""
    return f"@c{number % NUM_COLOURS}"


def dash(number: int) -> list[int]:
    """Its dash."""
    return DASHES[number // NUM_COLOURS % len(DASHES)]


FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "@muted",
        "titleColor": "@muted",
        "gridColor": "@grid",
        "domainColor": "@axis",
        "tickColor": "@axis",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelFlush": False,
        "labelOverlap": "greedy",
        "tickCount": 5,
    },
    "axisX": {"grid": False},
    "legend": {"labelColor": "@muted", "titleColor": "@muted", "titleFontWeight": "normal", "labelFontSize": 12},
    "line": {"strokeCap": "round", "strokeJoin": "round"},
    "autosize": {"type": "fit-x", "contains": "padding"},
}
"""AlarmContext of every chart."""
