"""What a comparison was made to find out, as data, and whether its runs say so.

A claim stands in the TOML of a comparison::

    [[claims]]
    text    = "naive and GPG fail on stale data"
    kind    = "collapses"
    entries = ["naive", "gpg"]
    lags    = [8, 16]

=============  ==========================================================  ===============================
kind           says of each entry at each lag                              also needs
=============  ==========================================================  ===============================
``collapses``  every seed collapses (``statistics.COLLAPSE_RULE``)
``holds``      no seed collapses
``higher``     ``metric`` is above that of ``than``                        ``metric``, ``than``; ``margin``
``lower``      the same, below                                             ``metric``, ``than``; ``margin``
``equal``      ``metric`` is that of ``than`` to within ``margin``         ``metric``, ``than``, ``margin``
``within``     ``|metric|`` is at most ``limit`` at every step             ``metric``, ``limit``
``beyond``     ``|metric|`` exceeds ``limit`` at some step of every run    ``metric``, ``limit``
=============  ==========================================================  ===============================

The ``metric`` of a difference is a number of ``statistics.summarise``, that of a bound one of ``metrics.jsonl``.
``margin`` is the smallest difference that matters, in the unit of the metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lagproof.data.slices import Key
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.experiments.statistics import NUMBERS, RunSummary, paired
from lagproof.experiments.values import checked, is_size, is_text, list_of
from lagproof.runs.lags import THRESHOLD, LagName
from lagproof.runs.run import Run


class ClaimKind(StrEnum):
    """See the head of this module."""

    COLLAPSES = "collapses"
    HOLDS = "holds"
    HIGHER = "higher"
    LOWER = "lower"
    EQUAL = "equal"
    WITHIN = "within"
    BEYOND = "beyond"


class ClaimVerdict(StrEnum):
    """What the runs say of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided at this budget"


COMMON = ("text", "kind", "entries", "lags")
DIFFERENCES = (ClaimKind.HIGHER, ClaimKind.LOWER, ClaimKind.EQUAL)
BOUNDS = (ClaimKind.WITHIN, ClaimKind.BEYOND)
MIN_SEEDS = 2
RULE = (
    "A claim holds where each line below it does, and does not hold where one line does not. Collapse: all seeds of a "
    f"line agree, at least {MIN_SEEDS}. Difference: the interval lies on one side of 0, or of the margin. One seed "
    "decides neither"
)


@dataclass(frozen=True)
class Claim:
    """A sentence and what its runs must show.

    Attributes:
        text: the sentence.
        kind: see the head of this module.
        entries, lags: labels and lags (``lags.py``) it speaks of, each with each.
        metric: of a difference or a bound.
        than: label that a difference is taken to.
        margin: smallest difference that matters, >= 0, in the unit of the metric.
        limit: of a bound, in the unit of the metric.
    """

    text: str
    kind: ClaimKind
    entries: tuple[str, ...]
    lags: tuple[LagName, ...]
    metric: str | None = None
    than: str | None = None
    margin: float = 0.0
    limit: float | None = None

    def tree(self) -> dict[str, Any]:
        """Plain TOML values that :func:`parse` reads back to an equal claim."""
        tree: dict[str, Any] = {
            "text": self.text,
            "kind": str(self.kind),
            "entries": list(self.entries),
            "lags": list(self.lags),
        }
        optional = {"metric": self.metric, "than": self.than, "margin": self.margin or None, "limit": self.limit}
        return tree | {key: value for key, value in optional.items() if value is not None}


@dataclass(frozen=True)
class ClaimPart:
    """One entry at one lag.

    Attributes:
        label, lag: which.
        verdict: of this part alone.
        said: the numbers that decide, as a sentence.
        value: share of the seeds that collapsed; mean difference; largest ``|metric|``. ``None`` without data.
        interval: 95 % interval of a difference over seeds.
        seeds: how many decide.
    """

    label: str
    lag: LagName
    verdict: ClaimVerdict
    said: str
    value: float | None = None
    interval: tuple[float, float] | None = None
    seeds: int = 0

    @property
    def line(self) -> str:
        """For people: the numbers and what they decide, or why there are none."""
        return self.said if self.value is None else f"{self.said}: {self.verdict}"


@dataclass(frozen=True)
class Judged:
    """A claim and what became of it."""

    claim: Claim
    verdict: ClaimVerdict
    parts: tuple[ClaimPart, ...]


def parse(item: object, key: str) -> Claim:
    """A claim from TOML values.

    Args:
        item: what stands in the file.
        key: where, for messages.

    Raises:
        ConfigError: a key that is missing, does not belong to this kind or has a value that is not allowed.
        UnknownNameError: no such kind, key or number.
    """
    if not isinstance(item, Mapping):
        raise ConfigError(f"{key} = {item!r}: must be a table, for example {{text = '...', kind = 'holds', ...}}")
    kind = item.get("kind")
    if kind not in list(ClaimKind):
        raise UnknownNameError(f"{key}.kind", str(kind), [str(k) for k in ClaimKind])
    kind = ClaimKind(kind)
    needed, allowed = _keys(kind)
    for name in item:
        if name not in allowed:
            raise UnknownNameError(f"key of a claim of kind {kind}", f"{key}.{name}", [f"{key}.{a}" for a in allowed])
    missing = [name for name in needed if name not in item]
    if missing:
        raise ConfigError(f"{key}: a claim of kind {kind} needs {', '.join(missing)}")
    claim = Claim(
        text=checked(item, key, "text", "text", is_text),
        kind=kind,
        entries=tuple(checked(item, key, "entries", "a list of labels, at least one", list_of(is_text))),
        lags=tuple(
            checked(
                item, key, "lags", "a list of whole numbers >= 0, or names as s0.5n8, at least one", list_of(_is_lag)
            )
        ),
        metric=checked(item, key, "metric", "the name of a number", is_text) if "metric" in item else None,
        than=checked(item, key, "than", "a label", is_text) if "than" in item else None,
        margin=float(checked(item, key, "margin", "a number >= 0", is_size)) if "margin" in item else 0.0,
        limit=float(checked(item, key, "limit", "a number >= 0", is_size)) if "limit" in item else None,
    )
    if kind in DIFFERENCES and claim.metric not in NUMBERS:
        raise UnknownNameError(f"{key}.metric", str(claim.metric), list(NUMBERS))
    return claim


def judge(claims: Iterable[Claim], runs: Sequence[Run], summaries: Sequence[RunSummary]) -> tuple[Judged, ...]:
    """What the runs that have ended say of each claim.

    Args:
        claims: the claims.
        runs: that have ended.
        summaries: theirs.
    """
    return tuple(_judge(claim, runs, summaries) for claim in claims)


def _judge(claim: Claim, runs: Sequence[Run], summaries: Sequence[RunSummary]) -> Judged:
    parts: list[ClaimPart] = []
    for label in claim.entries:
        for lag in claim.lags:
            if claim.kind in BOUNDS:
                parts.append(_bound(claim, label, lag, runs))
            elif claim.kind in DIFFERENCES:
                parts.append(_difference(claim, label, lag, summaries))
            else:
                parts.append(_collapse(claim, label, lag, summaries))
    return Judged(claim, _all(part.verdict for part in parts), tuple(parts))


def _all(found: Iterable[ClaimVerdict]) -> ClaimVerdict:
    verdicts = set(found)
    if ClaimVerdict.FAILS in verdicts:
        return ClaimVerdict.FAILS
    return ClaimVerdict.UNDECIDED if ClaimVerdict.UNDECIDED in verdicts else ClaimVerdict.HOLDS


def _collapse(claim: Claim, label: str, lag: LagName, summaries: Sequence[RunSummary]) -> ClaimPart:
    found = [s.collapsed for s in summaries if (s.label, s.lag) == (label, lag) and s.collapsed is not None]
    if not found:
        return _nothing(label, lag, "no run with an evaluation has ended")
    fallen, seeds = sum(found), len(found)
    said = f"{label} at lag {lag}: {fallen} of {_seeds(seeds)} collapsed"
    if seeds < MIN_SEEDS or 0 < fallen < seeds:
        verdict = ClaimVerdict.UNDECIDED
    else:
        verdict = ClaimVerdict.HOLDS if bool(fallen) == (claim.kind is ClaimKind.COLLAPSES) else ClaimVerdict.FAILS
    return ClaimPart(label, lag, verdict, said, fallen / seeds, None, seeds)


def _difference(claim: Claim, label: str, lag: LagName, summaries: Sequence[RunSummary]) -> ClaimPart:
    assert claim.than is not None and claim.metric is not None
    members = [s for s in summaries if s.lag == lag and s.label in (label, claim.than)]
    found = next((d for d in paired(members, {label: claim.than}) if claim.metric in d.estimates), None)
    if found is None:
        return _nothing(label, lag, f"no seed has {claim.metric} of both {label} and {claim.than}")
    estimate = found.estimates[claim.metric]
    said = f"{label} minus {claim.than} at lag {lag}: {claim.metric} {estimate.mean:+.4f}"
    if estimate.interval is not None:
        said += f" [{estimate.interval[0]:+.4f}, {estimate.interval[1]:+.4f}]"
    # seeds that all have the same difference, such as runs that are equal bit for bit, decide without a spread
    decides = estimate.interval or ((estimate.mean, estimate.mean) if estimate.n >= MIN_SEEDS else None)
    verdict = _of_interval(claim.kind, estimate.mean, decides, claim.margin)
    return ClaimPart(label, lag, verdict, f"{said}, {_seeds(estimate.n)}", estimate.mean, estimate.interval, estimate.n)


def _of_interval(kind: ClaimKind, mean: float, interval: tuple[float, float] | None, margin: float) -> ClaimVerdict:
    """Whether a difference is above 0 by the margin, below it, or within it."""
    if interval is None:
        return ClaimVerdict.UNDECIDED
    low, high = interval
    if kind is ClaimKind.EQUAL:
        if -margin <= low and high <= margin:
            return ClaimVerdict.HOLDS
        return ClaimVerdict.FAILS if low > margin or high < -margin else ClaimVerdict.UNDECIDED
    if kind is ClaimKind.LOWER:
        mean, low, high = -mean, -high, -low
    if high <= 0.0 or high < margin:
        return ClaimVerdict.FAILS
    return ClaimVerdict.HOLDS if low > 0.0 and mean >= margin else ClaimVerdict.UNDECIDED


def _bound(claim: Claim, label: str, lag: LagName, runs: Sequence[Run]) -> ClaimPart:
    assert claim.metric is not None and claim.limit is not None
    key = Key.parse(claim.metric)
    members = [run.series(key.name, key.of)[1] for run in runs if (run.label, run.lag) == (label, lag)]
    largest = [max(map(abs, values)) for values in members if values]
    if not largest:
        return _nothing(label, lag, f"no run with {claim.metric} has ended")
    if claim.kind is ClaimKind.WITHIN:
        value = max(largest)
        verdict = ClaimVerdict.HOLDS if value <= claim.limit else ClaimVerdict.FAILS
        what = "of any step"
    else:
        value = min(largest)
        verdict = ClaimVerdict.HOLDS if value > claim.limit else ClaimVerdict.FAILS
        what = "of every run at least"
    said = f"{label} at lag {lag}: largest |{claim.metric}| {what} {value:.2g}, {_seeds(len(largest))}"
    return ClaimPart(label, lag, verdict, said, value, None, len(largest))


def _nothing(label: str, lag: LagName, why: str) -> ClaimPart:
    return ClaimPart(label, lag, ClaimVerdict.UNDECIDED, f"{label} at lag {lag}: {why}")


def _seeds(n: int) -> str:
    return f"{n} seed{'' if n == 1 else 's'}"


def _keys(kind: ClaimKind) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys that a claim of this kind must have, and those that it may have."""
    if kind in BOUNDS:
        needed = (*COMMON, "metric", "limit")
        return needed, needed
    if kind in DIFFERENCES:
        allowed = (*COMMON, "metric", "than", "margin")
        return allowed if kind is ClaimKind.EQUAL else allowed[:-1], allowed
    return COMMON, COMMON


def _is_lag(value: object) -> bool:
    return (type(value) is int and value >= 0) or (isinstance(value, str) and THRESHOLD.fullmatch(value) is not None)
