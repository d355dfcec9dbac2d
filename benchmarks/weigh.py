"""What SAT adds to GRPO: ``weigh`` over 1 M and 20 M tokens, and the quantile alone against torch's and numpy's."""

from __future__ import annotations

import numpy as np
import torch

import lagproof as lp
from benchmarks.harness import compare
from lagproof.tensors.quantile import quantile


def batch(n: int) -> lp.TokenBatch:
    rng = torch.Generator().manual_seed(0)
    sampler = -torch.rand(n, generator=rng)
    policy = sampler + 0.05 * torch.randn(n, generator=rng)
    response = torch.arange(n) // 1000
    num = (n + 999) // 1000
    return lp.TokenBatch(policy, torch.randn(num, generator=rng)[response], response, num, sampler)


def main() -> None:
    for n in (1_000_000, 20_000_000):
        tokens = batch(n)
        names = ("grpo", "sat-grpo", "gspo", "sat-gspo")
        rows = {name: (lambda o=lp.objective(name), t=tokens: o.weigh(t)) for name in names}
        compare(f"weigh, {n // 10**6} M tokens", rows, repeats=5 if n < 10**7 else 3)
    d = torch.randn(1_000_000).abs()
    compare(
        "quantile of 1 M values",
        {
            "numpy.partition": lambda: np.partition(d.numpy(), 900_000),
            "lagproof": lambda: quantile(d, 0.9),
            "torch.quantile": lambda: torch.quantile(d, 0.9),
        },
    )
