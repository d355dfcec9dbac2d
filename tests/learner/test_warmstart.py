from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from lagproof.errors import UsageError
from lagproof.learner.warmstart import warmstart
from lagproof.models.loading import load


def example(index: int) -> tuple[str, str]:
    """Copying one digit: learned in a few steps."""
    return f"{index % 10}=", str(index % 10)


def test_it_stops_at_the_target_the_same_way_twice_and_saves_a_model_that_loads(tmp_path) -> None:
    told: list[tuple[int, float, float | None]] = []
    reached = warmstart("tiny-dense", tmp_path / "a", example, target=0.3, progress=lambda *args: told.append(args))
    steps, losses, shares = zip(*told, strict=True)
    assert steps == tuple(range(1, len(told) + 1))
    assert losses[-1] < losses[0] / 2
    assert shares[-1] == reached >= 0.3
    assert all(share is None or share < 0.3 for share in shares[:-1])

    assert warmstart("tiny-dense", tmp_path / "b", example, target=0.3) == reached
    a, b = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in "ab")
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert load(tmp_path / "a").stop_ids == (1,)


def test_a_target_out_of_reach_is_an_error_and_leaves_nothing(tmp_path) -> None:
    with pytest.raises(UsageError, match="20 steps"):
        warmstart("tiny-moe", tmp_path / "model", example, target=1.1, max_steps=20)
    assert not (tmp_path / "model").exists()
