"""Verdicts on runs and dumps: right words, right exit codes, and unusable input told apart from unhealthy runs."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lagproof as lp
from lagproof.cli.diagnosing import run_doctor
from lagproof.config import AlarmConfig, Config
from lagproof.dumps.doctor import Status, doctor
from lagproof.errors import InputError

QUIET = {
    "d_bar": 0.05,
    "k3": 0.002,
    "tv": 0.02,
    "ess": 0.97,
    "abs_d_q50": 0.01,
    "abs_d_q99": 0.3,
    "abs_d_q999": 0.5,
    "abs_d_max": 1.0,
    "reward": 0.5,
    "age_mean": 3.0,
    "age_max": 4.0,
}


def run_dir(path, rows, *, overrides=(), result=None, tail=""):
    path.mkdir(exist_ok=True)
    Config.load(None, [f"run_dir={json.dumps(str(path))}", *overrides]).save_toml(path / "config.toml")
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    if result is not None:
        (path / "result.json").write_text(json.dumps(result))
    return path


def healthy(n=20, **change):
    return [{"step": 0, "eval/accuracy": 0.5}] + [{"step": i, **QUIET, **change} for i in range(1, n + 1)]


FINISHED = {"reason": "finished", "success": True, "detail": "", "steps": 20, "metrics": {}}


def collapsing():
    """d_bar leaves its band in step 11, the reward falls from .5 to .1 in step 15; window 1."""
    rows = healthy(10)
    rows += [{"step": i, **QUIET, "d_bar": 0.5, "reward": 0.5 if i < 15 else 0.1} for i in range(11, 20)]
    return rows


def test_a_healthy_run(tmp_path):
    verdict = lp.doctor(run_dir(tmp_path / "run", healthy(), result=FINISHED))
    assert (verdict.status, verdict.exit_code, verdict.steps) == (Status.HEALTHY, 0, 20)
    assert verdict.sentence == "Healthy: nothing fired in 20 steps, d_bar 0.05 nats over the last 8 steps."
    assert verdict.alarms == [] and verdict.advice == [] and verdict.notes == [] and verdict.lead_steps is None
    assert any("3 updates old on average, 4 at most" in line for line in verdict.evidence)


def test_a_collapse_and_how_long_before_it_the_first_alarm_fired(tmp_path):
    path = run_dir(
        tmp_path / "run", collapsing(), overrides=["objective.name=naive", "alarm.window=1"], result=FINISHED
    )
    verdict = doctor(path)
    assert (verdict.status, verdict.exit_code, verdict.lead_steps) == (Status.UNHEALTHY, 1, 4)
    assert verdict.sentence.startswith("Unhealthy: the mismatch left its band: d_bar 0.5 nats in this step")
    assert "at step 11. The reward collapsed 4 steps after the first alarm (mismatch, step 11)." in verdict.sentence
    assert verdict.advice[0].startswith("naive puts no bound on stale negative responses")
    assert any(
        line == "reward, steps 1-19: 0.5 at first, 0.5 at its best, 0.1 at the end (means of 1 steps)"
        for line in verdict.evidence
    )


def test_yellow_is_worth_watching_and_no_failure(tmp_path):
    verdict = doctor(run_dir(tmp_path / "run", healthy(d_bar=0.2), result=FINISHED))
    assert (verdict.status, verdict.exit_code) == (Status.WATCH, 0)
    assert verdict.sentence.startswith("Worth watching: the mismatch left its band")


def test_the_thresholds_are_those_of_the_run_unless_others_are_given(tmp_path):
    path = run_dir(tmp_path / "run", healthy(), overrides=["alarm.d_bar=[0.01, 0.02]"], result=FINISHED)
    assert doctor(path).status is Status.UNHEALTHY
    assert doctor(path, config=AlarmConfig()).status is Status.HEALTHY


def test_a_run_that_was_aborted_is_unhealthy_whatever_fired(tmp_path):
    result = {
        "reason": "no_signal",
        "success": False,
        "detail": "8 batches in a row had zero variance",
        "steps": 20,
        "metrics": {},
    }
    verdict = doctor(run_dir(tmp_path / "run", healthy(), result=result))
    assert verdict.exit_code == 1 and verdict.sentence == "Unhealthy: aborted: 8 batches in a row had zero variance."


def test_a_run_that_is_cut_off_in_the_middle_of_a_line(tmp_path):
    path = run_dir(tmp_path / "run", healthy(), tail='{"step": 21, "d_bar": 0.0')
    verdict = doctor(path)
    assert verdict.status is Status.HEALTHY and verdict.steps == 20
    assert any("the last line (22) is truncated" in note for note in verdict.notes)
    assert any("has not finished" in note for note in verdict.notes)


def test_a_cut_line_with_a_newline_behind_it(tmp_path):
    for number, end in enumerate(("\n", "\n\n", "\r\n")):
        path = run_dir(tmp_path / f"run{number}", healthy(), tail='{"step": 21, "d_bar": 0.0' + end, result=FINISHED)
        verdict = doctor(path)
        assert (verdict.steps, verdict.exit_code) == (20, 0)
        assert verdict.notes == ["metrics.jsonl: the last line (22) is truncated and was left out"]


def test_a_result_that_cannot_be_read_is_noted(tmp_path):
    path = run_dir(tmp_path / "run", healthy())
    (path / "result.json").write_text('{"reason": "fini')
    verdict = doctor(path)
    assert verdict.exit_code == 0 and verdict.notes == ["result.json cannot be read: the run counts as unfinished"]


def test_a_damaged_line_in_the_middle_is_no_cut(tmp_path):
    path = run_dir(tmp_path / "run", healthy())
    lines = (path / "metrics.jsonl").read_text().splitlines()
    (path / "metrics.jsonl").write_text("\n".join([*lines[:5], lines[5][:10], *lines[6:]]) + "\n")
    with pytest.raises(InputError, match="line 6 is not JSON"):
        doctor(path)
    (path / "metrics.jsonl").write_text("[1]\n")
    with pytest.raises(InputError, match="line 1 is not a JSON object"):
        doctor(path)


@pytest.mark.parametrize("rows", [[], healthy(0)])
def test_a_run_without_a_step_cannot_be_judged(rows, tmp_path):
    with pytest.raises(InputError, match="no training step is recorded yet"):
        doctor(run_dir(tmp_path / "run", rows))


def test_an_unreadable_configuration_is_noted_and_the_defaults_are_used(tmp_path):
    path = run_dir(tmp_path / "run", healthy(), result=FINISHED)
    (path / "config.toml").write_text("no toml")
    verdict = doctor(path / "metrics.jsonl")
    assert verdict.status is Status.HEALTHY and "judged by the default thresholds" in verdict.notes[0]


def test_tied_and_given_up_steps_are_not_counted_as_trained(tmp_path):
    rows = [*healthy(), {"step": 20, "reward": 0.5, "outcome": "zero_variance"}]
    assert doctor(run_dir(tmp_path / "run", rows, result=FINISHED)).steps == 20
    rows.append({"step": 20, "reward": 0.5, "outcome": "non_finite"})
    assert "gradient was not finite" in doctor(run_dir(tmp_path / "run", rows, result=FINISHED)).sentence


TIED = {"reward": 0.0, "truncated": 0.9, "response_tokens": 900.0, "outcome": "zero_variance"}


def test_a_batch_without_a_signal_is_no_step_whatever_its_number(tmp_path):
    before, after = [{"step": 0, **TIED}] * 3, [{"step": 20, **TIED}] * 9
    rows = healthy()
    verdict = doctor(run_dir(tmp_path / "run", [rows[0], *before, *rows[1:], *after], result=FINISHED))
    assert (verdict.status, verdict.steps, verdict.numbers["reward"]) == (Status.HEALTHY, 20, 0.5)
    assert "truncated" not in verdict.numbers and verdict.cover.steps == list(range(13, 21))


def test_a_run_of_tied_batches_only(tmp_path):
    rows = [{"step": 0, "eval/accuracy": 0.0}, *[{"step": 0, **TIED}] * 8]
    with pytest.raises(
        InputError, match=r"no training step is recorded yet \(8 batches had no signal, and made none\)"
    ):
        doctor(run_dir(tmp_path / "running", rows))
    result = {"reason": "no_signal", "success": False, "detail": "8 batches in a row had no signal", "steps": 0}
    verdict = doctor(run_dir(tmp_path / "ended", rows, result=result))
    assert (verdict.exit_code, verdict.steps, verdict.alarms) == (1, 0, [])
    assert verdict.sentence == "Unhealthy: aborted: 8 batches in a row had no signal."


def test_no_alarm_is_an_early_warning_of_itself(tmp_path):
    # yellow (below .75 of .5) in step 11, red (below half) in step 13, and nothing else before
    rows = healthy(10) + [{"step": i, **QUIET, "reward": 0.3 if i < 13 else 0.1} for i in range(11, 20)]
    path = run_dir(tmp_path / "run", rows, overrides=["alarm.window=1"], result=FINISHED)
    verdict = doctor(path)
    assert [(a.step, a.name) for a in verdict.alarms] == [(11, "reward_collapse"), (13, "reward_collapse")]
    assert verdict.lead_steps is None and "after the first alarm" not in verdict.sentence
    rows[12]["d_bar"] = 0.2  # the row of step 12
    verdict = doctor(run_dir(tmp_path / "run", rows, overrides=["alarm.window=1"], result=FINISHED))
    assert verdict.lead_steps == 1
    assert verdict.sentence.endswith("The reward collapsed 1 step after the first alarm (mismatch, step 12).")


def test_the_probe_tells_the_engine_from_age(tmp_path):
    probe = {"probe/d_bar": 0.5, "probe/policy": 0.1, "probe/engine": 0.4, "probe/engine_abs": 0.45, "probe/tokens": 9}
    rows = healthy(d_bar=0.5, **probe)
    verdict = doctor(run_dir(tmp_path / "run", rows, overrides=["objective.name=naive"], result=FINISHED))
    assert (
        "where it comes from, 20 probes (180 tokens) in steps 1-20: the engine adds 0.4 of d_bar 0.5 nats (80%), "
        "updates of the policy the rest; alone it would make 0.45"
    ) in verdict.evidence
    assert verdict.advice[0].startswith("80% of the mismatch comes from the engine")
    assert not any("naive" in line for line in verdict.advice)


def test_the_engines_share_is_over_all_probes_and_not_over_the_last_steps(tmp_path):
    def probe(tokens, d_bar, engine):
        return {"probe/tokens": tokens, "probe/d_bar": d_bar, "probe/engine": engine}

    rows = healthy(20)
    rows[4] |= probe(100, 0.05, 0.01)
    rows[10] |= probe(300, 0.09, 0.03)
    rows[20] |= probe(100, 0.05, -0.01)  # the only one among the last 8 steps
    rows[19] |= {"probe/tokens": 0, "probe/unattributed": 1.0}  # looked, and could split nothing
    verdict = doctor(run_dir(tmp_path / "run", rows, result=FINISHED))
    assert verdict.engine is not None
    assert verdict.engine.share == pytest.approx(
        (100 * 0.01 + 300 * 0.03 - 100 * 0.01) / (100 * 0.05 + 300 * 0.09 + 100 * 0.05)
    )
    assert any("3 probes (500 tokens) in steps 4-20" in line for line in verdict.evidence)
    told = verdict.to_dict()
    assert told["engine"]["origin"] == "probe" and told["engine"]["steps"] == 3
    assert told["numbers_cover"] == {"steps": 8, "first_step": 13, "last_step": 20}


def test_every_number_says_which_steps_it_is_of(tmp_path):
    rows = healthy(20, **{"sign/positive/d_bar": 0.04, "sign/negative/d_bar": 0.06})
    for row in rows[1:13]:
        row["abs_d_max"] = 9.0
    verdict = doctor(run_dir(tmp_path / "run", rows, result=FINISHED))
    heads = (
        "staleness, steps 13-20: ",
        "mismatch, steps 13-20: ",
        "tail of |log-ratio|, steps 13-20: ",
        "by sign, steps 13-20: ",
    )
    for head in heads:
        assert sum(line.startswith(head) for line in verdict.evidence) == 1, head
    tail = next(line for line in verdict.evidence if line.startswith("tail"))
    assert tail.endswith("99.9 % 0.5 nats (means of each step's), largest 1")
    short = doctor(run_dir(tmp_path / "short", healthy(3), result=FINISHED))
    assert short.sentence.endswith("in 3 steps, d_bar 0.05 nats over all 3 steps.")


def test_ages_are_pooled_by_their_tokens(tmp_path):
    rows = [
        {"step": 1, **QUIET, "age/0/tokens": 10, "age/0/d_bar": 0.01, "age/9/tokens": 30, "age/9/d_bar": 0.1},
        {"step": 2, **QUIET, "age/10/tokens": 5, "age/10/d_bar": 0.3, "age/9/tokens": 10, "age/9/d_bar": 0.2},
    ]
    verdict = doctor(run_dir(tmp_path / "run", rows, result=FINISHED))
    assert list(verdict.by_age) == ["0", "9", "10"]
    assert verdict.by_age["9"] == {"tokens": 40, "d_bar": pytest.approx((30 * 0.1 + 10 * 0.2) / 40)}
    assert any("by age, steps 1-2: d_bar 0.01 at age 0, 0.3 at age 10" in line for line in verdict.evidence)


def dump(path, spread, *, n=4000, steps=1, **columns):
    rng = np.random.default_rng(0)
    policy = (-rng.exponential(1.0, n) - 1e-3).astype(np.float32)
    sampler = np.minimum(policy + spread * rng.standard_normal(n), -1e-4).astype(np.float32)
    lists = {"policy_logp": np.split(policy, n // 10), "sampler_logp": np.split(sampler, n // 10)}
    each = n // 10
    table = {key: [list(x) for x in value] for key, value in lists.items()}
    if steps > 1:
        table["step"] = list(np.arange(each) // (each // steps))
    pq.write_table(pa.table(table | {key: list(value(each)) for key, value in columns.items()}), path)
    return path


def test_a_healthy_and_an_unhealthy_dump(tmp_path):
    good = doctor(dump(tmp_path / "good.parquet", 0.03), scale="tiny")
    assert good.exit_code == 0 and good.sentence.startswith("Healthy: nothing fired in 1 step, d_bar 0.02")
    bad = doctor(dump(tmp_path / "bad.parquet", 2.0))
    assert bad.exit_code == 1 and "the mismatch left its band" in bad.sentence
    assert any("no column step" in note for note in bad.notes)


def test_a_dump_with_steps_is_a_history(tmp_path):
    path = dump(tmp_path / "dump.parquet", 0.03, steps=20)
    table = pq.read_table(path).to_pydict()
    late = [
        [x - 3.0 for x in row] if step >= 15 else row
        for row, step in zip(table["sampler_logp"], table["step"], strict=True)
    ]
    pq.write_table(pa.table(table | {"sampler_logp": late}), path)
    verdict = doctor(path, scale="tiny")
    assert verdict.steps == 20 and verdict.exit_code == 1
    assert min(alarm.step for alarm in verdict.alarms) == 15


def test_numbers_of_a_dump_are_those_of_all_tokens_together(tmp_path):
    path = dump(tmp_path / "dump.parquet", 0.1, steps=3)
    table = pq.read_table(path).to_pydict()
    d = np.concatenate(table["policy_logp"]) - np.concatenate(table["sampler_logp"])
    numbers = doctor(path).numbers
    assert numbers["d_bar"] == pytest.approx(float(np.abs(d).mean()), rel=1e-5)
    assert numbers["abs_d_q99"] == pytest.approx(float(np.quantile(np.abs(d), 0.99)), rel=1e-5)


def test_ages_without_the_learners_version_say_nothing_about_the_engine(tmp_path):
    versions = {"version": lambda n: np.arange(n) % 3}
    relative = doctor(dump(tmp_path / "a.parquet", 0.1, **versions))
    assert not any("engine" in line for line in relative.evidence)
    known = versions | {"learner_version": lambda n: np.full(n, 2)}
    verdict = doctor(dump(tmp_path / "b.parquet", 0.1, **known))
    # versions 0, 1, 2 in turn: a third of 400 responses of 10 tokens has age 0
    assert any("where it comes from, 1330 tokens of age 0 in step 1: there" in line for line in verdict.evidence)
    assert verdict.engine is not None and verdict.engine.share == pytest.approx(1.0, abs=0.05)


def test_the_command_prints_words_or_json(tmp_path, capsys):
    unhealthy = run_dir(tmp_path / "run", collapsing(), overrides=["alarm.window=1"], result=FINISHED)
    assert run_doctor(unhealthy) == 1
    out = capsys.readouterr().out
    assert out.startswith("Unhealthy: ") and "\nAlarms\n" in out and "\nWhat to try\n" in out and "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert run_doctor(unhealthy, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "unhealthy" and told["lead_steps"] == 4 and told["alarms"][0]["name"] == "mismatch"
    assert all(math.isfinite(x) for x in told["numbers"].values())


def test_unusable_input_has_an_exit_code_of_its_own(tmp_path, capsys):
    assert run_doctor(tmp_path / "nothing") == 2
    assert "no such file" in capsys.readouterr().err
    assert run_doctor(dump(tmp_path / "d.parquet", 0.1), {"policy_logp": "x"}, as_json=True) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "unusable" and "no such column" in told["error"]


def test_a_comparison_names_its_runs(tmp_path):
    (tmp_path / "compare.toml").write_text("")
    for name in ("grpo-lag8-s0", "naive-lag8-s0"):
        (tmp_path / "cells" / name).mkdir(parents=True)
        run_dir(tmp_path / "cells" / name, healthy())
    with pytest.raises(InputError, match=r"is a comparison; give one of its runs: .*cells/grpo-lag8-s0, .*naive"):
        doctor(tmp_path)


@pytest.mark.parametrize(("saved", "named"), [((200, 240), None), ((5, 9, 200), 9)])
def test_only_a_checkpoint_that_exists_is_gone_back_to(saved, named, tmp_path):
    path = run_dir(tmp_path / "run", collapsing(), overrides=["alarm.window=1"], result=FINISHED)
    for step in saved:
        (path / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)
    said = [line for line in doctor(path).advice if "checkpoint" in line]
    assert bool(said) is (named is not None)
    assert named is None or f"go back to the checkpoint of step {named}, from before the first alarm" in said[0]


def test_a_reward_that_falls_to_nothing_at_once_is_the_headline(tmp_path):
    rows = [{"step": 1, **QUIET, "reward": 0.62}, {"step": 2, **QUIET, "d_bar": 1080.0, "reward": 0.3}]
    rows += [{"step": 3, **QUIET, "d_bar": 1080.0, "reward": 0.0}]
    rows += [{"step": 3, "reward": 0.0, "truncated": 1.0, "outcome": "zero_variance"}] * 8
    detail = "8 batches in a row had no signal: raise rollout.max_tokens or task.shots"
    result = {"reason": "no_signal", "success": False, "detail": detail, "steps": 3, "metrics": {}}
    verdict = doctor(run_dir(tmp_path / "run", rows, result=result))
    assert verdict.sentence == (
        "Unhealthy: the reward fell from 0.62 to 0 within 2 updates, and the run was aborted: 8 batches in a row had "
        "no signal."
    )
    assert verdict.advice[0] == "the reward fell from 0.62 to 0 within 2 updates: lower the learning rate (learner.lr)"
    assert not any("max_tokens" in line or "task.shots" in line for line in verdict.advice)


def test_a_run_without_a_log_ratio_is_not_healthy(tmp_path):
    rows = [{"step": step, "reward": 0.5} for step in range(1, 20)]
    verdict = doctor(run_dir(tmp_path / "run", rows, result=FINISHED))
    assert (verdict.status, verdict.exit_code) == (Status.UNKNOWN, 3)
