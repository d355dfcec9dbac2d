"""How per-token values become one number: three denominators, each counted over the whole optimiser batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, get_args

from torch import Tensor

from lagproof.data.tokens import Counts
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.names import ReductionName

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class Reduction(Protocol):
    """The factor of each token; a rejected token keeps its place in every denominator."""

    def factor(
        self, lengths: Int[Tensor, " R"], response: Int[Tensor, " N"], counts: Counts, like: Tensor
    ) -> Float[Tensor, " N"] | float:
        """The factor on each token.

        Args:
            lengths: scorable tokens of each response.
            response: which response a token belongs to.
            counts: responses and tokens of the whole optimiser batch.
            like: a tensor with the dtype of the result.
        """
        ...


@dataclass(frozen=True)
class ResponseMean:
    """``1 / (R m_g)``: the mean over responses of the mean over their tokens."""

    def factor(self, lengths: Tensor, response: Tensor, counts: Counts, like: Tensor) -> Tensor:
        return (1.0 / (lengths.to(like.dtype) * counts.num_responses))[response]


@dataclass(frozen=True)
class TokenMean:
    """``1 / N``: the mean over tokens."""

    def factor(self, lengths: Tensor, response: Tensor, counts: Counts, like: Tensor) -> float:
        return 1.0 / max(counts.num_tokens, 1)


@dataclass(frozen=True)
class Constant:
    """``1 / (R L)`` with a fixed length ``L``, tokens (Dr. GRPO)."""

    max_tokens: int

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens = {self.max_tokens}: must be >= 1, the L of 1 / (R L)")

    def factor(self, lengths: Tensor, response: Tensor, counts: Counts, like: Tensor) -> float:
        return 1.0 / (max(counts.num_responses, 1) * self.max_tokens)


@dataclass(frozen=True)
class TokenSum:
    """1: the sum over tokens, for a trainer that divides by itself."""

    def factor(self, lengths: Tensor, response: Tensor, counts: Counts, like: Tensor) -> float:
        return 1.0


REDUCTIONS: tuple[str, ...] = get_args(ReductionName)
"""What a configuration chooses among; ``sum`` is for trainers that divide by themselves."""


def reduction(name: str, max_tokens: int | None = None) -> Reduction:
    """A reduction by name; ``constant`` needs ``max_tokens``, its fixed length.

    ``response_sum`` is ``1 / R``, the mean over responses of the sum over their tokens; ``sum`` has no denominator.
    """
    if name == "response_mean":
        return ResponseMean()
    if name == "token_mean":
        return TokenMean()
    if name == "response_sum":
        return Constant(1)
    if name == "sum":
        return TokenSum()
    if name == "constant":
        if max_tokens is None:
            raise ConfigError(
                "reduction 'constant' divides by a fixed length: pass max_tokens, the longest response possible"
            )
        return Constant(max_tokens)
    raise UnknownNameError("reduction", name, (*REDUCTIONS, "sum"))
