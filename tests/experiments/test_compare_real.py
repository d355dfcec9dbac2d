"""The real single run under a comparison, from its command to its page."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from lagproof.cli.comparing import compare


@pytest.mark.slow
def test_two_real_runs_side_by_side(tmp_path: Path) -> None:
    small = ["objectives=['grpo', 'sat-grpo']", "lags=[1]", "steps=4", "eval.every=2", "eval.prompts=8"]
    text = io.StringIO()
    out = tmp_path / "out"
    code = compare(
        "demo",
        out,
        overrides=[*small, "rollout.prompts=4"],
        jobs=2,
        console=Console(file=text, width=200),
    )
    assert code == 0, text.getvalue()
    cells = json.loads((out / "table.json").read_text())["cells"]
    assert [cell["label"] for cell in cells] == ["grpo", "sat-grpo"]
    numbers = {"accuracy", "minimum", "final", "d_bar", "k3", "scale_positive", "scale_negative", "clipped"}
    assert set(cells[0]["estimates"]) == numbers and set(cells[1]["estimates"]) == numbers | {"changed"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "No run has recorded" not in page and "No rollouts with" not in page and "could not be read" not in page
    assert text.getvalue().rstrip().endswith(str(out / "report.html"))
