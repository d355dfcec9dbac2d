"""The page of ``lagproof plan``: schedules side by side under a simulated clock."""

from __future__ import annotations

from lagproof.report import charts
from lagproof.report.page import Figure, Numbers, Page, Panel
from lagproof.runtime.clock import tables
from lagproof.runtime.clock.planner import Plans


def of_plan(found: Plans, command: str) -> Page:
    """The page of a plan; ``command`` made it."""
    return Page(
        title="Plan",
        lead=tables.setting(found),
        verdict=[("", sentence) for sentence in tables.advice(found)],
        bad=False,
        sections=[Numbers(tables.schedules(found)), _ages(found)],
        files=[],
        command=command,
        problems=[],
    )


def _ages(found: Plans) -> Figure:
    shares = tables.ages(found)
    bands = list(range(max(map(len, shares.values()))))
    caption = "Share of the prompts trained by the age of their oldest token: updates since the version that drew it."
    if len(bands) < 2:
        return Figure("Ages", "Every prompt is of age 0.", {}, ())
    return Figure("Ages", caption, {}, [Panel("", charts.mass_by_age(shares, [str(b) for b in bands], bands))])
