"""Reading runs that have finished, that still run, and that were cut off."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lagproof.errors import RunDirError
from lagproof.runs.reading import read_jsonl, read_run

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from made_runs import make_run


def test_a_finished_run(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "r", "spo", lag=8, seed=3, steps=20), "mine")
    assert (run.label, run.lag, run.seed, run.planned_steps, run.last_step, run.finished) == (
        "mine",
        8,
        3,
        20,
        20,
        True,
    )
    steps, accuracy = run.series("eval/accuracy")
    assert steps == [0, 10, 20] and accuracy[0] == 0.5
    assert run.series("d_bar")[0] == list(range(1, 21)) and run.series("nothing") == ([], [])
    assert run.notes == () and run.alarms == ()


def test_a_run_is_named_after_its_objective(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "r", "sat-grpo", stop_at=5))
    assert (run.label, run.finished, run.last_step) == ("sat-grpo", False, 5)


def test_a_line_that_is_cut_off_is_left_out_and_said(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", steps=20)
    metrics = path / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-30])
    run = read_run(path)
    assert run.last_step == 19
    assert run.notes == (f"{metrics}: line 21 is cut off: left out",)


def test_a_broken_line_in_the_middle_is_left_out_and_said(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'{"a": 1}\n{"a": \xff\n[1]\n\n{"a": 2}')
    rows, notes = read_jsonl(file)
    assert rows == [{"a": 1}, {"a": 2}]
    assert notes == [f"{file}: line {n} is not a JSON object: left out" for n in (2, 3)]


def test_batches_without_a_step_do_not_hide_the_step_before(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", steps=4)
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 4, "outcome": "tied", "reward": 1.0}) + "\n")
    run = read_run(path)
    assert (run.idle_batches, run.last_step) == (1, 4)
    assert run.series("d_bar")[0] == [1, 2, 3, 4] and run.notes == ()


def test_rows_that_repeat_a_step_count_once_and_are_said(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", steps=3)
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 2, "d_bar": 9.0}) + "\n" + json.dumps({"step": True}) + "\n")
    run = read_run(path)
    assert run.series("d_bar")[1][1] == 9.0
    assert run.notes == (f"{path / 'metrics.jsonl'}: 2 rows repeat a step or name none: left out",)


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", steps=3)
    (path / "metrics.jsonl").write_text('{"step": 1, "a": NaN}\n{"step": 2, "a": true}\n{"step": 3, "a": 4}\n')
    assert read_run(path).series("a") == ([3], [4.0])


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r")
    for name in ("metrics.jsonl", "result.json"):
        (path / name).unlink()
    run = read_run(path)
    assert (run.rows, run.last_step, run.finished) == ((), 0, False)


def test_a_result_that_cannot_be_read_is_no_result(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r")
    (path / "result.json").write_text("{")
    run = read_run(path)
    assert not run.finished and run.notes == (f"{path / 'result.json'}: cannot be read: the run counts as unfinished",)


def test_alarms_are_read(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "r", alarms=[(7, "red", "d_bar left its band")]))
    assert [(a["step"], a["sentence"]) for a in run.alarms] == [(7, "d_bar left its band")]


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match=r"is not a run directory \(it has no config.toml\)"):
        read_run(tmp_path)
    (tmp_path / "config.toml").write_text("steps = 3\n")
    with pytest.raises(RunDirError, match="is not a run's configuration"):
        read_run(tmp_path)
