"""Ways of writing more than a value: choices with their text, two signs, ratios. Text in, text out, no algebra."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lagproof.grading.clean import split_top
from lagproof.grading.units import is_word

_BOTH = re.compile(r"\\(pm|mp)(?![A-Za-z])\s*")
_TIME = re.compile(r"^\d{1,2}:\d\d")


def both_signs(text: str) -> str:
    r"""``1\pm\sqrt{2}`` as the list ``1+\sqrt{2}, 1-\sqrt{2}``; signs that stand together are upper with upper."""
    if _BOTH.search(text) is None:
        return text
    if text.startswith("\\{") and text.endswith("\\}"):
        return rf"\{{{both_signs(text[2:-2])}\}}"
    parts = (part.strip() for part in split_top(text, ",;"))
    return ", ".join(", ".join(_signed(part)) if _BOTH.search(part) else part for part in parts)


def _signed(part: str) -> list[str]:
    upper = _BOTH.sub(lambda m: "+" if m[1] == "pm" else "-", part)
    lower = _BOTH.sub(lambda m: "-" if m[1] == "pm" else "+", part)
    return [re.sub(r"(^|[=({,]\s*)\+", r"\1", each) for each in (upper, lower)]


def ratio(text: str) -> list[str] | None:
    """The terms of ``3:4:5`` and ``AB:BC:CA = 3:4:5``, ``None`` for anything else."""
    terms = [term.strip() for term in split_top(split_top(text, "=")[-1], ":")]
    return terms if len(terms) > 1 and all(terms) else None


def is_time(text: str) -> bool:
    """Whether it can be a time of day, as ``3:15``; ``1:5`` is a ratio."""
    return _TIME.fullmatch(text) is not None


_LETTER = re.compile(
    r"^(?:\\(?:text|textbf|textrm|mathrm|mathbf) ?\{ ?)?"
    r"(?:\(([A-J])\)|([A-J])\)|([A-J])\.(?=[\s~}])) ?\}?[\s~:.]*(.*)"
)
_NO_TEXT = re.compile(r"^(?:[,;^}]|\\c[au]p(?![A-Za-z])|.*(?<![A-Za-z])[A-J]\))")
"""How what follows a letter begins or goes on where it is not what the letter stands for: ``(A), (C)``, ``(B)^2``."""


def choice(text: str) -> tuple[str, str] | None:
    r"""Letter and text of ``\textbf{(C)}\ 5`` and ``C) 5``; ``None`` for a letter alone and for anything else."""
    match = _LETTER.fullmatch(text)
    if match is None or not match[4].strip() or _NO_TEXT.match(match[4]):
        return None
    rest = match[4].strip()
    if rest.endswith("}") and rest.count("}") > rest.count("{"):  # of a \text{ that held both
        rest = rest[:-1].strip()
    return match[1] or match[2] or match[3], rest


_WRAPPED = re.compile(r"\\(?:text(?:normal|bf|it|rm|sf|tt)?|mbox|hbox|math(?:rm|bf)) ?\{([^{}]*)\}")
_LETTERS = re.compile(r"^[A-J](?:[ ,;&]*[A-J])+")
_NAMED_CHOICE = re.compile(r"^(?:((?i:option|choice|answer)|选项?|选择|答案) ?)?\(?([A-J])\)?(?:(?:[:.)]| -) ?(\S.*))?")


def letters(text: str) -> tuple[str, bool] | None:
    r"""Letters of several choices (``ACD``, ``A, C``, ``\text{A and C}``), and whether they stand apart."""
    plain = re.sub(r"(?i)\band\b|[()]", " ", _WRAPPED.sub(r"\1", text)).strip()
    if not _LETTERS.fullmatch(plain):
        return None
    found = "".join(re.findall("[A-J]", plain))
    return (found, plain != found) if len(set(found)) == len(found) else None


def named_choice(text: str) -> str | None:
    r"""The letter of ``\text{Option E}``, ``E: some words`` and ``E - some words``."""
    match = _NAMED_CHOICE.fullmatch(_WRAPPED.sub(r"\1", text).strip())
    if match is None or (match[3] is None and match[1] is None):
        return None
    rest = match[3]
    said = rest is None or any(map(is_word, re.findall("[A-Za-z]+", rest))) or re.search(r"\d", rest) is not None
    return match[2] if said and not (rest and re.search(r"[=^\\]", rest)) else None


_ALL_REALS = frozenset(
    f"{start}{what}"
    for start in ("all ", "any ", "every ", "the set of all ", "the ", "the set of ", "")
    for what in ("real numbers", "reals", "real number", "real x", "real values of x", "real values")
)
_NOTHING = frozenset(
    [
        "no solution",
        "no solutions",
        "no real solution",
        "no real solutions",
        "empty set",
        "the empty set",
        "there are no solutions",
    ]
)


def named_set(text: str, words: str | None) -> str:
    r"""``\text{all real numbers}`` as ``\mathbb{R}``, ``\text{no solution}`` as ``\emptyset``; else the text."""
    if words in _ALL_REALS:
        return r"\mathbb{R}"
    if words in _NOTHING:
        return r"\emptyset"
    return r"\text{does not exist}" if words == "dne" else text


@dataclass(frozen=True)
class Congruence:
    """``name`` is one of ``residues`` modulo ``modulus``; without a name only what it is equal to was written."""

    name: str | None
    residues: frozenset[int]
    modulus: int


_CONGRUENCE = re.compile(r"^(?:([^=,;]*?) ?\\equiv)? ?(-?\d+(?: ?, ?-?\d+)*) ?\\pmod ?\{(\d{1,9})\}")


def congruence(text: str) -> Congruence | None:
    r"""``n \equiv 1, 3 \pmod{4}``; ``None`` for anything else."""
    match = _CONGRUENCE.fullmatch(text)
    if match is None or len(text) > 200 or int(match[3]) == 0:
        return None
    residues = frozenset(int(part) % int(match[3]) for part in match[2].split(","))
    return Congruence(match[1], residues, int(match[3]))


_CONDITION = re.compile(r",? ?\\(?:text|mbox|mathrm) ?\{ ?,? ?(?:for|where|with)\b|,? (?:for|where) ")
_GENERAL = re.compile(r"\b(?:any|all|every|each|some|arbitrary|constants?|integers?|real|positive|natural|whole)\b")
_SAYS_WHICH = re.compile(r"[<>]|\\(?:leq?|geq?|neq?|in|gt|lt)(?![A-Za-z])")


def without_condition(text: str) -> tuple[str, str | None]:
    r"""A value and for which numbers it holds (``\text{ for } n\ge 1``, ``\text{ for any constant } c``).

    The condition is the inequality or membership in it, empty for one in words alone, ``None`` where there is none or
    where it belongs to the answer, as "if" and ``\text{for } n=1`` do.
    """
    match = _CONDITION.search(text)
    if match is None or match.start() == 0:
        return text, None
    said = text[match.start() :]
    relation = _SAYS_WHICH.search(said) is not None
    if "=" in said or not (relation or _GENERAL.search(said)) or len(list(_CONDITION.finditer(said))) > 1:
        return text, None
    return text[: match.start()].strip(" ,"), said if relation else ""


_BUILDER = re.compile(
    r"^\\\{ ?([A-Za-z]) ?(?:\\in ?\\mathbb ?\{?R\}? ?)?(?:\\mid(?![A-Za-z])|\\colon|\\vert|[|:])(.*)\\\}"
)


def set_condition(text: str) -> str | None:
    r"""The condition of ``\{x \mid x<3\}``, a statement about its letter; ``None`` for anything else."""
    match = _BUILDER.fullmatch(text)
    return None if match is None else match[2].strip()
