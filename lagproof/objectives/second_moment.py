"""M2PO: the second moment of the harmful log-ratios of a batch is held below a bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from lagproof.data.metrics import Same
from lagproof.objectives.base import Objective
from lagproof.objectives.clip import clip
from lagproof.objectives.options import option
from lagproof.objectives.scorable import Scope, ScorableTokens, TokenWeights


@dataclass(frozen=True)
class M2PO(Objective):
    """Drops the farthest harmful tokens until the mean square of the log-ratio of the others is below a bound.

    Formula:     harmful: (A > 0 and d > 0) or (A < 0 and d < 0).  Drop harmful tokens by decreasing d^2 until the mean
                 of d^2
                 over those that remain is < tau;   J_t = r A, 0 where dropped                        (form = drop)
                 t: sum min(d^2, t^2) over the harmful = tau times their number, inf where their mean is <= tau;
                 J_t = min(r A, clip(r, exp(-t), exp(t)) A)                                             (form =
                 winsorised)
    Weight:      r A, 0 where dropped or clipped
    Inputs:      policy_logp, sampler_logp [N] nats; advantage [N] reward units
    Options:     tau: nats squared, > 0; form: drop | winsorised;
                 cutoff: the largest |d| that is kept, or t, nats, if it was computed elsewhere (whole batch)
    Invariants:  tau = inf: tis with cap = inf. Of the kept harmful tokens mean d^2 < tau, or none is left; every
                 dropped |d| is above every kept harmful one; a token on its way back to the sampler is never dropped
    Source:      Prosperity before Collapse, arXiv:2510.01161. form = drop is the paper's algorithm, with equal |d|
                 dropped together; its code winsorises, by the micro-batch; AReaL's variant of it looks at the engine
                 part of all tokens
    Raises:      ConfigError if tau is not > 0; UnknownNameError for an unknown form
    """

    name: ClassVar[str] = "m2po"
    remedies: ClassVar[Mapping[str, str]] = {"heavy_tail": "m2po"}
    tau: float = option(0.04, "bound of the mean of d^2 over the harmful tokens, nats squared", above=0.0)
    form: str = option("drop", "the paper's algorithm, or its code's", choices=("drop", "winsorised"))
    cutoff: float | None = option(None, "the largest |d| kept, nats, if it was computed elsewhere", minimum=0.0)

    @property
    def rule_scope(self) -> Scope:
        return Scope.BATCH if self.cutoff is None else self.unit

    def fitted(self, tokens: ScorableTokens) -> Self:
        if self.cutoff is not None:
            return self
        size = tokens.log_ratio[_harmful(tokens)].abs().sort().values
        return replace(self, cutoff=_largest_kept(size, self.tau) if self.form == "drop" else _limit(size, self.tau))

    def rule(self, tokens: ScorableTokens) -> TokenWeights:
        assert self.cutoff is not None, "a rule is that of an objective that was fitted"
        a, ratio = tokens.advantage, tokens.ratio
        stats = {"m2po/cutoff": Same(self.cutoff)} if math.isfinite(self.cutoff) else {}
        if self.form == "winsorised":
            return replace(clip(ratio, a, math.exp(-self.cutoff), math.exp(min(self.cutoff, 700.0))), stats=stats)
        dropped = _harmful(tokens) & (tokens.log_ratio.abs() > self.cutoff)
        weight, value = (torch.where(dropped, 0.0, x * a) for x in (ratio.slope, ratio.value))
        return TokenWeights(weight, value, {"clipped_high": dropped & (a > 0), "clipped_low": dropped & (a < 0)}, stats)


def _harmful(tokens: ScorableTokens) -> Tensor:
    return tokens.advantage * torch.sign(tokens.log_ratio) > 0


def _largest_kept(size: Tensor, tau: float) -> float:
    """Of rising ``|d|``: the largest such that the mean square up to it is below ``tau``; inf if none is dropped."""
    square = size.double().square()
    means = square.cumsum(0) / torch.arange(1, len(size) + 1, device=size.device)
    kept = int((means < tau).sum())
    if kept == len(size):
        return math.inf
    kept = int((size < size[kept]).sum())  # equal ones are dropped together
    return float(size[kept - 1]) if kept else 0.0


def _limit(size: Tensor, tau: float) -> float:
    """Of rising ``|d|``: ``t`` with ``sum min(d^2, t^2) = tau n``; inf where the mean square is at most ``tau``."""
    square, n = size.double().square(), len(size)
    if not n or float(square.mean()) <= tau:
        return math.inf
    below = torch.cat([square.new_zeros(1), square.cumsum(0)[:-1]])  # of those before each
    at = below + square * (n - torch.arange(n, device=size.device))  # the sum if the limit were at each
    first = int((at < tau * n).sum())
    return math.sqrt((tau * n - float(below[first])) / (n - first))
