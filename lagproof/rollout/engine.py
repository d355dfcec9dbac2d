"""The seam between a run and whatever samples tokens. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lagproof.data.samples import Sample

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        max_tokens: response tokens at most.
        temperature: > 0 divides the logits; 0 takes the most likely token (evaluation only: no log-probability).
        top_p: nucleus mass in (0, 1]; 1 keeps everything.
        top_k: tokens kept; 0 keeps everything.
        record_logp: whether ``Sample.sampler_logp`` is wanted; objectives of the current policy do without.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    record_logp: bool = True

    @property
    def truncates(self) -> bool:
        """Whether top-k or top-p truncate the distribution, so that the support has to be recorded."""
        return self.top_p < 1.0 or self.top_k > 0


@dataclass(frozen=True)
class Request:
    """One prompt, to be answered ``samples`` times.

    The random stream belongs to the request: what is drawn does not depend on which other requests share the call.

    Attributes:
        prompt_ids: token ids.
        samples: responses that are wanted.
        seed: of the random stream.
        stop: strings that end a response with the token that completes one of them in the response's text, as
            vLLM's ``stop``. Every token that was drawn stays in ``response_ids``, and ``finish`` is ``STOP``;
            ``Sample.text`` ends before the string. They change where a response ends and nothing that is drawn before.
    """

    prompt_ids: Sequence[int]
    samples: int
    seed: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class WeightSwap:
    """New weights that an engine takes while it samples.

    Attributes:
        after_tokens: tokens that each response of the call has by then, >= 0; responses that ended before see nothing.
        version: of the weights.
        weights: a complete set.
        recompute: run prompt and tokens so far again with the new weights; else their keys and values, computed with
            the weights before, are kept.
    """

    after_tokens: int
    version: int
    weights: Mapping[str, Tensor]
    recompute: bool = False


class Engine(Protocol):
    """Samples with one version of the policy's weights at a time."""

    @property
    def version(self) -> int:
        """Optimiser updates behind the weights that are loaded."""
        ...

    def load(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Take a complete set of weights; nothing computed with the old ones outlives the call."""
        ...

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Sample]]:
        """The samples of each request, in order; every token stamped with the version that drew it."""
        ...
