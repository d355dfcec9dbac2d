"""The order of the problems is a function of the cursor (field fault F48)."""

from __future__ import annotations

import pytest

from lagproof.errors import InputError
from lagproof.tasks.task import _order, position


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
    _order.cache_clear()  # a new process
    assert stream(14, 40) == whole[14:]


def test_a_generator_has_one_epoch_and_no_order() -> None:
    assert [position(n, None, 3) for n in (0, 5, 10**9)] == [(0, 0), (0, 5), (0, 10**9)]


def test_an_empty_data_set_is_an_error() -> None:
    with pytest.raises(InputError, match="no problems"):
        position(0, 0, 0)


@pytest.mark.parametrize(("size", "apart"), [(4, 4), (5, 4), (7, 3), (9, 3), (17, 16), (100, 16), (3, 1)])
@pytest.mark.parametrize("seed", range(4))
def test_no_batch_holds_a_problem_twice_also_where_an_epoch_begins(size: int, apart: int, seed: int) -> None:
    epochs = 7
    drawn = [position(n, size, seed, apart) for n in range(epochs * size)]
    for epoch in range(epochs):
        assert sorted(i for e, i in drawn if e == epoch) == list(range(size))
    for start in range(len(drawn) - apart + 1):
        assert len({i for _, i in drawn[start : start + apart]}) == apart
    again = [position(n, size, seed, apart) for n in reversed(range(epochs * size))]
    assert again == drawn[::-1]


def test_without_a_batch_an_epoch_may_begin_as_the_one_before_ended() -> None:
    ends = [(position(2 * e + 1, 2, 0)[1], position(2 * e + 2, 2, 0)[1]) for e in range(40)]
    assert any(a == b for a, b in ends)
