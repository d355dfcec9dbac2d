"""Collapse on curves drawn after published figures and after what real runs of the small task did."""

from __future__ import annotations

import numpy as np
import pytest

from lagproof.experiments.collapse import Collapse, collapse

PAPER = range(0, 545, 8)
"""544 steps, as the runs of the SAT paper; an evaluation every 8."""


def curve(*knots: tuple[float, float], noise: float = 0.01, seed: int = 0) -> list[float]:
    """Straight lines through (step, accuracy), with the scatter of an evaluation."""
    steps, levels = zip(*knots, strict=True)
    return (np.interp(PAPER, steps, levels) + noise * np.random.default_rng(seed).standard_normal(len(PAPER))).tolist()


def judged(accuracy: list[float]) -> Collapse:
    found = collapse(PAPER, accuracy, 544)
    assert found is not None
    return found


RISE = ((0, 0.1), (120, 0.28), (300, 0.33))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("at", "before", "after"), [(449, 0.34, 0.14), (429, 0.31, 0.12), (424, 0.32, 0.12)])
def test_the_late_collapses_of_the_paper(at: int, before: float, after: float, seed: int) -> None:
    """Lag 8: GSPO from .34 to .14 at step 449 of 544; GRPO and GSPO without routing replay at 429 and 424."""
    found = judged(curve(*RISE, (at - 1, before), (at, after), (544, after), seed=seed))
    assert found.collapsed
    assert found.began is not None and at <= found.began < at + 8  # the first evaluation that can see it
    assert found.final == pytest.approx(after / before, abs=0.05)


def test_the_second_half_alone_does_not_see_a_late_one() -> None:
    assert judged(curve(*RISE, (448, 0.34), (449, 0.14), (544, 0.14))).second_half > 0.75


@pytest.mark.parametrize(
    ("knots", "collapsed"),
    [
        (((300, 0.34), (544, 0.29)), False),  # a slow drift to 85 % of the best
        (((200, 0.34), (544, 0.15)), True),  # one that goes on until little is left
        (((300, 0.34), (310, 0.15), (360, 0.15), (370, 0.34), (544, 0.34)), False),  # a dip of 60 steps
        (((280, 0.34), (290, 0.1), (470, 0.1), (480, 0.33), (544, 0.33)), False),  # a long one, and back at the end
        (((280, 0.34), (290, 0.1), (470, 0.1), (480, 0.27), (544, 0.27)), True),  # a long one, and only half way back
        (((300, 0.34), (544, 0.34)), False),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_drifts_and_dips(knots: tuple[tuple[float, float], ...], collapsed: bool, seed: int) -> None:
    found = judged(curve((0, 0.1), (120, 0.3), *knots, seed=seed))
    assert found.collapsed is collapsed
    assert (found.began is not None) is collapsed


@pytest.mark.parametrize("seed", range(5))
def test_a_drift_began_where_it_passed_three_quarters_of_the_best(seed: int) -> None:
    began = judged(curve((0, 0.34), (144, 0.34), (544, 0.14), seed=seed)).began
    assert began is not None and abs(began - (144 + 0.25 * 0.34 / 0.2 * 400)) <= 32  # 314, four evaluations either way


def test_a_dip_before_the_fall_is_not_where_it_began() -> None:
    dip = ((150, 0.34), (160, 0.15), (200, 0.15), (210, 0.34))
    began = judged(curve((0, 0.3), (100, 0.34), *dip, (448, 0.34), (449, 0.1), (544, 0.1))).began
    assert began == 456


SMALL = range(0, 241, 10)
WAVE = 0.15 * np.sin(np.linspace(0, 20, 25))


@pytest.mark.parametrize(
    ("level", "wave", "collapsed"),
    [  # start .50-.53; second-half means that real runs of the small task had
        (0.25, 1.0, True),  # naive at lag 8 swings with a period of five lags
        (0.35, 1.0, True),  # naive at lag 4
        (0.18, 0.5, True),  # naive at lag 16
        (0.64, 0.1, False),  # spo
        (0.58, 0.1, False),  # the weakest that holds
        (0.53, 0.2, False),  # asympo at twice the learning rate
    ],
)
def test_collapse_parts_the_runs_that_fail_from_those_that_hold(level: float, wave: float, collapsed: bool) -> None:
    way = np.minimum(np.arange(25) / 8, 1.0)
    accuracy = 0.515 + (level - 0.515) * way + wave * WAVE * way
    found = collapse(SMALL, accuracy.tolist(), 240)
    assert found is not None and found.collapsed is collapsed
    assert not collapsed or (found.began is not None and found.began <= 80)  # by then the level is reached


def test_the_best_is_one_that_a_lucky_evaluation_cannot_make() -> None:
    flat = [0.3] * 20
    for accuracy, collapsed in (
        (flat, False),
        ([*flat[:10], 0.6, *flat[11:]], False),  # .75 x (.3 + .6 + .3) / 3 = .3, and .3 is not below
        ([0.3, 0.6, 0.6, 0.6, 0.3, 0.3], True),
    ):
        found = collapse(range(len(accuracy)), accuracy, len(accuracy) - 1)
        assert found is not None and found.collapsed is collapsed


def test_nothing_to_judge() -> None:
    assert collapse([], [], 100) is None
    assert collapse([0], [0.5], 100) is None  # no evaluation in the second half
    assert collapse([0, 60], [0.0, 0.0], 100) is None  # no best to fall from
