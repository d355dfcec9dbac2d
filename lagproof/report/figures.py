"""Figures that the page of one run and the page of many share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tomli_w

from lagproof.metrics.ccdf import CCDF
from lagproof.report import charts, colours
from lagproof.report.page import Figure, Panel
from lagproof.report.series import Curve, Curves, curves, tail
from lagproof.runs.lags import LagName, in_order
from lagproof.runs.run import Run

Keys = Mapping[str, int]
MAX_AGE_POINTS = 1000
TAIL_RANGE = 1e-5
"""How far below the largest |log-ratio| the plot of the tail begins."""

D_BAR = (
    "The log-ratio d is the log-probability of a sampled token under the policy being trained, minus that under the "
    "policy that sampled it. Logarithmic."
)
TAIL_TITLE = "Complementary CDF of |log-ratio|"


def read_tails(runs: Sequence[Run]) -> tuple[dict[tuple[str, LagName], CCDF], list[str]]:
    tails: dict[tuple[str, LagName], CCDF] = {}
    problems: list[str] = []
    for run in runs:
        found, unreadable = tail(run)
        problems += unreadable
        if found is not None:
            key = (run.label, run.lag)
            tails[key] = tails[key].merge(found) if key in tails else found
    return tails, problems


def tail_figure(tails: Mapping[tuple[str, LagName], CCDF], keys: Keys) -> Figure:
    points = {key: tail.points() for key, tail in tails.items() if tail.tokens}
    if not points:
        return Figure(
            TAIL_TITLE, "No rollouts with log-probabilities of both policies were kept (save.rollouts).", {}, ()
        )
    shown = {label: keys[label] for label in keys if any(label == found for found, _ in points)}
    everything = [point for found in points.values() for point in found]
    _, top = charts.log_domain([x for x, _ in everything]) or (0.0, 1.0)
    across = (top * TAIL_RANGE, top)
    share = charts.log_domain([share for _, share in everything], 0.0)
    panels = [
        Panel(
            f"Lag {lag}",
            charts.survival(
                {label: found for (label, at), found in points.items() if at == lag}, shown, (across, share)
            ),
        )
        for lag in in_order(lag for _, lag in points)
    ]
    caption = (
        "Share of the tokens of the second half of training with |log-ratio| of at least x. Both axes are logarithmic."
    )
    return Figure(TAIL_TITLE, caption, shown, panels)


def age_figure(runs: Sequence[Run], height: int = charts.HEIGHT) -> Figure:
    title = "Realised age"
    caption = "Updates between the version that sampled a token and the learner's version before the step"
    mean, top = (curves(runs, name, MAX_AGE_POINTS) for name in ("age_mean", "age_max"))
    if not mean.single:
        return Figure(title, "No run has recorded the age of its tokens.", {}, ())
    keys = {"mean": 0, "highest": colours.NUM_COLOURS + 5}  # dashed
    last = max(run.last_step for run in runs)
    panels: list[Panel] = []
    for lag, part in by_lag(mean).items():
        highest = by_lag(top).get(lag, Curves((), (), 1))
        both = Curves((*_pool(part, "mean", lag), *_pool(highest, "highest", lag)), (), mean.window)
        domain = charts.linear_domain([*mean.values, *top.values])
        spec = charts.over_steps(both, keys, last_step=last, domain=domain, height=height)
        panels.append(Panel(f"Lag {lag}", spec, keys))
    return Figure(title, f"{caption}; over all runs of a lag." if len(runs) > 1 else f"{caption}.", {}, panels)


def by_lag(found: Curves) -> dict[LagName, Curves]:
    lags = in_order(curve.lag for curve in found.single)
    return {
        lag: Curves(
            tuple(c for c in found.single if c.lag == lag), tuple(c for c in found.mean if c.lag == lag), found.window
        )
        for lag in lags
    }


def alarms_of(run: Run) -> list[tuple[int, str, str]]:
    """Step, severity and sentence of each alarm of a run."""
    return [(alarm.step, str(alarm.severity), alarm.sentence) for alarm in run.alarms]


def setting(config: Mapping[str, Any]) -> str:
    """One line about what was trained; ``config`` may be of an earlier version."""
    rollout, learner = config.get("rollout", {}), config.get("learner", {})
    task = config.get("task", {})
    batch = f"{rollout.get('prompts')} prompts per step × {rollout.get('samples')} samples per prompt"
    parts = [
        f"{config.get('model')} on {task.get('name') if isinstance(task, Mapping) else task}",
        f"{config.get('steps')} steps of {batch}",
        f"learning rate {learner.get('lr')}",
    ]
    if rollout.get("precision", "float32") != "float32":
        parts.append(f"sampled in {rollout['precision']}")
    return ", ".join(parts) + "."


def listed(items: Iterable[object]) -> str:
    """``1, 2, 8``."""
    return ", ".join(map(str, items))


def toml(config: Mapping[str, Any]) -> str:
    """A configuration as it is written."""
    return tomli_w.dumps(config)


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
