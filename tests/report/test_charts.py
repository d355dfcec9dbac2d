"""Axes: whole decades, from zero, and never of no width."""

from __future__ import annotations

import pytest

from lagproof.report.charts import linear_domain, log_domain


@pytest.mark.parametrize(
    ("values", "domain"),
    [
        ([0.02, 0.3], (0.01, 1.0)),
        ([0.1, 1.0], (0.1, 1.0)),
        ([1.0], (1.0, 10.0)),
        ([0.0, -1.0, 0.5], (0.1, 1.0)),
        ([4e-7] + [0.02] * 99, (0.01, 0.1)),  # the first step is on policy
        ([], None),
        ([0.0], None),
    ],
)
def test_a_logarithmic_axis_has_whole_decades(values: list[float], domain: tuple[float, float] | None) -> None:
    assert log_domain(values) == (None if domain is None else pytest.approx(domain))


@pytest.mark.parametrize(
    ("values", "domain"), [([2.0, 3.0], (0.0, 3.0)), ([-1.0, 0.5], (-1.0, 0.5)), ([0.0, 0.0], (0.0, 1.0)), ([], None)]
)
def test_a_linear_axis_begins_at_zero(values: list[float], domain: tuple[float, float] | None) -> None:
    assert linear_domain(values) == domain
