"""The table of objectives: a name, what builds it, and through that its options and its page of documentation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lagproof.errors import ConfigError, UnknownNameError
from lagproof.objectives.base import Objective, Scope, Weighting
from lagproof.objectives.clip import grpo, gspo, sat_grpo, sat_gspo
from lagproof.objectives.current_policy import GPG, SPO, ASymPO, Naive
from lagproof.objectives.divergence import dppo_kl, dppo_tv
from lagproof.objectives.truncated import CISPO, TIS, IcePop

TABLE: dict[str, Callable[..., Objective]] = {
    "naive": Naive,
    "spo": SPO,
    "asympo": ASymPO,
    "gpg": GPG,
    "grpo": grpo,
    "gspo": gspo,
    "sat-grpo": sat_grpo,
    "sat-gspo": sat_gspo,
    "dppo-tv": dppo_tv,
    "dppo-kl": dppo_kl,
    "cispo": CISPO,
    "tis": TIS,
    "icepop": IcePop,
}


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    Attributes:
        name: the name in configurations and in ``lp.objective``.
        summary: one sentence: what it protects against.
        options: every option with its default.
        needs_sampler_logp: whether the rollout side has to record log-probabilities.
        scope: token, response or batch: what it must see at once.
        reduction, advantage: what ``auto`` means for it.
        doc: formula, weight, options, invariants and source.
    """

    name: str
    summary: str
    options: Mapping[str, Any]
    needs_sampler_logp: bool
    scope: Scope
    reduction: str
    advantage: str
    doc: str


def objective(name: str, **options: Any) -> Objective:
    """Build an objective by name.

    Raises:
        UnknownNameError: no such objective, or no such option; names the nearest one.
        ConfigError: a value that is not allowed.
    """
    if name not in TABLE:
        raise UnknownNameError("objective", name, TABLE)
    allowed = defaults(name)
    for option, value in options.items():
        if option not in allowed:
            raise UnknownNameError(f"option of {name}", f"objective.{option}", [f"objective.{o}" for o in allowed])
        _check_type(option, value, allowed[option])
    return TABLE[name](**options)


def defaults(name: str) -> dict[str, Any]:
    """The options of an objective with their defaults."""
    if name not in TABLE:
        raise UnknownNameError("objective", name, TABLE)
    return {p.name: p.default for p in inspect.signature(TABLE[name]).parameters.values()}


def _entry(name: str) -> Entry:
    built, doc = objective(name), inspect.getdoc(TABLE[name]) or ""
    return Entry(
        name=name,
        summary=doc.split("\n\n")[0].replace("\n", " "),
        options=defaults(name),
        needs_sampler_logp=built.needs_sampler_logp,
        scope=built.scope,
        reduction=built.default_reduction,
        advantage=built.default_advantage,
        doc=doc,
    )


def _check_type(option: str, value: Any, default: Any) -> None:
    if isinstance(default, str):
        ok, expected = isinstance(value, str), "text"
    elif option == "delta" and isinstance(value, list | tuple):
        ok, expected = all(_is_number(v) for v in cast(Sequence[Any], value)), "a number, or a pair of numbers"
    else:
        ok, expected = _is_number(value) or (value is None and default is None), "a number"
    if not ok:
        raise ConfigError(f"objective.{option} = {value!r}: must be {expected}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


OBJECTIVES: Mapping[str, Entry] = {name: _entry(name) for name in TABLE}
"""Every objective by its name, in the order in which they are best read."""

__all__ = ["OBJECTIVES", "TABLE", "Entry", "Objective", "Scope", "Weighting", "defaults", "objective"]
