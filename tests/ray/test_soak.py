"""A few of the random kills of `make soak`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_few_runs_with_random_kills():
    command = [sys.executable, str(Path(__file__).with_name("soak.py")), "--schedules", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 runs, 0 wrong" in done.stdout
