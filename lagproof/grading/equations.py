"""Answers with an equals sign: chains of equal values, and names in front of a value that say nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import sympy

from lagproof.grading.clean import split_top
from lagproof.grading.reader import UnreadableError, is_constant

Reader = Callable[[str], Any]
_VARIABLE = re.compile(r"(?<![A-Za-z\\])[A-DF-Za-df-hj-z](?![A-Za-z])")
_INDEX = r"(?:_\{?\w{1,9}\}?)?"
_LETTER = rf"(?![xyz](?![A-Za-z_]))[A-Za-z]+{_INDEX}'*"
_APPLIED = re.compile(rf"(?<![A-Za-z\\])(?:{_LETTER}|\)) ?(?:\^ ?\{{?-1\}}?)? ?[(\[]")
_ASKED = re.compile(
    r"\\(?:lfloor|lceil|operatorname|mathbb|max|min|det|deg|gcd|bmod|binom|text|mathrm|angle|circ)(?![A-Za-z])|\||\\#|"
    r"\\(?:sin|cos|tan|cot|log|ln)\s*(?:\\?[A-Z]|\\angle|\\(?:alpha|beta|gamma|theta|phi)(?![A-Za-z]))"
)
_COMMAND = r"\\(?!(?:sin|cos|tan|cot|sec|csc|ln|log)(?![A-Za-z]))[A-Za-z]+(?:_\{?\w{1,9}\}?)?'*"
_CALL = re.compile(rf"^(?:{_COMMAND}|{_LETTER}) ?(?:\^ ?\{{?-1\}}?)? ?\([^()=]*\)")
_FIGURES = "angle|triangle|overline|measuredangle|vec"
_WORDS = re.compile(rf"^(?:\\(?:text|mathrm|mbox)\s*\{{[^{{}}]*\}}|\\(?:{_FIGURES})|[A-Za-z{{}}\s|.:])+")
_COORDINATE = re.compile(r"^\\?[A-Za-z]+(?:_\{?\w{1,9}\}?)?")


def has_equation(text: str) -> bool:
    """Whether there is an equals sign outside every bracket."""
    return any(len(split_top(part, "=")) > 1 for part in split_top(text, ",;"))


def chains_agree(text: str, reader: Reader, same: Callable[[Any, Any], bool]) -> bool:
    """Whether each chain ``a = b = c`` of a list has only one value: ``x = 5 = 7`` says nothing."""
    for part in split_top(text, ",;"):
        members = [member.strip() for member in split_top(part, "=")]
        if len(members) == 1:
            continue
        values = [v for m in members if not _VARIABLE.search(m) and is_constant(v := _tried(m, reader))]
        if not all(same(values[0], value) for value in values[1:]):
            return False
    return True


def without_names(text: str, reader: Reader, *, of_gold: bool) -> str:
    """Every chain of a list without the names in front; a part that is an equation stays what it is.

    In front of an answer's value anything may stand that the question can have asked for: a name, ``f(2)``, ``m+n``.
    A right answer loses only a name or ``f(x)``, since ``x+y=5`` is a line and not the number 5.
    """
    return ", ".join(_value(part.strip(), reader, of_gold) for part in split_top(text, ",;"))


def _value(part: str, reader: Reader, of_gold: bool) -> str:
    """The last member of a chain; the one before it where a lone symbol comes last (``7 = x``)."""
    *before, last = (member.strip() for member in split_top(part, "="))
    if not before:
        return part
    if isinstance(_tried(last, reader), sympy.Symbol) and is_constant(_tried(before[-1], reader)):
        before, last = [last, *before[:-1]], before[-1]
    fits = all(_is_name(member, reader) or is_constant(_tried(member, reader)) for member in before)
    return last if fits or (not of_gold and _can_be_asked_for(before, reader)) else part


def _is_name(text: str, reader: Reader) -> bool:
    if _CALL.fullmatch(text) or (_WORDS.fullmatch(text) and re.search(r"[A-Z]{2}|[A-Za-z]{3}|\\", text)):
        return True
    members = split_top(text[1:-1], ",") if text.startswith("(") and text.endswith(")") else [text]
    return all(isinstance(_tried(member, reader), sympy.Symbol) for member in members)


def coordinates(text: str) -> dict[str, str]:
    """Values by name of a list of values with different names (``x = 1, y = 2``); empty for anything else."""
    sides = [side.strip() for side in split_top(text, "=")]
    if len(sides) == 2 and all(side.startswith("(") and side.endswith(")") for side in sides):
        names, values = ([part.strip() for part in split_top(side[1:-1], ",;")] for side in sides)
        text = ", ".join(f"{n}={v}" for n, v in zip(names, values, strict=True)) if len(names) == len(values) else text
    pairs = [[side.strip() for side in split_top(part, "=")] for part in split_top(text, ",;")]
    if len(pairs) < 2 or any(len(pair) != 2 or _COORDINATE.fullmatch(pair[0]) is None for pair in pairs):
        return {}
    return dict(pairs) if len(dict(pairs)) == len(pairs) else {}


def _can_be_asked_for(members: list[str], reader: Reader) -> bool:
    """Whether a question can have asked for the first member: ``m+n``, ``100a+b``, ``f(2)-f(1)``, ``|z|``.

    Not an expression in one variable (``2x``), nor one with a constant term (``3x+y+1``): these are equations to solve.
    """
    first, *others = members
    if not all(is_constant(_tried(other, reader)) or _VARIABLE.search(other) for other in others):
        return False
    value = None if _ASKED.search(first) or _APPLIED.search(first) else _tried(first, reader)
    if not isinstance(value, sympy.Expr):
        return True
    symbols = value.free_symbols
    return len(symbols) > 1 and not first.startswith("-") and value.subs(dict.fromkeys(symbols, 0)) in (0, sympy.nan)


def _tried(text: str, reader: Reader) -> Any:
    try:
        return reader(text)
    except UnreadableError:
        return None
