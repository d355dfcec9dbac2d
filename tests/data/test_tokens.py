"""Padded tensors become flat ones exactly; metrics merge exactly."""

from __future__ import annotations

import math

import pytest
import torch

import lagproof as lp
from lagproof.data.metrics import Maximum, Mean, Same, Sum, merge, over, values
from lagproof.data.samples import Finish, Sample
from lagproof.data.slices import Key
from lagproof.data.tokens import TokenBatch


def padded(**change):
    args = {
        "policy_logp": torch.arange(6.0).reshape(2, 3) * -1,
        "sampler_logp": torch.arange(6.0).reshape(2, 3) * -2,
        "advantage": torch.tensor([1.0, -1.0]),
        "mask": torch.tensor([[True, False, True], [False, True, False]]),
        "group": torch.tensor([4, 4]),
        "version": torch.tensor([7, 8]),
    }
    return TokenBatch.from_padded(**(args | change))


def test_from_padded():
    tokens = padded()
    assert tokens.policy_logp.tolist() == [0.0, -2.0, -4.0]
    assert tokens.sampler_logp.tolist() == [0.0, -4.0, -8.0]
    assert tokens.advantage.tolist() == [1.0, 1.0, -1.0]
    assert tokens.response.tolist() == [0, 0, 1]
    assert tokens.version.tolist() == [7, 7, 8]
    assert (tokens.num_responses, len(tokens)) == (2, 3)


def test_per_token_advantage_and_version():
    tokens = padded(advantage=torch.arange(6.0).reshape(2, 3), version=torch.arange(6).reshape(2, 3))
    assert tokens.advantage.tolist() == [0.0, 2.0, 4.0]
    assert tokens.version.tolist() == [0, 2, 4]


def test_a_mask_of_zeros_and_ones_is_taken_and_any_other_refused():
    assert len(padded(mask=torch.tensor([[1, 0, 1], [0, 1, 0]]))) == 3
    with pytest.raises(lp.LagproofError, match="other than 0 and 1"):
        padded(mask=torch.tensor([[1.0, 0.5, 1.0], [0.0, 1.0, 0.0]]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mask", torch.ones(2, 4).bool()),
        ("sampler_logp", torch.ones(2)),
        ("advantage", torch.ones(3)),
        ("group", torch.ones(3).long()),
        ("policy_logp", torch.ones(6)),
        ("policy_logp", torch.ones(2, 3).long()),
    ],
)
def test_shapes_that_do_not_agree_are_named(name, value):
    with pytest.raises(lp.LagproofError, match=name):
        padded(**{name: value})


@pytest.mark.parametrize("response", [[0, 1, 2], [0, -1, 1]])
def test_a_response_out_of_range_is_refused(response):
    with pytest.raises(lp.LagproofError, match=r"\[0, num_responses\) = \[0, 2\)"):
        TokenBatch(torch.zeros(3), torch.zeros(3), torch.tensor(response), 2)


def test_rows_keep_the_numbers_of_their_responses():
    part = padded().rows(slice(2, 3))
    assert (part.response.tolist(), part.num_responses, part.version.tolist()) == ([1], 2, [8])


def test_sample_lengths_must_agree():
    with pytest.raises(ValueError, match="sampler_logp has 1 entries for 2"):
        Sample([1], [5, 6], [0, 0], Finish.STOP, sampler_logp=[-0.1])


class TestMetrics:
    def test_means_merge_by_their_counts(self):
        # one value .9 and nine of .1: .18, not .5
        merged = merge([{"x": Mean(0.9, 1)}, {"x": Mean(0.9, 9)}])
        assert merged["x"].value == pytest.approx(0.18)

    def test_no_data_is_no_value(self):
        merged = merge([over({"x": Mean(2.0, 2)}), over({"x": Mean(0.0, 0)}), over({"y": Mean(0.0, 0)})])
        assert values(merged) == {Key("x"): 1.0}
        assert values(over({"a": Maximum(-math.inf)})) == {}

    def test_extremes_and_counts(self):
        merged = merge(
            [
                over({"a": Maximum(1.0), "c": Sum(3)}),
                over({"a": Maximum(4.0), "c": Sum(4)}),
            ]
        )
        assert values(merged) == {Key("a"): 4.0, Key("c"): 7}

    def test_parts_of_a_step_that_disagree_are_a_bug(self):
        assert merge([{"q": Same(0.5)}, {"q": Same(0.5)}])["q"].value == 0.5
        with pytest.raises(AssertionError, match="disagree"):
            merge([{"q": Same(0.5)}, {"q": Same(0.6)}])
