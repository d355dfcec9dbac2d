"""The layouts read position by position, and the planner's cheap count against the real one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lagproof.data.samples import Finish, Sample
from lagproof.errors import InputError
from lagproof.models.layout import RowCost, TokenLayout, input_tokens, layout

PLAIN = RowCost(shares_prompts=False)
TREE = RowCost(shares_prompts=True, pairs_per_token=1e12)


def sample(prompt: list[int], response: list[int], support: list[list[int]] | None = None) -> Sample:
    return Sample(prompt, response, [0] * len(response), Finish.STOP, support=support)


def group(prompt: list[int], *responses: list[int]) -> list[Sample]:
    return [sample(prompt, response) for response in responses]


def seen_by(lay: TokenLayout, flat: int) -> list[tuple[int, int]]:
    """(position, id) of everything that a position of a layout sees, in the order of the positions."""
    row, column = divmod(flat, lay.input_ids.shape[1])
    if lay.visible is None:
        keys = range(column + 1)
        positions = list(range(lay.input_ids.shape[1]))
    else:
        keys = lay.visible[row, 0, column].nonzero().squeeze(1).tolist()
        assert lay.position_ids is not None
        positions = lay.position_ids[row].tolist()
    return sorted((positions[k], int(lay.input_ids[row, k])) for k in keys)


def check(lay: TokenLayout, groups: list[list[Sample]]) -> None:
    """Every response token is scored by a position that sees exactly the prompt and the response so far."""
    expected = [
        (list(enumerate([*s.prompt_ids, *s.response_ids[:t]])), s.response_ids[t])
        for g in groups
        for s in g
        for t in range(len(s.response_ids))
    ]
    got = [
        (seen_by(lay, flat), target) for flat, target in zip(lay.score_at.tolist(), lay.targets.tolist(), strict=True)
    ]
    assert got == expected


short_ids = st.lists(st.integers(0, 2), max_size=5)
some_groups = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=4), st.lists(short_ids, min_size=1, max_size=5)),
    min_size=1,
    max_size=4,
)


@given(some_groups, st.sampled_from([PLAIN, TREE, RowCost(), RowCost(True, 4.0)]))
def test_a_token_is_scored_by_what_it_followed(drawn, cost: RowCost) -> None:
    groups = [group(prompt, *responses) for prompt, responses in drawn]
    lay = layout(groups, cost)
    check(lay, groups)
    assert lay.input_ids.numel() == input_tokens(groups, cost)


@given(some_groups)
def test_no_position_sees_nothing(drawn) -> None:
    lay = layout([group(prompt, *responses) for prompt, responses in drawn], TREE)
    if lay.visible is not None:
        assert bool(lay.visible.any(-1).all())


def test_what_responses_share_is_run_once() -> None:
    # prompt 2, then 7 shared by three, then 8 by two of them, then 5 | 9 | (3 alone): 2 + 1 + 1 + 1 + 1 + 1 positions,
    # and no response's last token is one of them
    groups = [group([4, 4], [7, 8, 5, 1], [7, 8, 9, 1], [7, 3, 1])]
    lay = layout(groups, TREE)
    assert lay.input_ids.numel() == 7
    check(lay, groups)
    assert layout(groups, PLAIN).input_ids.numel() == 3 * 5


def test_equal_responses_cost_nothing() -> None:
    groups = [group([4, 4], *[[7, 8, 5, 1]] * 8)]
    assert layout(groups, TREE).input_ids.numel() == 5
    check(layout(groups, TREE), groups)


def test_one_response_of_one_token_has_one_position() -> None:
    # a prompt of three and an immediate end: the token is trained (and the end itself is never an input)
    lay = layout([group([5, 6, 7], [1])], PLAIN)
    assert (lay.input_ids.tolist(), lay.score_at.tolist(), lay.targets.tolist()) == ([[5, 6, 7]], [2], [1])


def test_the_cheaper_layout_is_taken() -> None:
    # eight different responses to a prompt of 100: sharing saves 7 prompts
    long_prompt = [group(list(range(100)), *[[i, i, 1] for i in range(8)])]
    assert layout(long_prompt, RowCost()).visible is not None
    # eight long different responses to a prompt of 1: all pairs of one row of 1600 cost more than one shared token
    long_responses = [group([3], *[[i] * 200 for i in range(8)])]
    assert layout(long_responses, RowCost()).visible is None
    # nothing is shared: one row a response
    assert layout([group([3], [4, 4, 1])], RowCost()).visible is None
    # the model cannot
    assert layout(long_prompt, PLAIN).visible is None


def test_small_trees_fill_the_rows_of_large_ones() -> None:
    groups = [group([9] * 20, [1, 1], [2, 2]), *[group([9, 9], [1, 1], [2, 2]) for _ in range(5)]]
    lay = layout(groups, TREE)
    assert lay.input_ids.numel() < 6 * 22
    check(lay, groups)


def test_a_response_without_a_token_takes_no_part() -> None:
    groups = [group([4], [], [7, 1]), group([5], [])]
    for cost in (PLAIN, TREE):
        lay = layout(groups, cost)
        check(lay, groups)
        assert lay.input_ids.numel() == input_tokens(groups, cost) == 2
    nothing = layout([group([4], [])])
    assert len(nothing.targets) == nothing.input_ids.numel() == input_tokens([group([4], [])]) == 0


def test_supports_go_along_in_order() -> None:
    cut = sample([4], [7, 1], support=[[7, 8], [1, 2, 3]])
    lay = layout([[cut, sample([4], [5])]])
    assert lay.support is not None
    assert lay.support.ids.tolist() == [7, 8, 1, 2, 3]
    assert lay.support.counts.tolist() == [2, 3, 0]
    assert layout([group([4], [7, 1])]).support is None


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([group([], [7])], "empty prompt"),
        ([[sample([4], [7]), sample([5], [7])]], "different prompts"),
        ([[sample([4], [7], support=[[8, 9]])]], "token 7 .* support"),
    ],
)
def test_what_cannot_be_scored_is_an_error(groups: list[list[Sample]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        layout(groups)


def test_tensors_are_long_even_when_empty() -> None:
    lay = layout([])
    assert lay.input_ids.dtype == lay.score_at.dtype == lay.targets.dtype == torch.long
