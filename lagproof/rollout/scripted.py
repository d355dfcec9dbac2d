"""An engine without a model, for tests of whatever drives engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from lagproof.data.samples import Finish, Sample
from lagproof.rollout.engine import Request, Sampling
from lagproof.rollout.stops import cut

Script = Callable[[Request, int], Sequence[int]]
"""(request, number of the sample) -> the ids of the whole response."""


class ScriptedEngine:
    """Answers from a script, stamps the version it was told to load, and keeps a log.

    Args:
        script: what is sampled; cut off at ``max_tokens``.
        text: response ids without the stop token -> text.
        stop_ids: ids that end a response; a script that goes on after one is cut there.
        logp: log-probability that every token is said to have had, nats.
        fail_at: number (from 0, over all calls) of the request that raises ``error``; ``None`` never fails.

    Attributes:
        served: every request that was answered, in order.
        loaded: every version that was loaded, in order.
    """

    def __init__(
        self,
        script: Script,
        *,
        text: Callable[[Sequence[int]], str] = lambda ids: " ".join(map(str, ids)),
        stop_ids: Sequence[int] = (1,),
        logp: float = -0.5,
        fail_at: int | None = None,
        error: Exception | None = None,
    ) -> None:
        self._script, self._text, self._stop_ids, self._logp = script, text, frozenset(stop_ids), logp
        self._fail_at = fail_at
        self._error = error or RuntimeError(f"scripted failure at request {fail_at}")
        self._version = 0
        self.served: list[Request] = []
        self.loaded: list[int] = []

    @property
    def version(self) -> int:
        return self._version

    def load(self, version: int, weights: Mapping[str, Tensor]) -> None:
        self._version = version
        self.loaded.append(version)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Sample]]:
        out: list[list[Sample]] = []
        for request in requests:
            if len(self.served) == self._fail_at:
                raise self._error
            self.served.append(request)
            out.append([self._sample(request, number, sampling) for number in range(request.samples)])
        return out

    def _sample(self, request: Request, number: int, sampling: Sampling) -> Sample:
        ids: list[int] = []
        text, stopped = "", False
        for token in self._script(request, number)[: sampling.max_tokens]:
            ids.append(token)
            if token in self._stop_ids:
                stopped = True
                break
            whole = self._text(ids)
            text = cut(whole, request.stop)
            if text != whole:
                stopped = True
                break
        recorded = sampling.record_logp and sampling.temperature > 0
        return Sample(
            prompt_ids=request.prompt_ids,
            response_ids=ids,
            version=[self._version] * len(ids),
            finish=Finish.STOP if stopped else Finish.LENGTH,
            sampler_logp=[self._logp] * len(ids) if recorded else None,
            text=text,
        )
