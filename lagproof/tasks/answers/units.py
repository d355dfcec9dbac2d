"""Units and words behind a number. A unit is never needed; a wrong one is wrong."""

from __future__ import annotations

import re

_WORDS = r"\\(?:text(?:normal|bf|it|rm|sf|tt)?|mbox|hbox|math(?:rm|bf|it|sf|normal))\s*"
_POWER = r"(?:\s*\^\s*(?:\{\s*(?P<p1>\d)\s*\}|(?P<p2>\d)))?"
_MARKED = re.compile(rf"(?P<value>.*\S)\s*{_WORDS}\{{(?P<words>[^{{}}]*)\}}{_POWER}$", re.DOTALL)
_BARE = re.compile(rf"(?P<value>.*[\d%)}}])\s+(?P<words>[A-Za-z][A-Za-z. /-]*?){_POWER}$", re.DOTALL)
_DEGREES = re.compile(r"\s*\^\s*\{?\s*\\circ\s*\}?\s*([CFK]?)$")

_NAMES = {
    "m": "m meter metre",
    "cm": "cm centimeter centimetre",
    "mm": "mm millimeter millimetre",
    "km": "km kilometer kilometre",
    "in": "in inch inches",
    "ft": "ft foot feet",
    "yd": "yd yard",
    "mi": "mi mile",
    "g": "g gram gramme",
    "kg": "kg kilogram",
    "mg": "mg milligram",
    "lb": "lb lbs pound",
    "oz": "oz ounce",
    "s": "s sec second",
    "min": "min minute",
    "h": "h hr hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "yr year",
    "l": "l liter litre",
    "ml": "ml milliliter millilitre",
    "dollar": "dollar",
    "cent": "cent",
    "euro": "euro",
    "mph": "mph",
    "km/h": "km/h kmh kph",
    "m/s": "m/s",
}
_CANONICAL = {word: unit for unit, words in _NAMES.items() for word in words.split()}
_POWERS = {"square": "2", "sq": "2", "squared": "2", "cubic": "3", "cu": "3", "cubed": "3"}
_SINGLE = frozenset("mgshlL")


def split_unit(text: str, *, plain_number: bool) -> tuple[str, str | None]:
    """A cleaned answer without what is written behind its value, and the physical unit if one was recognised.

    Args:
        text: a cleaned answer.
        plain_number: whether a bare single letter behind a number (``10 m``) can only be a unit, because the right
            answer is a number.
    """
    if degrees := _DEGREES.search(text):
        return text[: degrees.start()].strip(), f"degree{degrees[1]}" if degrees[1] else None
    match = _MARKED.fullmatch(text)
    if match is None:
        match = _BARE.fullmatch(text)
        if match is None or not _is_unit(match["words"], plain_number):
            return text, None
    value, words = match["value"].strip(), match["words"].strip().lower().rstrip(".")
    if not re.search(r"[0-9]|\\pi|\\sqrt", value):
        return text, None
    return value, canonical(words, match["p1"] or match["p2"])


def canonical(words: str, power: str | None = None) -> str | None:
    """One name for a unit however it is spelt, or ``None`` for words that are no unit known here."""
    parts = words.replace("-", " ").split()
    for word in parts:
        power = _POWERS.get(word, power)
    names = [_unit(word) for word in parts if word not in _POWERS]
    if len(names) != 1 or names[0] is None:
        return None
    return names[0] if power in (None, "1") else f"{names[0]}^{power}"


def _unit(word: str) -> str | None:
    word = word.rstrip(".")
    return _CANONICAL.get(word) or (_CANONICAL.get(word[:-1]) if word.endswith("s") else None)


def _is_unit(words: str, plain_number: bool) -> bool:
    """Bare words are words from two letters on, unless letters stand for variables."""
    words = words.strip()
    if len(words) == 1:
        return plain_number and words in _SINGLE
    return plain_number or all(_unit(w) or w in _POWERS for w in words.lower().split())
