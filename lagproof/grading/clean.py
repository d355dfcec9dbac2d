"""An answer as plain LaTeX: one way to write each thing, nothing decorative. Text in, text out, no algebra."""

from __future__ import annotations

import re
import unicodedata

from lagproof.grading.extract import closing

_CHARACTERS = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d", "-"),
    "×": r"\times ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "∗": r"\cdot ",
    "÷": "/",
    "\u2044": "/",
    "√": r"\sqrt",
    "π": r"\pi ",
    "∞": r"\infty ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "±": r"\pm ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "∅": r"\emptyset ",
    "°": r"^\circ",
    "º": r"^\circ",
    "℃": r"^\circ C",
    "℉": r"^\circ F",
    **dict.fromkeys("€£\u200b\u200c\u200d\u2060\ufeff", ""),
    "′": "'",
    "’": "'",
    "θ": r"\theta ",
    "…": r"\ldots ",
}
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-", strict=True))
_SUPERSCRIPT_RUN = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")

_EXPLICIT_SEPARATOR = re.compile(r"(?<=\d)\s*(?:\{,\}|\\,|\\!|\\;|\\:|\\ |~|,\\!|\\thinspace\b)\s*(?=\d{3}(?!\d))")
_SPACED_NUMBER = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d])")
_COMMA_NUMBER = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_SPACE_COMMAND = re.compile(r"(?<!\\)\\(?:q?quad(?![A-Za-z])|thinspace(?![A-Za-z])|hspace\{[^{}]*\}|[,;:! ])|~")
_SIZES = "left|right|bigl?|bigr|Bigl?|Bigr|displaystyle|textstyle|limits|nolimits"
_FONTS = "bf|it|rm|sf|tt|large|Large|huge|Huge|small"
_DROPPED = re.compile(rf"\\(?:{_SIZES}|{_FONTS})(?![A-Za-z])\.?|\\\$|\$|(?<!\\)\\[()\[\]]|`")
_SAME = {  # commands that mean the same
    r"\degree": r"^\circ",
    r"\textdegree": r"^\circ",
    r"\varnothing": r"\emptyset",
    r"\varphi": r"\phi",
    r"\varepsilon": r"\epsilon",
    r"\vartheta": r"\theta",
    r"\langle": "(",
    r"\rangle": ")",
}
_COMMAND = re.compile(r"\\[A-Za-z]+")
_COLOUR = re.compile(r"\\(?:textcolor|color)\s*\{[^{}]*\}|\\underline(?=\s*\{)")
_EMPTY_SET = re.compile(r"\\\{\s*\\\}")
_BLACKBOARD = re.compile(r"\\mathbb\s*([A-Z])")
_CHOOSE = re.compile(r"\{\s*([^{}]+?)\s*\\choose(?![A-Za-z])\s*([^{}]+?)\s*\}")
_TIMES_LETTER = re.compile(r"(?<=\d)\s*x\s*(?=10\s*\^)")
_COMMON_LOG = re.compile(r"\\lg(?![A-Za-z])")
_NATURAL_LOG = re.compile(r"\\log\s*_\s*(?:\{\s*e\s*\}|e(?![A-Za-z]))")
_BARE_EXPONENT = re.compile(r"\^\s*-\s*(\d+|[A-Za-z](?![A-Za-z]))")
_FRACTION_NAME = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_TOKEN = r"\\(?:pi|alpha|beta|theta|phi)(?![A-Za-z])|[A-Za-z]"
_SHORT_FRACTION = re.compile(rf"\\frac\s*(\{{[^{{}}]*\}}|\d|{_TOKEN})\s*(\{{|\d(?!\d)|{_TOKEN})")
_BOLD = re.compile(r"(?<![\w)}])\*\*(.*?)\*\*(?![\w({])|__(.*?)__")
_BRACED_COMMAS = re.compile(r"(?<!\\)\{(\d{1,3}(?:,\d{3})+)\}")
_BINOMIAL = re.compile(r"\\[dt]?binom\s*(\d)\s*(\d)(?!\d)")
_WORDS = r"\\(?:text(?:normal|bf|it|rm|sf|tt)?|mbox|hbox)\s*"
_WRAPPER = r"\\(?:text(?:normal|bf|it|rm|sf|tt)?|mbox|hbox|math(?:rm|bf|it|sf|normal)|boldsymbol|bm)\s*"
_LEAD_IN = re.compile(
    rf"^\s*(?:{_WORDS}\{{[^{{}}]*?(?:\bis|\bare|\bequals|:)\s*\}}"
    r"|(?i:(?:the\s+)?(?:final\s+)?answer\s*(?:is\b\s*:?|:)))(?=\s*\S)"
)
_TURNED = re.compile(r"(?i)\b(?:not|no|minus|negative|more|less|fewer|half|twice|than|least|most|without|wrong)\b")
_AND_OR = re.compile(rf"\s*,?\s*(?:{_WORDS}\{{\s*(?:and|or)\s*\}}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z]))\s*")
_DEGREE_WORD = re.compile(_WRAPPER + r"\{\s*(\^\\circ\s*[CFK]?)\s*\}")
_CONSTANT_WORD = re.compile(_WRAPPER + r"\{\s*([eid])\s*\}")
_NUMBER_WRAPPER = re.compile(_WRAPPER + r"\{\s*([-+]?[\d.,]*\d)\s*\}")
_PERCENT_WORD = re.compile(_WRAPPER + r"\{\s*(?:percent|per cent|pct|\\?%)\s*\}|(?<=\d)\s*(?:percent|per cent|pct)\b")
_SCIENTIFIC = re.compile(r"(?<![A-Za-z\d.\\])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,3})(?![\w.])")
_BARE_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
_BARE_FUNCTION = re.compile(r"(?<![A-Za-z\\])(sqrt|sin|cos|tan|ln|log)(?![A-Za-z])")
_ROOT_RUN = re.compile(r"\\sqrt\s*(\d+|[A-Za-z](?![A-Za-z]))")
_TRAILING = re.compile(r"(?:[\s,;:\\]|(?<!\.)\.(?!\.))+$")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{?(\d+)\}?|(?<!\d)(0)\.(\d*)\((\d+)\)")
_MIXED = re.compile(
    r"(?<![\d.^_/}])(?<![\d.^_/}]\s)(\d+)\s*(?:\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}|(?<=\d)\s(\d+)\s?/\s?(\d+)(?![\d.]))"
)
_ADJACENT_NUMBERS = re.compile(r"(?<![_^\d])\d[\d.]*\s+\.?\d")


def clean(text: str) -> str:
    """The answer without decoration, separators, lead-in and full stop; brackets and meaning stay."""
    text = re.sub(r"\s+", " ", _plain_characters(text)).strip()
    text = _COLOUR.sub("", _COMMAND.sub(lambda m: _SAME.get(m[0], m[0]), text))
    text = _EMPTY_SET.sub(r"\\emptyset ", text)
    text = _BLACKBOARD.sub(r"\\mathbb{\1}", _CHOOSE.sub(r"\\binom{\1}{\2}", text))
    text = _BOLD.sub(lambda m: m[1] or m[2] or "", text)
    text = _EXPLICIT_SEPARATOR.sub("", text)
    text = _SPACE_COMMAND.sub(" ", text)
    text = _DROPPED.sub("", text)
    text = _LEAD_IN.sub(lambda m: m[0] if _TURNED.search(m[0]) else " ", text)
    text = _AND_OR.sub(", ", text)
    text = _PERCENT_WORD.sub(r"\\%", text)
    text = _TRAILING.sub("", _unwrap(text.strip()))
    text = _DEGREE_WORD.sub(r"\1", text).removeprefix("=").removeprefix(r"\approx").strip()
    text = _CONSTANT_WORD.sub(r" \1 ", text)
    text = _NUMBER_WRAPPER.sub(r"\1", text)
    text = _FRACTION_NAME.sub(r"\\frac", text)
    text = _SHORT_FRACTION.sub(_braced_fraction, text)
    text = text.replace("**", "^").replace("*", r"\cdot ")
    text = _COMMON_LOG.sub(r"\\log_{10} ", text)
    text = _NATURAL_LOG.sub(r"\\ln ", text)
    text = _BARE_EXPONENT.sub(r"^{-\1}", _TIMES_LETTER.sub(r"\\times ", text))
    text = text.replace("<=", r"\le ").replace(">=", r"\ge ")
    text = re.sub(r"(?<![\d)}])!=", r"\\ne ", text)
    text = _SCIENTIFIC.sub(r"\1\\cdot 10^{\2}", text)
    text = _BARE_FUNCTION.sub(r"\\\1", _BARE_PI.sub(r"\\pi ", text))
    text = _ROOT_RUN.sub(r"\\sqrt{\1}", _braced(_braced(text, r"\sqrt", "("), "^", "("))
    text = _BRACED_COMMAS.sub(lambda m: "{" + m[1].replace(",", "") + "}", _BINOMIAL.sub(r"\\binom{\1}{\2}", text))
    text = _join_numbers(text)
    text = _REPEATING.sub(_repeating, text)
    return re.sub(r"\s+", " ", text).strip()


def mixed_numbers(text: str) -> str:
    """``2\\frac{1}{2}`` and ``2 1/2`` as sums in brackets: a product would be written with a sign."""
    return _MIXED.sub(lambda m: rf"({m[1]}+\frac{{{m[2] or m[4]}}}{{{m[3] or m[5]}}})", text)


def has_adjacent_numbers(text: str) -> bool:
    """Whether two numbers stand side by side with nothing but space between them, which means nothing."""
    return _ADJACENT_NUMBERS.search(text) is not None


def depth(text: str) -> int:
    """How deep brackets of any kind are nested."""
    level = deepest = 0
    for character in text:
        if character in "([{":
            level += 1
            deepest = max(deepest, level)
        elif character in ")]}":
            level = max(0, level - 1)
    return deepest


def split_top(text: str, separators: str) -> list[str]:
    """Split at separators outside every bracket; ``\\{`` counts as a bracket."""
    parts, level, start = [], 0, 0
    for i, character in enumerate(text):
        if character in "([{":
            level += 1
        elif character in ")]}":
            level -= 1
        elif character in separators and level == 0 and not (i and text[i - 1] in "\\<>!:"):
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def _plain_characters(text: str) -> str:
    text = _SUPERSCRIPT_RUN.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m[0]) + "}", text)
    return text if text.isascii() else "".join(map(_plain_character, text))


def _plain_character(character: str) -> str:
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    kind = unicodedata.category(character)
    if kind == "Nd":
        return str(unicodedata.decimal(character))
    if kind == "Zs":
        return " "
    if "VULGAR FRACTION" in unicodedata.name(character, ""):
        return " " + unicodedata.normalize("NFKC", character).replace("\u2044", "/")
    return unicodedata.normalize("NFKC", character) if kind in ("Lu", "Ll", "Sm", "Po", "Ps", "Pe") else character


def _unwrap(text: str) -> str:
    r"""Take away wrappers that hold the whole answer (``\text{13}``, ``\mathbf{x}``, ``{x}``); words stay marked."""
    while True:
        match = re.match(_WRAPPER + r"(?=\{)", text) or re.match(r"(?=\{)", text)
        if match is None or closing(text, match.end(), "{", "}") != len(text) - 1:
            return text
        inner = text[match.end() + 1 : -1].strip()
        if re.match(_WORDS, text) and re.search(r"[A-Za-z]", inner) and not inner.startswith("\\"):
            return text
        text = inner


def _braced_fraction(match: re.Match[str]) -> str:
    top, bottom = match[1], match[2]
    top = top if top.startswith("{") else f"{{{top}}}"
    return rf"\frac{top}{bottom}" if bottom == "{" else rf"\frac{top}{{{bottom}}}"


def _braced(text: str, command: str, left: str) -> str:
    """``\\sqrt(x)`` -> ``\\sqrt{x}``, ``^(x)`` -> ``^{x}``; brackets matched, not guessed."""
    start = 0
    while (at := text.find(command, start)) >= 0:
        start = at + len(command)
        opening = start + (len(text[start:]) - len(text[start:].lstrip(" ")))
        if opening < len(text) and text[opening] == left:
            end = closing(text, opening, left, ")")
            if end is not None:
                text = f"{text[:start]}{{{text[opening + 1 : end]}}}{text[end + 1 :]}"
    return text


def _join_numbers(text: str) -> str:
    """Read ``12 345`` and, outside brackets, ``12,345`` as one number."""
    text = _SPACED_NUMBER.sub(lambda m: m[0].replace(" ", ""), text)
    level, out, last = 0, [], 0
    for match in re.finditer(r"[(\[{]|[)\]}]|" + _COMMA_NUMBER.pattern, text):
        token = match[0]
        if token in "([{":
            level += 1
        elif token in ")]}":
            level -= 1
        elif level == 0:
            out += [text[last : match.start()], token.replace(",", "")]
            last = match.end()
    return "".join([*out, text[last:]])


def _repeating(match: re.Match[str]) -> str:
    """``0.1\\overline{6}`` -> the fraction it is."""
    whole, head, cycle = (match[1] or "0", match[2], match[3]) if match[3] else match.groups()[3:]
    scale = 10 ** len(head) * (10 ** len(cycle) - 1)
    value = int(whole + head + cycle) - int(whole + head)
    return rf"\frac{{{value}}}{{{scale}}}"
