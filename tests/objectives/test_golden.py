"""Losses and gradients that another library computed on random batches: where both have an objective, they agree.

The numbers are those of verl 0.9.1 in float64. Names and reductions are mapped here; its ``seq-mean`` modes divide by
the responses that are not empty, as ``R`` does. Its loss is ``-J``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from lagproof.data.tokens import TokenBatch
from lagproof.objectives import objective
from lagproof.objectives.reduction import Constant

CASES = json.loads((Path(__file__).parent / "golden_losses.json").read_text())["cases"]
WIDTH = 11
# scale on a Constant(WIDTH): their token-sum and sequence-sum modes are multiples of 1 / (R L)
REDUCTIONS = {
    "token-mean": ("token_mean", lambda r, n: 1.0),
    "seq-mean-token-mean": ("response_mean", lambda r, n: 1.0),
    "token-sum": (Constant(WIDTH), lambda r, n: r * WIDTH),
    "seq-mean-token-sum": (Constant(WIDTH), lambda r, n: WIDTH),
    "seq-mean-token-sum-norm": (Constant(WIDTH), lambda r, n: 1.0),
}
NO_CAP = 1e9


def build(loss: str, o: dict):
    low, high, c = (o.get(f"clip_ratio_{k}") for k in ("low", "high", "c"))
    c = None if c == NO_CAP else c
    return {
        "vanilla": lambda: objective("grpo", low=low, high=high, dual=c),
        "gspo": lambda: objective("gspo", low=low, high=high),
        "dppo_tv": lambda: objective("dppo-tv", delta=[low, high], cap=c),
        "dppo_kl": lambda: objective("dppo-kl", delta=[low, high], cap=c),
        "cispo": lambda: objective("cispo", low=1 - low, high=1 + high),
        "gpg": lambda: objective("gpg"),
    }.get(loss)


ROWS = [
    pytest.param(case, expected, id=f"{case['seed']}-{expected['loss']}-{expected['reduction']}-{i}")
    for case in CASES
    for i, expected in enumerate(case["expected"])
    if build(expected["loss"], {}) is not None
]


def test_the_file_covers_what_both_have():
    assert len(ROWS) == 240
    assert {e["loss"] for c in CASES for e in c["expected"]} - {r.values[1]["loss"] for r in ROWS} == {
        "geo_mean",
        "sapo",
    }


@pytest.mark.parametrize(("case", "expected"), ROWS)
def test_agrees(case, expected, close):
    pi, mu = (torch.tensor(case[k], dtype=torch.float64) for k in ("policy_logp", "sampler_logp"))
    pi.requires_grad_()
    mask = torch.tensor(case["mask"]).bool()
    tokens = TokenBatch.from_padded(
        policy_logp=pi,
        sampler_logp=mu,
        advantage=torch.tensor(case["advantages"], dtype=torch.float64),
        mask=mask,
    )
    how, scale = REDUCTIONS[expected["reduction"]]
    weighting = build(expected["loss"], expected["options"])().weigh(tokens, reduction=how)
    factor = scale(weighting.counts.num_responses, weighting.counts.num_tokens)
    loss = weighting.loss(tokens.policy_logp) * factor
    loss.backward()
    close(pi.grad, torch.tensor(expected["grad"], dtype=torch.float64), 1e-6)
    close(loss.detach(), expected["value"], 1e-6)
