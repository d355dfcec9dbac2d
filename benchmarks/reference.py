"""The reference setting on one core: 16 prompts x 8 samples, 12 new tokens, tiny-dense, grpo, lag 1."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

import lagproof as lp
from lagproof.config import Config
from lagproof.runtime.train import train

STEPS, SKIPPED = 60, 10


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        overrides = [f"run_dir={json.dumps(str(path))}", f"steps={STEPS}", "objective.name=grpo", "eval.every=0"]
        train(Config.load(None, [*overrides, "save.every=1000"]))
        rows = lp.Run.open(path).rows[SKIPPED:]

    def median(key: str) -> float:
        found = sorted(value for row in rows if (value := row.get(key)) is not None)
        return found[len(found) // 2]

    tokens = sum(row.get("tokens") or 0.0 for row in rows) / len(rows)
    samples = rows[0].get("samples") or 0.0
    sample_s, learn_s, step_s = (median(f"time/{what}_s") for what in ("sample", "learn", "step"))
    print(f"\nreference setting, medians over {len(rows)} steps, one thread")
    print(f"  sampling {sample_s * 1e3:6.1f} ms a step   {tokens / sample_s:9.0f} tokens/s")
    print(f"  learning {learn_s * 1e3:6.1f} ms a step   {tokens / learn_s:9.0f} tokens/s")
    print(f"  whole    {step_s * 1e3:6.1f} ms a step   {samples / step_s:9.0f} samples/s")
