"""Equations and inequalities as what they say: a line however it is written, the numbers between two bounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import sympy
from latex2sympy2_extended.sets import FiniteSet
from math_verify import verify as math_verify
from sympy.core.relational import Eq, Ge, Gt, Le, Lt, Ne, Relational

from lagproof.grading.reader import UnreadableError, is_constant

Same = Callable[[Any, Any], bool]
_PROBES = ((5, 7), (17, 3), (2, 9))


def same_equation(gold: Eq, answer: Eq, same: Same) -> bool:
    """Whether two equations have the same solutions: one is the other times a number, or math-verify solves both alike.

    A value with a name is that value of that name: ``x = 7`` is neither ``y = 7`` nor ``2x = 7``.
    """
    if not (isinstance(gold.rhs, sympy.Expr) and isinstance(answer.rhs, sympy.Expr)):
        return gold.lhs == answer.lhs and same(gold.rhs, answer.rhs)
    named = _named(gold), _named(answer)
    if named[0] and named[1]:
        return named[0][0] == named[1][0] and same(named[0][1], named[1][1])
    if not all(isinstance(side, sympy.Expr) and not side.is_Matrix for side in (*gold.args, *answer.args)):
        return False
    factor = _factor(gold.lhs - gold.rhs, answer.lhs - answer.rhs)
    if factor is not None:
        return same(gold.lhs - gold.rhs, factor * (answer.lhs - answer.rhs))
    if gold.free_symbols != answer.free_symbols or named[0] or named[1]:
        return False
    return math_verify(gold, answer, timeout_seconds=None, raise_on_error=True)


def _named(value: Eq) -> tuple[Any, Any] | None:
    """Name and value of ``x = 7`` and ``7 = x``."""
    for name, other in ((value.lhs, value.rhs), (value.rhs, value.lhs)):
        if isinstance(name, sympy.Symbol) and isinstance(other, sympy.Expr) and not other.free_symbols:
            return name, other
    return None


def _factor(gold: Any, answer: Any) -> Any:
    """The number that one expression is of the other as far as a few points tell, ``None`` if it is no number."""
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return None
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    quotients = []
    for top, bottom in _PROBES:
        point = [(symbol, sympy.Rational(top + 3 * i, bottom + i)) for i, symbol in enumerate(symbols)]
        above, below = sympy.N(gold.subs(point), 40), sympy.N(answer.subs(point), 40)
        if not all(value.is_number and value.is_finite and abs(value) > 1e-20 for value in (above, below)):
            return None
        quotients.append(above / below)
    if any(abs(q / quotients[0] - 1) > 1e-25 for q in quotients):
        return None
    found = sympy.nsimplify(quotients[0], rational=True, tolerance=1e-25)
    fits = isinstance(found, sympy.Rational) and abs(found / quotients[0] - 1) < 1e-20 and found.q < 10**9
    return found if fits else None


def is_region(value: Any) -> bool:
    """Whether it is an interval or a union of them, also as ``x \\in [0,1)``."""
    named = isinstance(value, Eq) and isinstance(value.lhs, sympy.Symbol)
    return isinstance(value.rhs if named else value, sympy.Interval | sympy.Union)


def region(value: Any) -> Any:
    r"""The numbers that ``0\le x<1``, or several with an "or", describe; else the value as it is."""
    if isinstance(value, Eq) and is_region(value):
        return value.rhs
    if isinstance(value, FiniteSet):
        parts = [region(part) for part in vars(value)["_unsorted_args"]]
        if not all(map(is_region, parts)):
            return value
        union = sympy.Union(*parts)  # a list says "or", and "and" where "or" says nothing: x > 1, x < 3
        return sympy.Intersection(*parts) if union == sympy.S.Reals else union
    if isinstance(value, Relational | sympy.And) and not isinstance(value, Eq):
        with suppress(NotImplementedError, AttributeError, TypeError, ValueError):  # nothing that sympy can solve
            return value.as_set()
    return value


def same_relation(gold: Any, answer: Any, same: Same) -> bool:
    """Whether two inequalities, or several with an "and", say the same, in any order and either way around."""
    if len(gold.free_symbols | answer.free_symbols) == 1:
        sets = region(gold), region(answer)
        if all(map(is_region, sets)):
            return same(*sets) if all(isinstance(s, sympy.Interval) for s in sets) else sets[0] == sets[1]
    right, rest = _parts(gold), _parts(answer)
    for kind, value in right:
        partner = next((part for part in rest if part[0] is kind and _same_side(kind, value, part[1], same)), None)
        if partner is None:
            return False
        rest.remove(partner)
    return not rest


def _parts(value: Any) -> list[tuple[type, Any]]:
    """Each inequality as what is above 0, or at least 0, or not 0."""
    parts = vars(value).get("_unsorted_args", value.args) if isinstance(value, sympy.And) else [value]
    return [part for each in parts for part in _against_zero(each)]


def _against_zero(value: Any) -> list[tuple[type, Any]]:
    kinds = {Lt: (Gt, -1), Le: (Ge, -1), Gt: (Gt, 1), Ge: (Ge, 1), Ne: (Ne, 1), Eq: (Eq, 1)}
    kind, sign = kinds[type(value)]
    if not (isinstance(value.lhs, sympy.Expr) and isinstance(value.rhs, sympy.Expr)):
        return [(kind, value)]
    return [(kind, sign * (value.lhs - value.rhs))]


def _same_side(kind: type, gold: Any, answer: Any, same: Same) -> bool:
    """Whether two differences are the same but for a number, which is positive where the side counts."""
    factor = _factor(gold, answer)
    return factor is not None and (factor > 0 or kind in (Eq, Ne)) and same(gold, factor * answer)


def solutions(text: str, reader: Callable[[str], Any]) -> Any:
    r"""The real numbers that inequalities, equations and sets with ``\lor`` and ``\land`` between them describe.

    ``None`` where a part is neither, or they are about several letters.
    """
    symbols: set[Any] = set()
    union = []
    for either in re.split(r"\\lor(?![A-Za-z])", text):
        parts = [_part(part.strip(), reader, symbols) for part in re.split(r"\\land(?![A-Za-z])", either)]
        if any(part is None for part in parts):
            return None
        union.append(sympy.Intersection(*parts))
    return sympy.Union(*union) if len(symbols) < 2 else None


def _part(text: str, reader: Callable[[str], Any], symbols: set[Any]) -> Any:
    try:
        value = reader(text)
    except UnreadableError:
        return None
    symbols |= value.free_symbols
    if isinstance(value, Eq) and isinstance(value.lhs, sympy.Symbol) and is_constant(value.rhs):
        return sympy.FiniteSet(value.rhs.doit())
    return _plain_set(region(value))


def _plain_set(value: Any) -> Any:
    """A set of sympy's own kinds, ``None`` for anything else."""
    if isinstance(value, FiniteSet):
        elements = vars(value)["_unsorted_args"]
        return sympy.FiniteSet(*(e.doit() for e in elements)) if all(map(is_constant, elements)) else None
    if isinstance(value, sympy.Union):
        parts = [_plain_set(part) for part in value.args]
        return None if any(part is None for part in parts) else sympy.Union(*parts)
    if isinstance(value, sympy.Interval):
        return sympy.Interval(value.start.doit(), value.end.doit(), bool(value.left_open), bool(value.right_open))
    return value if value in (sympy.S.Reals, sympy.S.EmptySet) else None


def same_set(gold: Any, answer: Any) -> bool:
    """Whether two sets of real numbers are equal."""
    return gold == answer or sympy.SymmetricDifference(gold, answer).doit() is sympy.S.EmptySet
