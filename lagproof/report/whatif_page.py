"""The page of ``lagproof whatif``: what other objectives would have done with the same tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from lagproof.data.slices import Sign
from lagproof.dumps import tables
from lagproof.dumps.whatif import ObjectiveEffect, WhatIf
from lagproof.dumps.words import verdicts
from lagproof.metrics.ccdf import CCDF
from lagproof.metrics.slices import wider
from lagproof.objectives import Scope
from lagproof.objectives.clip import HIGH, LOW
from lagproof.report import charts, colours
from lagproof.report.charts import Mark
from lagproof.report.page import Figure, Notes, Numbers, Page, Panel

MAX_BANDS = 8
TAIL_RANGE = 1e-5
"""How far below the largest value the plot of a tail begins, unless a limit lies lower."""
DASHED = colours.NUM_COLOURS

UNITS = {
    Scope.TOKEN: ("tokens", "Tokens", "|log-ratio|, nats"),
    Scope.RESPONSE: ("responses", "Responses", "|mean log-ratio|, nats"),
}
"""What a clip is about: its name in ``WhatIf.ccdf``, the heading, and the axis."""


def of_whatif(found: WhatIf, command: str) -> Page:
    """The page of a comparison of objectives on the same tokens; ``command`` made it."""
    steps = f"{found.steps} step{'s' if found.steps != 1 else ''}"
    return Page(
        title=f"What if: {Path(found.path).resolve().name}",
        lead=f"{found.tokens} tokens of {steps}, weighed by each objective and compared with {found.baseline}. "
        "Nothing was trained.",
        verdict=verdicts(found),
        bad=False,
        sections=[
            Numbers(tables.overall(found)),
            _changed(found),
            *_by_age(found),
            _moves(found),
            Numbers(tables.cosines(found)),
            *_scales(found),
            *([Notes("Notes", found.notes)] if found.notes else []),
        ],
        files=[],
        command=command,
        problems=[],
    )


def _changed(found: WhatIf) -> Figure:
    others = found.comparisons[1:]
    sides = {
        heading: {c.choice.label: c.mass[name].shares if name in c.mass else {} for c in others}
        for name, heading in ((Sign.POSITIVE, "Advantage > 0"), (Sign.NEGATIVE, "Advantage < 0"))
        if any(name in c.mass for c in found.comparisons)
    }
    domain = charts.bar_domain(sides.values())
    panels = [Panel(heading, charts.kept_and_changed(shares, domain)) for heading, shares in sides.items()]
    caption = (
        f"Of the mass that {found.baseline} puts on the tokens of each sign (dashed: all of it): to the right what an "
        "objective keeps and adds, to the left what it removes. A factor that all weights share shows as added, or as "
        "removed, and not in the cosine."
    )
    title = "Gradient mass kept, removed and added"
    return Figure(title, caption, charts.KINDS, panels) if others else Figure(title, "No other objective.", {}, ())


def _by_age(found: WhatIf) -> list[Figure | Numbers]:
    ages = found.comparisons[0].ages
    if len(ages) < 2:
        return []
    parts = wider(ages, MAX_BANDS)
    mass = {c.choice.label: [c.together(names).other for names in parts.values()] for c in found.comparisons}
    youngest = [band.first for band in parts]
    caption = (
        "Age: updates between the version that sampled a token and the learner's. Each bar is one objective's mass."
    )
    figure = Figure(
        "Gradient mass by age",
        caption,
        {},
        [Panel("", charts.mass_by_age(mass, [band.label for band in parts], youngest))],
    )
    removed = tables.removed_by_age(found, MAX_BANDS)
    return [figure] if removed is None else [figure, Numbers(removed)]


def _moves(found: WhatIf) -> Figure:
    title = "Complementary CDF of |log-ratio|, and where the limits are"
    clipped = {c.choice.objective.unit for c in found.comparisons if c.choice.objective.limits is not None}
    panels: list[Panel] = []
    for scope, (unit, heading, axis) in UNITS.items():
        if unit in found.ccdf and (scope in clipped or scope is Scope.TOKEN):
            moved = found.ccdf[unit]
            tails = {"probability up, d > 0": moved.up, "probability down, d < 0": moved.down}
            panels.append(_tails(heading, axis, tails, _limits(found.comparisons, scope)))
    caption = (
        f"Share of all tokens, or responses, whose log-ratio d is at least so large. Dashed: where a clip "
        f"begins, {HIGH} for d > 0 and A > 0, {LOW} for d < 0 and A < 0. Line in a band: SAT's q, the median and the "
        "range over the steps; SAT acts only where q is below a limit. Both axes are logarithmic."
    )
    return Figure(title, caption if panels else "No token has both log-probabilities.", {}, panels)


def _limits(comparisons: Sequence[ObjectiveEffect], unit: Scope) -> dict[str, tuple[int, Mark]]:
    """A line for each limit that some objective has, and one for each quantile; with colour and dash."""
    out: dict[str, tuple[int, Mark]] = {}
    quantiles = 2
    for c in comparisons:
        rule = c.choice.objective
        if rule.limits is None or rule.unit is not unit:
            continue
        for number, (formula, x) in enumerate(zip((HIGH, LOW), rule.limits, strict=True)):
            if math.isfinite(x):
                label = f"{formula} = {x:.3g}"
                out.setdefault(label, (DASHED + number, Mark(label, x)))
        n = {} if c.finding is None else c.finding.numbers
        if "limit_high" in n and n["q_median"] > 0:
            label = f"q of {c.choice.label}: {n['q_median']:.3g}"
            out[label] = (quantiles, Mark(label, n["q_median"], n["q_min"], n["q_max"]))
            quantiles += 1
    return out


def _tails(heading: str, axis: str, tails: Mapping[str, CCDF], lines: Mapping[str, tuple[int, Mark]]) -> Panel:
    """Tails by label, with lines where something begins."""
    points = {label: tail.points() for label, tail in tails.items()}
    keys = {label: number for number, label in enumerate(tails)} | {label: n for label, (n, _) in lines.items()}
    marks = [mark for _, mark in lines.values()]
    values = [x for found in points.values() for x, _ in found]
    _, top = charts.log_domain([*values, *(m.x for m in marks)]) or (0.0, 1.0)
    lowest = min([top * TAIL_RANGE, *(m.x for m in marks)])
    low = max(10.0 ** math.floor(math.log10(lowest)), 10.0 ** math.floor(math.log10(min(values, default=lowest))))
    share = charts.log_domain([y for found in points.values() for _, y in found], 0.0) or (0.1, 1.0)
    return Panel(heading, charts.survival(points, keys, ((low, top), share), title=axis, marks=marks), keys)


def _scales(found: WhatIf) -> list[Figure]:
    """The factors of objectives that scale responses."""
    out: list[Figure] = []
    for c in found.comparisons:
        if c.finding is None or not c.tails:
            continue
        n = c.finding.numbers
        label = f"floor of S: {n['floor']:g}"
        floor = {label: (DASHED + 2, Mark(label, n["floor"]))} if n["floored"] else {}
        panel = _tails("", "factor 1 / S", c.tails, floor)
        caption = (
            f"{c.choice.label} multiplies each response by 1 / S, S its mean negative log-probability. Share of the "
            f"responses of each sign with a factor of at least x. Median {n['median']:.3g}, largest "
            f"{n['largest']:.3g}; {n['floored']:.0f} of {n['responses']:.0f} responses are at the floor."
        )
        out.append(Figure(f"Scale factors of {c.choice.label}", caption, {}, [panel]))
    return out
