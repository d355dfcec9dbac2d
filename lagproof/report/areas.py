"""Vega-Lite charts of what a quantity is made of: stacked areas, and a heat strip of ages over steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from lagproof.report import colours
from lagproof.report.charts import HEIGHT, Data, Spec, alarm_rules, finish, key, log_domain, short
from lagproof.report.parts import HeatCell, Stack

LEGEND_HEIGHT = 50
Alarms = Sequence[tuple[int, str, str]]


def stacked(
    above: Stack,
    keys: Mapping[str, int],
    *,
    below: Stack | None = None,
    last_step: int,
    alarms: Alarms = (),
    share: bool = False,
    form: str = ".3~g",
) -> Spec:
    """Layers on top of each other; the values under the pointer.

    Args:
        above: the layers, from the bottom.
        keys: number of each label, see :func:`colours.assign`.
        below: layers that are drawn downwards from 0, with the steps of ``above``.
        last_step: end of the axis.
        alarms: step, severity and sentence of each.
        share: of the sum at each step, 0 to 1.
        form: format of the values under the pointer.
    """
    rows: list[dict[str, Any]] = []
    for sign, stack in ((1.0, above), (-1.0, below)):
        for position, layer in enumerate(stack.layers if stack else ()):
            rows += [
                {"s": short(s), "v": short(sign * v), "o": key(keys[layer.label]), "g": sign, "z": position}
                for s, v in zip(above.steps, layer.values, strict=True)
            ]
    data = Data()
    numbers = list(keys.values())
    scale = alt.Scale(domain=[key(n) for n in numbers], range=[colours.colour(n) for n in numbers])
    y_axis = alt.Axis(format=".0%" if share else "~g", tickCount=5)
    areas = (
        alt.Chart(data.add(rows))
        .mark_area(opacity=0.85, clip=True, interpolate="step")
        .encode(
            x=alt.X("s:Q", title="step", scale=alt.Scale(domain=[0, last_step], nice=False)),
            y=alt.Y("v:Q", title=None, axis=y_axis, stack="normalize" if share else "zero"),
            color=alt.Color("o:N", scale=scale, legend=None),
            detail="g:N",
            order=alt.Order("z:Q"),
        )
    )
    layers = [areas, *([alarm_rules(alarms, data)] if alarms else []), _pointer(above, below, form, data)]
    return finish(alt.layer(*layers), HEIGHT, data)


def heat(cells: Sequence[HeatCell], *, last_step: int, alarms: Alarms = ()) -> Spec | None:
    """Colour by ``d_bar``, logarithmic, in the plane of steps and ages; ``None`` where every value is 0."""
    domain = log_domain([cell.d_bar for cell in cells])
    if domain is None:
        return None
    low, high = domain
    stops = [low * (high / low) ** (i / (colours.NUM_HEAT - 1)) for i in range(colours.NUM_HEAT)]
    rows = [
        {"s": c.first - 0.5, "e": c.last + 0.5, "age": c.age, "v": short(c.d_bar), "n": c.tokens, "f": c.first}
        for c in cells
    ]
    ages = sorted({cell.age for cell in cells}, key=lambda age: int(age.partition("-")[0]))
    legend = alt.Legend(orient="top", title="d_bar, nats", format="~g", gradientLength=160, gradientThickness=8)
    scale = alt.Scale(
        type="log", domain=stops, range=[f"@h{i}" for i in range(colours.NUM_HEAT)], clamp=True, interpolate="lab"
    )
    data = Data()
    tiles = (
        alt.Chart(data.add(rows))
        .mark_rect(clip=True)
        .encode(
            x=alt.X("s:Q", title="step", scale=alt.Scale(domain=[0, last_step + 0.5], nice=False)),
            x2="e:Q",
            y=alt.Y("age:O", title="age, updates", sort=ages[::-1], axis=alt.Axis(grid=False, labelOverlap="parity")),
            color=alt.Color("v:Q", scale=scale, legend=legend),
            tooltip=[
                alt.Tooltip("f:Q", title="from step"),
                alt.Tooltip("age:N", title="age"),
                alt.Tooltip("v:Q", title="d_bar", format=".3~g"),
                alt.Tooltip("n:Q", title="tokens"),
            ],
        )
    )
    layers = [tiles, alarm_rules(alarms, data)] if alarms else [tiles]
    return finish(alt.layer(*layers), HEIGHT - LEGEND_HEIGHT, data)


def _pointer(above: Stack, below: Stack | None, form: str, data: Data) -> alt.Chart:
    """A vertical rule at the nearest step with every layer's value there."""
    columns = [(layer.label + (" (up)" if below else ""), layer.values) for layer in above.layers]
    columns += [(f"{layer.label} (down)", layer.values) for layer in (below.layers if below else ())]
    rows: list[dict[str, Any]] = [{"s": short(step)} for step in above.steps]
    for i, (_, values) in enumerate(columns):
        for row, value in zip(rows, values, strict=True):
            row[f"p{i}"] = short(value)
    near = alt.selection_point(
        name="near", fields=["s"], nearest=True, on="pointerover", clear="pointerout", empty=False
    )
    tooltip = [alt.Tooltip("s:Q", title="step", format=".4~g")]
    tooltip += [alt.Tooltip(f"p{i}:Q", title=label, format=form) for i, (label, _) in enumerate(columns)]
    return (
        alt.Chart(data.add(rows))
        .mark_rule(color="@axis")
        .encode(x="s:Q", opacity=alt.when(near).then(alt.value(1.0)).otherwise(alt.value(0.0)), tooltip=tooltip)
        .add_params(near)
    )
