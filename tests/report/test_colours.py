"""Colours: distinct for every eye, visible on both pages, the same for the same objective."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from lagproof.objectives import TABLE
from lagproof.report.colours import DARK, LIGHT, NUM_COLOURS, NUM_HEAT, assign, colour, dash

# Machado, Oliveira and Fernandes 2009, severity 1
VISION = {
    "normal": np.eye(3),
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
THEMES = {"light": (LIGHT, "#ffffff"), "dark": (DARK, "#14171b")}


def linear(text: str) -> NDArray[np.float64]:
    c = np.array([int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    low, high = sorted(float(linear(x) @ [0.2126, 0.7152, 0.0722]) for x in (a, b))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    to_xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
    xyz = to_xyz @ rgb / np.array([0.9505, 1.0, 1.0888])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("theme", THEMES)
def test_curves_can_be_seen_on_the_page(theme: str) -> None:
    colours, page = THEMES[theme]
    for number in range(NUM_COLOURS):
        assert contrast(colours[f"c{number}"], page) >= 3.0  # WCAG, graphics
    for name in ("ink", "muted", "alarm"):
        assert contrast(colours[name], page) >= 4.5  # WCAG, text


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", THEMES)
def test_any_two_curves_can_be_told_apart(theme: str, vision: str) -> None:
    colours, _ = THEMES[theme]
    seen = [lab(np.clip(np.asarray(VISION[vision]) @ linear(colours[f"c{n}"]), 0, 1)) for n in range(NUM_COLOURS)]
    assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) > 15


@pytest.mark.parametrize("theme", THEMES)
def test_heat_goes_from_what_is_hardly_there_to_what_stands_out(theme: str) -> None:
    colours, page = THEMES[theme]
    steps = [contrast(colours[f"h{i}"], page) for i in range(NUM_HEAT)]
    assert steps == sorted(steps) and 1.1 < steps[0] < 2.0 and steps[-1] > 7.0
    assert all(b / a > 1.5 for a, b in itertools.pairwise(steps))


def test_both_themes_name_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys()


def test_all_objectives_get_different_curves() -> None:
    keys = assign(list(TABLE), list(TABLE))
    assert list(keys) == list(TABLE)
    assert len({(colour(n), tuple(dash(n))) for n in keys.values()}) == len(TABLE)


def test_an_objective_keeps_its_colour() -> None:
    first = assign(["naive", "grpo"], ["naive", "grpo"])
    second = assign(["spo-1", "grpo", "naive"], ["spo", "grpo", "naive"])
    assert first["grpo"] == second["grpo"] and first["naive"] == second["naive"]


def test_labels_of_one_objective_differ() -> None:
    keys = assign(["spo-0", "spo-1", "asympo"], ["spo", "spo", "asympo"])
    assert len(set(keys.values())) == 3 and keys["asympo"] == assign(["asympo"], ["asympo"])["asympo"]
