"""The numbers of one optimiser step: plain settings. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from lagproof.settings.keys import check, key, require


@dataclass(frozen=True)
class Optimization:
    """AdamW, and how much goes through the model at once."""

    lr: float = key(1e-4, "AdamW learning rate", gt=0)
    betas: tuple[float, float] = key((0.9, 0.95), "AdamW betas")
    weight_decay: float = key(0.0, "AdamW weight decay", ge=0)
    grad_clip: float = key(1.0, "gradient norm at most; inf for no limit", gt=0, hint="; for no limit use inf")
    micro_batch_tokens: int = key(8192, "tokens in one forward at most (prompt and padding included)", ge=1)

    def __post_init__(self) -> None:
        check(self, "learner")
        require(all(0 <= b < 1 for b in self.betas), "learner.betas", self.betas, "in [0, 1)")
