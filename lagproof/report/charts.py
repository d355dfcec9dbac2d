"""Vega-Lite charts, one a panel: as wide as their place on the page, colours by name (see ``colours.py``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from lagproof.report import colours
from lagproof.report.series import Curve, Curves, HeatCell, Stack

HEIGHT = 230
LOW_HEIGHT = 130
LEGEND_HEIGHT = 50
FADED = 0.12
FOCUS = "focus"
"""Signal of every chart: the key of the one curve to show, or empty for all; set by the legend."""

BAR_HEIGHT = 21
AXIS_HEIGHT = 34
LONGEST = 2.0
"""Shares of the baseline's mass above which a bar is truncated, and says how long it is."""

ON_BAR = "#1d2126"
"""Text on a bar, whose colours are all light enough for it."""

KINDS = {"kept": 0, "added": 4, "removed": 1}
"""Number (see ``colours.py``) of each part of a bar."""

Spec = dict[str, Any]
Keys = Mapping[str, int]
Alarms = Sequence[tuple[int, str, str]]
"""Step, severity and sentence of each."""


@dataclass(frozen=True)
class LagEstimate:
    """One number of an objective at a lag, with an interval where there is one."""

    label: str
    lag: str
    mean: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Mark:
    """A value on the x axis at which something begins, by the label under which it has its colour.

    Attributes:
        label: under which it has its colour.
        x: where.
        low, high: of a band around it, where it is not the same at every step.
    """

    label: str
    x: float
    low: float | None = None
    high: float | None = None


def over_steps(
    found: Curves,
    keys: Keys,
    *,
    last_step: int,
    domain: tuple[float, float] | None = None,
    log: bool = False,
    alarms: Alarms = (),
    height: int = HEIGHT,
    form: str = ".3~g",
) -> Spec:
    """Curves over steps: thin for each seed, thick for what a reader follows; the values under the pointer.

    Args:
        found: the curves of this panel.
        keys: number of each label, see :func:`colours.assign`.
        last_step: end of the axis, the same for all panels of a figure.
        domain: of the values; the same for all panels of a figure.
        log: logarithmic values.
        alarms: of the runs.
        height: pixels.
        form: format of the values.
    """
    data = Data()
    x, y = _steps(last_step), alt.Y("v:Q", title=None, scale=_scale(domain, log), axis=_axis(domain, log, form))
    layers: list[alt.Chart] = []
    if found.mean:
        thin = _lines(_points(found.single, keys), keys, x, y, data, width=1, opacity=0.4)
        layers.append(thin.encode(detail="r:N"))
    layers.append(_lines(_points(found.front, keys), keys, x, y, data, width=2.25))
    if alarms:
        layers.append(_alarm_rules(alarms, data))
    at: dict[float, dict[str, Any]] = {}
    for curve in found.front:
        for step, value in zip(curve.steps, curve.values, strict=True):
            at.setdefault(step, {"s": short(step)})[key(keys[curve.label])] = short(value)
    shown = {key(keys[curve.label]): curve.label for curve in found.front}
    layers.append(_pointer([at[step] for step in sorted(at)], shown, form, data))
    return _finish(alt.layer(*layers), height, data)


def by_lag(
    estimates: Sequence[LagEstimate],
    keys: Keys,
    order: Sequence[str],
    name: str,
    *,
    domain: tuple[float, float] | None,
    log: bool = False,
    form: str = ".3f",
) -> Spec:
    """One number by lag, objectives side by side, with intervals where there are any.

    Args:
        estimates: of each objective at each lag.
        keys: number of each label.
        order: of the lags.
        name: of the number.
        domain: of the values.
        log: logarithmic values.
        form: format under the pointer.
    """
    rows: list[dict[str, Any]] = []
    for found in estimates:
        row = {"lag": found.lag, "o": key(keys[found.label]), "label": found.label, "v": short(found.mean)}
        if found.interval is not None:
            row |= {"low": short(found.interval[0]), "high": short(found.interval[1])}
        rows.append(row)
    tooltip = [alt.Tooltip("label:N", title="objective"), "lag:N", alt.Tooltip("v:Q", title=name, format=form)]
    place = {
        "x": alt.X("lag:N", title="lag", sort=list(order), axis=alt.Axis(labelAngle=0, grid=False)),
        "xOffset": alt.XOffset("o:N", sort=[key(n) for n in keys.values()]),
        "color": _colour(keys),
        "opacity": _focused(1.0),
    }
    y = alt.Y("v:Q", title=None, scale=_scale(domain, log), axis=_axis(domain, log, "~g"))
    data = Data()
    dots = alt.Chart(data.add(rows)).mark_point(filled=True, size=80).encode(y=y, tooltip=tooltip, **place)
    ranged = [row for row in rows if "low" in row]
    if not ranged:
        return _finish(alt.layer(dots), HEIGHT, data)
    rules = alt.Chart(data.add(ranged)).mark_rule(strokeWidth=2)
    return _finish(alt.layer(rules.encode(y=alt.Y("low:Q", title=None), y2="high:Q", **place), dots), HEIGHT, data)


def survival(
    tails: Mapping[str, Sequence[tuple[float, float]]],
    keys: Keys,
    domains: tuple[Any, Any],
    *,
    title: str = "|log-ratio|, nats",
    marks: Sequence[Mark] = (),
) -> Spec:
    """Complementary CDF: share of tokens with at least x, both axes logarithmic.

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
    x = alt.X("x:Q", title=title, scale=_scale(across, True), axis=_axis(across, True, "~g"))
    y = alt.Y("v:Q", title=None, scale=_scale(share, True), axis=_axis(share, True, "~g"))
    lines = _lines(rows, keys, x, y, data, width=2)
    return _finish(alt.layer(*_marks(marks, keys, across, data), lines) if marks else lines, HEIGHT, data)


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
            x=_steps(last_step),
            y=alt.Y("v:Q", title=None, axis=y_axis, stack="normalize" if share else "zero"),
            color=alt.Color("o:N", scale=scale, legend=None),
            detail="g:N",
            order=alt.Order("z:Q"),
        )
    )
    columns = [(layer.label + (" (up)" if below else ""), layer.values) for layer in above.layers]
    columns += [(f"{layer.label} (down)", layer.values) for layer in (below.layers if below else ())]
    under: list[dict[str, Any]] = [{"s": short(step)} for step in above.steps]
    for i, (_, values) in enumerate(columns):
        for row, value in zip(under, values, strict=True):
            row[f"p{i}"] = short(value)
    shown = {f"p{i}": label for i, (label, _) in enumerate(columns)}
    layers = [areas, *([_alarm_rules(alarms, data)] if alarms else []), _pointer(under, shown, form, data)]
    return _finish(alt.layer(*layers), HEIGHT, data)


def heat(cells: Sequence[HeatCell], *, last_step: int, alarms: Alarms = ()) -> Spec | None:
    """Colour by ``d_bar``, logarithmic, in the plane of steps and ages; ``None`` where every value is 0."""
    domain = log_domain([cell.d_bar for cell in cells])
    if domain is None:
        return None
    low, high = domain
    stops = [low * (high / low) ** (i / (colours.NUM_HEAT - 1)) for i in range(colours.NUM_HEAT)]
    rows = [
        {"s": c.first - 0.5, "e": c.last + 0.5, "age": c.age.label, "v": short(c.d_bar), "n": c.tokens, "f": c.first}
        for c in cells
    ]
    ages = [age.label for age in sorted({cell.age for cell in cells})]
    legend = alt.Legend(
        orient="top", title="mean |log-ratio|, nats", format="~g", gradientLength=160, gradientThickness=8
    )
    scale = alt.Scale(
        type="log", domain=stops, range=[f"@h{i}" for i in range(colours.NUM_HEAT)], clamp=True, interpolate="lab"
    )
    data = Data()
    tiles = (
        alt.Chart(data.add(rows))
        .mark_rect(clip=True)
        .encode(
            x=_steps(last_step + 0.5),
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
    layers = [tiles, _alarm_rules(alarms, data)] if alarms else [tiles]
    return _finish(alt.layer(*layers), HEIGHT - LEGEND_HEIGHT, data)


def kept_and_changed(shares: Mapping[str, Mapping[str, float]], domain: tuple[float, float]) -> Spec:
    """``kept`` and behind it ``added`` to the right, ``removed`` to the left, as shares of the baseline's mass.

    Args:
        shares: of each objective, see ``Mass.shares``; one without shares has no bar.
        domain: see :func:`bar_domain`; the same for all panels.
    """
    rows: list[dict[str, Any]] = []
    truncated: list[dict[str, Any]] = []
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
            truncated.append({"y": label, "x": domain[1], "text": f"{total:.0%} →"})
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
    if truncated:
        text = alt.Chart(data.add(truncated)).mark_text(align="right", dx=-3, fontSize=11, color=ON_BAR)
        layers.append(text.encode(x="x:Q", y=_labels(list(shares)), text="text:N"))
    return _finish(alt.layer(*layers), _height(len(shares)), data)


def bar_domain(panels: Iterable[Mapping[str, Mapping[str, float]]]) -> tuple[float, float]:
    """From the longest bar to the left to the longest to the right, at most to ``LONGEST``."""
    found = [shares for panel in panels for shares in panel.values() if shares]
    low = max((shares["removed"] for shares in found), default=0.0)
    high = max((shares["kept"] + shares["added"] for shares in found), default=1.0)
    return -max(0.1, low), min(LONGEST, max(1.1, high))


def mass_by_age(mass: Mapping[str, Sequence[float]], bands: Sequence[str], youngest: Sequence[int]) -> Spec:
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
    return _finish(alt.layer(bars), _height(len(mass)) + LEGEND_HEIGHT, data)


def log_domain(values: Iterable[float], floor_share: float = 0.02) -> tuple[float, float] | None:
    """Whole decades around positive values, without the few lowest ones (a first step on policy has ``d`` of 1e-7)."""
    positive = sorted(v for v in values if v > 0)
    if not positive:
        return None
    low = math.floor(math.log10(positive[int(len(positive) * floor_share)]))
    high = math.ceil(math.log10(positive[-1]))
    return 10.0**low, 10.0 ** max(high, low + 1)


def linear_domain(values: Sequence[float]) -> tuple[float, float] | None:
    """From 0 to the highest value; from the lowest where there are negative ones."""
    if not values:
        return None
    low, high = min(0.0, min(values)), max(values)
    return low, high if high > low else low + 1.0


def _lines(
    rows: list[dict[str, Any]], keys: Keys, x: alt.X, y: alt.Y, data: Data, *, width: float, opacity: float = 1.0
) -> alt.Chart:
    """A line for each key among the rows, in its colour and dash, faded where another one is in focus."""
    drawn = alt.Chart(data.add(rows)).mark_line(strokeWidth=width, clip=True)
    return drawn.encode(x=x, y=y, color=_colour(keys), strokeDash=_dash(keys), opacity=_focused(opacity))


def _steps(last: float) -> alt.X:
    return alt.X("s:Q", title="step", scale=alt.Scale(domain=[0, last], nice=False))


def _pointer(rows: list[dict[str, Any]], labels: Mapping[str, str], form: str, data: Data) -> alt.Chart:
    """A vertical rule at the nearest step with every value there; ``labels`` by the column of each."""
    near = alt.selection_point(
        name="near", fields=["s"], nearest=True, on="pointerover", clear="pointerout", empty=False
    )
    tooltip = [alt.Tooltip("s:Q", title="step", format=".4~g")]
    tooltip += [alt.Tooltip(f"{name}:Q", title=label, format=form) for name, label in labels.items()]
    return (
        alt.Chart(data.add(rows))
        .mark_rule(color="@axis")
        .encode(x="s:Q", opacity=alt.when(near).then(alt.value(1.0)).otherwise(alt.value(0.0)), tooltip=tooltip)
        .add_params(near)
    )


def _points(found: Iterable[Curve], keys: Keys) -> list[dict[str, Any]]:
    return [
        {"s": short(step), "v": short(value), "o": key(keys[curve.label])}
        | ({} if curve.seed is None else {"r": curve.seed})
        for curve in found
        for step, value in zip(curve.steps, curve.values, strict=True)
    ]


def _marks(marks: Sequence[Mark], keys: Keys, across: tuple[float, float], data: Data) -> list[alt.Chart]:
    """A line at each mark, and its band behind it."""
    rows = [{"m": short(mark.x), "o": key(keys[mark.label]), "label": mark.label} for mark in marks]
    tooltip = [alt.Tooltip("label:N", title="line"), alt.Tooltip("m:Q", title="at", format=".3~g")]
    look = {"color": _colour(keys), "strokeDash": _dash(keys), "opacity": _focused(1.0)}
    lines = alt.Chart(data.add(rows)).mark_rule(strokeWidth=2, clip=True).encode(x="m:Q", tooltip=tooltip, **look)
    bands = [
        {"low": max(mark.low, across[0]), "high": mark.high, "o": key(keys[mark.label])}
        for mark in marks
        if mark.low is not None and mark.high is not None and mark.high > across[0]
    ]
    if not bands:
        return [lines]
    drawn = alt.Chart(data.add(bands)).mark_rect(clip=True)
    return [drawn.encode(x="low:Q", x2="high:Q", color=_colour(keys), opacity=_focused(0.15)), lines]


def _alarm_rules(found: Alarms, data: Data) -> alt.Chart:
    """A dashed rule at the step of each alarm; its sentence under the pointer."""
    rows = [{"s": step, "severity": severity, "sentence": sentence} for step, severity, sentence in found]
    red = alt.when("datum.severity == 'red'").then(alt.value("@alarm")).otherwise(alt.value("@warning"))
    return (
        alt.Chart(data.add(rows))
        .mark_rule(strokeWidth=1.5, strokeDash=[4, 3])
        .encode(x="s:Q", color=red, tooltip=[alt.Tooltip("s:Q", title="alarm at step"), "sentence:N"])
    )


def _height(num_bars: int) -> int:
    return BAR_HEIGHT * num_bars + AXIS_HEIGHT


def _labels(labels: list[str]) -> alt.Y:
    axis = alt.Axis(grid=False, domain=False, ticks=False, labelLimit=130, labelOverlap=False)
    return alt.Y("y:N", title=None, sort=labels, axis=axis)


def _percent() -> alt.Axis:
    return alt.Axis(format=".0%", tickCount=5, grid=True)


def _scale(domain: Any, log: bool) -> alt.Scale:
    options: dict[str, Any] = {"type": "log"} if log else {}
    if domain is not None:
        options |= {"domain": list(domain), "nice": not log}
    return alt.Scale(**options)


def _axis(domain: tuple[float, float] | None, log: bool, form: str) -> alt.Axis:
    """A logarithmic axis has a line a decade, so that it looks like one."""
    if not log or domain is None:
        return alt.Axis(format=form, tickCount=5)
    decades = range(round(math.log10(domain[0])), round(math.log10(domain[1])) + 1)
    return alt.Axis(format=form, values=[10.0**k for k in decades], tickCount=10 * len(decades))


def _colour(keys: Keys) -> alt.Color:
    numbers = list(keys.values())
    scale = alt.Scale(domain=[key(n) for n in numbers], range=[colours.colour(n) for n in numbers])
    return alt.Color("o:N", scale=scale, legend=None)


def _dash(keys: Keys) -> alt.StrokeDash:
    numbers = list(keys.values())
    scale = alt.Scale(domain=[key(n) for n in numbers], range=[colours.dash(n) for n in numbers])
    return alt.StrokeDash("o:N", scale=scale, legend=None)


def _focused(opacity: float) -> Any:
    shown = alt.when(f"{FOCUS} == '' || datum.o == {FOCUS}").then(alt.value(opacity))
    return shown.otherwise(alt.value(FADED * opacity))


def _finish(chart: Any, height: int, data: Data) -> Spec:
    """The chart as a specification that is as wide as its place on the page."""
    chart = chart.properties(width="container", height=height).add_params(alt.param(name=FOCUS, value=""))
    spec = chart.to_dict()
    for noise in ("$schema", "config"):  # the page brings its own
        spec.pop(noise, None)
    return {**spec, "datasets": data.sets}


class Data:
    """The rows of one chart, kept apart from it while it is built: checking each row against a schema takes seconds."""

    def __init__(self) -> None:
        self.sets: dict[str, list[dict[str, Any]]] = {}

    def add(self, rows: list[dict[str, Any]]) -> alt.NamedData:
        name = f"rows{len(self.sets)}"
        self.sets[name] = rows
        return alt.NamedData(name)


def key(number: int) -> str:
    """How the rows of a chart name the curve with this number."""
    return f"o{number}"


def short(x: float) -> float | int:
    """Four digits are more than a pixel; whole numbers stay whole."""
    rounded = float(f"{x:.4g}") if abs(x) < 1e4 else round(x)
    return int(rounded) if rounded == int(rounded) else rounded
