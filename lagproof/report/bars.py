"""Vega-Lite charts of parts of a whole, a horizontal bar an objective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from lagproof.report import colours
from lagproof.report.charts import FADED, FOCUS, Data, Spec, finish, key, short

BAR_HEIGHT = 21
AXIS_HEIGHT = 34
LEGEND_HEIGHT = 50
LONGEST = 2.0
"""Shares of the present mass above which a bar is cut off, and says how long it is."""

ON_BAR = "#1d2126"
"""Text on a bar, whose colours are all light enough for it."""

KINDS = {"kept": 0, "added": 4, "removed": 1}
"""Number (see ``colours.py``) of each part of a bar."""


def fates(shares: Mapping[str, Mapping[str, float]], domain: tuple[float, float]) -> Spec:
    """``kept`` and behind it ``added`` to the right, ``removed`` to the left, as shares of the present mass.

    Args:
        shares: of each objective, see ``Mass.shares``; one without shares has no bar.
        domain: see :func:`domain_of`; the same for all panels.
    """
    rows: list[dict[str, Any]] = []
    cut: list[dict[str, Any]] = []
    for label, found in shares.items():
        if not found:
            continue
        total = found["kept"] + found["added"]
        ends = {"kept": (0.0, found["kept"]), "added": (found["kept"], total), "removed": (-found["removed"], 0.0)}
        rows += [
            {"y": label, "a": short(a), "b": short(min(b, LONGEST)), "o": key(KINDS[kind]), "k": kind, "v": found[kind]}
            for kind, (a, b) in ends.items()
            if b > a and a < LONGEST
        ]
        if total > LONGEST:
            cut.append({"y": label, "x": domain[1], "text": f"{total:.0%} →"})
    x = alt.X("a:Q", title=None, scale=alt.Scale(domain=list(domain), nice=False), axis=_percent())
    data = Data()
    names = [colours.colour(n) for n in KINDS.values()]
    colour = alt.Color("o:N", scale=alt.Scale(domain=[key(n) for n in KINDS.values()], range=names), legend=None)
    shown = alt.when(f"{FOCUS} == '' || datum.o == {FOCUS}").then(alt.value(0.9)).otherwise(alt.value(FADED))
    tooltip = [
        alt.Tooltip("y:N", title="objective"),
        alt.Tooltip("k:N", title="mass"),
        alt.Tooltip("v:Q", title="share", format=".2%"),
    ]
    bars = (
        alt.Chart(data.add(rows))
        .mark_bar(height=BAR_HEIGHT - 7)
        .encode(y=_labels(list(shares)), x=x, x2="b:Q", color=colour, opacity=shown, tooltip=tooltip)
    )
    whole = alt.Chart(data.add([{"x": 1.0}])).mark_rule(color="@axis", strokeDash=[4, 3]).encode(x="x:Q")
    layers = [bars, whole]
    if cut:
        text = alt.Chart(data.add(cut)).mark_text(align="right", dx=-3, fontSize=11, color=ON_BAR)
        layers.append(text.encode(x="x:Q", y=_labels(list(shares)), text="text:N"))
    return finish(alt.layer(*layers), _height(len(shares)), data)


def domain_of(panels: Iterable[Mapping[str, Mapping[str, float]]]) -> tuple[float, float]:
    """From the longest bar to the left to the longest to the right, at most to ``LONGEST``."""
    found = [shares for panel in panels for shares in panel.values() if shares]
    low = max((shares["removed"] for shares in found), default=0.0)
    high = max((shares["kept"] + shares["added"] for shares in found), default=1.0)
    return -max(0.1, low), min(LONGEST, max(1.1, high))


def ages(mass: Mapping[str, Sequence[float]], bands: Sequence[str], youngest: Sequence[int]) -> Spec:
    """The share of each band of ages in an objective's own gradient mass, the youngest first.

    Args:
        mass: of each objective, one number a band.
        bands: what each band is called.
        youngest: the lowest age of each band, updates.
    """
    rows: list[dict[str, Any]] = []
    for label, parts in mass.items():
        total, start = sum(parts), 0.0
        for band, age, part in zip(bands, youngest, parts, strict=True):
            if total > 0 and part > 0:
                end = start + part / total
                rows.append({"y": label, "a": short(start), "b": short(end), "g": age, "band": band, "v": end - start})
                start = end
    low, high = youngest[0], youngest[-1]
    stops = [low + (high - low) * i / (colours.NUM_HEAT - 1) for i in range(colours.NUM_HEAT)]
    heat = alt.Scale(domain=stops, range=[f"@h{i}" for i in range(colours.NUM_HEAT)], interpolate="lab")
    legend = alt.Legend(orient="top", title="age, updates", gradientLength=160, gradientThickness=8, tickMinStep=1)
    tooltip = [
        alt.Tooltip("y:N", title="objective"),
        alt.Tooltip("band:N", title="age"),
        alt.Tooltip("v:Q", title="share of its mass", format=".1%"),
    ]
    data = Data()
    x = alt.X("a:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=_percent())
    colour = alt.Color("g:Q", scale=heat, legend=legend)
    bars = (
        alt.Chart(data.add(rows))
        .mark_bar(height=BAR_HEIGHT - 7, stroke="@axis", strokeWidth=0.5)
        .encode(y=_labels(list(mass)), x=x, x2="b:Q", color=colour, tooltip=tooltip)
    )
    return finish(alt.layer(bars), _height(len(mass)) + LEGEND_HEIGHT, data)


def _height(num_bars: int) -> int:
    return BAR_HEIGHT * num_bars + AXIS_HEIGHT


def _labels(labels: list[str]) -> alt.Y:
    axis = alt.Axis(grid=False, domain=False, ticks=False, labelLimit=130, labelOverlap=False)
    return alt.Y("y:N", title=None, sort=labels, axis=axis)


def _percent() -> alt.Axis:
    return alt.Axis(format=".0%", tickCount=5, grid=True)
