"""``lagproof plan``: a table, advice, a page, and refusals with the arithmetic."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lagproof.cli import main

SMALL = ["--workers", "2", "--slots", "4", "--prompts", "8", "--samples", "2", "--length", "50", "--steps", "8"]
FAST = ["--engine-tokens-per-s", "1000", "--learner-tokens-per-s", "900", "--publish-s", "0.1", "--step-s", "0"]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["lagproof", "plan", *SMALL, *FAST, *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


def test_schedules_side_by_side(monkeypatch, capsys, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    assert run(monkeypatch, "--schedules", "k0,2,s0.5n2,a2n1drop", "--out", str(page)) == 0
    said = capsys.readouterr().out
    for name in ("k0", "s0.5n2", "a2n1drop"):
        assert name in said and name in page.read_text()
    assert "smallest lag that keeps the learner busy" in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80 or str(page) in said
    assert run(monkeypatch, "--schedules", "k0,k2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    sync = found["schedules"][0]
    assert sync["ages"] == {"0": 64} and sync["learner_wait"] > 0.3
    assert sync["tokens_per_s"] < found["capacity"]["learning"]


def test_a_learner_that_no_lag_keeps_busy(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "--schedules", "k1", "--learners", "10") == 0
    assert "No lag keeps the learner busy" in " ".join(capsys.readouterr().out.split())


def test_schedules_that_cannot_work_are_refused(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "--schedules", "a1n4") == 2
    assert "must be >= schedule.broadcast_every - 1 = 3" in capsys.readouterr().err
    assert run(monkeypatch, "--schedules", "often") == 2
    assert "schedule 'often': must be k3" in capsys.readouterr().err
