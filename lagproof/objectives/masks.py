"""Masks: 0/1 factors on the weights of any objective. They commute, and multiply.

A rejected token has weight and value 0 and keeps its place in every denominator. verl takes rejected tokens out of the
denominator of ``token_mean`` and shortens ``m_g``, so there the same mask makes larger steps the more it rejects.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from lagproof.data.tokens import Needs
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.objectives.scorable import Responses, Scope, ScorableTokens, TokenWeights
from lagproof.tensors.divergence import binary_kl, k3
from lagproof.tensors.ratio import bounded_ratio
from lagproof.tensors.segments import segment_extreme

if TYPE_CHECKING:
    from jaxtyping import Bool

AGAINST: Mapping[str, Callable[[Responses], Tensor]] = {
    "sampler": lambda responses: responses.log_ratio,  # d: staleness and engine
    "anchor": lambda responses: responses.update,  # u: staleness alone
}
"""Which log-ratio a response is judged by."""


@dataclass(frozen=True)
class Mask(ABC):
    """A decision about each token; the dataclass fields are its options."""

    name: ClassVar[str]
    scope: ClassVar[Scope] = Scope.RESPONSE

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """What has to be known of a token."""

    @abstractmethod
    def keep(self, tokens: ScorableTokens) -> Bool[Tensor, " M"]:
        """Which tokens stay."""


@dataclass(frozen=True)
class OPSM(Mask):
    """Off-policy sequence masking: negative responses that the policy has left are dropped whole.

    Formula:     M_g = 0 where A < 0 and -mean_t x > delta, else 1;   x = d (against = sampler) or u (against = anchor)
    Options:     delta: nats, >= 0, undisclosed by its authors and therefore without a default (TRL's page suggests 0.5;
                 slime and miles 1e-4, measured as against = anchor); against: sampler | anchor
    Invariants:  delta = inf: nothing; a token with A >= 0 is never touched
    Source:      DeepSeek-V3.2, arXiv:2512.02556, as restated by TRL; slime and miles measure u
    """

    name: ClassVar[str] = "opsm"
    delta: float
    against: str = "sampler"

    def __post_init__(self) -> None:
        _require(self, "delta", self.delta >= 0, ">= 0, nats; inf masks nothing")
        _choose(self, "against", AGAINST)

    @property
    def needs(self) -> Needs:
        return _needs(self.against)

    def keep(self, tokens: ScorableTokens) -> Tensor:
        drift = -tokens.responses.mean(AGAINST[self.against](tokens.responses))
        return ~((tokens.advantage < 0) & (drift > self.delta)[tokens.response])


STATISTICS: Mapping[str, Callable[[Responses, Tensor], Tensor]] = {
    "geo": lambda g, x: bounded_ratio(g.mean(x)),
    "product": lambda g, x: bounded_ratio(g.sum(x)),
    "k3_mean": lambda g, x: g.mean(k3(x)),
    "k3_sum": lambda g, x: g.sum(k3(x)),
    "k3_max": lambda g, x: segment_extreme(k3(x), g.index, len(g.lengths), "amax"),
    "min_ratio": lambda g, x: bounded_ratio(segment_extreme(x, g.index, len(g.lengths), "amin")),
}
"""What a response is judged by, of its log-ratios ``x``."""


@dataclass(frozen=True)
class SeqMask(Mask):
    """Sequence masking: a response whose statistic leaves an interval is dropped whole, whatever the sign of A.

    Formula:     M_g = 1 where low <= s_g <= high, else 0
                 s_g: geo exp(mean x) | product exp(sum x) | k3_mean, k3_sum, k3_max of exp(x) - 1 - x | min_ratio
                 min exp(x);   x = d (against = sampler) or u (against = anchor)
    Options:     stat, low, high, against. Published: geo .999 to 1.001 (verl), .99 to 1.01 (SkyRL); product .5 to 2
                 (verl, SkyRL); k3_mean <= .01 (verl); min_ratio >= 1e-4, a veto (slime)
    Invariants:  low = 0, high = inf: nothing. geo does not change when the tokens are repeated, product does.
                 k3_max <= high implies k3_mean <= high
    Source:      verl's rollout correction; trust region masking, arXiv:2512.23075 (k3_max); SkyRL, NeMo RL, OpenRLHF,
                 slime. verl's bounds apply to 1 / rho where its documentation says rho
    """

    name: ClassVar[str] = "seq-mask"
    stat: str
    low: float = 0.0
    high: float = math.inf
    against: str = "sampler"

    def __post_init__(self) -> None:
        _choose(self, "stat", STATISTICS)
        _choose(self, "against", AGAINST)
        _require(self, "low", 0.0 <= self.low < self.high, f">= 0 and below high = {self.high}")

    @property
    def needs(self) -> Needs:
        return _needs(self.against)

    def keep(self, tokens: ScorableTokens) -> Tensor:
        g = tokens.responses
        found = STATISTICS[self.stat](g, AGAINST[self.against](g))
        return ((found >= self.low) & (found <= self.high))[tokens.response]


@dataclass(frozen=True)
class KPop(Mask):
    """Tokens on which engine and learner disagree, by a binary KL in both directions, are dropped.

    Formula:     M = 1 where max(K(p, q), K(q, p)) <= phi,  p = pi_anchor(a), q = mu(a),
                 K(p, q) = p log(p / q) + (1 - p) log((1 - p) / (1 - q))
    Options:     phi: nats, > 0, undisclosed by its authors and therefore without a default. Their figure masks 22 to 34
                 % of the tokens at a mean |log-ratio| of .03, for which phi must be about 1e-3; AReaL's 2.0 hardly ever
                 masks
    Invariants:  phi = inf: nothing; independent of A and of the policy; symmetric in anchor and sampler. Of two tokens
                 with one ratio the rarer has the smaller KL
    Source:      Ling and Ring 2.6, arXiv:2606.15079, section 3.2.3; with the base decoupled-grpo(correction = none) it
                 is KPop
    """

    name: ClassVar[str] = "kpop"
    scope: ClassVar[Scope] = Scope.TOKEN
    phi: float

    def __post_init__(self) -> None:
        _require(self, "phi", self.phi > 0, "> 0, nats; inf masks nothing")

    @property
    def needs(self) -> Needs:
        return Needs(sampler=True, anchor=True)

    def keep(self, tokens: ScorableTokens) -> Tensor:
        assert tokens.anchor_logp is not None and tokens.sampler_logp is not None
        p, q = (x.double().clamp(math.log(1e-8), math.log1p(-1e-8)) for x in (tokens.anchor_logp, tokens.sampler_logp))
        return torch.maximum(binary_kl(p, q), binary_kl(q, p)) <= self.phi


MASKS: Mapping[str, type[Mask]] = {cls.name: cls for cls in (OPSM, SeqMask, KPop)}
"""The class of each mask by its name."""


def masked(
    rule: Callable[[ScorableTokens], TokenWeights], masks: Sequence[Mask]
) -> Callable[[ScorableTokens], TokenWeights]:
    """The rule with weight and value 0 where a mask drops a token."""
    if not masks:
        return rule

    def under(tokens: ScorableTokens) -> TokenWeights:
        said = rule(tokens)
        kept = {mask.name: mask.keep(tokens) for mask in masks}
        keep = torch.stack(list(kept.values())).all(0)
        return replace(
            said,
            weight=torch.where(keep, said.weight, 0.0),
            value=torch.where(keep, said.value, 0.0),
            flags={**said.flags, **{f"{name}/masked": ~x for name, x in kept.items()}},
            removed={**said.removed, "masks/removed": torch.where(keep, 0.0, said.weight)},
        )

    return under


_CALL = re.compile(r"\s*([a-z][a-z0-9-]*)\s*(?:\((.*)\))?\s*")


def parse_mask(text: str) -> Mask:
    """``opsm(delta=0.5)``, ``seq-mask(stat=geo, low=0.99, high=1.01)``, ``kpop(phi=1e-3)``.

    Raises:
        UnknownNameError: no such mask, option or choice.
        ConfigError: an option that is missing or not allowed.
    """
    found = _CALL.fullmatch(text)
    if found is None:
        raise ConfigError(f"objective.masks has {text!r}: must be a name with options, such as 'opsm(delta=0.5)'")
    name, inside = found[1], found[2] or ""
    if name not in MASKS:
        raise UnknownNameError("mask", name, MASKS)
    known = {f.name: f for f in fields(MASKS[name])}
    given: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in inside.split(","))):
        key, _, value = (x.strip() for x in part.partition("="))
        if key not in known:
            raise UnknownNameError(f"option of {name}", key, known)
        given[key] = _number(value) if known[key].type == "float" else value.strip("'\"")
        if given[key] is None:
            raise ConfigError(f"objective.masks: {name}({key}={value}): must be a number")
    missing = [key for key, f in known.items() if f.default is MISSING and key not in given]
    if missing:
        raise ConfigError(
            f"objective.masks: {text!r} lacks {missing[0]}, which has no default: write {name}({missing[0]}=...)"
        )
    return MASKS[name](**given)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _needs(against: str) -> Needs:
    return Needs(sampler=True) if against == "sampler" else Needs(anchor=True)


def _require(mask: Mask, option: str, ok: bool, allowed: str) -> None:
    if not ok:
        raise ConfigError(f"objective.masks: {mask.name}({option}={getattr(mask, option)}): must be {allowed}")


def _choose(mask: Mask, option: str, table: Mapping[str, Any]) -> None:
    if getattr(mask, option) not in table:
        raise UnknownNameError(f"{mask.name}({option})", getattr(mask, option), table)
