"""The parts of the mismatch: they add up for every token, and each is where it belongs."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from lagproof.data.batch import Batch
from lagproof.data.metrics import flat, merge
from lagproof.data.samples import Group
from lagproof.learner.probe import probe
from lagproof.metrics.attribution import attribution, links
from lagproof.models.layout import layout
from lagproof.models.loading import load
from lagproof.models.logprobs import response_logprobs
from lagproof.models.prompts import encode
from lagproof.rollout.engine import Request, Sampling
from lagproof.rollout.hf import HFEngine

TEMPERATURE = 1.0


def test_worked_example():
    # policy -1, -2; then -1.5, -1; sampler -1.25, -1.5: policy part .5, -1; engine part -.25, .5; d = .25, -.5
    parts = links(("policy", "engine"), [torch.tensor(x) for x in ([-1.0, -2.0], [-1.5, -1.0], [-1.25, -1.5])])
    assert parts["policy"].tolist() == [0.5, -1.0] and parts["engine"].tolist() == [-0.25, 0.5]
    assert flat(attribution(parts)) == pytest.approx(
        {
            "probe/d_bar": 0.375,
            "probe/policy": (0.5 + 1.0) / 2,
            "probe/engine": (-0.25 - 0.5) / 2,
            "probe/policy_abs": 0.75,
            "probe/engine_abs": 0.375,
            "probe/policy_max": 1.0,
            "probe/engine_max": 0.5,
            "probe/tokens": 2,
            "probe/unattributed": 0.0,
        }
    )


def test_the_links_add_up_to_the_log_ratio_of_every_token_exactly():
    generator = torch.Generator().manual_seed(0)
    chain = [-20 * torch.rand(5000, generator=generator).clamp(min=1e-5) for _ in range(4)]
    parts = links(("policy", "routing", "engine"), chain)
    total = parts["policy"] + parts["routing"] + parts["engine"]
    assert torch.equal(total, chain[0].double() - chain[3].double())
    got = flat(attribution(parts))
    assert sum(got[f"probe/{name}"] for name in parts) == pytest.approx(got["probe/d_bar"], rel=1e-12)


def test_tokens_of_which_a_part_is_unknown_are_counted_and_left_out():
    parts = {"policy": torch.tensor([0.5, math.nan, 1.0]), "engine": torch.tensor([0.5, 1.0, -math.inf])}
    got = flat(attribution(parts))
    assert got["probe/d_bar"] == 1.0 and got["probe/tokens"] == 1
    assert got["probe/unattributed"] == pytest.approx(2 / 3)
    nothing = flat(attribution({name: x[1:] for name, x in parts.items()}))
    assert nothing == {"probe/tokens": 0, "probe/unattributed": 1.0}
    assert flat(merge([attribution(parts)] * 2))["probe/tokens"] == 2


@pytest.fixture(scope="module")
def loaded():
    return load("tiny-dense")


@pytest.fixture(scope="module")
def moved(loaded):
    """The policy some updates later: every weight a little elsewhere."""
    model = copy.deepcopy(loaded.model)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.02 * weight.std() * torch.randn(weight.shape, generator=generator)
    return model


def sampled(loaded, precision: str, version: int = 3, prompts=("7+5-9+3=", "1+2-3+4="), samples: int = 8):
    engine = HFEngine(loaded.model, loaded.tokenizer, loaded.stop_ids, precision, version=version)
    requests = [Request(encode(loaded, prompt), samples, seed) for seed, prompt in enumerate(prompts)]
    return [Group(i, str(i), group) for i, group in enumerate(engine.generate(requests, Sampling(12)))]


@torch.no_grad()
def batch(groups, policy) -> Batch:
    return replace(
        Batch.of(groups), policy_logp=response_logprobs(policy, layout([group.samples for group in groups])).logp
    )


def weights(model):
    return dict(model.named_parameters())


def split(loaded, groups, policy, kept, responses=64, budget=8192):
    return flat(
        probe(
            policy,
            batch(groups, policy),
            kept,
            temperature=TEMPERATURE,
            responses=responses,
            budget_tokens=budget,
        )
    )


def test_a_float32_engine_adds_nothing_and_a_policy_that_did_not_move_neither(loaded, moved):
    groups = sampled(loaded, "float32")
    got = split(loaded, groups, moved, {3: weights(loaded.model)})
    assert got["probe/engine_abs"] < 1e-6 and got["probe/policy_abs"] > 0.01
    assert got["probe/engine_max"] < 3e-5  # one rounding of a log-probability of -15
    assert got["probe/policy"] == pytest.approx(got["probe/d_bar"], abs=1e-5) and got["probe/unattributed"] == 0
    still = split(loaded, groups, loaded.model, {3: weights(loaded.model)})
    assert still["probe/policy_max"] < 1e-5


@pytest.mark.parametrize(("precision", "least"), [("bfloat16", 1e-3), ("int8", 5e-4), ("int6", 5e-3)])
def test_a_coarse_engine_changes_its_own_part_and_not_the_policys(loaded, moved, precision, least):
    groups = sampled(loaded, precision)
    tokens = batch(groups, moved)
    got = split(loaded, groups, moved, {3: weights(loaded.model)})
    assert got["probe/engine_abs"] > least
    # the policy's part is what the same tokens give when both sides are scored by the training engine
    before = batch(groups, loaded.model).policy_logp
    assert got["probe/policy_abs"] == pytest.approx(float((tokens.policy_logp - before).abs().mean()), abs=1e-6)
    still = split(loaded, groups, loaded.model, {3: weights(loaded.model)})
    assert still["probe/policy_max"] < 1e-5 and still["probe/engine"] == pytest.approx(still["probe/d_bar"], abs=1e-5)


def test_the_model_is_as_it_was(loaded, moved):
    before = {name: w.clone() for name, w in moved.named_parameters()}
    split(loaded, sampled(loaded, "float32"), moved, {3: weights(loaded.model)})
    assert all(torch.equal(w, before[name]) for name, w in moved.named_parameters())
    assert all(w.grad is None for w in moved.parameters())


def test_the_cut_into_micro_batches_changes_nothing(loaded, moved):
    groups = sampled(loaded, "int8")
    whole = split(loaded, groups, moved, {3: weights(loaded.model)})
    cut = split(loaded, groups, moved, {3: weights(loaded.model)}, budget=40)
    assert cut == pytest.approx(whole, abs=1e-5)


def test_each_token_is_scored_with_the_version_that_sampled_it(loaded, moved):
    old, new = sampled(loaded, "float32", 3), sampled(loaded, "float32", 5, prompts=("9-2+4+1=",))
    wrong = {3: weights(loaded.model), 5: weights(moved)}
    right = {3: weights(loaded.model), 5: weights(loaded.model)}
    assert split(loaded, [*old, *new], moved, right)["probe/engine_abs"] < 1e-6
    assert split(loaded, [*old, *new], moved, wrong)["probe/engine_abs"] > 1e-3


def test_a_response_may_have_been_sampled_by_two_versions(loaded, moved):
    groups = sampled(loaded, "float32")
    half = [
        Group(
            g.prompt,
            g.problem_id,
            [replace(s, version=np.array([3] * 2 + [5] * (len(s.version) - 2))) for s in g.samples],
        )
        for g in groups
    ]
    got = split(loaded, half, moved, {3: weights(loaded.model), 5: weights(moved)})
    # the policy is version 5 itself, so that only tokens of version 3 have a part of its updates
    tokens = batch(half, moved)
    before = batch(half, loaded.model).policy_logp
    old = tokens.version == 3
    want = float(torch.where(old, (tokens.policy_logp - before).abs(), 0.0).mean())
    assert 0 < int(old.sum()) < len(old) and got["probe/policy_abs"] == pytest.approx(want, abs=1e-6)
    assert got["probe/unattributed"] == 0


def test_tokens_of_a_version_that_is_not_kept_are_not_attributed(loaded, moved):
    old, new = sampled(loaded, "float32", 3, samples=4), sampled(loaded, "float32", 5, prompts=("9-2+4+1=",), samples=4)
    got = split(loaded, [*old, *new], moved, {3: weights(loaded.model)})
    lengths = [sum(len(s.response_ids) for g in groups for s in g.samples) for groups in (old, new)]
    assert got["probe/tokens"] == lengths[0] and got["probe/unattributed"] == pytest.approx(lengths[1] / sum(lengths))
    assert split(loaded, old, moved, {}) == {"probe/tokens": 0, "probe/unattributed": 1.0}


def test_only_the_first_responses_are_looked_at(loaded, moved):
    groups = sampled(loaded, "float32")
    got = split(loaded, groups, moved, {3: weights(loaded.model)}, responses=5)
    assert got["probe/tokens"] == sum(len(s.response_ids) for s in groups[0].samples[:5])
