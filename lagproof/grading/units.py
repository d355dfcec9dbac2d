"""Units and words behind a number. A unit is never needed; a wrong one is wrong."""

from __future__ import annotations

import re
from itertools import pairwise

from lagproof.grading import numbers

_WORDS = r"\\(?:text(?:normal|bf|it|rm|sf|tt)?|mbox|hbox|math(?:rm|normal))\s*"
_POWER = r"(?:\s*\^\s*(?:\{\s*(?P<p1>\d)\s*\}|(?P<p2>\d)))?"
_INSIDE = r"(?P<words>[^{}^]*)(?:\^(?:\{(?P<p3>\d)\}|(?P<p4>\d))\s*)?"
_MARKED = re.compile(rf"(?P<value>.*\S)\s*{_WORDS}\{{{_INSIDE}\}}{_POWER}$", re.DOTALL)
_WORD = r"(?P<words>(?<=\s)[A-Za-z][A-Za-z. /-]*?|(?<=\d)[A-Za-z]{2,})"
_BARE = re.compile(rf"(?P<value>.*[\d%)}}])\s*{_WORD}{_POWER}$", re.DOTALL)
_DEGREES = re.compile(r"\s*\^\s*\{?\s*\\circ\s*\}?\s*(?:\\(?:text|mathrm)\s*\{\s*)?([CFK]?)\s*\}?$")
_MODULUS = re.compile(r"\s*(?:\\pmod\s*(?:\{\s*\d+\s*\}|\d)|\\bmod\s*\{?\d+\}?|\(\s*\\mod\s*\d+\s*\))$")
FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_CHANGES = re.compile(
    r"\b(?:or|at most|at least|than (?=[\d\\])|to (?=[\d\\])|over (?=[\d\\])|below zero|negative|half|halves|thirds?|"
    r"fourths?|fifths?|sixths?|eighths?|tens|tenths?|hundredths?|thousandths?|factorial|pi|root|repeating|plus|minus|not|"
    r"wrong|if|mod|base|hundreds?|thousands?|millions?|billions?|trillions?|dozens?|times (?=\w$|[\d\\]))\b"
    r"|^,|,\s*(?:more|less|fewer)\b|^(?:squared|cubed|more|less)\b$|\binfinity\b|\btheta\b"
)
_LITTLE = frozenset(["a", "an", "as", "at", "by", "go", "in", "is", "my", "of", "on", "to"])
_MULTIPLES = {
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}
"""Words that make a number another one."""

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
    "mi/h": "mph",
    "km/h": "km/h kmh kph",
    "m/s": "m/s",
    "degree": "degree deg",
    "radian": "radian rad",
    "am": "am a.m",
    "pm": "pm p.m",
}
_CANONICAL = {word: unit for unit, words in _NAMES.items() for word in words.split()}
_POWERS = {"square": "2", "sq": "2", "squared": "2", "cubic": "3", "cu": "3", "cubed": "3"}
_SINGLE = frozenset("mgshlL")
_MARKED_SINGLE = _SINGLE | frozenset("NJWVAKCF")


def split_unit(text: str, *, plain_number: bool) -> tuple[str, str | None]:
    """A cleaned answer without what is written behind its value, and the physical unit if one was recognised.

    Args:
        text: a cleaned answer.
        plain_number: whether a bare single letter behind a number (``10 m``) can only be a unit, because the right
            answer is a number.
    """
    if (degrees := _DEGREES.search(text)) and not FUNCTION.search(text):
        return text[: degrees.start()].strip(), f"degree{degrees[1]}"
    if (modulus := _MODULUS.search(text)) and numbers.read(text[: modulus.start()].strip()):
        return text[: modulus.start()].strip(), None
    match = _MARKED.fullmatch(text)
    if match is None:
        match = _BARE.fullmatch(text)
        if match is None or not _is_unit(match, plain_number):
            return text, None
    value, written = match["value"].strip(), match["words"].strip().rstrip(".")
    if not re.search(r"[0-9]|\\pi|\\sqrt", value) or (len(written) == 1 and written not in _MARKED_SINGLE):
        return text, None
    words, power = written.lower(), next(filter(None, list(match.groupdict().values())[2:]), None)
    first, _, rest = words.partition(" ")
    number = numbers.read(value)
    first = first if first in _MULTIPLES else first.removesuffix("s")
    if first in _MULTIPLES and number is not None and not number.percent:
        value, words = str(number.value * _MULTIPLES[first]), rest
    return (text, None) if _CHANGES.search(words) else (value, canonical(words, power))


def differ(gold: str | None, answer: str | None) -> bool:
    """Whether both units are there, and are not the same; plain degrees are of any scale."""
    if gold is None or answer is None or gold == answer:
        return False
    return "degree" not in (gold, answer) or not (gold.startswith("degree") and answer.startswith("degree"))


def canonical(words: str, power: str | None = None) -> str | None:
    """One name for a unit however it is spelt, or ``None`` for words that are no unit known here."""
    above, per, below = words.replace("/", " per ").partition(" per ")
    if per:
        names = canonical(above), canonical(below, power)
        return None if None in names else "/".join(map(str, names))
    parts = words.replace("-", " ").split()
    for word in parts:
        power = _POWERS.get(word, power)
    names = [_unit(word) for word in parts if word not in _POWERS]
    if len(names) != 1 or names[0] is None:
        return None
    return names[0] if power in (None, "1") else f"{names[0]}^{power}"


def is_word(text: str) -> bool:
    """Whether letters are a word and not a product of variables: three or more, a vowel, not as in the alphabet."""
    word = text.lower()
    rising = all(a < b for a, b in pairwise(word))
    return len(word) >= 3 and word.isalpha() and re.search("[aeiouy]", word) is not None and not rising


def _unit(word: str) -> str | None:
    word = word.rstrip(".")
    return _CANONICAL.get(word) or (_CANONICAL.get(word[:-1]) if word.endswith("s") else None)


def _is_unit(match: re.Match[str], plain_number: bool) -> bool:
    """Bare words are units or words, unless letters stand for variables; a unit alone may follow without a space."""
    words = match["words"].strip()
    if len(words) == 1:
        return plain_number and words in _SINGLE
    if match.string[match.start("words") - 1].isdigit():
        return _unit(words.lower()) is not None
    parts = [w for w in re.split(r"[\s/-]+", words.lower()) if w]
    known = (_unit(w) or w in _POWERS or is_word(w.rstrip(".")) for w in parts if w not in _LITTLE)
    return all(known) and not set(parts) <= _LITTLE - {"in"}
