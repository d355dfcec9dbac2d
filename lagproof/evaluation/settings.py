"""How an evaluation samples, with its defaults; apart, so that the command line has them at no cost."""

from __future__ import annotations

from dataclasses import dataclass

from lagproof.errors import InputError


@dataclass(frozen=True)
class Settings:
    """How responses are sampled.

    Attributes:
        k: samples per problem.
        prompts: problems of a task at most; ``None`` for all.
        max_tokens: response tokens at most.
        temperature: 0 is greedy.
        top_p: nucleus mass.
        top_k: tokens kept, 0 for all.
        seed: of the random streams.
        batch: problems in one call of the engine; what was sampled is on disk after each.
        stop: strings that end a response; ``None`` for the task's own.
    """

    k: int = 1
    prompts: int | None = None
    max_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    batch: int = 8
    stop: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, ok, allowed in (
            ("k", self.k >= 1, ">= 1"),
            ("prompts", self.prompts is None or self.prompts >= 1, ">= 1"),
            ("max_tokens", self.max_tokens >= 1, ">= 1"),
            ("temperature", self.temperature >= 0, ">= 0; 0 is greedy"),
            ("top_p", 0 < self.top_p <= 1, "in (0, 1]"),
            ("top_k", self.top_k >= 0, ">= 0; 0 keeps every token"),
            ("seed", self.seed >= 0, ">= 0"),
            ("batch", self.batch >= 1, ">= 1"),
            ("stop", all(self.stop or ()), "strings that are not empty"),
        ):
            if not ok:
                raise InputError(f"{name} = {getattr(self, name)}: must be {allowed}")
