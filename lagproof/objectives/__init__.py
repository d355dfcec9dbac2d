"""The table of objectives: every one by its name; what it is, its options, its page of documentation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from lagproof.data.tokens import Needs
from lagproof.errors import UnknownNameError
from lagproof.objectives.base import Finding, Objective
from lagproof.objectives.clip import GRPO, GSPO
from lagproof.objectives.current_policy import GPG, SPO, ASymPO, Naive
from lagproof.objectives.decoupled import A3PO, DecoupledGRPO, DecoupledGSPO, IcePop, MiniRL
from lagproof.objectives.divergence import DPPOKL, DPPOTotalVariation
from lagproof.objectives.options import Option, options_of
from lagproof.objectives.sat import SatGRPO, SatGSPO
from lagproof.objectives.scorable import Scope
from lagproof.objectives.second_moment import M2PO
from lagproof.objectives.sequence import OAPL, PMD, TOPR, VESPO, SeqTIS
from lagproof.objectives.truncated import CISPO, DIS, SAPO, TIS
from lagproof.objectives.weighting import Weighting

_CLASSES: tuple[type[Objective], ...] = (
    *(Naive, SPO, ASymPO, GPG),
    *(GRPO, GSPO, SatGRPO, SatGSPO),
    *(DPPOTotalVariation, DPPOKL, CISPO, TIS, DIS, SAPO, M2PO, A3PO),
    *(SeqTIS, TOPR, VESPO, PMD, OAPL),
    *(DecoupledGRPO, DecoupledGSPO, IcePop, MiniRL),
)
TABLE: Mapping[str, type[Objective]] = {cls.name: cls for cls in _CLASSES}
"""The class of each objective by its name, in the order in which they are best read."""

BASELINE = GRPO.name
"""What others are compared with where nothing is said."""


@dataclass(frozen=True)
class ObjectiveInfo:
    """What an objective says of itself.

    Attributes:
        name: in configurations and in ``lp.objective``.
        summary: one sentence: what it protects against.
        options: every option by its name.
        needs: what else than the policy it reads: the sampler, the anchor, the age.
        scope: token, response or batch: what it must see at once.
        reduction, advantage: what ``auto`` means for it.
        colour: which of the eight colours it has on every page, as long as that is free; ``None``: any.
        caveats: what to know before it is used, a clause each.
        advice: what to try while it is on, by the name of the alarm.
        remedies: what it is a remedy for: the name of an alarm, and how it is then named.
        doc: formula, weight, options, invariants and source.
    """

    name: str
    summary: str
    options: Mapping[str, Option]
    needs: Needs
    scope: Scope
    reduction: str
    advantage: str
    colour: int | None
    caveats: tuple[str, ...]
    advice: Mapping[str, str]
    remedies: Mapping[str, str]
    doc: str


def objective(name: str, **options: Any) -> Objective:
    """Build an objective by name.

    Raises:
        UnknownNameError: no such objective, or no such option; names the nearest one.
        ConfigError: a value that is not allowed.
    """
    allowed = [option.name for option in options_of(_class(name))]
    for option in options:
        if option not in allowed:
            raise UnknownNameError(f"option of {name}", f"objective.{option}", [f"objective.{o}" for o in allowed])
    return TABLE[name](
        **{k: tuple(cast(list[Any], v)) if isinstance(v, list) else v for k, v in options.items()}
    )  # a pair, from TOML


def options(name: str) -> list[Option]:
    """The options of an objective: name, type, default, bounds or choices, help.

    Raises:
        UnknownNameError: no such objective.
    """
    return list(options_of(_class(name)))


def defaults(name: str) -> dict[str, Any]:
    """The options of an objective with their defaults, as TOML has them: a list in the place of a tuple.

    Raises:
        UnknownNameError: no such objective.
    """
    usual: dict[str, Any] = {option.name: option.default for option in options(name)}
    return {name: list(cast(Any, x)) if isinstance(x, tuple) else x for name, x in usual.items()}


def without(need: str) -> list[str]:
    """Names of the objectives that need no ``sampler``, ``anchor`` or ``age``."""
    return [name for name, cls in TABLE.items() if not getattr(cls.rule_needs, need)]


def remedies(alarm: str) -> list[str]:
    """The objectives that are a remedy for what an alarm says, each as it is then named."""
    return [cls.remedies[alarm] for cls in TABLE.values() if alarm in cls.remedies]


def _class(name: str) -> type[Objective]:
    if name not in TABLE:
        other = next((cls.name for cls in TABLE.values() if str(name).lower() in cls.known_as), None)
        raise UnknownNameError("objective", name, TABLE, "" if other is None else f"its clip is here {other!r}")
    return TABLE[name]


def _info(cls: type[Objective]) -> ObjectiveInfo:
    doc = inspect.getdoc(cls) or ""
    return ObjectiveInfo(
        name=cls.name,
        summary=doc.split("\n\n")[0].replace("\n", " "),
        options={option.name: option for option in options_of(cls)},
        needs=cls().needs,
        scope=cls().scope,
        reduction=cls.default_reduction,
        advantage=cls.default_advantage,
        colour=cls.colour,
        caveats=cls.caveats,
        advice=cls.advice,
        remedies=cls.remedies,
        doc=doc,
    )


OBJECTIVES: Mapping[str, ObjectiveInfo] = {name: _info(cls) for name, cls in TABLE.items()}
"""What every objective says of itself, by its name, in the order in which they are best read."""

__all__ = [
    "BASELINE",
    "OBJECTIVES",
    "TABLE",
    "Finding",
    "Objective",
    "ObjectiveInfo",
    "Option",
    "Scope",
    "Weighting",
    "defaults",
    "objective",
    "options",
    "remedies",
    "without",
]
