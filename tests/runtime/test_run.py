"""A whole run: deterministic, aged as its schedule says, resumable bit for bit, and loud when it cannot go on."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

import lagproof as lp
from lagproof import tasks
from lagproof.config import Config
from lagproof.errors import (
    CheckpointError,
    ConfigError,
    InputError,
    InterruptedRunError,
    RunDirError,
    RunStoppedError,
    UnknownNameError,
)
from lagproof.runs import writer as writer_module
from lagproof.runtime import train as train_module
from lagproof.runtime import worker as worker_module
from lagproof.runtime.schedule import Periodic, ages
from lagproof.runtime.train import train
from lagproof.tasks.arithmetic import ArithmeticTask
from lagproof.tasks.task import Grade, Problem

SMALL = (
    "rollout.prompts=8",
    "rollout.samples=4",
    "steps=10",
    "eval.every=4",
    "eval.prompts=16",
    "save.every=3",
    "schedule.broadcast_every=2",
    "learner.lr=2e-4",
)


def config(path: Path, *overrides: str) -> Config:
    return Config.load(None, [*SMALL, f"run_dir={json.dumps(str(path))}", *overrides])


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def timeless(path: Path) -> list[str]:
    return [json.dumps({k: v for k, v in row.items() if not k.startswith("time/")}) for row in rows(path)]


def weights(path: Path) -> dict[str, torch.Tensor]:
    newest = sorted((path / "checkpoints").glob("step-*"))[-1]
    return AutoModelForCausalLM.from_pretrained(newest).state_dict()


def rollouts(path: Path) -> list[dict]:
    return [row for file in sorted((path / "rollouts").glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("reference") / "run"
    result = train(config(path, "objective.name=sat-grpo"))
    assert (result.reason, result.success, result.steps) == ("finished", True, 10)
    return path


def assert_same_run(path: Path, reference: Path) -> None:
    assert timeless(path) == timeless(reference)
    expected = weights(reference)
    assert all(torch.equal(w, expected[name]) for name, w in weights(path).items())
    assert rollouts(path) == rollouts(reference)


class TestOneRun:
    def test_the_same_configuration_gives_the_same_bits(self, reference, tmp_path):
        train(config(tmp_path / "again", "objective.name=sat-grpo"))
        assert_same_run(tmp_path / "again", reference)

    def test_another_seed_gives_another_run(self, reference, tmp_path):
        train(config(tmp_path / "other", "objective.name=sat-grpo", "seed=1"))
        assert timeless(tmp_path / "other") != timeless(reference)

    def test_rows_are_complete(self, reference):
        found = rows(reference)
        assert [row["step"] for row in found] == list(range(11))
        assert [row["step"] for row in found if "eval/accuracy" in row] == [0, 4, 8, 10]
        for key in (
            "reward",
            "d_bar",
            "k3",
            "sat/q",
            "sat/changed",
            "grad_norm",
            "entropy",
            "scale_positive",
            "age_mean",
        ):
            assert all(key in row for row in found[1:]), key
        assert all(row["dropped_tokens"] == 0 for row in found[1:])
        assert not [key for row in found for key in row if key.startswith("graded/")]

    def test_the_directory(self, reference):
        assert json.loads((reference / "result.json").read_text())["reason"] == "finished"
        saved = Config.load(reference / "config.toml")
        assert saved.objective.options["alpha"] == 0.9
        assert saved.schedule.batches_ahead == 2
        assert [p.name for p in sorted((reference / "checkpoints").iterdir())] == ["step-000009", "step-000010"]

    def test_checkpoints_load_with_transformers(self, reference):
        folder = reference / "checkpoints" / "step-000010"
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
        ids = torch.tensor([tokenizer.encode("7+5-9+3=")])
        assert model(ids).logits.shape == (1, 8, 16)

    @pytest.mark.parametrize(("n", "k"), [(1, 0), (1, 1), (2, 2), (3, 1), (1, 3)])
    def test_the_realised_age_is_that_of_the_schedule(self, n, k, tmp_path):
        train(config(tmp_path / "r", f"schedule.broadcast_every={n}", f"schedule.batches_ahead={k}", "eval.every=0"))
        found = rows(tmp_path / "r")
        expected = ages(Periodic(n, k), 10)
        assert [row["age_mean"] for row in found] == expected
        assert [row["age_max"] for row in found] == expected
        for row in rollouts(tmp_path / "r"):
            assert set(row["version"]) == {row["step"] - 1 - expected[row["step"] - 1]}

    @pytest.mark.parametrize("sampling", [(), ("rollout.temperature=0.7",), ("rollout.top_k=3", "rollout.top_p=0.9")])
    def test_unchanged_weights_have_a_ratio_of_one(self, sampling, tmp_path):
        overrides = ("schedule.broadcast_every=1", "schedule.batches_ahead=0", "eval.every=0", "steps=3")
        train(config(tmp_path / "r", *overrides, *sampling))
        assert all(row["d_bar"] < 1e-6 for row in rows(tmp_path / "r"))

    def test_responses_are_recorded_as_they_were_sampled(self, reference):
        tokenizer = AutoTokenizer.from_pretrained(reference / "checkpoints" / "step-000010")
        found = rollouts(reference)
        assert len(found) == 10 * 32
        for row in found:
            assert (
                len(row["response_ids"]) == len(row["sampler_logp"]) == len(row["policy_logp"]) == len(row["version"])
            )
            assert (row["response_ids"][-1] == tokenizer.eos_token_id) == (row["finish"] == "stop")
        d = [
            abs(p - s)
            for row in found
            if row["step"] == 5
            for p, s in zip(row["policy_logp"], row["sampler_logp"], strict=True)
        ]
        assert sum(d) / len(d) == pytest.approx(next(r["d_bar"] for r in rows(reference) if r["step"] == 5), rel=1e-5)

    def test_responses_end_at_the_strings_of_the_configuration(self, tmp_path):
        train(config(tmp_path / "r", "steps=2", 'rollout.stop=[",", "-1"]'))
        found = rollouts(tmp_path / "r")
        assert {row["finish"] for row in found} == {"stop"}
        assert not any("," in row["text"] or "-1" in row["text"] for row in found)
        assert any(len(row["response_ids"]) == 2 and row["text"].isdigit() for row in found)  # "7,": the comma is kept
        assert all(row["eval/response_tokens"] < 4 for row in rows(tmp_path / "r") if "eval/accuracy" in row)
        assert Config.load(tmp_path / "r" / "config.toml").rollout.stop == (",", "-1")

    def test_no_log_probabilities_where_none_are_wanted(self, tmp_path):
        train(config(tmp_path / "r", "objective.name=asympo", "rollout.record_logp=false", "steps=2", "eval.every=0"))
        assert all("d_bar" not in row for row in rows(tmp_path / "r"))
        assert all(row["sampler_logp"] is None for row in rollouts(tmp_path / "r"))


def test_the_reasons_of_the_grades_are_kept_and_counted(tmp_path, monkeypatch):
    said = ("correct", "wrong", "unparsed", "timed_out", "failed")
    monkeypatch.setattr(
        ArithmeticTask,
        "grade",
        lambda self, answers: [
            Grade(float(i % 5 == 0), said[i % 5] if len(a.text) % 2 else said[i % 2]) for i, a in enumerate(answers)
        ],
    )
    train(config(tmp_path / "r", "steps=6", "eval.every=0"))
    trained = rollouts(tmp_path / "r")
    assert {row["reason"] for row in trained} == set(said)
    for row in rows(tmp_path / "r"):
        expected = Counter(r["reason"] for r in trained if r["step"] == row["step"])
        counted = {key.removeprefix("graded/"): value for key, value in row.items() if key.startswith("graded/")}
        assert counted == {reason: expected[reason] for reason in said[2:] if expected[reason]}


def test_a_mixture_keeps_its_tasks_apart(tmp_path):
    """Two streams of sums under two names; their rewards add up to that of the batch, weighed by their responses."""
    tasks.TASKS["short"] = replace(
        tasks.TASKS["arithmetic"], build=lambda options, run_seed: Short(ArithmeticTask(run_seed=run_seed))
    )
    try:
        mixture = '[{name = "arithmetic", weight = 1}, {name = "short", weight = 3}]'
        train(config(tmp_path / "r", "task.name=mixture", f"task.tasks={mixture}", "eval.every=10"))
    finally:
        del tasks.TASKS["short"]
    found = rows(tmp_path / "r")
    counts = dict.fromkeys(("arithmetic", "short"), 0)
    for row in rollouts(tmp_path / "r"):
        counts[json.loads(row["info"])["task"]] += 1
    assert counts["short"] > 1.5 * counts["arithmetic"] > 0
    mixed = [row for row in found if "task/short/reward" in row]
    assert len(mixed) >= 8
    for row in mixed:
        low, high = sorted((row["task/short/reward"], row["task/arithmetic/reward"]))
        assert low <= row["reward"] <= high
        assert 1 <= row["task/short/response_tokens"] <= 12
    assert {"eval/accuracy", "task/short/eval/accuracy", "task/arithmetic/eval/accuracy"} <= found[-1].keys()


class Short:
    """The arithmetic task under another name."""

    name = "short"

    def __init__(self, task: ArithmeticTask) -> None:
        self._task = task
        self.size, self.eval_size, self.data = task.size, task.eval_size, task.data
        self.grade, self.key, self.close = task.grade, task.key, task.close

    def problem(self, index: int) -> Problem:
        return replace(self._task.problem(index), task=self.name)

    def eval_problem(self, index: int) -> Problem:
        return replace(self._task.eval_problem(index), task=self.name)


class TestResume:
    def test_after_an_interrupt(self, reference, tmp_path, monkeypatch):
        path = tmp_path / "r"
        seen = []

        class Ask:
            def __enter__(self):
                return lambda: len(seen) >= 6

            def __exit__(self, *error):
                return None

        with monkeypatch.context() as patch:
            patch.setattr(train_module, "interruptible", Ask)
            with pytest.raises(InterruptedRunError, match="continue with --resume"):
                train(config(path, "objective.name=sat-grpo"), on_step=seen.append)
        assert len(rows(path)) == 6
        train(config(path, "objective.name=sat-grpo"), resume=True)
        assert_same_run(path, reference)

    @pytest.mark.parametrize("at", [1, 5, 8])
    def test_after_a_kill(self, at, reference, tmp_path):
        path = tmp_path / "r"
        code = (
            "import os, signal, sys, torch; torch.set_num_threads(1)\n"
            "from lagproof.config import Config\nfrom lagproof.runtime.train import train\n"
            f"kill = lambda row: os.kill(os.getpid(), signal.SIGKILL) if row.step == {at} else None\n"
            "train(Config.load(None, sys.argv[1:]), on_step=kill)"
        )
        args = [*SMALL, f"run_dir={json.dumps(str(path))}", "objective.name=sat-grpo"]
        died = subprocess.run([sys.executable, "-c", code, *args], env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert died.returncode == -signal.SIGKILL
        train(config(path, "objective.name=sat-grpo"), resume=True)
        assert_same_run(path, reference)

    def test_a_finished_run_has_nothing_left_to_do(self, reference):
        before = (reference / "metrics.jsonl").read_bytes()
        assert train(config(reference, "objective.name=sat-grpo"), resume=True).steps == 10
        assert (reference / "metrics.jsonl").read_bytes() == before

    def damaged(self, reference: Path, tmp_path: Path, *names: str) -> Path:
        path = tmp_path / "r"
        shutil.copytree(reference, path)
        for written_at_the_end in ("result.json", "notes.txt"):
            (path / written_at_the_end).unlink()
        for name in names:
            file = path / "checkpoints" / name
            file.write_bytes(file.read_bytes()[:-1])
        return path

    @pytest.mark.parametrize("file", ["model.safetensors", "run/optimizer.pt", "run/state.json", "run/manifest.json"])
    def test_a_truncated_checkpoint_is_named_and_the_one_before_is_used(self, file, reference, tmp_path):
        path = self.damaged(reference, tmp_path, f"step-000010/{file}")
        notes = []
        train(config(path, "objective.name=sat-grpo"), resume=True, on_note=notes.append)
        note, idle = notes
        assert "step-000010" in note and "sat-grpo acts" in idle
        assert (path / "notes.txt").read_text() == f"{note}\n{idle}\n"
        assert_same_run(path, reference)

    def test_no_readable_checkpoint_is_an_error(self, reference, tmp_path):
        path = self.damaged(reference, tmp_path, "step-000010/model.safetensors", "step-000009/model.safetensors")
        with pytest.raises(CheckpointError, match=r"step-000010.*step-000009"):
            train(config(path, "objective.name=sat-grpo"), resume=True)

    def test_another_configuration_is_refused(self, reference, tmp_path):
        path = self.damaged(reference, tmp_path)
        was = r"learner\.lr was 0\.0002 and is 0\.002; objective\.alpha was 0\.9 and is 0\.5;"
        with pytest.raises(RunDirError, match=was):
            train(config(path, "objective.name=sat-grpo", "objective.alpha=0.5", "learner.lr=2e-3"), resume=True)

    def test_a_directory_without_a_run_is_refused(self, tmp_path):
        with pytest.raises(RunDirError, match=r"no config\.toml"):
            train(config(tmp_path), resume=True)


class TestTrouble:
    def test_an_existing_directory_is_refused_and_left_alone(self, tmp_path):
        (tmp_path / "r").mkdir()
        (tmp_path / "r" / "thesis.tex").write_text("x")
        with pytest.raises(RunDirError, match="exists already"):
            train(config(tmp_path / "r"))
        assert [p.name for p in (tmp_path / "r").iterdir()] == ["thesis.tex"]

    def test_a_full_disk_is_reported_and_the_run_goes_on_later(self, reference, tmp_path, monkeypatch):
        path = tmp_path / "r"
        append = writer_module.RunWriter.append

        def full(self, row):
            if row.step == 6:
                with writer_module.writing(self.layout.metrics, writer_module.KEPT):
                    raise OSError(errno.ENOSPC, "No space left on device")
            append(self, row)

        with monkeypatch.context() as patch:
            patch.setattr(writer_module.RunWriter, "append", full)
            with pytest.raises(RunDirError, match=r"No space left on device.*--resume"):
                train(config(path, "objective.name=sat-grpo"))
        train(config(path, "objective.name=sat-grpo"), resume=True)
        assert_same_run(path, reference)

    @pytest.mark.parametrize("write", ["model", "optimizer"])
    def test_a_disk_that_fills_up_in_a_checkpoint_is_reported_too(self, write, tmp_path, monkeypatch):
        """What safetensors and torch say of a full disk is not an OSError."""
        from lagproof.runtime import trainer

        def full(*args):
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

        def full_device(buffer, *args):
            raise OSError(errno.ENOSPC, "No space left on device")

        if write == "model":
            monkeypatch.setattr(trainer, "save_model", full)
        else:
            monkeypatch.setattr(Path, "write_bytes", full_device)
        with pytest.raises(RunDirError, match=r"No space left on device.*--resume"):
            train(config(tmp_path / "r", "eval.every=0"))
        assert list((tmp_path / "r" / "checkpoints").iterdir()) == []

    def test_a_run_that_goes_on_elsewhere_is_left_alone(self, tmp_path):
        path = tmp_path / "r"
        seen = []

        def meddle(row):
            if not seen:
                with pytest.raises(RunDirError, match=f"process {os.getpid()} is running it") as refused:
                    train(config(path, "eval.every=0"), resume=True)
                seen.append(refused)

        train(config(path, "eval.every=0"), on_step=meddle)
        assert seen
        assert [row["step"] for row in rows(path)] == list(range(1, 11))

    def test_a_prompt_the_model_cannot_read_is_found_out_before_anything_is_written(self, tmp_path):
        with pytest.raises(InputError, match="chat template"):
            train(config(tmp_path / "r", "task.name=words"))
        assert not (tmp_path / "r").exists()

    def test_metrics_that_were_cut_are_not_filled_up(self, reference, tmp_path):
        path = tmp_path / "r"
        shutil.copytree(reference, path)
        (path / "result.json").unlink()
        (path / "metrics.jsonl").write_text('{"step": 0}\n')
        with pytest.raises(CheckpointError, match=r"metrics\.jsonl: has 12 bytes"):
            train(config(path, "objective.name=sat-grpo"), resume=True)
        assert (path / "metrics.jsonl").read_text() == '{"step": 0}\n'

    def test_a_directory_that_cannot_be_made_is_reported(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(RunDirError, match="cannot be written"):
            train(config(tmp_path / "file" / "r"))

    def test_no_signal_at_all_stops_and_says_so(self, tmp_path, monkeypatch):
        monkeypatch.setattr(ArithmeticTask, "grade", lambda self, answers: [Grade(0.9, "same") for _ in answers])
        with pytest.raises(RunStoppedError, match="no signal"):
            train(config(tmp_path / "r", "learner.max_zero_variance_batches=3", "eval.every=0"))
        found = rows(tmp_path / "r")
        assert [(row["outcome"], row["step"]) for row in found] == [("zero_variance", 0)] * 3
        assert json.loads((tmp_path / "r" / "result.json").read_text())["success"] is False

    def test_gradients_that_stay_non_finite_stop_the_run(self, tmp_path, monkeypatch):
        monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda p, limit: torch.tensor(math.inf))
        with pytest.raises(RunStoppedError, match="not finite"):
            train(config(tmp_path / "r", "eval.every=0"))
        assert [row["outcome"] for row in rows(tmp_path / "r")] == ["non_finite"] * 3

    @pytest.mark.parametrize(
        ("override", "error", "message"),
        [
            ("schedule.brodcast_every=1", UnknownNameError, r"did you mean 'schedule\.broadcast_every'"),
            ("objective.name=grop", UnknownNameError, "did you mean 'grpo'"),
            ("objective.name=gpro", UnknownNameError, "did you mean 'grpo'"),
            ("objective.alhpa=1", UnknownNameError, r"did you mean 'objective\.alpha'"),
            ("task.name=arithmetics", UnknownNameError, "did you mean 'arithmetic'"),
            ("model=tiny-dens", UnknownNameError, "did you mean 'tiny-dense'"),
            ("model=/no/such/folder", InputError, "no such folder"),
            ("rollout.samples=1", ConfigError, "a group of one has none"),
            ("rollout.temperature=0", ConfigError, "greedy"),
            ("rollout.precision=int7", ConfigError, "int8"),
            ("steps=0", ConfigError, ">= 1"),
            ("learner.lr=fast", ConfigError, "expected float"),
            ("epochs=2", ConfigError, "the task 'arithmetic' is a stream without an end"),
            ("schedule=8", ConfigError, "is a section"),
            ('rollout.stop="x"', ConfigError, r"rollout\.stop = 'x': expected a list, got str"),
            ("rollout.stop=[1]", ConfigError, r"rollout\.stop = 1: expected str, got int"),
            ('rollout.stop=[""]', ConfigError, r"rollout\.stop .*not empty; for none use \[\]"),
            ("learner.reduction=mean", ConfigError, "token_mean"),
        ],
    )
    def test_bad_input_is_refused_before_anything_is_written(self, override, error, message, tmp_path):
        with pytest.raises(error, match=message):
            train(config(tmp_path / "r", override))
        assert not (tmp_path / "r").exists()

    def test_an_objective_that_needs_the_sampler_must_have_it(self, tmp_path):
        with pytest.raises(ConfigError, match="record_logp"):
            train(config(tmp_path / "r", "objective.name=grpo", "rollout.record_logp=false"))

    def test_a_batch_larger_than_the_data_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(ArithmeticTask, "size", property(lambda self: 3))
        with pytest.raises(InputError, match="the task 'arithmetic' has 3 problems"):
            train(config(tmp_path / "r"))

    def test_every_problem_of_an_epoch_is_trained_once(self, tmp_path, monkeypatch):
        monkeypatch.setattr(ArithmeticTask, "size", property(lambda self: 10))
        monkeypatch.setattr(
            ArithmeticTask, "grade", lambda self, answers: [Grade(i % 2, "alternating") for i in range(len(answers))]
        )
        result = train(config(tmp_path / "r", "epochs=1", "eval.every=0", "rollout.prompts=4"))
        assert (result.reason, result.steps) == ("data_ended", 3)
        by_step = {}
        for row in rollouts(tmp_path / "r"):
            by_step.setdefault(row["step"], set()).add(row["problem_id"])
        assert [len(ids) for ids in by_step.values()] == [4, 4, 2]
        assert len(set.union(*by_step.values())) == 10


def test_the_public_surface_runs(tmp_path):
    result = lp.train(config(tmp_path / "r", "steps=1"))
    assert result.run_dir == tmp_path / "r"


def test_a_run_evaluates_on_the_problems_of_its_seed(tmp_path, monkeypatch):
    asked = []
    draw = ArithmeticTask.eval_problem
    monkeypatch.setattr(ArithmeticTask, "eval_problem", lambda task, index: asked.append(index) or draw(task, index))
    drawn = []
    for seed, problems in ((1, "first"), (1, "by_seed"), (2, "by_seed")):
        asked.clear()
        train(config(tmp_path / f"{seed}{problems}", f"seed={seed}", f"eval.problems={problems}", "steps=1"))
        drawn.append(asked[-16:])  # the first that is read checks the prompt
    assert drawn[0] == list(range(16))
    assert len({*map(tuple, drawn)}) == 3


def test_a_run_whose_radius_acts_on_nothing_says_so_at_its_end(tmp_path):
    path, notes = tmp_path / "run", []
    train(config(path, "objective.name=sat-gspo", "steps=3"), on_note=notes.append)  # radii of 3e-4 and 4e-4
    (said,) = notes
    assert said.startswith("the whole run: sat-gspo acts on nothing: it is gspo on every token of 3 steps")
    assert "log(1 + high) = 0.0004" in said
    assert (path / "notes.txt").read_text() == f"{said}\n"


def test_the_evaluations_of_a_run_draw_their_problems_once(tmp_path, monkeypatch):
    drawn = []
    draw = worker_module.eval_problems
    monkeypatch.setattr(worker_module, "eval_problems", lambda *args: drawn.append(args) or draw(*args))
    train(config(tmp_path / "run", "steps=2", "eval.every=1"))
    evaluated = [row["step"] for row in rows(tmp_path / "run") if "eval/accuracy" in row]
    assert (evaluated, len(drawn)) == ([0, 1, 2], 2)  # once to look at their prompts, once for all evaluations


def write_problems(path, golds):
    rows = [{"id": f"p{i}", "problem": f"{i}+{i}=", "answer": gold} for i, gold in enumerate(golds)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


DATA_SET = ("task.name=jsonl", "task.prompt=plain", "task.instruction=", "task.answer_form=whole", "eval.every=0")


@pytest.fixture
def spoken(monkeypatch):
    """The tiny model can spell the prompts: they are written in its own alphabet."""
    monkeypatch.setattr("lagproof.tasks.prompts.Prompting.prompt", lambda self, question: question)


def test_a_run_goes_on_with_the_data_that_it_was_begun_with(tmp_path, spoken):
    path = tmp_path / "x.jsonl"
    write_problems(path, [str(2 * i) for i in range(40)])
    settings = config(
        tmp_path / "run", *DATA_SET, f"task.path={json.dumps(str(path))}", "learner.max_zero_variance_batches=1000"
    )

    def stop(row):
        if row.step >= 3 or (row.batch or 0) >= 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedRunError):
        train(settings, on_step=stop)
    assert json.loads((tmp_path / "run" / "data.json").read_text())["problems"] == 36
    write_problems(path, [str(3 * i) for i in range(40)])
    with pytest.raises(RunDirError, match=r"problems are not those that it was begun with \(then 36 and 4 to evaluate"):
        train(settings, resume=True)
    write_problems(path, [str(2 * i) for i in range(20)])
    with pytest.raises(RunDirError, match="now 18 and 2 to evaluate on"):
        train(settings, resume=True)


def test_right_answers_that_cannot_be_read_are_why_there_is_no_signal(tmp_path, spoken):
    path = tmp_path / "x.jsonl"
    write_problems(path, [r"\frac{1}{"] * 40)
    problems = f"task.path={json.dumps(str(path))}"
    settings = config(tmp_path / "run", *DATA_SET, problems, "learner.max_zero_variance_batches=2")
    with pytest.raises(RunStoppedError, match=r"none of the 32 responses .* the right answers cannot be read: correct"):
        train(settings)


def test_a_run_that_was_given_up_says_so_again(tmp_path, spoken):
    path = tmp_path / "x.jsonl"
    write_problems(path, ["never"] * 40)
    problems = f"task.path={json.dumps(str(path))}"
    settings = config(tmp_path / "run", *DATA_SET, problems, "learner.max_zero_variance_batches=2")
    with pytest.raises(RunStoppedError, match=r"of the 32 responses of the last .* mean reward was 0\.000: raise"):
        train(settings)
    assert "mean reward was 0.000" in json.loads((tmp_path / "run" / "result.json").read_text())["detail"]
    with pytest.raises(RunStoppedError, match=r"mean reward was 0\.000.*which has ended after step 0"):
        train(settings, resume=True)


def test_a_directory_that_is_not_free_is_refused_before_the_model_is_loaded(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    monkeypatch.setattr(train_module, "load", lambda model: pytest.fail("loaded"))
    with pytest.raises(RunDirError, match="exists already"):
        train(config(tmp_path / "run"))
