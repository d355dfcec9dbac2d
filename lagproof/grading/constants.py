"""Equality of two constants, exact or to many digits. Imported only in the processes of the pool."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import sympy
from math_verify import verify as math_verify
from sympy.core.evalf import PrecisionExhausted

from lagproof.grading.numbers import close, tolerance
from lagproof.grading.reader import UnreadableError

MAX_RESULT_DIGITS = 40_000
"""Digits of a number that is worked out; nothing longer is."""

_DIGITS = 60
_AGREEMENT = 100
"""Digits behind the size of two numbers to which their difference must vanish."""


def same_number(gold: sympy.Expr, answer: sympy.Expr, *, rounded: bool) -> bool:
    """Whether two constants are equal.

    Rationals exactly, whatever their size; of others the difference is worked out with a hundred digits more than the
    numbers have, since an absolute precision calls ``1/2^{99}`` and ``1/2^{98}`` equal, and a relative one
    ``2^{200}+\\sqrt{2}`` and ``2^{200}``. Where one was written with a decimal point, to six decimals.

    Raises:
        UnreadableError: one is too large to be worked out.
    """
    if gold == answer:
        return True
    a, b = _work_out(gold), _work_out(answer)
    if isinstance(a, sympy.Rational) and isinstance(b, sympy.Rational):
        return close(Fraction(a.p, a.q), Fraction(b.p, b.q), rounded=rounded)
    if a.has(sympy.nan, sympy.zoo, sympy.oo) or b.has(sympy.nan, sympy.zoo, sympy.oo):
        return a == b and a not in (sympy.nan, sympy.zoo)
    try:
        return _near(a, b) if rounded else _is_zero(a - b, int(digits(gold) + digits(answer)) + _AGREEMENT)
    except (PrecisionExhausted, TypeError, ValueError):
        return math_verify(a, b, timeout_seconds=None, raise_on_error=True)


def _near(a: Any, b: Any) -> bool:
    re, im = sympy.N(a, _DIGITS, strict=True).as_real_imag()
    allowed = [tolerance(Fraction(str(part))) for part in (re, im)]
    gaps = [abs(Fraction(str(part))) for part in sympy.N(a - b, _DIGITS).as_real_imag()]
    return all(gap <= limit for gap, limit in zip(gaps, allowed, strict=True))


def _is_zero(gap: Any, precision: int) -> bool:
    """Whether a difference has no digit that is not 0, worked out to so many."""
    if gap.is_Rational:
        return gap == 0
    try:
        value = sympy.N(gap, 3, maxn=precision, strict=True)
    except PrecisionExhausted:
        if not gap.has(sympy.I):
            return True
        parts = gap.as_real_imag()
        if any(part.has(sympy.I) for part in parts):  # not taken apart: nothing is known of either
            raise ValueError(gap) from None
        return all(_is_zero(part, precision) for part in parts)
    if not value.is_number or value.has(sympy.nan, sympy.zoo, sympy.oo):
        raise ValueError(value)
    return value == 0


def _work_out(value: sympy.Expr) -> Any:
    if digits(value) > MAX_RESULT_DIGITS:
        raise UnreadableError("a number too large to be worked out")
    return value.doit()


def digits(value: Any) -> float:
    """A bound on the decimal digits that working out an expression takes; infinite for towers of powers."""
    if isinstance(value, sympy.Rational):
        return (abs(value.p).bit_length() + value.q.bit_length()) * math.log10(2) + 1
    if isinstance(value, sympy.Pow):
        base = value.base
        each = math.log10(max(abs(base.p), base.q)) if isinstance(base, sympy.Rational) else max(1.0, digits(base))
        return each * max(1.0, _size(value.exp)) + 1 if each else 1.0
    if isinstance(value, sympy.factorial | sympy.gamma):
        n = _size(value.args[0])
        return n * math.log10(n + 10)
    if isinstance(value, sympy.binomial):
        n, k = _size(value.args[0]), _size(value.args[1])
        return min(k, max(n - k, 0)) * math.log10(n + 10) if k < math.inf else math.inf
    return 1 + sum(digits(arg) for arg in value.args) if value.args else 1.0


def _size(value: Any) -> float:
    """Absolute value of a constant, roughly; 1 for what has symbols in it."""
    if value.free_symbols:
        return 1.0
    return float(abs(sympy.N(value.doit(), 5))) if digits(value) < 20 else math.inf
