"""What a comparison was made to find out, as data, and whether its runs say so.

A claim stands in the TOML of a comparison::

    [[claims]]
    text    = "naive and GPG fail on stale data"
    kind    = "collapses"
    entries = ["naive", "gpg"]
    lags    = [8, 16]

==============  ==========================================================  ===============================
kind            says of each entry at each lag                              also needs
==============  ==========================================================  ===============================
``collapses``   every seed collapses (``collapse.RULE``)
``holds``       no seed collapses
``higher``      ``metric`` is above that of ``than``                        ``metric``, ``than``; ``margin``
``lower``       the same, below                                             ``metric``, ``than``; ``margin``
``equal``       ``metric`` is that of ``than`` to within ``margin``         ``metric``, ``than``, ``margin``
``not_lower``   ``metric`` is below that of ``than`` by less than           ``metric``, ``than``, ``margin``
                ``margin``: no worse, of an accuracy
``not_higher``  the same, above: no worse, of a mismatch                    ``metric``, ``than``, ``margin``
``within``      ``|metric|`` is at most ``limit`` at every step             ``metric``, ``limit``
``beyond``      ``|metric|`` exceeds ``limit`` at some step of every run    ``metric``, ``limit``
==============  ==========================================================  ===============================

The ``metric`` of a difference is a number of ``statistics.summarise``, that of a bound one of ``metrics.jsonl``.
``margin`` is the smallest difference that matters, in the unit of the metric; "no worse" means nothing without one.

A difference is tested by paired t tests over seeds, two one-sided ones for each line: for the claim and against it. All
of a comparison are corrected together (Holm), so that the chance of any wrong verdict on a difference is at most 5 %.
Collapses and bounds are counted, not tested. With fewer than ``CONFIRMING_SEEDS`` seeds there is no verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from lagproof.data.slices import Key
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.evaluation.statistics import CONFIDENCE, CONFIRMING_SEEDS, holm, share_interval, t_test
from lagproof.experiments.statistics import NUMBERS, RunSummary, estimate, pairs
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
    NOT_LOWER = "not_lower"
    NOT_HIGHER = "not_higher"
    WITHIN = "within"
    BEYOND = "beyond"


class ClaimVerdict(StrEnum):
    """What the runs say of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided at this budget"
    EXPLORATORY = f"exploratory, no verdict: fewer than {CONFIRMING_SEEDS} seeds"


COMMON = ("text", "kind", "entries", "lags")
NO_WORSE = (ClaimKind.NOT_LOWER, ClaimKind.NOT_HIGHER)
DIFFERENCES = (ClaimKind.HIGHER, ClaimKind.LOWER, ClaimKind.EQUAL, *NO_WORSE)
BOUNDS = (ClaimKind.WITHIN, ClaimKind.BEYOND)
LEVEL = 1.0 - CONFIDENCE
RULE = (
    "A claim holds where each line below it does, and does not hold where one line does not. Collapse: all seeds of a "
    f"line agree; the interval is Clopper and Pearson's. Difference: paired t interval of {CONFIDENCE:.0%}; the "
    "verdict is that of one-sided t tests, for the claim and against it, p corrected by Holm for all lines of this "
    f"comparison, at {LEVEL:.2g}. Fewer than {CONFIRMING_SEEDS} seeds decide nothing"
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
        interval: 95 % interval of a share or a difference over seeds.
        seeds: how many decide.
        p: of the verdict on a difference, corrected (Holm); without a verdict the smaller one of for and against.
    """

    label: str
    lag: LagName
    verdict: ClaimVerdict
    said: str
    value: float | None = None
    interval: tuple[float, float] | None = None
    seeds: int = 0
    p: float | None = None

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


@dataclass(frozen=True)
class _Tested:
    """A difference that is not judged yet.

    Attributes:
        part: without its verdict.
        tests: p-values for the claim and against it, one-sided, not corrected; ``None`` where nothing can be tested.
        alike: the verdict where all seeds have the same difference, to the last bit.
    """

    part: ClaimPart
    tests: tuple[float, float] | None = None
    alike: ClaimVerdict = ClaimVerdict.UNDECIDED


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
    if kind in NO_WORSE and not claim.margin:
        raise ConfigError(f"{key}.margin = 0: must be > 0; 'no worse' says by how much it may be worse and still count")
    return claim


def judge(claims: Iterable[Claim], runs: Sequence[Run], summaries: Sequence[RunSummary]) -> tuple[Judged, ...]:
    """What the runs that have ended say of each claim; the tests of all differences are corrected together.

    Args:
        claims: the claims.
        runs: that have ended.
        summaries: theirs.
    """
    claims = tuple(claims)
    found = [[_look(claim, label, lag, runs, summaries) for label, lag in _cells(claim)] for claim in claims]
    tested = [part for parts in found for part in parts if part.tests is not None]
    p = holm([value for part in tested for value in part.tests or ()])
    adjusted = {id(part): (p[2 * i], p[2 * i + 1]) for i, part in enumerate(tested)}
    judged: list[Judged] = []
    for claim, parts in zip(claims, found, strict=True):
        decided = tuple(_decide(claim, part, adjusted.get(id(part))) for part in parts)
        judged.append(Judged(claim, _all(part.verdict for part in decided), decided))
    return tuple(judged)


def _cells(claim: Claim) -> list[tuple[str, LagName]]:
    return [(label, lag) for label in claim.entries for lag in claim.lags]


def _look(claim: Claim, label: str, lag: LagName, runs: Sequence[Run], summaries: Sequence[RunSummary]) -> _Tested:
    if claim.kind in DIFFERENCES:
        return _difference(claim, label, lag, summaries)
    return _Tested(_bound(claim, label, lag, runs) if claim.kind in BOUNDS else _collapse(claim, label, lag, summaries))


def _all(found: Iterable[ClaimVerdict]) -> ClaimVerdict:
    """Of a claim, from those of its lines: the first of these that any line has."""
    verdicts = set(found)
    order = (ClaimVerdict.FAILS, ClaimVerdict.UNDECIDED, ClaimVerdict.EXPLORATORY)
    return next((verdict for verdict in order if verdict in verdicts), ClaimVerdict.HOLDS)


def _collapse(claim: Claim, label: str, lag: LagName, summaries: Sequence[RunSummary]) -> ClaimPart:
    found = [s.collapsed for s in summaries if (s.label, s.lag) == (label, lag) and s.collapsed is not None]
    if not found:
        return _nothing(label, lag, "no run with an evaluation has ended")
    fallen, seeds = sum(found), len(found)
    if seeds < CONFIRMING_SEEDS:
        verdict = ClaimVerdict.EXPLORATORY
    elif 0 < fallen < seeds:
        verdict = ClaimVerdict.UNDECIDED
    else:
        verdict = ClaimVerdict.HOLDS if bool(fallen) == (claim.kind is ClaimKind.COLLAPSES) else ClaimVerdict.FAILS
    interval = share_interval(fallen, seeds)
    said = f"{label} at lag {lag}: {fallen} of {_seeds(seeds)} collapsed [{interval.low:.0%}, {interval.high:.0%}]"
    return ClaimPart(label, lag, verdict, said, fallen / seeds, interval, seeds)


def _difference(claim: Claim, label: str, lag: LagName, summaries: Sequence[RunSummary]) -> _Tested:
    assert claim.than is not None and claim.metric is not None
    values = [ours - theirs for ours, theirs in pairs(summaries, label, claim.than, lag, claim.metric)]
    if not values:
        return _Tested(_nothing(label, lag, f"no seed has {claim.metric} of both {label} and {claim.than}"))
    found = estimate(values)
    said = f"{label} minus {claim.than} at lag {lag}: {claim.metric} {found.mean:+.4f}"
    if found.interval is not None:
        said += f" [{found.interval[0]:+.4f}, {found.interval[1]:+.4f}]"
    said += (f", margin {claim.margin:g}" if claim.margin else "") + f", {_seeds(found.n)}"
    part = ClaimPart(label, lag, ClaimVerdict.EXPLORATORY, said, found.mean, found.interval, found.n)
    if found.n < CONFIRMING_SEEDS:
        return _Tested(part)
    sign = -1.0 if claim.kind in (ClaimKind.LOWER, ClaimKind.NOT_HIGHER) else 1.0
    return _Tested(part, _tests(claim, [sign * v for v in values]), _of_point(claim, sign * found.mean))


def _tests(claim: Claim, values: Sequence[float]) -> tuple[float, float] | None:
    """p-values for a claim and against it, of differences that the claim says are large."""
    margin = claim.margin
    at_0, at_margin, at_minus = (t_test(values, than) for than in (0.0, margin, -margin))
    if at_0 is None or at_margin is None or at_minus is None:
        return None
    if claim.kind is ClaimKind.EQUAL:
        return max(at_minus[0], at_margin[1]), min(1.0, 2.0 * min(at_margin[0], at_minus[1]))
    if claim.kind in NO_WORSE:
        return at_minus
    return at_0[0], at_margin[1]


def _of_point(claim: Claim, difference: float) -> ClaimVerdict:
    """Where all seeds agree to the last bit, such as of runs that are the same, the difference is what it is."""
    if claim.kind is ClaimKind.EQUAL:
        holds = abs(difference) <= claim.margin
    elif claim.kind in NO_WORSE:
        holds = difference > -claim.margin
    else:
        holds = difference > 0.0 and difference >= claim.margin
    return ClaimVerdict.HOLDS if holds else ClaimVerdict.FAILS


def _decide(claim: Claim, tested: _Tested, adjusted: tuple[float, float] | None) -> ClaimPart:
    part = tested.part
    if claim.kind not in DIFFERENCES or part.value is None or part.seeds < CONFIRMING_SEEDS:
        return part
    if adjusted is None:
        return replace(part, verdict=tested.alike, said=f"{part.said}, all alike")
    for_it, against = adjusted
    too_small = claim.kind in (ClaimKind.HIGHER, ClaimKind.LOWER) and abs(part.value) < claim.margin
    if against <= LEVEL:
        verdict, p = ClaimVerdict.FAILS, against
    elif for_it <= LEVEL and not too_small:
        verdict, p = ClaimVerdict.HOLDS, for_it
    else:
        verdict, p = ClaimVerdict.UNDECIDED, min(adjusted)
    return replace(part, verdict=verdict, said=f"{part.said}, p {_size(p)} (Holm)", p=p)


def _size(p: float) -> str:
    return "< .0001" if p < 1e-4 else f"{p:.2g}"


def _bound(claim: Claim, label: str, lag: LagName, runs: Sequence[Run]) -> ClaimPart:
    assert claim.metric is not None and claim.limit is not None
    key = Key.parse(claim.metric)
    members = [run.series(key.name, key.of)[1] for run in runs if (run.label, run.lag) == (label, lag)]
    largest = [max(map(abs, values)) for values in members if values]
    if not largest:
        return _nothing(label, lag, f"no run with {claim.metric} has ended")
    if claim.kind is ClaimKind.WITHIN:
        value, what = max(largest), "of any step"
        holds = value <= claim.limit
    else:
        value, what = min(largest), "of every run at least"
        holds = value > claim.limit
    enough = ClaimVerdict.HOLDS if len(largest) >= CONFIRMING_SEEDS else ClaimVerdict.EXPLORATORY
    verdict = enough if holds else ClaimVerdict.FAILS  # one counterexample is enough
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
        return allowed[:-1] if kind in (ClaimKind.HIGHER, ClaimKind.LOWER) else allowed, allowed
    return COMMON, COMMON


def _is_lag(value: object) -> bool:
    return (type(value) is int and value >= 0) or (isinstance(value, str) and THRESHOLD.fullmatch(value) is not None)
