"""Which charts a page of many runs has: a row of panels, one a lag, for each question."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from lagproof.experiments.comparison import Findings
from lagproof.metrics.tail import Tail
from lagproof.report import charts, colours
from lagproof.report.page import Figure, Panel
from lagproof.report.series import Curve, Curves, curves
from lagproof.report.survival import survival
from lagproof.report.tails import tail
from lagproof.runs.lags import LagName, in_order
from lagproof.runs.reading import RunData

Keys = Mapping[str, int]
MAX_AGE_POINTS = 1000
TAIL_RANGE = 1e-5
"""How far below the largest |d| the tail plot begins."""


D_BAR = (
    "d is the log-probability of a sampled token under the policy being trained, minus that under the policy that "
    "sampled it. Logarithmic."
)


def of_many(runs: Sequence[RunData], findings: Findings, keys: Keys) -> tuple[list[Figure], list[str]]:
    """The figures of a comparison, and sentences about what could not be read."""
    tails, problems = read_tails(runs)
    asked = "Evaluation on the same prompts."
    if len({json.dumps([run.config["task"], run.config["eval"]], sort_keys=True) for run in runs}) > 1:
        asked = "Each run is evaluated as its own [task] and [eval] say: heights do not compare."
        problems = [*problems, "The runs differ in their task or in how they are evaluated: accuracies do not compare."]
    figures = [
        _summary(findings, keys),
        _by_lag(runs, keys, "eval/accuracy", "Accuracy over steps", asked, (0.0, 1.0)),
        _by_lag(runs, keys, "d_bar", "Mismatch over steps", D_BAR, log=True),
        tail_figure(tails, keys),
        age_figure(runs, charts.LOW_HEIGHT),
    ]
    return figures, problems


def _summary(findings: Findings, keys: Keys) -> Figure:
    caption = "Means over the second half of training"
    if any("accuracy" in c.estimates and c.estimates["accuracy"].interval for c in findings.cells):
        caption += ", with their 95 % intervals over seeds"
    judged = [cell for cell in findings.cells if "accuracy" in cell.estimates]
    shown = {cell.label: keys[cell.label] for cell in judged}
    if not judged:
        return Figure("By lag", "No run with an evaluation has ended yet.", {}, ())
    panels = [Panel("Accuracy", charts.by_lag(judged, shown, "accuracy", domain=(0.0, 1.0)))]
    sizes = charts.log_domain([c.estimates["d_bar"].mean for c in judged if "d_bar" in c.estimates], 0.0)
    if sizes is not None:
        panels.append(Panel("d_bar, nats", charts.by_lag(judged, shown, "d_bar", domain=sizes, log=True, form=".3~g")))
    return Figure("By lag", f"{caption}.", shown, panels)


def _by_lag(
    runs: Sequence[RunData],
    keys: Keys,
    metric: str,
    title: str,
    caption: str,
    domain: tuple[float, float] | None = None,
    *,
    log: bool = False,
) -> Figure:
    found = curves(runs, metric)
    if not found.single:
        return Figure(title, f"No run has recorded {metric}.", {}, ())
    shown = {label: keys[label] for label in keys if any(c.label == label for c in found.single)}
    domain = domain or (charts.log_domain(found.values) if log else charts.linear_domain(found.values))
    last = max(run.last_step for run in runs)
    panels = [
        Panel(
            f"Lag {lag}",
            charts.over_steps(part, shown, last_step=last, domain=domain, log=log, alarms=_lag_alarms(runs, lag)),
        )
        for lag, part in _split(found).items()
    ]
    rung = "Dashed: the first alarm of a run." if any(run.alarms for run in runs) else ""
    return Figure(title, f"{caption} {_how_drawn(found)} {rung}".strip(), shown, panels)


def read_tails(runs: Sequence[RunData]) -> tuple[dict[tuple[str, LagName], Tail], list[str]]:
    tails: dict[tuple[str, LagName], Tail] = {}
    problems: list[str] = []
    for run in runs:
        found, unreadable = tail(run)
        problems += unreadable
        if found is not None:
            key = (run.label, run.lag)
            tails[key] = tails[key].merge(found) if key in tails else found
    return tails, problems


def tail_figure(tails: Mapping[tuple[str, LagName], Tail], keys: Keys) -> Figure:
    title = "Tail of |d|"
    points = {key: tail.points() for key, tail in tails.items() if tail.tokens}
    if not points:
        return Figure(title, "No rollouts with log-probabilities of both policies were kept (save.rollouts).", {}, ())
    shown = {label: keys[label] for label in keys if any(label == found for found, _ in points)}
    everything = [point for found in points.values() for point in found]
    _, top = charts.log_domain([x for x, _ in everything]) or (0.0, 1.0)
    across = (top * TAIL_RANGE, top)
    share = charts.log_domain([share for _, share in everything], 0.0)
    panels = [
        Panel(
            f"Lag {lag}",
            survival({label: found for (label, at), found in points.items() if at == lag}, shown, (across, share)),
        )
        for lag in in_order(lag for _, lag in points)
    ]
    caption = "Share of the tokens of the second half of training with |d| of at least x. Both axes are logarithmic."
    return Figure(title, caption, shown, panels)


def age_figure(runs: Sequence[RunData], height: int = charts.HEIGHT) -> Figure:
    title = "Realised age"
    caption = "Updates between the version that sampled a token and the learner's version before the step"
    mean, top = (curves(runs, name, MAX_AGE_POINTS) for name in ("age_mean", "age_max"))
    if not mean.single:
        return Figure(title, "No run has recorded the age of its tokens.", {}, ())
    keys = {"mean": 0, "highest": colours.NUM_COLOURS + 5}  # dashed
    last = max(run.last_step for run in runs)
    panels: list[Panel] = []
    for lag, part in _split(mean).items():
        highest = _split(top).get(lag, Curves((), (), 1))
        both = Curves((*_pool(part, "mean", lag), *_pool(highest, "highest", lag)), (), mean.window)
        domain = charts.linear_domain([*mean.values, *top.values])
        spec = charts.over_steps(both, keys, last_step=last, domain=domain, height=height)
        panels.append(Panel(f"Lag {lag}", spec, keys))
    return Figure(title, f"{caption}; over all runs of a lag." if len(runs) > 1 else f"{caption}.", {}, panels)


def _pool(found: Curves, label: str, lag: LagName) -> list[Curve]:
    """All runs of a lag as one curve: the schedule is the same, so that their ages hardly differ."""
    values: dict[float, list[float]] = {}
    for curve in found.single:
        for step, value in zip(curve.steps, curve.values, strict=True):
            values.setdefault(step, []).append(value)
    steps = sorted(values)
    if not steps:
        return []
    return [Curve(label, lag, 0, tuple(steps), tuple(sum(values[s]) / len(values[s]) for s in steps))]


def _split(found: Curves) -> dict[LagName, Curves]:
    lags = in_order(curve.lag for curve in found.single)
    return {
        lag: Curves(
            tuple(c for c in found.single if c.lag == lag), tuple(c for c in found.mean if c.lag == lag), found.window
        )
        for lag in lags
    }


def _lag_alarms(runs: Sequence[RunData], lag: LagName) -> list[tuple[int, str, str]]:
    """The first alarm of each run; all of them would hide the curves."""
    out: list[tuple[int, str, str]] = []
    for run in runs:
        if run.lag == lag and run.alarms:
            step, severity, sentence = min(charts.alarms(run))
            out.append((step, severity, f"{run.label}, seed {run.seed}: {sentence}"))
    return out


def _how_drawn(found: Curves) -> str:
    seeds = "Thin: each seed; thick: their mean." if found.mean else ""
    window = f"Each point is the mean over {found.window} steps." if found.window > 1 else ""
    return f"{seeds} {window}".strip()
