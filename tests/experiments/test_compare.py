"""A comparison from its file to its table, with a run that needs no model."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from lagproof.cli.comparing import compare
from lagproof.errors import ConfigError, RunDirError
from lagproof.experiments.comparison import read_comparison

HERE = Path(__file__).parent
DRIVER = """
import sys
from pathlib import Path
from lagproof.experiments import grid
from rich.console import Console
from lagproof.cli.comparing import compare

grid._check_names = lambda grid: None  # would import torch; tested elsewhere
if __name__ == "__main__":
    sys.exit(compare(sys.argv[1], Path(sys.argv[2]), jobs=2, console=Console(), train="fake_train:train"))
"""


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))  # spawned processes inherit the path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(
        'objectives = ["naive", "grpo"]\nlags = [1, 8]\nseeds = [0, 1]\nbaseline = "grpo"\nsteps = 6\neval.every = 2\n'
    )
    return file


def run(source: Path, out: Path, **options: object) -> tuple[int, str]:
    text = io.StringIO()
    console = Console(file=text, width=200)
    code = compare(str(source), out, jobs=2, console=console, train="fake_train:train", **options)  # type: ignore[arg-type]
    return code, text.getvalue()


def drive(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """The comparison in a process of its own, which signals may hit."""
    driver = out.with_name("driver.py")
    driver.write_text(DRIVER)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    command = [sys.executable, str(driver), str(source), str(out)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def rows(out: Path, cell: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "cells" / cell / "metrics.jsonl").read_text().splitlines()]


def test_every_cell_is_run_once_and_told(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, text = run(small, out, command="lagproof compare small.toml")
    assert code == 0
    names = [cell.name for cell in read_comparison(out).grid.cells()]
    assert len(names) == 8 and sorted(p.name for p in (out / "cells").iterdir()) == sorted(names)
    for name in names:
        assert text.count(f" {name}: ") == 1
        assert [row["step"] for row in rows(out, name)] == list(range(7))
    assert {row["threads"] for row in rows(out, names[0])} == {"1"}
    assert "[8/8]" in text and list((out / "logs").iterdir()) == []
    table = json.loads((out / "table.json").read_text())
    assert table["command"] == "lagproof compare small.toml" and len(table["runs"]) == 8
    naive = next(cell for cell in table["cells"] if (cell["label"], cell["lag"]) == ("naive", 8))
    assert naive["estimates"]["accuracy"]["mean"] == pytest.approx((0.5 - 0.2 + 0.5 - 0.3) / 2)  # steps 4 and 6
    difference = next(d for d in table["differences"] if d["lag"] == 8)
    assert difference["estimates"]["accuracy"]["mean"] == pytest.approx(-0.4 * 5 / 6)


def test_a_second_call_trains_nothing(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _, first = run(small, out)
    before = {p: p.stat().st_mtime_ns for p in (out / "cells").rglob("*") if p.is_file()}
    code, second = run(small, out)
    assert code == 0 and "8 of 8 cells have ended before" in second
    assert {p: p.stat().st_mtime_ns for p in (out / "cells").rglob("*") if p.is_file()} == before
    assert first[first.index("Accuracy") :] == second[second.index("Accuracy") :]


def test_a_different_grid_is_refused(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(small, out)
    with pytest.raises(RunDirError, match=r"differs in lags\[0\]\.seeds, lags\[1\]\.seeds, learner\.lr\)"):
        run(small, out, overrides=["learner.lr=0.1"], seeds=[0])


def test_a_folder_with_something_else_is_refused(small: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("x")
    with pytest.raises(RunDirError, match="exists already and is not a comparison"):
        run(small, tmp_path / "out")
    assert (tmp_path / "out" / "thesis.txt").exists()


def test_a_folder_that_cannot_be_made_is_said(small: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirError, match="cannot be written: Not a directory"):
        run(small, tmp_path / "file" / "out")


def test_no_jobs_is_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--jobs 0: must be at least 1"):
        compare(str(small), tmp_path / "out", console=Console(), jobs=0)


def test_failures_stay_with_their_cells(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, text = run(small, out, seeds=[2, 13, 17, 40], overrides=["lags=[1]"])
    assert code == 1
    last = text[text.index("failed: ") :]
    expected = {
        13: "ConfigError: model = 'tiny-dense': no such model",
        17: "KeyError: 'forgotten' (a fault of lagproof: its trace is in the log)",
        2: "the process ended with exit code 7",
    }
    for seed, reason in expected.items():  # one line a reason, both cells on it
        (line,) = [line for line in last.splitlines() if reason in line]
        assert {f"naive-lag1-seed{seed}", f"grpo-lag1-seed{seed}"} == set(line.split(": ")[1].split(", "))
    assert "seed40" not in last
    log = (out / "logs" / "grpo-lag1-seed17.log").read_text()
    assert log.startswith("printed by seed 17") and "Traceback" in log
    table = json.loads((out / "table.json").read_text())
    assert [cell["seeds"] for cell in table["cells"]] == [[40], [40]]
    assert len(table["unfinished"]) == 6 and "6 of 8 runs have no result yet" in text


def test_a_run_that_cannot_go_on_is_a_finding(small: Path, tmp_path: Path) -> None:
    code, text = run(small, tmp_path / "out", seeds=[23], overrides=["lags=[8]"])
    assert code == 0
    assert "naive-lag8-seed23: stopped after" in text and "no group had a signal in 8 batches" in text
    assert "naive at lag 8 ended before its planned steps (seed 23)." in text


def test_a_cell_that_was_killed_is_continued(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(small, out)
    cell = out / "cells" / "grpo-lag8-seed1"
    (cell / "result.json").unlink()
    lines = (cell / "metrics.jsonl").read_text().splitlines(keepends=True)
    (cell / "metrics.jsonl").write_text("".join(lines[:4]))
    empty = out / "cells" / "grpo-lag1-seed0"
    for file in empty.iterdir():
        file.unlink()
    (empty / "rollouts").mkdir()
    code, text = run(small, out)
    assert code == 0 and "6 of 8 cells have ended before" in text
    assert [row["resumed"] for row in rows(out, "grpo-lag8-seed1")] == [False] * 4 + [True] * 3
    assert [row["resumed"] for row in rows(out, "grpo-lag1-seed0")] == [False] * 7


def test_ctrl_c_saves_and_the_same_command_continues(small: Path, tmp_path: Path) -> None:
    small.write_text(small.read_text().replace("[0, 1]", "[29]"))
    out = tmp_path / "out"
    first = drive(small, out)
    assert (first.returncode, first.stderr) == (130, "")
    assert "naive-lag1-seed29: interrupted at step 3 of 6" in first.stdout and "at once;" not in first.stdout
    assert "the same command resumes" in first.stdout
    assert not (out / "cells" / "naive-lag1-seed29" / "result.json").exists() and not (out / "table.json").exists()
    second = drive(small, out)
    assert second.returncode == 0, second.stderr
    assert "[4/4]" in second.stdout
    for cell in (out / "cells").iterdir():
        assert [row["step"] for row in rows(out, cell.name)] == list(range(7))


def test_a_second_ctrl_c_does_not_wait(small: Path, tmp_path: Path) -> None:
    small.write_text(small.read_text().replace("[0, 1]", "[31]"))
    found = drive(small, tmp_path / "out")
    assert (found.returncode, found.stderr) == (130, "")
    assert "stopping at once" in found.stdout


def test_a_run_does_not_outlive_its_comparison(small: Path, tmp_path: Path) -> None:
    small.write_text(small.read_text().replace("[0, 1]", "[37]").replace("[1, 8]", "[1]"))
    fifo = tmp_path / "out" / "cells" / "told"
    fifo.parent.mkdir(parents=True)
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)  # a writer too: no end of file between two others
    try:
        assert drive(small, tmp_path / "out").returncode == -signal.SIGKILL
        assert select.select([reader], [], [], 60)[0], "a worker goes on although its parent is gone"
        assert os.read(reader, 1) == b"."
    finally:
        os.close(reader)


def test_the_page_is_written_at_the_end(small: Path, tmp_path: Path) -> None:
    _, text = run(small, tmp_path / "out", overrides=['objectives=["grpo"]'], seeds=[0])
    assert text.splitlines()[-1] == f"report: {tmp_path / 'out' / 'report.html'}"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "1 objectives × lags 1, 8, seed 0." in page
