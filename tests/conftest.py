"""One thread a process, and a comparison that refuses to compare nothing or to tolerate anything."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Callable

import hypothesis
import pytest

hypothesis.settings.register_profile("default", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("default")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def close() -> Callable[..., None]:
    """``close(got, expected, tol)``: relative and absolute, never above 1e-2, never of empty tensors."""
    import torch

    def check(got: object, expected: object, tol: float = 1e-6) -> None:
        assert tol <= 1e-2, f"a tolerance of {tol} compares nothing"
        got_t, expected_t = (
            x.double() if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=torch.float64) for x in (got, expected)
        )
        assert got_t.numel() > 0, "nothing to compare"
        assert got_t.shape == expected_t.shape, f"{tuple(got_t.shape)} and {tuple(expected_t.shape)}"
        torch.testing.assert_close(got_t, expected_t, rtol=tol, atol=tol)

    return check
