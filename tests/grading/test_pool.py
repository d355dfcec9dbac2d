"""The processes behind grading: limits, replacement, threads, no leaks."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lagproof.errors import ConfigError, RunStoppedError
from lagproof.grading import pool as pool_module
from lagproof.grading.grader import Grader
from lagproof.grading.judge import Verdict
from lagproof.grading.pool import Limits, Pool
from lagproof.grading.worker import VERDICT

HANGS = (VERDICT, "42", r"\sum_{n=1}^{10^{9}} \sin(n^2)")
EATS_MEMORY = (VERDICT, "42", r"\operatorname{zeros}(3000,3000)")
PLAIN = (VERDICT, "2x", "x+x")


def children() -> set[int]:
    """Processes of this one that run the worker module."""
    out = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            command = (stat.parent / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if parent == os.getpid() and b"lagproof.grading.worker" in command:
            out.add(int(stat.parent.name))
    return out


def test_a_hanging_answer_is_killed_and_the_rest_goes_on() -> None:
    with Pool(Limits(time_s=2.0, workers=1)) as pool:
        replies = pool.ask([PLAIN, HANGS, PLAIN])
        assert [r.word for r in replies] == [Verdict.CORRECT, Verdict.TIMED_OUT, Verdict.CORRECT]
    assert not children()


def test_memory_is_limited_and_failures_are_visible(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Grader(limits=Limits(time_s=60, workers=1, memory_mib=128)) as grader:
        grades = grader.grade([("42", f"\\boxed{{{EATS_MEMORY[2]}}}"), ("2x", r"\boxed{x+x}")])
        assert [g.reason for g in grades] == ["failed", "correct"]
        assert grader.counts["failed"] == 1
    assert "the verifier failed" in caplog.text


def test_a_process_killed_while_idle_costs_nothing() -> None:
    with Pool(Limits(time_s=60, workers=1)) as pool:
        pool.ask([PLAIN])
        (victim,) = children()
        os.kill(victim, signal.SIGKILL)
        os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
        replies = pool.ask([PLAIN, PLAIN])
    assert {r.word for r in replies} <= {Verdict.CORRECT, Verdict.FAILED}
    assert replies[-1].word == Verdict.CORRECT


def test_replies_come_in_the_order_of_the_questions() -> None:
    questions = [(VERDICT, f"{i}x", f"{i + i % 2}x") for i in range(40)]
    with Pool(Limits(time_s=60, workers=2)) as pool:
        replies = pool.ask(questions)
    expected = [Verdict.CORRECT if i % 2 == 0 else Verdict.WRONG for i in range(40)]
    assert [r.word for r in replies] == expected


def test_threads_may_share_a_pool() -> None:
    results: dict[int, list[Verdict]] = {}

    def ask(n: int) -> None:
        results[n] = [r.word for r in pool.ask([(VERDICT, f"{n}y", f"{n}y+0"), (VERDICT, "y", f"{n + 2}y")])]

    with Pool(Limits(time_s=60, workers=1)) as pool:
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {n: [Verdict.CORRECT, Verdict.WRONG] for n in range(4)}


def test_a_forgotten_pool_leaves_no_process() -> None:
    pool = Pool(Limits(workers=1))
    pool.ask([PLAIN])
    assert children()
    del pool
    gc.collect()
    assert not children()


def test_closing_twice_is_allowed_and_asking_afterwards_is_not() -> None:
    pool = Pool()
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.ask([PLAIN])


def test_processes_that_cannot_start_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv("PYTHONHOME", "")
    monkeypatch.setattr(pool_module.sys, "executable", "/bin/false")
    with Pool(Limits(workers=1)) as pool, pytest.raises(RunStoppedError, match="no grading process can be started"):
        pool.ask([PLAIN])


def test_processes_that_are_not_ready_in_time_say_the_limit_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "START_LIMIT_S", 0.0)
    with Pool(Limits(workers=1)) as pool, pytest.raises(RunStoppedError) as caught:
        pool.ask([PLAIN])
    assert str(caught.value) == (
        "no grading process can be started, 3 in a row failed: it was not ready within 0 s, and the process was "
        "killed; the machine is too busy: free a core and start again"
    )


def test_a_script_without_a_main_guard_can_grade(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('once')\n"
        "from lagproof.grading.grader import Grader\n"
        "grader = Grader()\n"
        "print(grader.grade([('2x', r'\\boxed{x+x}')])[0].reason)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("once\ncorrect\n", "")


def test_workers_import_no_torch_and_evaluate_no_code() -> None:
    code = (
        "import sys; from lagproof.grading import worker, verify\n"
        "from lagproof.grading.reader import forbid_code, UnreadableError\n"
        "forbid_code(); assert 'torch' not in sys.modules\n"
        "import sympy\n"
        "for read in (sympy.sympify, sympy.parse_expr):\n"
        "    try: read('1+1')\n"
        "    except UnreadableError: continue\n"
        "    raise SystemExit('evaluated')\n"
        "assert verify.compare('x^2+2x+1', '(x+1)^2') == 'correct'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("limits", [{"time_s": 0}, {"memory_mib": 1}, {"workers": 0}])
def test_limits_are_checked(limits: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        Limits(**limits)  # type: ignore[arg-type]


def from_a_small_process(code: str, asked: str) -> subprocess.CompletedProcess[str]:
    """Run Python under a shell: Linux counts the size of whoever started a process to its largest size."""
    command = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", code]
    return subprocess.run(command, input=asked, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("watch", ["w._watch_memory", "lambda limit: None"], ids=["watched", "not looked at meanwhile"])
def test_memory_is_limited_where_there_is_no_proc(watch: str) -> None:
    """As on macOS: the process looks at its own size, also where the thread for it got no time."""
    code = (
        "import sys, lagproof.grading.worker as w\n"
        f"w.STATM, w._watch_memory = '/nowhere/statm', {watch}\n"
        "sys.argv = ['worker', '600', '64']\n"
        "w.serve(lambda: None, lambda n: str(len(bytearray(b'x') * int(n))))\n"
    )
    asked = '["1000"]\n["400000000"]\n["1000"]\n'
    done = from_a_small_process(code, asked)
    assert done.returncode == pool_module.OUT_OF_MEMORY, done.stderr
    assert done.stdout == '["ready", ""]\n["1000", ""]\n'


def test_memory_is_watched_while_an_answer_is_worked_on() -> None:
    """The answer never returns: only the thread can end the process."""
    code = (
        "import sys, threading, lagproof.grading.worker as w\n"
        "w.STATM = '/nowhere/statm'\n"
        "sys.argv = ['worker', '600', '64']\n"
        "w.serve(lambda: None, lambda n: (bytearray(b'x') * int(n), threading.Event().wait()))\n"
    )
    done = from_a_small_process(code, '["400000000"]\n')
    assert done.returncode == pool_module.OUT_OF_MEMORY, done.stderr
