"""The letter of a multiple choice, with or without what it stands for. Text in, text out."""

from __future__ import annotations

import re

_LETTER = re.compile(
    r"(?:\\(?:text|textbf|textrm|mathrm|mathbf)\s*\{\s*)?"
    r"(?:\(([A-J])\)|([A-J])\)|([A-J])\.(?=[\s~}]))\s*\}?[\s~:.]*(.*)"
)
_NO_TEXT = re.compile(r"[,;^}]|\\c[au]p(?![A-Za-z])|.*(?<![A-Za-z])[A-J]\)")
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
