"""The table of a comparison: it fits a terminal, is plain when piped, and never shows a number that is not there."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lagproof.cli.comparing import show
from lagproof.experiments.comparison import Comparison, Findings
from lagproof.experiments.grid import from_tree
from lagproof.experiments.statistics import RunSummary, over_seeds, paired
from lagproof.experiments.tables import save
from lagproof.runs.lags import LagName

sys.path.insert(0, str(Path(__file__).parent))
from made_runs import run_of

LABELS = ("naive", "spo-0.2", "asympo", "grpo", "sat-grpo", "sat-gspo")


def findings(seeds: int, *, collapsed: bool = True) -> Findings:
    runs = tuple(
        RunSummary(
            label,
            lag,
            seed,
            {
                "accuracy": 0.2 + 0.001 * seed,
                "minimum": 0.1 + 0.01 * seed,
                "final": 0.3,
                "d_bar": 0.1234,
                "k3": 0.0123,
                "scale_positive": 0.2,
                "scale_negative": 10.3,
            }
            | ({"clipped": 0.051, "changed": 0.0194} if label.startswith("sat") else {}),
            collapsed and label == "naive" and seed < 2,
            100,
            100,
        )
        for lag in (1, 16)
        for label in LABELS
        for seed in range(seeds)
    )
    baselines = {label: "grpo" for label in LABELS if label != "grpo"}
    return Findings(runs, tuple(over_seeds(runs)), tuple(paired(runs, baselines)), ())


def printed(found: Findings, *, terminal: bool = False) -> list[str]:
    text = io.StringIO()
    show(found, Console(file=text, width=80, force_terminal=terminal))
    return text.getvalue().splitlines()


@pytest.mark.parametrize("seeds", [1, 5])
def test_it_fits_eighty_columns_and_is_plain(seeds: int) -> None:
    lines = printed(findings(seeds))
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert text.isascii() and "\x1b" not in text
    for label in LABELS:
        rows = [line.split() for line in lines if line.startswith(f"{label} ")]
        assert len(rows) == (4 if label == "grpo" else 6), label  # accuracy, mismatch, differences at two lags
    headings = next(line for line in lines if line.startswith("objective")).split()
    assert headings[-1] == "collapsed"


def test_one_seed_shows_no_interval() -> None:
    text = "\n".join(printed(findings(1)))
    assert "[" not in text and "interval" not in text.split("Means over")[0]
    assert "One seed has no interval" in text


def test_five_seeds_show_one() -> None:
    text = "\n".join(printed(findings(5)))
    assert "95% interval" in text and "[0.20" in text


def test_numbers_without_data_are_a_dash() -> None:
    lines = printed(findings(1))
    start = next(i for i, line in enumerate(lines) if line.startswith("Mismatch"))
    mismatch = {line.split()[0]: line.split() for line in lines[start + 3 : start + 3 + len(LABELS)]}
    assert mismatch["naive"][-2:] == ["-", "-"]
    assert mismatch["sat-grpo"][-2:] == ["5.10%", "1.94%"]


def test_a_column_without_any_data_is_not_there() -> None:
    runs = tuple(run for run in findings(1).runs if not run.label.startswith("sat"))
    text = "\n".join(printed(Findings(runs, tuple(over_seeds(runs)), (), ())))
    assert "clipped" not in text.split("Means over")[0] and "Differences" not in text


def test_collapsed_says_how_many_seeds() -> None:
    lines = printed(findings(5))
    assert next(line for line in lines if line.startswith("naive")).split()[-3:] == ["2", "of", "5"]
    assert next(line for line in lines if line.startswith("grpo")).split()[-1] == "no"
    assert next(line for line in printed(findings(1)) if line.startswith("naive")).split()[-1] == "yes"


def test_min_is_the_worst_seed() -> None:
    row = next(line for line in printed(findings(5)) if line.startswith("grpo")).split()
    assert "0.100" in row  # the mean over seeds would be 0.120


def test_the_first_alarm_of_each_cell() -> None:
    found = findings(5)
    assert "First alarm" not in "\n".join(printed(found))
    steps: dict[tuple[str, LagName], list[tuple[int | None, int | None]]] = {
        ("naive", 1): [(30, 40), (12, None), (9, 21), (None, None), (15, 15)],
        ("grpo", 16): [(50, None)] * 5,
    }
    runs = tuple(
        replace(run, first_alarm=fired[0], first_red=fired[1])
        for run in found.runs
        for fired in [steps.get((run.label, run.lag), [(None, None)] * 5)[run.seed]]
    )
    lines = printed(Findings(runs, tuple(over_seeds(runs)), (), ()))
    start = next(i for i, line in enumerate(lines) if line.startswith("First alarm"))
    rows = [line.split() for line in lines[start + 4 :] if line]
    assert rows[0] == ["naive", "1", "15", "(9-30),", "4", "of", "5", "21", "(15-40),", "3", "of", "5"]
    assert rows[1] == ["spo-0.2", "1", "-", "-"]
    assert ["grpo", "16", "50", "(50-50),", "5", "of", "5", "-"] in rows


def test_nothing_yet() -> None:
    assert printed(Findings((), (), (), ("a", "b"))) == ["no cell has a result yet"]


def test_the_file_holds_every_number(tmp_path: Path) -> None:
    grid = from_tree({"objectives": ["grpo"], "lags": [1], "seeds": [0, 1], "steps": 2}, "x")
    run = run_of([{"step": 1, "d_bar": 3.0}, {"step": 2, "d_bar": 0.25}], steps=2, path=tmp_path)
    save(Comparison(tmp_path, grid, (run,)))
    table = json.loads((tmp_path / "table.json").read_text())
    assert table["runs"][0]["values"] == {"d_bar": 0.25, "d_bar_last": 0.25}
    assert table["cells"][0]["estimates"]["d_bar"] == {"mean": 0.25, "interval": None, "n": 1}
    assert table["unfinished"] == ["grpo-lag1-seed1"] and table["machine"]["torch"]
