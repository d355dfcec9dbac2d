"""Ways of writing more than a value: choices with their text, two signs, ratios. Text in, text out, no algebra."""

from __future__ import annotations

import re

from lagproof.grading.clean import split_top

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
