"""Weights swapped between two tokens, against two copies of the model that are run token by token."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from lagproof.data.samples import Sample
from lagproof.errors import InputError
from lagproof.models.tiny import tiny_model, tiny_tokenizer
from lagproof.rollout.decoding import cache_argument
from lagproof.rollout.engine import Request, Sampling, WeightSwap
from lagproof.rollout.hf import HFEngine

PROMPT = [9, 12, 7, 13, 11, 12, 5, 14]
TOKENS, SWAP, LATER = 10, 4, 7
SAMPLING = Sampling(TOKENS, 1.3)


@pytest.fixture(scope="module")
def models() -> list[PreTrainedModel]:
    """Three sets of weights that clearly differ: versions 3, 4 and 5."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = tiny_model("tiny-dense").eval()
        out = [first]
        for _ in range(2):
            other = copy.deepcopy(out[-1])
            with torch.no_grad():
                for weight in other.parameters():
                    weight.add_(0.3 * weight.std() * torch.randn_like(weight))
            out.append(other)
    return out


def engine(models: list[PreTrainedModel], stop_ids: tuple[int, ...] = ()) -> HFEngine:
    return HFEngine(models[0], tiny_tokenizer(), stop_ids, version=3)


def swap(models: list[PreTrainedModel], place: int, version: int, *, recompute: bool = False) -> WeightSwap:
    return WeightSwap(place, version, dict(models[version - 3].named_parameters()), recompute)


def step_by_step(models: list[PreTrainedModel], sample: Sample, *, recompute: bool) -> list[float]:
    """Each token's log-probability under the model of its version, over the keys and values of those before it."""
    out: list[float] = []
    cache, fed = DynamicCache(), list(PROMPT)
    before = None
    for token, version in zip(sample.response_ids.tolist(), sample.version.tolist(), strict=True):
        model = models[version - 3]
        if recompute and version != before:
            cache, fed = DynamicCache(), [*PROMPT, *sample.response_ids.tolist()[: len(out)]]
        with torch.no_grad():
            logits = model(
                input_ids=torch.tensor([fed]), **{cache_argument(type(model)): cache}, use_cache=True
            ).logits[0, -1]
        out.append(float((logits / SAMPLING.temperature).log_softmax(-1)[token]))
        fed, before = [token], version
    return out


@pytest.mark.parametrize("recompute", [False, True])
def test_each_token_is_of_the_weights_that_drew_it(models, close, recompute: bool) -> None:
    swaps = [swap(models, SWAP, 4, recompute=recompute), swap(models, LATER, 5, recompute=recompute)]
    under_test = engine(models)
    requests = [Request(PROMPT, 6, seed=5)]
    (group,) = under_test.generate_in_flight(requests, SAMPLING, swaps)
    assert under_test.version == 5
    for sample in group:
        assert sample.version.tolist() == [3] * SWAP + [4] * (LATER - SWAP) + [5] * (TOKENS - LATER)
        close(torch.tensor(sample.sampler_logp), step_by_step(models, sample, recompute=recompute), 1e-4)
    (unchanged,) = engine(models).generate(requests, SAMPLING)
    for sample, other in zip(group, unchanged, strict=True):
        assert sample.response_ids[:SWAP].tolist() == other.response_ids[:SWAP].tolist()
    assert any(s.response_ids.tolist() != o.response_ids.tolist() for s, o in zip(group, unchanged, strict=True))


def test_keeping_the_cache_is_another_distribution_than_recomputing_it(models) -> None:
    requests = [Request(PROMPT, 1, seed=5)]
    logps = [
        engine(models)
        .generate_in_flight(requests, SAMPLING, [swap(models, SWAP, 4, recompute=recompute)])[0][0]
        .sampler_logp
        for recompute in (False, True)
    ]
    assert logps[0][:SWAP].tolist() == logps[1][:SWAP].tolist()
    assert abs(logps[0][SWAP] - logps[1][SWAP]) > 1e-4


def test_prompts_of_several_lengths_and_rows_that_have_parted(models, close) -> None:
    requests = [Request(PROMPT, 3, seed=5), Request(PROMPT[:3], 4, seed=6)]
    groups = engine(models).generate_in_flight(requests, SAMPLING, [swap(models, 2, 4, recompute=True)])
    for request, group in zip(requests, groups, strict=True):
        for sample in group:
            ids = torch.tensor([[*request.prompt_ids, *sample.response_ids.tolist()]])
            expected = []
            for i, version in enumerate(sample.version.tolist()):
                with torch.no_grad():
                    at = len(request.prompt_ids) + i
                    z = models[version - 3](input_ids=ids[:, :at]).logits[0, -1] / SAMPLING.temperature
                expected.append(float(z.log_softmax(-1)[ids[0, at]]))
            close(torch.tensor(sample.sampler_logp), expected, 1e-4)


def test_before_the_first_token_and_after_the_last(models) -> None:
    under_test = engine(models)
    (group,) = under_test.generate_in_flight([Request(PROMPT, 2, seed=5)], SAMPLING, [swap(models, 0, 4)])
    assert {v for sample in group for v in sample.version.tolist()} == {4}
    other = HFEngine(models[1], tiny_tokenizer(), (), version=4)
    (alone,) = other.generate([Request(PROMPT, 2, seed=5)], SAMPLING)
    assert [s.response_ids.tolist() for s in group] == [s.response_ids.tolist() for s in alone]
    (late,) = engine(models).generate_in_flight([Request(PROMPT, 2, seed=5)], SAMPLING, [swap(models, TOKENS, 4)])
    assert {v for sample in late for v in sample.version.tolist()} == {3}


def test_a_response_that_has_ended_keeps_one_version(models) -> None:
    stop_ids = tuple(range(0, 16, 3))
    (group,) = engine(models, stop_ids).generate_in_flight(
        [Request(PROMPT, 12, seed=1)], SAMPLING, [swap(models, SWAP, 4)]
    )
    short = [s for s in group if len(s.response_ids) <= SWAP]
    long = [s for s in group if len(s.response_ids) > SWAP]
    assert short and long
    assert all(set(s.version.tolist()) == {3} for s in short)
    assert all(s.version.tolist() == [3] * SWAP + [4] * (len(s.version) - SWAP) for s in long)


def test_swaps_that_are_not_in_order_are_refused(models) -> None:
    with pytest.raises(InputError, match="in order"):
        engine(models).generate_in_flight(
            [Request(PROMPT, 1, seed=1)], SAMPLING, [swap(models, 5, 4), swap(models, 2, 5)]
        )
