"""Vega-Lite charts of tails: the share of tokens, or of responses, with a value of at least x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from lagproof.report.charts import (
    HEIGHT,
    Data,
    Keys,
    Spec,
    axis_of,
    colour_of,
    dash_of,
    finish,
    focused,
    key,
    scale_of,
    short,
)


@dataclass(frozen=True)
class Mark:
    """A value of the x axis that matters: a line there, and a band of what it may be.

    Attributes:
        label: what it is.
        x: the value.
        low, high: ends of the band, if there is one.
    """

    label: str
    x: float
    low: float | None = None
    high: float | None = None


def survival(
    tails: Mapping[str, Sequence[tuple[float, float]]],
    keys: Keys,
    domains: tuple[Any, Any],
    *,
    title: str = "|d| in nats",
    marks: Sequence[Mark] = (),
) -> Spec:
    """Share of tokens with ``|d|`` of at least x, both axes logarithmic.

    Args:
        tails: points of each label.
        keys: number of each label, and of each mark's.
        domains: of x and of the share, the same for all panels.
        title: of the x axis.
        marks: vertical lines.
    """
    rows = [{"x": short(x), "v": short(y), "o": key(keys[label])} for label, ps in tails.items() for x, y in ps]
    across, share = domains
    data = Data()
    chart = (
        alt.Chart(data.add(rows))
        .mark_line(strokeWidth=2, clip=True)
        .encode(
            x=alt.X("x:Q", title=title, scale=scale_of(across, True), axis=axis_of(across, True, "~g")),
            y=alt.Y("v:Q", title=None, scale=scale_of(share, True), axis=axis_of(share, True, "~g")),
            color=colour_of(keys),
            strokeDash=dash_of(keys),
            opacity=focused(1.0),
        )
    )
    return finish(alt.layer(*_marks(marks, keys, across, data), chart) if marks else chart, HEIGHT, data)


def _marks(marks: Sequence[Mark], keys: Keys, across: tuple[float, float], data: Data) -> list[alt.Chart]:
    """A line at each mark, and its band behind it."""
    rows = [{"m": short(mark.x), "o": key(keys[mark.label]), "label": mark.label} for mark in marks]
    tooltip = [alt.Tooltip("label:N", title="line"), alt.Tooltip("m:Q", title="at", format=".3~g")]
    look = {"color": colour_of(keys), "strokeDash": dash_of(keys), "opacity": focused(1.0)}
    lines = alt.Chart(data.add(rows)).mark_rule(strokeWidth=2, clip=True).encode(x="m:Q", tooltip=tooltip, **look)
    bands = [
        {"low": max(mark.low, across[0]), "high": mark.high, "o": key(keys[mark.label])}
        for mark in marks
        if mark.low is not None and mark.high is not None and mark.high > across[0]
    ]
    if not bands:
        return [lines]
    drawn = alt.Chart(data.add(bands)).mark_rect(clip=True)
    return [drawn.encode(x="low:Q", x2="high:Q", color=colour_of(keys), opacity=focused(0.15)), lines]
