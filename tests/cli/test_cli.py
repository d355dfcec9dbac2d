"""The command line as a person meets it: exit codes, messages, eighty columns, files and signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY = [
    "--set=rollout.prompts=4",
    "--set=rollout.samples=4",
    "--set=steps=4",
    "--set=eval.every=2",
    "--set=eval.prompts=8",
    "--set=save.every=2",
]


def lagproof(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from lagproof.cli import main; sys.argv[0] = 'lagproof'; main()"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *args],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", "TERM": "dumb", **env},
        capture_output=True,
        text=True,
    )


def test_train_in_a_pipe_is_readable_lines(tmp_path):
    done = lagproof("train", *TINY, "--set=run_dir=runs/x", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "loading tiny-dense"
    assert re.fullmatch(r"step 0/4  acc \d\.\d+", lines[1])
    assert re.match(r"step 1/4  reward .* d_bar .* age .* tok/s", lines[2])
    assert re.match(r"step 2/4  reward .* acc .* d_bar .* age .* tok/s", lines[3])
    assert lines[-1].startswith("finished after 4 steps") and lines[-1].endswith("runs/x")
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert max(map(len, lines)) <= 110


def test_every_key_is_in_the_help_and_fits_eighty_columns(tmp_path):
    from lagproof.config import keys

    done = lagproof("train", "--help", cwd=tmp_path)
    assert done.returncode == 0
    for key, default, _ in keys():
        assert key if default is None else f"{key} = {default}" in done.stdout, key
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["train", "--set", "objective.name=grop"], 2, "did you mean 'grpo'"),
        (["train", "--set", "objective.nam=grpo"], 2, r"did you mean 'objective\.name'|unknown option"),
        (["train", "--set", "steps"], 2, "expected key=value"),
        (["train", "missing.toml"], 2, "no such file"),
        (["train", "--resume", "nowhere"], 2, "not a run directory"),
        (["train", "demo.toml", "--resume", "nowhere"], 2, "leave CONFIG out"),
        (["train", "--bogus"], 2, "No such option"),
        (["bogus"], 2, "No such command"),
        (["eval", "tiny-dense", "--task", "arithmetic", "--stop", "\\n"], 2, r"--stop \\n: must be a list of strings"),
        (["eval", "tiny-dense", "--task", "arithmetic", "--stop", "[1]"], 2, r"--stop \[1\]: must be a list"),
        (["objectives", "grop"], 2, "did you mean 'grpo'"),
        (["tasks", "gsm8"], 2, "did you mean 'gsm8k'"),
    ],
)
def test_wrong_use_is_one_clear_message_and_exit_code_2(args, code, message, tmp_path):
    done = lagproof(*args, cwd=tmp_path)
    assert done.returncode == code
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_existing_run_is_refused_then_resumed(tmp_path):
    assert lagproof("train", *TINY, "--set=run_dir=x", cwd=tmp_path).returncode == 0
    again = lagproof("train", *TINY, "--set=run_dir=x", cwd=tmp_path)
    assert (again.returncode, "--resume x" in again.stderr) == (2, True)
    resumed = lagproof("train", "--resume", "x", cwd=tmp_path)
    assert (resumed.returncode, "\nfinished after 4 steps" in resumed.stdout) == (0, True)


def test_a_ctrl_c_that_stops_at_once_says_so(tmp_path):
    code = "import os, signal, sys; from lagproof.cli import main; import lagproof.cli.grading as g\n"
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background process may ignore it
    code += "g.grade = lambda *a: os.kill(os.getpid(), signal.SIGINT)\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code, "grade", "x.jsonl"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_ctrl_c_finishes_the_step_saves_and_exits_130(tmp_path):
    code = "import sys; from lagproof.cli import main; main()"
    args = [*TINY, "--set=run_dir=x", "--set=steps=400", "--set=eval.every=1", "--set=save.every=1000"]
    with subprocess.Popen(
        [sys.executable, "-c", code, "train", *args],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None and run.stderr is not None
        for line in run.stdout:
            if line.startswith("step 3/"):
                run.send_signal(signal.SIGINT)
                break
        run.stdout.read()
        message = run.stderr.read()
    assert run.returncode == 130
    stopped = int(re.search(r"stopped after step (\d+) of 400; continue with --resume x", message).group(1))
    rows = [json.loads(line) for line in (tmp_path / "x" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == stopped
    assert [p.name for p in (tmp_path / "x" / "checkpoints").iterdir()] == [f"step-{stopped:06d}"]


def test_objectives_lists_all_and_explains_one(tmp_path):
    table = lagproof("objectives", cwd=tmp_path)
    assert table.returncode == 0
    for name in ("naive", "sat-gspo", "dis"):
        assert name in table.stdout
    assert max(map(len, table.stdout.splitlines())) <= 80
    page = lagproof("objectives", "sat-grpo", cwd=tmp_path)
    assert "Formula:" in page.stdout and "alpha" in page.stdout


def test_tasks_lists_all_and_the_options_of_one(tmp_path):
    from lagproof import tasks

    table, page = (lagproof("tasks", *names, cwd=tmp_path).stdout for names in ([], ["dapo-math-17k"]))
    listed, options = (
        re.findall(r"^([^-\s]\S*) +(\S+|$)", text[text.index("\n---") :], re.MULTILINE) for text in (table, page)
    )
    assert [name for name, _ in listed] == list(tasks.TASKS)
    assert [name for name, _ in options] == [name for name, _, _ in tasks.options("dapo-math-17k")]
    assert ("answer_form", '"marked"') in options
    assert max(map(len, (table + page).splitlines())) <= 80
    assert "lagproof tasks NAME" in lagproof("train", "--help", cwd=tmp_path).stdout


def test_examples_are_configurations(tmp_path):
    from lagproof.config import Config

    found = sorted((ROOT / "examples").glob("*.toml"))
    assert found
    for example in found:
        Config.load(example)


def test_whatif_writes_a_page_where_one_is_asked_for(tmp_path):
    rows = [{"policy_logp": [-1.0, -2.0], "sampler_logp": [-1.1, -1.9], "advantage": a} for a in (1.0, -1.0)]
    (tmp_path / "dump.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    bare = lagproof("whatif", "dump.jsonl", "--objectives", "spo", cwd=tmp_path)
    assert bare.returncode == 0 and not list(tmp_path.glob("*.html"))
    args = ("whatif", "dump.jsonl", "--objectives", "spo", "--out", "pages/x.html")
    done = lagproof(*args, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(bare.stdout.rstrip()), done.stderr
    assert done.stdout.splitlines()[-1] == "pages/x.html"
    assert f"<pre>lagproof {' '.join(args)}</pre>" in (tmp_path / "pages" / "x.html").read_text()
    told = json.loads(lagproof(*args, "--json", cwd=tmp_path).stdout)
    assert told["page"] == "pages/x.html" and told["cosines"][0][0] == pytest.approx(1.0)
    broken = lagproof(*args[:-1], "dump.jsonl/x.html", cwd=tmp_path)
    assert broken.returncode == 2 and "cannot be written" in broken.stderr and "--out" in broken.stderr
