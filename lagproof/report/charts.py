"""Vega-Lite charts, one a panel: as wide as their place on the page, colours by name (see ``colours.py``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from lagproof.experiments.statistics import CellSummary
from lagproof.report import colours
from lagproof.report.series import Curve, Curves
from lagproof.runs.lags import in_order
from lagproof.runs.reading import RunData

HEIGHT = 230
LOW_HEIGHT = 130
FADED = 0.12
FOCUS = "focus"
"""Signal of every chart: the key of the one curve to show, or empty for all; set by the legend."""

Spec = dict[str, Any]
Keys = Mapping[str, int]


def over_steps(
    found: Curves,
    keys: Keys,
    *,
    last_step: int,
    domain: tuple[float, float] | None = None,
    log: bool = False,
    alarms: Sequence[tuple[int, str, str]] = (),
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
        alarms: step, severity and sentence of each.
        height: pixels.
        form: format of the values.
    """
    x = alt.X("s:Q", title="step", scale=alt.Scale(domain=[0, last_step], nice=False))
    y = alt.Y("v:Q", title=None, scale=scale_of(domain, log), axis=axis_of(domain, log, form))
    series = {"x": x, "y": y, "color": colour_of(keys), "strokeDash": dash_of(keys), "opacity": focused(1.0)}
    layers: list[alt.Chart] = []
    data = Data()
    if found.mean:
        thin = alt.Chart(data.add(_points(found.single, keys))).mark_line(strokeWidth=1, clip=True)
        layers.append(thin.encode(**series | {"detail": "r:N", "opacity": focused(0.4)}))
    front = alt.Chart(data.add(_points(found.front, keys))).mark_line(strokeWidth=2.25, clip=True)
    layers.append(front.encode(**series))
    if alarms:
        layers.append(alarm_rules(alarms, data))
    layers += _pointer(found.front, keys, form, data)
    return finish(alt.layer(*layers), height, data)


def by_lag(
    cells: Sequence[CellSummary],
    keys: Keys,
    name: str,
    *,
    domain: tuple[float, float] | None,
    log: bool = False,
    form: str = ".3f",
) -> Spec:
    """One number by lag, objectives side by side, with intervals where there are any.

    Args:
        cells: the summaries; those without the number are left out.
        keys: number of each label.
        name: of the estimate.
        domain: of the values.
        log: logarithmic values.
        form: format under the pointer.
    """
    rows: list[dict[str, Any]] = []
    for cell in cells:
        if name in cell.estimates:
            found = cell.estimates[name]
            row = {"lag": str(cell.lag), "o": key(keys[cell.label]), "label": cell.label, "v": short(found.mean)}
            if found.interval is not None:
                row |= {"low": short(found.interval[0]), "high": short(found.interval[1])}
            rows.append(row)
    order = [str(lag) for lag in in_order(cell.lag for cell in cells)]
    tooltip = [alt.Tooltip("label:N", title="objective"), "lag:N", alt.Tooltip("v:Q", title=name, format=form)]
    place = {
        "x": alt.X("lag:N", title="lag", sort=order, axis=alt.Axis(labelAngle=0, grid=False)),
        "xOffset": alt.XOffset("o:N", sort=[key(n) for n in keys.values()]),
        "color": colour_of(keys),
        "opacity": focused(1.0),
    }
    y = alt.Y("v:Q", title=None, scale=scale_of(domain, log), axis=axis_of(domain, log, "~g"))
    data = Data()
    dots = alt.Chart(data.add(rows)).mark_point(filled=True, size=80).encode(y=y, tooltip=tooltip, **place)
    ranged = [row for row in rows if "low" in row]
    if not ranged:
        return finish(alt.layer(dots), HEIGHT, data)
    rules = alt.Chart(data.add(ranged)).mark_rule(strokeWidth=2)
    return finish(alt.layer(rules.encode(y=alt.Y("low:Q", title=None), y2="high:Q", **place), dots), HEIGHT, data)


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


def alarms(run: RunData) -> list[tuple[int, str, str]]:
    """Step, severity and sentence of each alarm of a run."""
    return [(a["step"], str(a.get("severity", "")), str(a.get("sentence", a.get("name", "")))) for a in run.alarms]


def _points(found: Iterable[Curve], keys: Keys) -> list[dict[str, Any]]:
    return [
        {"s": short(step), "v": short(value), "o": key(keys[curve.label])}
        | ({} if curve.seed is None else {"r": curve.seed})
        for curve in found
        for step, value in zip(curve.steps, curve.values, strict=True)
    ]


def _pointer(front: Sequence[Curve], keys: Keys, form: str, data: Data) -> list[alt.Chart]:
    """A vertical rule at the nearest step with every curve's value there."""
    rows: dict[float, dict[str, Any]] = {}
    for curve in front:
        for step, value in zip(curve.steps, curve.values, strict=True):
            rows.setdefault(step, {"s": short(step)})[key(keys[curve.label])] = short(value)
    labels = dict.fromkeys(curve.label for curve in front)
    near = alt.selection_point(
        name="near", fields=["s"], nearest=True, on="pointerover", clear="pointerout", empty=False
    )
    tooltip = [alt.Tooltip("s:Q", title="step", format=".4~g")]
    tooltip += [alt.Tooltip(f"{key(keys[label])}:Q", title=label, format=form) for label in labels]
    rule = (
        alt.Chart(data.add([rows[step] for step in sorted(rows)]))
        .mark_rule(color="@axis")
        .encode(x="s:Q", opacity=alt.when(near).then(alt.value(1.0)).otherwise(alt.value(0.0)), tooltip=tooltip)
        .add_params(near)
    )
    return [rule]


def alarm_rules(found: Sequence[tuple[int, str, str]], data: Data) -> alt.Chart:
    """A dashed rule at the step of each alarm; its sentence under the pointer."""
    rows = [{"s": step, "severity": severity, "sentence": sentence} for step, severity, sentence in found]
    red = alt.when("datum.severity == 'red'").then(alt.value("@alarm")).otherwise(alt.value("@warning"))
    return (
        alt.Chart(data.add(rows))
        .mark_rule(strokeWidth=1.5, strokeDash=[4, 3])
        .encode(x="s:Q", color=red, tooltip=[alt.Tooltip("s:Q", title="alarm at step"), "sentence:N"])
    )


def scale_of(domain: Any, log: bool) -> alt.Scale:
    options: dict[str, Any] = {"type": "log"} if log else {}
    if domain is not None:
        options |= {"domain": list(domain), "nice": not log}
    return alt.Scale(**options)


def axis_of(domain: tuple[float, float] | None, log: bool, form: str) -> alt.Axis:
    """A logarithmic axis has a line a decade, so that it looks like one."""
    if not log or domain is None:
        return alt.Axis(format=form, tickCount=5)
    decades = range(round(math.log10(domain[0])), round(math.log10(domain[1])) + 1)
    return alt.Axis(format=form, values=[10.0**k for k in decades], tickCount=10 * len(decades))


def colour_of(keys: Keys) -> alt.Color:
    numbers = list(keys.values())
    scale = alt.Scale(domain=[key(n) for n in numbers], range=[colours.colour(n) for n in numbers])
    return alt.Color("o:N", scale=scale, legend=None)


def dash_of(keys: Keys) -> alt.StrokeDash:
    numbers = list(keys.values())
    scale = alt.Scale(domain=[key(n) for n in numbers], range=[colours.dash(n) for n in numbers])
    return alt.StrokeDash("o:N", scale=scale, legend=None)


def focused(opacity: float) -> Any:
    shown = alt.when(f"{FOCUS} == '' || datum.o == {FOCUS}").then(alt.value(opacity))
    return shown.otherwise(alt.value(FADED * opacity))


def finish(chart: Any, height: int, data: Data) -> Spec:
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
