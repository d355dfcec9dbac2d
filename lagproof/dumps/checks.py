"""What is wrong with the log-probabilities of a dump: invented, missing, padded, shifted, or the same twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagproof.dumps.flat import Flat
from lagproof.errors import InputError

SENTINEL = -1000.0
"""Below it no softmax in float32 is: such a number stands for "no score"."""

ROUNDED_SHARE = 0.999
"""Log-probabilities of which at least this share has only bfloat16's digits are taken to have been rounded to it."""

PADDED_SHARE = 0.1
"""Share of responses that end with two tokens of probability exactly 1 from which on they are taken for padded."""

INVENTED_LOGP = -0.1
"""Where one side says probability exactly 1 and the other less than ``exp`` of this, the one did not score it."""

INVENTED_SHARE = 0.005
"""Share of such tokens from which on they are taken to be filled in."""

MISSING_SHARE = 0.1
"""Share of tokens without both log-probabilities from which on a verdict is not of the whole."""

SAME_SHARE = 0.99
"""Share of tokens (probability 1 aside) that are equal to the last bit from which on two columns are one."""

SHIFTED_GAIN = 0.5
"""A shift by one token is taken for the cause where it leaves less than this share of the mismatch."""

SHIFTED_FROM = 0.1
"""Mean mismatch, nats, below which no shift is looked for."""

SHIFTED_TOKENS = 20
LOOKED_AT = 1 << 20
FAR = 5.0
"""Nats at which the mismatch of a token is cut for the comparison of shifts, so that a few do not decide."""


@dataclass(frozen=True)
class Doubt:
    """Something about the tokens that a verdict must say first.

    Attributes:
        sentence: with its numbers.
        is_blind: whether nothing can be said about the mismatch.
        about: what to change: ``mask``, ``rescore`` or empty.
    """

    sentence: str
    is_blind: bool = False
    about: str = ""


def checked(flat: Flat, columns: Mapping[str, str], notes: list[str], *, is_ours: bool) -> tuple[Flat, list[Doubt]]:
    """The tokens without what is none, and what must be said of them.

    Raises:
        InputError: no token, none with both log-probabilities, or log-probabilities above 0.
    """
    if not len(flat.token["policy_logp"]):
        raise InputError("there is not one token: nothing to look at")
    doubts: list[Doubt] = []
    flat = _without_sentinels(flat, columns, notes)
    flat = _without_padding(flat, columns, doubts)
    policy, sampler = flat.token["policy_logp"], flat.token["sampler_logp"]
    known = np.isfinite(policy) & np.isfinite(sampler)
    if not known.any():
        raise InputError(
            f"not one of {len(policy)} tokens has both log-probabilities: all are missing, NaN or infinite"
        )
    _check_signs(flat, columns, known, notes)
    if not is_ours and (doubt := _same(policy[known], sampler[known], columns)) is not None:
        doubts.append(doubt)
    flat = _without_invented(flat, columns, known, doubts)
    _note_missing(flat, len(policy), int(known.sum()), notes, doubts)
    if (doubt := _shifted(flat, columns)) is not None:
        doubts.append(doubt)
    return flat, doubts


def _with(flat: Flat, **token: NDArray[Any]) -> Flat:
    return replace(flat, token={**flat.token, **token})


def _without_sentinels(flat: Flat, columns: Mapping[str, str], notes: list[str]) -> Flat:
    changed: dict[str, NDArray[Any]] = {}
    for role in ("policy_logp", "sampler_logp"):
        values = flat.token[role]
        is_none = (values < SENTINEL) & np.isfinite(values)
        if is_none.any():
            num = int(is_none.sum())
            notes.append(
                f"{columns[role]} is {values[is_none].min():.4g} on {num} token{'s' if num > 1 else ''}: no softmax in "
                "float32 gives that, so it stands for a missing value, and was left out"
            )
            changed[role] = np.where(is_none, np.float32(np.nan), values)
    return _with(flat, **changed)


def _without_padding(flat: Flat, columns: Mapping[str, str], doubts: list[Doubt]) -> Flat:
    """Without the zeros on both sides at the ends of responses, where there are too many for tokens."""
    zero = (flat.token["policy_logp"] == 0) & (flat.token["sampler_logp"] == 0)
    end = np.cumsum(flat.lengths)
    last = np.maximum.accumulate(np.where(zero, -1, np.arange(len(zero)))) if len(zero) else np.empty(0, np.int64)
    tail = np.zeros(len(end), dtype=np.int64)
    some = flat.lengths > 0
    tail[some] = np.minimum(end[some] - 1 - last[end[some] - 1], flat.lengths[some])
    tail[tail < 2] = 0
    padded = int(np.count_nonzero(tail))
    if padded <= PADDED_SHARE * len(end) or len(np.unique(flat.lengths[tail > 0])) > 1 + padded / 4:
        return flat  # responses of many lengths that end with sure tokens are no rectangle
    found = (
        f"{padded} of {len(end)} responses end with log-probabilities of exactly 0 on both sides, {int(tail.sum())} "
        "tokens in all, as padding has"
    )
    if "mask" in columns:
        doubts.append(Doubt(f"{found}, although {columns['mask']} counts them", about="mask"))
    else:
        doubts.append(Doubt(f"{found}; they were left out: name the mask with --map mask=<column>", about="mask"))
    keep = np.arange(len(zero)) < np.repeat(end - tail, flat.lengths)
    return replace(flat, lengths=flat.lengths - tail, token={role: x[keep] for role, x in flat.token.items()})


def _without_invented(flat: Flat, columns: Mapping[str, str], known: NDArray[np.bool_], doubts: list[Doubt]) -> Flat:
    """Without log-probabilities that were filled in with 0 on one side."""
    changed: dict[str, NDArray[Any]] = {}
    for role, other in (("sampler_logp", "policy_logp"), ("policy_logp", "sampler_logp")):
        values = flat.token[role]
        if float((known & (values == 0) & (flat.token[other] < INVENTED_LOGP)).sum() / known.sum()) < INVENTED_SHARE:
            continue
        invented = known & (values == 0) & (flat.token[other] != 0)
        share = float(invented.sum() / known.sum())
        is_all = not (known & ~invented).any()
        doubts.append(
            Doubt(
                f"{columns[role]} is exactly 0 on {share:.0%} of the tokens where {columns[other]} is not: filled in, "
                "not scored (tool output or a prompt without its mask, or greedy sampling); left out of the verdict",
                is_blind=is_all,
                about="mask",
            )
        )
        changed[role] = np.where(invented, np.float32(np.nan), values)
    return _with(flat, **changed)


def _note_missing(flat: Flat, num: int, num_known: int, notes: list[str], doubts: list[Doubt]) -> None:
    if num_known == num:
        return
    missing = num - num_known
    sentence = f"{missing} of {num} tokens lack a finite log-probability and were left out"
    if missing >= MISSING_SHARE * num:
        doubts.append(Doubt(f"{sentence} ({missing / num:.0%}): nothing is known of them"))
    else:
        notes.append(sentence)


def _check_signs(flat: Flat, columns: Mapping[str, str], known: NDArray[np.bool_], notes: list[str]) -> None:
    num_known = int(known.sum())
    for role in ("policy_logp", "sampler_logp"):
        values = flat.token[role]
        above = int(np.count_nonzero(values > 1e-3))
        if above > num_known // 2:
            raise InputError(
                f"{columns[role]} is above 0 on {above} of {num_known} tokens: log-probabilities never are"
            )
        if above:
            tokens = "1 token" if above == 1 else f"{above} tokens"
            notes.append(f"{columns[role]} is above 0 on {tokens}: log-probabilities never are")
        if _rounded(values, known, num_known):
            notes.append(
                f"{columns[role]} was rounded to bfloat16: the rounding alone gives a d_bar of about .002, as much as "
                "some engines differ; keep log-probabilities in float32"
            )


def _rounded(values: NDArray[np.float32], known: NDArray[np.bool_], num_known: int) -> bool:
    coarse = (values.view(np.uint32) & np.uint32(0xFFFF)) == 0
    is_zero = values == 0
    others = num_known - int(np.count_nonzero(is_zero & known))
    return others > 0 and int(np.count_nonzero(coarse & known & ~is_zero)) >= ROUNDED_SHARE * others


def _same(policy: NDArray[Any], sampler: NDArray[Any], columns: Mapping[str, str]) -> Doubt | None:
    counts = (policy != 0) | (sampler != 0)
    if not counts.any():
        return Doubt("both log-probabilities are exactly 0 on every token: nothing was scored", is_blind=True)
    share = float((policy == sampler)[counts].mean())
    if share < SAME_SHARE:
        return None
    return Doubt(
        f"{columns['policy_logp']} and {columns['sampler_logp']} are one: equal to the last bit on {share:.0%} of the "
        "tokens, as no two engines are. The trainer did not score again, and nothing is known about the mismatch",
        is_blind=True,
        about="rescore",
    )


def _shifted(flat: Flat, columns: Mapping[str, str]) -> Doubt | None:
    """Whether one column lies one token beside the other."""
    policy, sampler = (flat.token[role][:LOOKED_AT].astype(np.float64) for role in ("policy_logp", "sampler_logp"))
    response = np.repeat(np.arange(len(flat.lengths)), flat.lengths)[:LOOKED_AT]
    inside = response[1:] == response[:-1]
    as_is = _distance(policy, sampler, np.ones(len(policy), dtype=np.bool_))
    if as_is is None or as_is < SHIFTED_FROM:
        return None
    late = _distance(policy[1:], sampler[:-1], inside)
    early = _distance(policy[:-1], sampler[1:], inside)
    found = [(x, where) for x, where in ((late, "later"), (early, "earlier")) if x is not None]
    if not found or min(found)[0] > SHIFTED_GAIN * as_is:
        return None
    best, where = min(found)
    return Doubt(
        f"{columns['policy_logp']} lies one token {where} than {columns['sampler_logp']}: mean |log-ratio| is "
        f"{as_is:.3g} nats as they are and {best:.3g} moved by one (each at most {FAR:g}). Align them (logits at t "
        "score token t + 1); nothing is known about the mismatch until then",
        is_blind=True,
    )


def _distance(a: NDArray[Any], b: NDArray[Any], chosen: NDArray[np.bool_]) -> float | None:
    d = np.abs(a - b)
    d = d[chosen & np.isfinite(d)]
    return float(np.minimum(d, FAR).mean()) if len(d) >= SHIFTED_TOKENS else None
