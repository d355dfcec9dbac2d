r"""Units and words behind a number. A unit is never needed; a wrong one is wrong.

What stands behind a value is taken away only where every word of it is known to leave the value as it is: a physical
unit (``\text{ kJ/mol}``), or words that neither count nor compare (``apples``, ``years older than Bob``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from lagproof.grading import numbers

_WRAPPER = r"\\(?:text(?:normal|bf|it|rm|sf|tt)?|mbox|hbox|math(?:rm|normal|sf))(?![A-Za-z]) ?"
_DEGREES = re.compile(r" ?\^ ?\{? ?\\circ ?\}? ?(?:\\(?:text|mathrm) ?\{ ?)?([CFK]?) ?\}?$")
_MODULUS = re.compile(r" ?(?:\\pmod ?(?:\{ ?\d+ ?\}|\d)|\\bmod ?\{?\d+\}?|\( ?\\mod ?\d+ ?\))$")
FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_START = re.compile(
    rf"{_WRAPPER}(?=\{{)|\\frac ?\{{ ?{_WRAPPER}(?=\{{)|\\(?:mu|Omega|AA)(?![A-Za-z])|(?<![A-Za-z\\_^{{])[^\W\d_]"
)
_MARKED = re.compile(rf"{_WRAPPER}(?=\{{)|\\frac")
_ENDS = re.compile(r"[\w)}\]%!'|]$")
_ENDS_IN_NUMBER = re.compile(r"[\d%)}]$|\\pi$")
_HALF = rf"\{{ ?(?:{_WRAPPER}\{{([^{{}}]*)\}}|([^{{}}]*))( ?\^ ?(?:\{{ ?\d ?\}}|\d))? ?\}}"
_HALVES = re.compile(rf"\\frac ?{_HALF} ?{_HALF}")
_TOKEN = re.compile(r"[^\W\d_]+(?:'s)?\.?|\^ ?\{? ?-?\d ?\}?|[/()]| |\\cdot|\\times|[-.,&]")
_UNIT_TOKEN = re.compile(r"[^\W\d_]+(?:\.[a-z](?=\b))?\.?|\^ ?-?\d|/|[^\s]")
_NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand dozen"
)
_COUNTS = re.compile(
    rf"^(?:(?:{_NUMBER_WORDS.replace(' ', '|')}|\w*illion|googol|score|gross|half|halve)(?:s|th|ths|fold)?"
    r"|half|halves|quarters?|thirds?|fifths?|eighths?|ninths?|twelfths?|\w+ieths?)$"
)
_CHANGING_WORDS = (
    "or nor not no non isn't wrong incorrect negative positive minus plus below under above over between except "
    "without if unless mod modulo base factorial pi root roots sqrt log ln exp sin cos tan repeating recurring point "
    "squared cubed raised power divided multiplied choose percent percentage infinity infinite theta alpha beta gamma "
    "delta phi lambda double triple twice thrice quadruple undefined "
    "maximum minimum 以上 以下 多 余 分之"
)
_CHANGES = frozenset(_CHANGING_WORDS.split())
"""Words behind a number that make it another one, or that leave open which."""
_FILLING_WORDS = (
    "a an the of per in on at by for from with than as is are my his her its their our each every all total more less "
    "fewer many much old older younger longer taller long tall high wide deep away left remaining altogether exactly "
    "only units unit square cubic sq cu such that this there were was will be"
)
_FILLERS = frozenset(_FILLING_WORDS.split())
"""Words that say nothing about what is counted."""
_LITTLE = frozenset(["a", "an", "as", "at", "by", "go", "in", "is", "my", "of", "on", "to", "be", "he", "we", "it"])
_MULTIPLES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_MULTIPLE_SIGNS = {"百": 100, "千": 1000, "万": 10**4, "亿": 10**8}
"""Words that make a number another one, which is known."""

_PREFIXES = {
    "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "h": 2, "da": 1, "d": -1, "c": -2, "m": -3, "u": -6, "n": -9,
    "p": -12, "f": -15,
}  # fmt: skip
_PREFIX_NAMES = {
    "kilo": 3, "mega": 6, "giga": 9, "tera": 12, "hecto": 2, "deci": -1, "centi": -2, "milli": -3, "micro": -6,
    "nano": -9, "pico": -12, "femto": -15,
}  # fmt: skip
_SI = {  # symbol: names, what it is in base units
    "m": ("meter metre 米", "m"), "g": ("gram gramme 克", "1/1000 kg"), "s": ("sec second 秒", "s"),
    "A": ("amp ampere", "A"), "K": ("kelvin", "K"), "mol": ("mole", "mol"), "cd": ("candela", "cd"),
    "Hz": ("hertz", "s^-1"), "N": ("newton", "kg m s^-2"), "Pa": ("pascal", "kg m^-1 s^-2"),
    "J": ("joule", "kg m^2 s^-2"), "W": ("watt", "kg m^2 s^-3"), "C": ("coulomb", "A s"),
    "V": ("volt", "kg m^2 s^-3 A^-1"), "F": ("farad", "kg^-1 m^-2 s^4 A^2"), "Ω": ("ohm", "kg m^2 s^-3 A^-2"),
    "S": ("siemens", "kg^-1 m^-2 s^3 A^2"), "T": ("tesla", "kg s^-2 A^-1"), "Wb": ("weber", "kg m^2 s^-2 A^-1"),
    "H": ("henry", "kg m^2 s^-2 A^-2"), "L": ("l liter litre 升", "1/1000 m^3"), "eV": ("electronvolt", "eV"),
    "cal": ("calorie", "cal"), "B": ("byte", "byte"), "bit": ("bit", "bit"), "pc": ("parsec", "pc"),
    "bar": ("bar", "100000 kg m^-1 s^-2"), "Bq": ("becquerel", "s^-1 Bq"), "Gy": ("gray", "Gy"), "lm": ("lumen", "lm"),
    "dyn": ("dyne", "1/100000 kg m s^-2"), "erg": ("erg", "1/10000000 kg m^2 s^-2"),
}  # fmt: skip
_OTHERS = {  # names, what it is
    "min minute 分钟": "60 s", "h hr hour 小时": "3600 s", "day 天": "86400 s", "week 周": "604800 s", 
    "month": "month", "yr year 年": "year", "century": "100 year", "decade": "10 year", "in inch inches": "inch",
    "ft foot feet": "12 inch",
    "yd yard": "36 inch", "mi mile": "63360 inch", "mph": "63360/3600 inch s^-1", "kmh kph": "1000/3600 m s^-1",
    "lb lbs pound": "16 oz", "oz ounce": "oz", "ton": "ton", "tonne": "1000 kg", "dollar usd": "dollar",
    "cent": "1/100 dollar", "euro eur": "euro", "yen": "yen", "yuan 元 rmb": "yuan", "rupee inr": "rupee",
    "degree deg": "degree", "radian rad": "radian", "steradian sr": "steradian", "rpm": "turn 1/60 s^-1",
    "revolution rev": "turn", "am a.m": "am", "pm p.m": "pm", "angstrom å": "1/10000000000 m", "gallon gal": "gallon",
    "quart": "quart", "pint": "pint", "acre": "acre", "hectare ha": "10000 m^2", "knot": "knot", "atm": "atm",
    "torr": "torr", "mmhg": "torr", "au": "au", "ly": "lightyear", "amu": "amu", "dalton da": "amu",
    "molar": "1000 m^-3 mol",
    "公里 千米": "1000 m", "厘米": "1/100 m", "毫米": "1/1000 m", "公斤 千克": "kg", "度": "degree",
    "micron": "1/1000000 m", "sqft": "144 inch^2", "percent": "percent",
}  # fmt: skip
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_POWERS_BEHIND = {"squared": 2, "cubed": 3}
_SINGLE = frozenset("mgshlL")
"""Letters that are a unit behind a number also where they stand outside ``\\text``."""

Dimensions = Mapping[str, int]


@dataclass(frozen=True)
class Unit:
    """What a number is of.

    Attributes:
        readings: factor and powers of the base units, in each way to read it; empty for words that are no unit.
        words: what is counted, in the singular, without words that say nothing.
    """

    readings: frozenset[tuple[Fraction, tuple[tuple[str, int], ...]]]
    words: frozenset[str]

    def __str__(self) -> str:
        return " ".join(sorted(self.words))


def split_unit(text: str, *, plain_number: bool) -> tuple[str, Unit | None]:
    """A cleaned answer without what is written behind its value, and what that says, if anything.

    Args:
        text: a cleaned answer.
        plain_number: whether a bare single letter behind a number (``10 m``) can only be a unit, because the right
            answer is a number.
    """
    if (degrees := _DEGREES.search(text)) and not FUNCTION.search(text):
        return text[: degrees.start()].strip(), _degrees(degrees[1])
    if (modulus := _MODULUS.search(text)) and numbers.read(text[: modulus.start()].strip()):
        return text[: modulus.start()].strip(), None
    for start in _starts(text):
        value, tail = text[:start].strip(), text[start:]
        if not re.search(r"[0-9]|\\pi|\\sqrt", value) or not _ENDS.search(value):
            continue
        found = _read_tail(value, tail, plain_number, glued=text[start - 1].isdigit())
        if found is not None:
            return found
    return text, None


def _starts(text: str) -> Iterator[int]:
    """Places outside every bracket where words behind a value may begin, the first few."""
    level, last, seen = 0, 0, 0
    for match in _START.finditer(text):
        part = text[last : match.start()]
        level += part.count("{") + part.count("(") - part.count("}") - part.count(")")
        last = match.start()
        if level == 0 and not (seen and text[match.start() - 1].isalpha()):
            seen += 1
            yield match.start()
        if seen > 8:
            return


def _read_tail(value: str, tail: str, plain_number: bool, *, glued: bool) -> tuple[str, Unit | None] | None:
    marked = _MARKED.match(tail) is not None
    if not marked and not _ENDS_IN_NUMBER.search(value):
        return None
    number = numbers.read(value)
    flat = _flat(tail)
    if flat is None:
        return None
    flat, number_value = _multiplied(flat, None if number is None or number.percent else number.value)
    if number_value is not None and number is not None and number_value != number.value:
        value = str(number_value)
    if not flat:
        return value, None
    unit = read_unit(flat)
    if not marked and not _may_be_bare(flat, unit, plain_number, number is not None, glued):
        return None
    if unit is not None:
        return value, unit
    words = _plain_words(flat, marked)
    return None if words is None else (value, Unit(frozenset(), words))


def _flat(tail: str) -> str | None:
    r"""Words and powers without wrappers: ``\frac{\text{km}}{\text{h}}`` as ``km/h``; ``None`` for anything else."""
    tail = _HALVES.sub(lambda m: f" {m[1] or m[2]}{m[3] or ''}/{m[4] or m[5]}{m[6] or ''}", tail)
    tail = tail.replace(r"\mu", "u").replace("µ", "u").replace("μ", "u").replace(r"\Omega", "Ω").replace(r"\AA", "å")
    tail = re.sub(r"\^ ?\{ ?(-?\d) ?\}", r"^\1", tail)
    tail = re.sub(_WRAPPER, "", tail).replace("{", "").replace("}", "").replace("~", " ")
    tail = re.sub(r"\^ ?(?:\\circ) ?(?=[CF]\b)", "deg", tail)
    tail = re.sub(" +", " ", tail).strip(" .")
    return None if _without_tokens(tail) else tail


def _without_tokens(tail: str) -> bool:
    """Whether there is anything in it but words, powers and signs between units."""
    return bool(_TOKEN.sub("", tail).strip())


def _multiplied(flat: str, value: Fraction | None) -> tuple[str, Fraction | None]:
    """``million dollars`` behind 5 as ``dollars`` behind 5000000."""
    while value is not None:
        first, _, rest = flat.partition(" ")
        if flat[:1] in _MULTIPLE_SIGNS:
            value, flat = value * _MULTIPLE_SIGNS[flat[0]], flat[1:]
        elif (name := first.lower().removesuffix("s")) in _MULTIPLES or first.lower() in _MULTIPLES:
            value, flat = value * _MULTIPLES[name], rest
        else:
            break
    return flat, value


def _may_be_bare(flat: str, unit: Unit | None, plain_number: bool, is_number: bool, glued: bool) -> bool:
    """Bare letters are units or words, unless they can stand for variables; a unit may follow without a space."""
    parts = re.findall(r"[^\W\d_]+", flat)
    if len(parts) == 1 and len(parts[0]) == 1 and parts[0].isascii():
        return plain_number and parts[0] in _SINGLE
    if not is_number and not all(is_word(part) or part.lower() in _LITTLE for part in parts):
        return unit is not None and not any(len(part) == 1 for part in parts)
    return not glued or unit is not None or not parts[0].isascii()


def _plain_words(flat: str, marked: bool) -> frozenset[str] | None:
    """What is counted, ``None`` where a word may change the value or is none."""
    if re.search(r"[\^()]|\\|^ ?[-,.&/]|, (?:more|less|fewer)\b", flat):
        return None
    words = [word.rstrip(".").lower() for word in re.findall(r"[^\W\d_]+(?:'s)?\.?", flat)]
    if len(words) == 1 and words[0] in ("more", "less", "fewer", "many", "much", "times"):
        return None
    if any(word in _CHANGES or _COUNTS.match(word) for word in words):
        return None
    if "times" in words and (words[-1] == "times" or len(words[words.index("times") + 1]) < 2):
        words = words if words == ["times"] else [*words, "or"]
    if words[-1] in ("than", "or") or "at least" in flat or "at most" in flat:
        return None
    known = (word in _LITTLE or not word.isascii() or is_word(word) or _simple(word) is not None for word in words)
    if not all(known) or (not marked and set(words) <= _LITTLE):
        return None
    return frozenset(_name(word) for word in words if word not in _FILLERS and word not in _LITTLE)


def _name(word: str) -> str:
    """One name for a unit or a word however it is spelt."""
    unit = _simple(word)
    return _stem(word.lower()) if unit is None else f"{unit[0]}{sorted(unit[1].items())}"


def _stem(word: str) -> str:
    irregular = {
        "men": "man",
        "women": "woman",
        "people": "person",
        "children": "child",
        "feet": "foot",
        "mice": "mouse",
    }
    if word in irregular:
        return irregular[word]
    for end, by in (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"), ("s", "")):
        if word.endswith(end) and len(word) > len(end) + 1 and not word.endswith("ss"):
            return word.removesuffix(end) + by
    return word


def differ(gold: Unit | None, answer: Unit | None) -> bool:
    """Whether both are there, and are not the same; plain degrees are of any scale."""
    if gold is None or answer is None:
        return False
    if gold.readings and answer.readings:
        degrees = [{name for _, powers in unit.readings for name, _ in powers} for unit in (gold, answer)]
        scales = all(names & {"degree", "degreeC", "degreeF"} for names in degrees) and {"degree"} in degrees
        return not (scales or gold.readings & answer.readings)
    if not (gold.words and answer.words):
        return False
    return not (gold.words <= answer.words or answer.words <= gold.words)


def _degrees(scale: str) -> Unit:
    name = f"degree{scale}" if scale != "K" else "K"
    return Unit(frozenset({(Fraction(1), ((name, 1),))}), frozenset({"degree"}))


def read_unit(text: str) -> Unit | None:
    """A physical unit however it is spelt (``km/h``, ``m s^{-2}``, ``square miles``); ``None`` for anything else.

    What follows a slash is read in two ways, as people write both: all of it below, or its first factor alone.
    """
    text = re.sub(r"\bper\b|每", "/", text)
    text = re.sub(r"\\cdot|\\times|[·()]|(?<=[A-Za-z])\.(?=[A-Za-z]{1,3}\b(?!\.))(?<!\b[ap]\.)", " ", text)
    readings, names = set(), []
    for all_below in (True, False):
        factor, powers, sign, last_sign, square = Fraction(1), dict[str, int](), 1, 1, 1
        last: tuple[Fraction, Dimensions] | None = None
        for token in _UNIT_TOKEN.findall(text if "^" in text else text.replace("-", " ")):
            if token == "/":
                sign, last = -1, None
                continue
            if token[0] == "^" or token.lower() in _POWERS_BEHIND:
                if last is None:
                    return None
                power = _POWERS_BEHIND.get(token.lower()) or int(token[1:])
                by = (power - 1) * last_sign
                factor *= last[0] ** by
                _add(powers, last[1], by)
                last = None
                continue
            if token.lower() in _POWERS:
                square = _POWERS[token.lower()]
                continue
            found = _simple(token)
            if found is None:
                return None
            names.append(_name(token.rstrip(".")))
            factor *= found[0] ** (sign * square)
            _add(powers, found[1], sign * square)
            last, square, last_sign = found, 1, sign
            if not all_below:
                sign = 1
        readings.add((factor, tuple(sorted((name, power) for name, power in powers.items() if power))))
    return Unit(frozenset(readings), frozenset(names)) if names else None


def _add(powers: dict[str, int], more: Dimensions, times: int) -> None:
    for name, power in more.items():
        powers[name] = powers.get(name, 0) + power * times


def _simple(word: str) -> tuple[Fraction, Dimensions] | None:
    word = word.rstrip(".")
    return _SYMBOLS.get(word) or _BY_NAME.get(word.lower()) or _BY_NAME.get(_stem(word.lower()))


def _parsed(definition: str) -> tuple[Fraction, Dimensions]:
    factor, powers = Fraction(1), dict[str, int]()
    for part in definition.split():
        if part[0].isdigit():
            factor *= Fraction(part)
        else:
            name, _, power = part.partition("^")
            powers[name] = powers.get(name, 0) + int(power or 1)
    return factor, powers


def _tables() -> tuple[dict[str, tuple[Fraction, Dimensions]], dict[str, tuple[Fraction, Dimensions]]]:
    symbols, names = dict[str, tuple[Fraction, Dimensions]](), dict[str, tuple[Fraction, Dimensions]]()
    for words, definition in _OTHERS.items():
        names.update(dict.fromkeys(words.split(), _parsed(definition)))
    for symbol, (words, definition) in _SI.items():
        factor, powers = _parsed(definition)
        for prefix, exponent in _PREFIXES.items():
            if prefix + symbol not in ("min", "cd", "Pa", "ft", "pt") or not prefix:
                symbols.setdefault(prefix + symbol, (factor * Fraction(10) ** exponent, powers))
        for word in words.split():
            for prefix, exponent in {"": 0, **_PREFIX_NAMES}.items():
                names.setdefault(prefix + word, (factor * Fraction(10) ** exponent, powers))
            if len(word) == 1:
                for prefix, exponent in _PREFIXES.items():
                    symbols.setdefault(prefix + word, (factor * Fraction(10) ** exponent, powers))
    for own in ("min", "h", "in", "ft", "pm", "am", "day", "yd", "mi"):
        symbols[own] = names[own]
    symbols.update({"M": names["molar"], "degC": (Fraction(1), {"degreeC": 1}), "degF": (Fraction(1), {"degreeF": 1})})
    symbols.update({"kWh": _parsed("3600000 kg m^2 s^-2"), "kmph": names["kmh"]})
    names.update({name: symbols[name] for name in ("kg", "cm", "mm", "km", "ml", "mg")})
    names.update({"celsius": (Fraction(1), {"degreeC": 1}), "fahrenheit": (Fraction(1), {"degreeF": 1})})
    return symbols, names


_SYMBOLS, _BY_NAME = _tables()


def is_word(text: str) -> bool:
    """Whether letters are a word and not a product of variables: three or more, a vowel, not as in the alphabet."""
    word = text.lower()
    rising = all(a < b for a, b in pairwise(word))
    return len(word) >= 3 and word.isalpha() and re.search("[aeiouy]", word) is not None and not rising


_PART = re.compile(r"(?<![\d.])(\d++(?:\.\d+)?) ?([A-Za-z]+)\.?")


def durations(text: str) -> list[tuple[Fraction, str]] | None:
    r"""Numbers and units of ``3 h 20 min`` and ``3\text{ hours and }20\text{ minutes}``; ``None`` for anything else."""
    flat = re.sub(r"\band\b|,", " ", re.sub(_WRAPPER, "", text).replace("{", "").replace("}", ""))
    parts = _PART.findall(flat)
    if len(parts) < 2 or _PART.sub("", flat).strip() or any(_simple(unit) is None for _, unit in parts):
        return None
    return [(Fraction(value), _name(unit)) for value, unit in parts]


_MONEY = {
    "dollar": re.compile(r"\\\$|US\$|\bUSD\b|\bdollars?\b"),
    "euro": re.compile(r"€|\\euro\b|\bEUR\b|\beuros?\b"),
    "pound": re.compile(r"£|\\pounds\b|\bGBP\b"),
    "yen or yuan": re.compile(r"[¥￥元]|\\yen\b|\byen\b|\byuan\b|\bRMB\b|\bCNY\b"),
    "rupee": re.compile(r"₹|\bRs\b|\bINR\b|\brupees?\b"),
}


def other_money(gold: str, answer: str) -> bool:
    """Whether both say what money they are of, and have none in common."""
    said = [{name for name, pattern in _MONEY.items() if pattern.search(text)} for text in (gold, answer)]
    return all(said) and not said[0] & said[1]
