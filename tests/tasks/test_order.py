"""The order of the problems is a function of the cursor (field fault F48)."""

from __future__ import annotations

import pytest

from lagproof.errors import InputError
from lagproof.tasks.task import _permutation, position


def stream(start: int, stop: int, size: int = 10, seed: int = 3) -> list[tuple[int, int]]:
    return [position(n, size, seed) for n in range(start, stop)]


def test_an_epoch_has_every_problem_once() -> None:
    for epoch in range(3):
        part = stream(10 * epoch, 10 * epoch + 10)
        assert {e for e, _ in part} == {epoch}
        assert sorted(index for _, index in part) == list(range(10))


def test_epochs_and_seeds_differ_in_order() -> None:
    first, second = stream(0, 10), stream(10, 20)
    assert [i for _, i in first] != [i for _, i in second]
    assert stream(0, 10, seed=4) != first


def test_a_resumed_run_continues_as_an_uninterrupted_one() -> None:
    whole = stream(0, 40)
    _permutation.cache_clear()  # a new process
    assert stream(14, 40) == whole[14:]


def test_a_generator_has_one_epoch_and_no_order() -> None:
    assert [position(n, None, 3) for n in (0, 5, 10**9)] == [(0, 0), (0, 5), (0, 10**9)]


def test_an_empty_data_set_is_an_error() -> None:
    with pytest.raises(InputError, match="no problems"):
        position(0, 0, 0)
