r"""Right answers as data sets have them: in a list, escaped twice, or words for nothing. Imports no torch."""

from __future__ import annotations

import json
import re
from contextlib import suppress

MISSING = frozenset(
    [
        "proof",
        "notfound",
        "not found",
        "n/a",
        "none",
        "null",
        "nan",
        "unknown",
        "see solution",
        "see proof",
        "see figure",
    ]
)
"""Words that a column of right answers has where there is none; ``\text{none}`` is an answer."""

_ESCAPED_TWICE = re.compile(r"\\\\[A-Za-z]{2}")
_ESCAPED_ONCE = re.compile(r"(?<!\\)\\[A-Za-z]")


def written_once(gold: str) -> str:
    r"""A right answer without what stored it: ``["5"]`` as ``5``, and ``\\frac{1}{2}`` with one backslash.

    Two backslashes in front of a command are one where there is no command with one: in front of a row of a matrix two
    are meant.
    """
    text = gold.strip()
    if text.startswith('["') and text.endswith('"]'):
        with suppress(ValueError):
            held = json.loads(text)
            text = held[0].strip() if len(held) == 1 and isinstance(held[0], str) else text
    if _ESCAPED_TWICE.search(text) and not _ESCAPED_ONCE.search(text):
        text = text.replace("\\\\", "\\")
    return text


def is_missing(gold: str) -> bool:
    """Whether it says that there is no right answer."""
    return gold.strip(" .\n\t").lower() in MISSING
