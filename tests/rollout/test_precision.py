from __future__ import annotations

import pytest
import torch

from lagproof.errors import ConfigError
from lagproof.rollout.precision import compute_dtype, fake_quantise, lower


def test_each_output_channel_has_a_grid_of_its_own(close) -> None:
    # 3 bits: levels -3 .. 3. Row 0: step 1, 1.4 -> 1, -2.6 -> -3; row 1: step 10, 14 -> 10, -26 -> -30; row 2 is all 0
    weight = torch.tensor([[3.0, 1.4, -2.6], [30.0, 14.0, -26.0], [0.0, 0.0, 0.0]])
    close(fake_quantise(weight, 3), [[3.0, 1.0, -3.0], [30.0, 10.0, -30.0], [0.0, 0.0, 0.0]])


def test_experts_have_channels_too(close) -> None:
    stacked = torch.stack([torch.tensor([[3.0, 1.4]]), torch.tensor([[30.0, 14.0]])])
    close(fake_quantise(stacked, 3), [[[3.0, 1.0]], [[30.0, 10.0]]])


@pytest.mark.parametrize(("precision", "levels"), [("int8", 255), ("int6", 63)])
def test_number_of_levels(precision: str, levels: int) -> None:
    weight = torch.linspace(-1, 1, 10_000).reshape(1, -1)
    assert len(lower({"w": weight}, precision)["w"].unique()) == levels


def test_vectors_and_exact_precisions_are_left_alone() -> None:
    weights = {"norm": torch.rand(5), "w": torch.rand(5, 5)}
    assert lower(weights, "int6")["norm"] is weights["norm"]
    for precision in ("float32", "bfloat16"):
        assert lower(weights, precision) == weights


def test_what_is_computed_in() -> None:
    assert compute_dtype("bfloat16") == torch.bfloat16
    assert {compute_dtype(p) for p in ("float32", "int8", "int6")} == {torch.float32}
    with pytest.raises(ConfigError, match="float16"):
        compute_dtype("float16")
