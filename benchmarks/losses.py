"""Forward and backward of every loss on padded tensors, against a four-line PPO that assumes clean input."""

from __future__ import annotations

import torch

import lagproof as lp
from benchmarks.harness import compare

B, T = 256, 4096


def main() -> None:
    rng = torch.Generator().manual_seed(0)
    sampler = -torch.rand(B, T, generator=rng)
    policy = (sampler + 0.05 * torch.randn(B, T, generator=rng)).clamp(max=0.0).requires_grad_()
    advantage = torch.randn(B, generator=rng)
    anchor = (sampler + 0.01 * torch.randn(B, T, generator=rng)).clamp(max=0.0)
    age = torch.randint(0, 9, (B, T), generator=rng)
    full = torch.ones(B, T, dtype=torch.bool)
    ragged = torch.arange(T) < torch.randint(1, T + 1, (B, 1), generator=rng)

    def four_lines() -> None:
        r = torch.exp(policy - sampler)
        a = advantage[:, None]
        s = torch.min(r * a, r.clamp(0.8, 1.2) * a)
        (-(s * full).sum() / full.sum()).backward()

    def ours(name: str, mask: torch.Tensor):
        needs = lp.objective(name).needs
        given = {"policy_logp": policy, "sampler_logp": sampler, "advantage": advantage, "mask": mask}
        given |= {"anchor_logp": anchor} if needs.anchor else {}
        given |= {"age": age} if needs.age else {}

        def run() -> None:
            loss, _ = lp.loss(name, **given)
            loss.backward()

        return run

    for title, mask in (("no padding", full), ("ragged, half of it padding", ragged)):
        rows = {"four-line PPO": four_lines} | {e.name: ours(e.name, mask) for e in lp.OBJECTIVES.values()}
        compare(f"loss, forward and backward, [{B}, {T}], {title}", rows)
