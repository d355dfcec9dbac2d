"""A run read back: finished, still going, killed, damaged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import lagproof as lp
from lagproof.data.slices import AgeBand
from lagproof.errors import RunDirError
from lagproof.monitor.alarm import Severity
from lagproof.runs.run import Run

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from made_runs import make_run


def test_a_finished_run(tmp_path: Path) -> None:
    run = lp.Run.open(make_run(tmp_path / "r", "spo", lag=8, seed=3, steps=20), "mine")
    assert (run.label, run.lag, run.seed, run.planned_steps, run.last_step) == ("mine", 8, 3, 20, 20)
    assert run.finished and run.aborted is None and run.result is not None and run.result.reason == "finished"
    steps, accuracy = run.series("eval/accuracy")
    assert steps == [0, 10, 20] == [row.step for row in run.evaluations] and accuracy[0] == 0.5
    assert run.series("d_bar")[0] == list(range(1, 21)) and run.series("nothing") == ([], [])
    assert run.notes == () and run.alarms == ()


def test_a_run_is_named_after_its_objective(tmp_path: Path) -> None:
    run = Run.open(make_run(tmp_path / "r", "sat-grpo", stop_at=5))
    assert (run.label, run.finished, run.last_step) == ("sat-grpo", False, 5)


def test_a_metric_of_a_part_of_the_batch(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", steps=3)
    (path / "metrics.jsonl").write_text('{"step": 1, "age/32-63/d_bar": 0.5}\n{"step": 2, "d_bar": 0.1}\n')
    assert Run.open(path).series("d_bar", AgeBand(32, 63)) == ([1], [0.5])
    assert Run.open(path).series("d_bar") == ([2], [0.1])


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_a_line_that_is_truncated_is_left_out_and_said(tmp_path: Path, end: str) -> None:
    path = make_run(tmp_path / "r", steps=20)
    metrics = path / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-30] + end.encode())
    run = Run.open(path)
    assert run.last_step == 19 and run.damaged == ()
    assert run.notes == ("metrics.jsonl: the last line (21) is truncated and was left out",)


def test_a_run_that_was_aborted_says_why(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", stop_at=3)
    result = {"reason": "no_signal", "success": False, "detail": "no group had a signal", "steps": 3}
    (path / "result.json").write_text(json.dumps(result))
    run = Run.open(path)
    assert run.finished and run.aborted == "no group had a signal"


def test_batches_without_a_step_do_not_hide_the_step_before(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", steps=4)
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 4, "outcome": "zero_variance", "reward": 1.0}) + "\n")
    run = Run.open(path)
    assert (run.idle_batches, run.last_step, len(run.history)) == (1, 4, 6)
    assert run.series("d_bar")[0] == [1, 2, 3, 4] and run.notes == ()


def test_rows_that_repeat_a_step_or_name_none_are_said(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", steps=3)
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 2, "d_bar": 9.0}) + "\n" + json.dumps({"step": True}) + "\n[1]\n")
    run = Run.open(path)
    assert run.series("d_bar")[1][1] == 9.0
    assert run.damaged == ("metrics.jsonl: line 7 is not a JSON object", "metrics.jsonl: line 6 has no step")
    assert run.notes == (
        *(f"{sentence}: left out" for sentence in run.damaged),
        "metrics.jsonl: 1 rows repeat a step: left out",
    )


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", steps=3)
    (path / "metrics.jsonl").write_text('{"step": 1, "a": NaN}\n{"step": 2, "a": true}\n{"step": 3, "a": 4}\n')
    assert Run.open(path).series("a") == ([3], [4.0])


def test_numbers_are_written_as_they_were_read(tmp_path: Path) -> None:
    """A count stays a count: ``993``, in ``result.json`` as in ``metrics.jsonl``."""
    path = make_run(tmp_path / "r", steps=1)
    line = '{"step": 1, "batch": 0, "tokens": 993, "age/1/tokens": 5, "d_bar": 2.0}'
    (path / "metrics.jsonl").write_text(line + "\n")
    (row,) = Run.open(path).rows
    assert json.dumps(row.flat) == line


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", rollouts=False)
    for name in ("metrics.jsonl", "result.json"):
        (path / name).unlink()
    run = Run.open(path)
    assert (run.rows, run.last_step, run.finished, run.checkpoints) == ((), 0, False, [])
    assert list(run.rollouts()) == [] == list(run.token_batches())


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"reason": "finished"}'])
def test_a_result_that_cannot_be_read_is_no_result(tmp_path: Path, text: str) -> None:
    path = make_run(tmp_path / "r")
    (path / "result.json").write_text(text)
    run = Run.open(path)
    assert not run.finished and run.notes == ("result.json cannot be read: the run counts as unfinished",)


def test_alarms_are_read(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", alarms=[(7, "red", "d_bar left its band")])
    with (path / "alarms.jsonl").open("a") as file:
        file.write('{"step": 8, "severity": "purple"}\n{"step": 9')
    run = Run.open(path)
    assert [(a.step, a.severity, a.sentence) for a in run.alarms] == [(7, Severity.RED, "d_bar left its band")]
    assert run.notes == (
        "alarms.jsonl: line 2 is not an alarm: left out",
        "alarms.jsonl: the last line (3) is truncated and was left out",
    )


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match=r"is not a run directory \(it has no config.toml\)"):
        Run.open(tmp_path)


def test_a_configuration_that_cannot_be_read_is_noted_and_refused_where_it_is_needed(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r")
    (path / "config.toml").write_text("no toml")
    run = Run.open(path)
    assert run.last_step == 40 and "config.toml: cannot be read" in run.notes[0]
    (path / "config.toml").write_text("steps = 3\n")
    run = Run.open(path)
    assert run.planned_steps == 3 and run.notes == ()
    for ask in (lambda: run.seed, lambda: run.lag, lambda: run.label):
        with pytest.raises(RunDirError, match=r"config.toml: is not a run's configuration"):
            ask()


def test_rollouts_are_read_file_by_file(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", steps=3)
    (table,) = Run.open(path).rollouts(["step", "policy_logp", "support"])
    assert table.column_names == ["step", "policy_logp"] and table.num_rows == 24
    (path / "rollouts" / "step-000009.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(RunDirError, match=r"step-000009.parquet: cannot be read"):
        list(Run.open(path).rollouts())
