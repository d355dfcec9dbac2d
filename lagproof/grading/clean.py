"""An answer as plain LaTeX: one way to write each thing, nothing decorative. Text in, text out, no algebra."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import partial

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
    "、": ",",
    "¢": r"\text{ cents}",
    **dict.fromkeys("€£¥￥₹₩₽\u200b\u200c\u200d\u2060\ufeff", ""),
    "′": "'",
    "’": "'",
    "θ": r"\theta ",
    "…": r"\ldots ",
}
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-", strict=True))
_SUPERSCRIPT_RUN = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")

_EXPLICIT_SEPARATOR = re.compile(r"(?<=\d) ?(?:\{,\}|\\,|\\!|\\;|\\:|\\ |~|,\\!|\\thinspace\b) ?(?=\d{3}(?!\d))")
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
_COLOUR = re.compile(r"\\(?:textcolor|color) ?\{[^{}]*\}|\\underline(?= ?\{)")
_EMPTY_SET = re.compile(r"\\\{ ?\\\}")
_BLACKBOARD = re.compile(r"\\mathbb ?([A-Z])")
_CURRENCY = r"(?:Rs\.?|INR|USD|EUR|GBP|CNY|RMB)"
_MONEY = re.compile(
    rf"^ ?(?:\\text ?\{{ ?{_CURRENCY} ?\}}|{_CURRENCY}|(?:US|HK|NT|[ACS])(?=\\?\$)) ?"
    r"(?=\\?\$? ?\d)|\\(?:yen|pounds|euro|textdollar|texteuro|textsterling|textyen)(?![A-Za-z]) ?"
)
_MODULO = re.compile(
    r"\\text ?\{ ?\( ?mod ?(\d+|[a-z]) ?\) ?\}|\\pmod ?\{? ?(\d+|[a-z]) ?\}?"
    r"|\( ?(?:\\(?:text|mathrm) ?\{ ?mod ?\}|\\[bp]?mod(?![A-Za-z])|mod(?![A-Za-z])) ?\{? ?(\d+|[a-z]) ?\}? ?\)"
)
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)(?![A-Za-z])|(?<=\d)\^ ?\{ ?(?:\\text ?\{ ?)?(?:st|nd|rd|th) ?\}? ?\}")
_AND_SO_ON = re.compile(r"(?<![\d.])(\d*+)\.(\d{2,60})(?:\\[lc]?dots[cbom]?(?![A-Za-z])|\.\.\.)")
_SEMICOLON = re.compile(r"([\[(][^\[\](){};,]*);([^\[\](){};,]*[\])])")
_RELATION = re.compile(r"[<>]|\\(?:leq?|geq?|neq?|lt|gt)(?![A-Za-z])|(?<=\})\\cup")
_CHOOSE = re.compile(r"\{([^{}\\]*[^{}\\ ]) ?\\choose(?![A-Za-z]) ?([^{}]*)\}")
_TIMES_LETTER = re.compile(r"(?<=\d) ?x ?(?=10 ?\^)")
_COMMON_LOG = re.compile(r"\\lg(?![A-Za-z])")
_NATURAL_LOG = re.compile(r"\\log ?_ ?(?:\{ ?e ?\}|e(?![A-Za-z]))")
_BARE_EXPONENT = re.compile(r"\^ ?- ?(\d+|[A-Za-z](?![A-Za-z]))")
_FRACTION_NAME = re.compile(r"\\[dtc](frac|binom)(?![A-Za-z])")
_WITH_ARGUMENTS = re.compile(r"\\(frac|binom|sqrt)(?![A-Za-z])")
_ROOT_SIGN = re.compile(r"√ ?(\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z]))")
_BARE_ROOT = re.compile(r"(?<![A-Za-z\\])sqrt ?(\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z]))")
_NOT_EQUAL = re.compile(r"(?<![\d)}])!=")
_BOLD = re.compile(r"(?<![\w)}])\*\*([^*]*)\*\*(?![\w({])|__([^_]*)__")
_BRACED_COMMAS = re.compile(r"(?<!\\)\{(\d{1,3}(?:,\d{3})+)\}")
_WORDS = r"\\(?:text(?:normal|bf|it|rm|sf|tt)?|mbox|hbox) ?"
_WRAPPER = r"\\(?:text(?:normal|bf|it|rm|sf|tt)?|mbox|hbox|math(?:rm|bf|it|sf|normal)|boldsymbol|bm) ?"
_LEAD_IN = re.compile(
    rf"^ ?(?:{_WORDS}\{{[^{{}}]*(?:\bis|\bare|\bequals|:) ?\}}"
    r"|(?i:(?:the )?(?:final )?answer ?(?:is\b ?:?|:)))(?= ?\S)"
)
_TURNED = re.compile(r"(?i)\b(?:not|no|minus|negative|more|less|fewer|half|twice|than|least|most|without|wrong)\b")
_AND_OR = re.compile(rf" ?,? ?(?:{_WORDS}\{{ ?(and|or) ?\}}|(?<![A-Za-z\\])(and|or)(?![A-Za-z])) ?")
_DEGREE_WORD = re.compile(_WRAPPER + r"\{ ?(\^\\circ ?[CFK]?) ?\}")
_CONSTANT_WORD = re.compile(_WRAPPER + r"\{ ?([eid]) ?\}")
_NUMBER_WRAPPER = re.compile(_WRAPPER + r"\{ ?([-+]?[\d.,]*\d) ?\}")
_PERCENT_WORD = re.compile(_WRAPPER + r"\{ ?(?:percent|per cent|pct|\\?%) ?\}|(?<=\d) ?(?:percent|per cent|pct)\b")
_SCIENTIFIC = re.compile(r"(?<![A-Za-z\d.\\])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,3})(?![\w.])")
_BARE_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
_BARE_FUNCTION = re.compile(r"(?<![A-Za-z\\])(sqrt|sin|cos|tan|ln|log)(?![A-Za-z])")
_REPEATING = re.compile(r"(?<!\d)(\d*)\.(\d*)\\(?:overline|bar|dot) ?\{?(\d+)\}?|(?<!\d)(0)\.(\d*)\((\d+)\)")
_MIXED = re.compile(
    r"(?<![\d.^_/}])(?<![\d.^_/}] )(\d+) ?(?:\\frac ?\{ ?(\d+) ?\} ?\{ ?(\d+) ?\}|(?<=\d) (\d+) ?/ ?(\d+)(?![\d.]))"
)
_ADJACENT_NUMBERS = re.compile(r"(?<![_^\d.])\.?\d[\d.]*+ \.?\d")


def clean(text: str) -> str:
    """The answer without decoration, separators, lead-in and full stop; brackets and meaning stay.

    Between any two steps there is at most one space in a row, so that no pattern has to look for more.
    """
    text = _ROOT_SIGN.sub(r"\\sqrt{\1}", _squeezed(text))
    text = _plain_characters(text)
    for step in _STEPS:
        text = step(_squeezed(text))
    return _squeezed(text).strip()


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text) if "  " in text or not text.isprintable() else text


def _connected(text: str) -> str:
    """ "and" and "or" between inequalities as signs, since there they differ; in a list both are commas."""
    if _RELATION.search(text) is None:
        return _AND_OR.sub(", ", text)
    return _AND_OR.sub(lambda m: r" \land " if (m[1] or m[2]) == "and" else r" \lor ", text)


def _without_lead_in(text: str) -> str:
    return _LEAD_IN.sub(lambda m: m[0] if _TURNED.search(m[0]) else " ", text)


def _without_trail(text: str) -> str:
    r"""Without spaces, commas, colons and a full stop at the end; dots that say "and so on" stay."""
    end = len(text)
    while end and (text[end - 1] in " ,;:\\" or (text[end - 1] == "." and text[end - 2 : end - 1] != ".")):
        end -= 1
    return text[:end]


def _substituted(pattern: re.Pattern[str], by: str | Callable[[re.Match[str]], str], text: str) -> str:
    return pattern.sub(by, text)


def _arguments(text: str) -> str:
    r"""Arguments of ``\frac``, ``\binom`` and ``\sqrt`` in braces by TeX's rule: without them one token is one."""
    closers, added = _pairs(text), []
    for match in _WITH_ARGUMENTS.finditer(text):
        at = _behind_option(text, match.end()) if match[1] == "sqrt" else match.end()
        for _ in range(1 if match[1] == "sqrt" else 2):
            at += text[at : at + 1] == " "
            end = _token_end(text, at, closers)
            if end is None:
                break
            if text[at] != "{":
                added += [(at, 1, "{"), (end, 0, "}")]
            at = end
    out, last = [], 0
    for at, _, brace in sorted(added):
        out += [text[last:at], brace]
        last = at
    return "".join([*out, text[last:]])


def _pairs(text: str) -> dict[int, int]:
    """Where each group ends, by where it begins."""
    out: dict[int, int] = {}
    opened: list[int] = []
    for match in re.finditer(r"\\.|[{}]", text):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            out[opened.pop()] = match.start()
    return out


def _behind_option(text: str, at: int) -> int:
    start = at + (text[at : at + 1] == " ")
    if text[start : start + 1] != "[":
        return at
    end = text.find("]", start, start + 20)
    return at if end < 0 else end + 1


def _token_end(text: str, at: int, closers: Mapping[int, int], nested: int = 0) -> int | None:
    r"""Where a group, a character or a command with its own groups ends; ``None`` where there is none."""
    if text[at : at + 1] == "{":
        return closers[at] + 1 if at in closers else None
    if command := _COMMAND.match(text, at):
        end: int | None = command.end()
        taken = {r"\frac": 2, r"\binom": 2, r"\sqrt": 1}.get(command[0], 0)
        for _ in range(taken or text[command.end() : command.end() + 1] == "{"):
            end = None if end is None or nested > 3 else _token_end(text, end, closers, nested + 1)
        return end
    return at + 1 if text[at : at + 1].isalnum() else None


def mixed_numbers(text: str) -> str:
    """``2\\frac{1}{2}`` and ``2 1/2`` as sums in brackets: a product would be written with a sign."""
    return _MIXED.sub(lambda m: rf"({m[1]}+\frac{{{m[2] or m[4]}}}{{{m[3] or m[5]}}})", text)


def has_adjacent_numbers(text: str) -> bool:
    """Whether two numbers stand side by side with nothing but space between them, which means nothing."""
    return _ADJACENT_NUMBERS.search(text) is not None


def balanced(text: str) -> bool:
    """Whether every group is closed and none closes that was not opened."""
    level = 0
    for match in re.finditer(r"\\.|[{}]", text):
        level += (match[0] == "{") - (match[0] == "}")
        if level < 0:
            return False
    return level == 0


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


def _braced(text: str, command: str, left: str) -> str:
    """``\\sqrt(x)`` -> ``\\sqrt{x}``, ``^(x)`` -> ``^{x}``; brackets matched, not guessed."""
    start = 0
    while (at := text.find(command, start)) >= 0:
        start = at + len(command)
        opening = start + (text[start : start + 1] == " ")
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


def _recurring(match: re.Match[str]) -> str:
    """``0.1666\\ldots`` as the fraction it is, where its last digits repeat; else as it was."""
    digits = match[2]
    for length in range(1, 11):
        cycle, times = digits[-length:], 3 if length == 1 else 2
        if digits.endswith(cycle * times):
            head = digits
            while head.endswith(cycle):
                head = head[:-length]
            return _fraction(match[1] or "0", head, cycle)
    return match[0]


def _repeating(match: re.Match[str]) -> str:
    """``0.1\\overline{6}`` -> the fraction it is."""
    whole, head, cycle = (match[1] or "0", match[2], match[3]) if match[3] else match.groups()[3:]
    return _fraction(whole, head, cycle)


def _fraction(whole: str, head: str, cycle: str) -> str:
    scale = 10 ** len(head) * (10 ** len(cycle) - 1)
    value = int(whole + head + cycle) - int(whole + head)
    return rf"\frac{{{value}}}{{{scale}}}"


_STEPS: tuple[Callable[[str], str], ...] = (
    str.strip,
    partial(_substituted, _COMMAND, lambda m: _SAME.get(m[0], m[0])),
    partial(_substituted, _COLOUR, ""),
    partial(_substituted, _EMPTY_SET, r"\\emptyset "),
    partial(_substituted, _CHOOSE, r"\\binom{\1}{\2}"),
    partial(_substituted, _BLACKBOARD, r"\\mathbb{\1}"),
    lambda text: text.replace("{:}", ":"),
    partial(_substituted, _MODULO, lambda m: rf" \pmod{{{m[1] or m[2] or m[3]}}}"),
    partial(_substituted, _MONEY, ""),
    partial(_substituted, _ORDINAL, ""),
    partial(_substituted, _AND_SO_ON, _recurring),
    partial(_substituted, _BOLD, lambda m: m[1] or m[2] or ""),
    partial(_substituted, _EXPLICIT_SEPARATOR, ""),
    partial(_substituted, _SPACE_COMMAND, " "),
    partial(_substituted, _DROPPED, ""),
    _without_lead_in,
    _connected,
    partial(_substituted, _SEMICOLON, r"\1,\2"),
    partial(_substituted, _PERCENT_WORD, r"\\%"),
    lambda text: _without_trail(_unwrap(text.strip())),
    partial(_substituted, _DEGREE_WORD, r"\1"),
    lambda text: text.removeprefix("=").removeprefix(r"\approx").strip(),
    partial(_substituted, _CONSTANT_WORD, r" \1 "),
    partial(_substituted, _NUMBER_WRAPPER, r"\1"),
    partial(_substituted, _FRACTION_NAME, r"\\\1"),
    lambda text: text.replace("**", "^").replace("*", r"\cdot "),
    partial(_substituted, _COMMON_LOG, r"\\log_{10} "),
    partial(_substituted, _NATURAL_LOG, r"\\ln "),
    partial(_substituted, _TIMES_LETTER, r"\\times "),
    partial(_substituted, _BARE_EXPONENT, r"^{-\1}"),
    lambda text: text.replace("<=", r"\le ").replace(">=", r"\ge "),
    partial(_substituted, _NOT_EQUAL, r"\\ne "),
    partial(_substituted, _SCIENTIFIC, r"\1\\cdot 10^{\2}"),
    partial(_substituted, _BARE_PI, r"\\pi "),
    partial(_substituted, _BARE_ROOT, r"\\sqrt{\1}"),
    partial(_substituted, _BARE_FUNCTION, r"\\\1"),
    lambda text: _braced(_braced(text, r"\sqrt", "("), "^", "("),
    _arguments,
    partial(_substituted, _BRACED_COMMAS, lambda m: "{" + m[1].replace(",", "") + "}"),
    _join_numbers,
    partial(_substituted, _REPEATING, _repeating),
)
"""What is done to an answer, in this order."""
