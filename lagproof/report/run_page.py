"""The page of a single run: a row of charts a question; what the run has no data for is left out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lagproof.experiments import collapse
from lagproof.experiments.comparison import idle
from lagproof.experiments.statistics import summarise
from lagproof.report import charts, series
from lagproof.report.figures import (
    D_BAR,
    age_figure,
    alarms_of,
    read_tails,
    setting,
    tail_figure,
    toml,
)
from lagproof.report.page import Alarms, Figure, Page, Panel, Section
from lagproof.report.series import curves, joined
from lagproof.runs.run import Run


@dataclass(frozen=True)
class Chart:
    """One chart of a single run: curves that share an axis.

    Attributes:
        heading: with the unit.
        metrics: heading in the legend by metric; those without data are left out.
        domain: of the values; from 0 to the highest if absent.
        log: logarithmic values.
        form: format of the values.
    """

    heading: str
    metrics: Mapping[str, str]
    domain: tuple[float, float] | None = None
    log: bool = False
    form: str = ".3~g"


LEARNING = (
    Chart("Accuracy (evaluation)", {"eval/accuracy": "accuracy"}, (0.0, 1.0)),
    Chart("Reward (trained responses)", {"reward": "reward"}),
)
MISMATCH = (
    Chart("mean |log-ratio| (d_bar), nats", {"d_bar": "d_bar"}, log=True),
    Chart("k3: KL(sampler, policy), nats", {"k3": "k3"}, log=True),
)
BALANCE = (
    Chart(
        "Mean negative log-probability of a response, nats",
        {"scale_positive": "S+ (advantage > 0)", "scale_negative": "S− (advantage < 0)"},
    ),
    Chart("Gradient mass", {"mass_positive": "advantage > 0", "mass_negative": "advantage < 0"}),
)
TRUST_REGION = (
    Chart(
        "Share of tokens clipped",
        {"clipped_high": "above", "clipped_low": "below", "clipped_dual": "dual"},
        form=".1~%",
    ),
    Chart("Share of tokens SAT gates", {"sat/gated": "gated", "sat/changed": "changed"}, form=".1~%"),
    Chart("SAT's q, nats", {"sat/q": "q"}),
)
HEALTH = (
    Chart("Entropy, nats", {"entropy": "entropy"}),
    Chart("Response length, tokens", {"response_tokens": "mean"}),
    Chart("Gradient norm", {"grad_norm": "norm"}),
    Chart("Shares", {"zero_variance_groups": "zero-variance groups", "truncated": "responses truncated"}, (0.0, 1.0)),
)
TIME = (
    Chart(
        "Seconds per step",
        {
            "time/sample_s": "sampling",
            "time/learn_s": "learning",
            "time/learner_wait_s": "the learner waits",
            "time/rollout_wait_s": "sampling waits",
        },
    ),
    Chart("Tokens per second, whole step", {"time/tokens_per_s": "tokens/s"}, form=".3~s"),
)


def of_run(run: Run, title: str | None = None, command: str | None = None) -> Page:
    """The page of a run as it stands."""
    figures, problems = _figures(run)
    verdict, bad = _verdict(run)
    alarms: list[Section] = []
    if run.alarms:
        alarms = [Alarms([(severity, f"Step {step}: {sentence}") for step, severity, sentence in alarms_of(run)])]
    return Page(
        title=title or f"{run.label} at lag {run.lag}",
        lead=f"{run.path.name}, seed {run.seed}. {setting(run.config)}",
        verdict=[("", sentence) for sentence in verdict],
        bad=bad,
        sections=[*alarms, *figures],
        files=[(f"Configuration ({run.layout.config.name})", toml(run.config))],
        command=command or shlex.join(["lagproof", "train", str(run.layout.config)]),
        problems=[*run.notes, *problems],
    )


def _figures(run: Run) -> tuple[list[Figure], list[str]]:
    """The figures of a single run, and sentences about what could not be read."""
    tails, problems = read_tails([run])
    found = [
        _row(run, "Learning", "", LEARNING),
        _row(run, "Mismatch over steps", D_BAR, MISMATCH),
        _origin(run),
        _beside("Staleness", [age_figure([run]), tail_figure(tails, {run.label: 0})]),
        _row(run, "Balance of positive and negative responses", "", BALANCE),
        _mass(run),
        _row(run, "Trust region", "", TRUST_REGION),
        _row(run, "Health", "", HEALTH),
        _time(run),
    ]
    if not run.series("eval/accuracy")[0]:
        found.insert(0, Figure("Accuracy", "This run has no evaluation (yet, or eval.every is 0).", {}, ()))
    return [figure for figure in found if figure is not None], problems


def _beside(title: str, found: Sequence[Figure]) -> Figure:
    """Figures of one panel each as one row, each panel under the title of its figure."""
    panels = [Panel(figure.title, panel.spec, panel.legend) for figure in found for panel in figure.panels]
    return Figure(title, " ".join(f"{figure.title}: {figure.caption}" for figure in found), {}, panels)


def _origin(run: Run) -> Figure | None:
    """Mismatch by age, and by what made it."""
    panels: list[Panel] = []
    captions: list[str] = []
    cells = series.d_bar_by_age(run)
    if len({cell.age for cell in cells}) > 1:
        spec = charts.heat(cells, last_step=run.last_step, alarms=alarms_of(run))
        if spec is not None:
            panels.append(Panel("mean |log-ratio| (d_bar) by the age of the tokens", spec))
            captions.append("Age: updates between the version that sampled a token and the learner's.")
    found = series.sources(run)
    if found is not None:
        keys = _keys(found)
        spec = charts.stacked(found, keys, last_step=run.last_step, alarms=alarms_of(run))
        panels.append(Panel("What adds to mean |log-ratio|, nats", spec, keys))
        captions.append("What adds to d_bar was measured on part of the batch at the steps with a probe (probe.every).")
    return Figure("Where the mismatch comes from", " ".join(captions), {}, panels) if panels else None


def _mass(run: Run) -> Figure | None:
    """Gradient mass by sign and by age."""
    found = series.mass_by_age(run)
    if found is None:
        return None
    up, down = found
    keys = _keys(up)
    spec = charts.stacked(up, keys, below=down, last_step=run.last_step, alarms=alarms_of(run))
    caption = "The sum of |weight| over the tokens with advantage > 0, upwards, and with advantage < 0, downwards."
    return Figure("Gradient mass by sign and age", caption, {}, [Panel("", spec, keys)])


WAITS = ("time/learner_wait_s", "time/rollout_wait_s")
ONE_PROCESS = "One process samples and learns in turn, so neither side waits for the other: there is no waiting time."


def _time(run: Run) -> Figure | None:
    waits = any(row.get(name) is not None for row in run.rows for name in WAITS)
    found = _row(run, "Time", "" if waits else ONE_PROCESS, TIME)
    spent = series.time_spent(run)
    if found is None or spent is None:
        return found
    keys = _keys(spent)
    spec = charts.stacked(spent, keys, last_step=run.last_step, share=True)
    panel = Panel("Share of the time of a step", spec, keys)
    return replace(found, panels=[panel, *found.panels])


def _keys(stack: series.Stack) -> dict[str, int]:
    return {layer.label: number for number, layer in enumerate(stack.layers)}


def _row(run: Run, title: str, caption: str, row: Sequence[Chart]) -> Figure | None:
    panels: list[Panel] = []
    for chart in row:
        found = joined([(label, curves([run], metric)) for metric, label in chart.metrics.items()])
        if not found.single:
            continue
        keys = {curve.label: number for number, curve in enumerate(found.single)}
        domain = chart.domain or (charts.log_domain if chart.log else charts.linear_domain)(found.values)
        spec = charts.over_steps(
            found,
            keys,
            last_step=run.last_step,
            domain=domain,
            log=chart.log,
            alarms=alarms_of(run),
            form=chart.form,
        )
        panels.append(Panel(chart.heading, spec, keys))
    return Figure(title, caption, {}, panels) if panels else None


def _verdict(run: Run) -> tuple[list[str], bool]:
    """How far a run is, and whether it held; one that is still running is not judged."""
    planned = run.planned_steps
    if run.result is None:
        said = [f"Not finished: step {run.last_step} of {planned}."]
    elif run.aborted is None:
        said = [f"Finished: {run.last_step} steps."]
    else:
        said = [f"Ended after step {run.last_step} of {planned}: {run.aborted}."]
    if run.idle_batches:
        said.append(
            f"{run.idle_batches} batches made no step: every group had zero variance, or gradients were not finite."
        )
    summary = summarise(run)
    values = summary.values
    if "accuracy" in values:
        extremes = f"lowest {values['minimum']:.3f}, last {values['final']:.3f}"
        said.append(f"Accuracy: {values['accuracy']:.3f} over the second half, {extremes}.")
    if summary.collapsed and run.finished:
        began = "" if summary.began is None else f" from step {summary.began} on"
        shares = f"second half {values['second_half_share']:.0%} of its best, final window {values['final_share']:.0%}"
        said += [f"Collapsed{began}: {shares}.", collapse.RULE[0].upper() + collapse.RULE[1:] + "."]
    said += idle([run])
    return said, bool(summary.collapsed and run.finished) or run.aborted is not None
