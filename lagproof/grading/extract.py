"""Where the answer is in a response. Linear in the length of the response, whatever it says."""

from __future__ import annotations

import re
from enum import StrEnum

MAX_CHARS = 2000
"""Characters of an answer that are read; a longer one is no answer."""


class Form(StrEnum):
    """How a response marks its answer."""

    BOXED = "boxed"  # the last \boxed{...} or \fbox{...}
    MARKED = (
        "marked"  # what follows the last `####` or `answer is` or `answer:`, to the end of its line, or a box below
    )
    WHOLE = "whole"  # the response is nothing but the answer


_BOX = re.compile(r"\\f?box(?:ed)?(?![A-Za-z])\s*")
_COMMANDS = ("\\boxed", "\\fbox")
_MARK = re.compile(
    r"####|\banswer\*{0,3}[ \t]*(?:is\b[ \t]*[:：]?|[:：])|答案[ \t]*(?:[是为][ \t]*[:：]?|[:：])", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.;!?](?=\s|$|\*\*)|\n|[。；！？]")
_BOLD_ENDS = re.compile(r"\*{1,3}(?=\s)")  # of a mark in bold: **Answer:** 34
_EMPHASIS = re.compile(r"([*_])([^*_]+)\1")
_TO_A_BOX = re.compile(r"^\s*+(?:\$\$?|\\\[|\\\(|\*\*)?\s*(?=\\f?box)")


def extract(response: str, form: Form = Form.BOXED) -> str | None:
    """The text of the answer, or ``None`` where the response has none.

    The last mark counts. A box that is empty or never closed is no answer, and an earlier one does not stand in for
    it: a response that was truncated has not said what it wanted to say. Nor has one that ends in its thoughts, between
    ``<think>`` and ``</think>`` or the like: only what stands behind them is looked at.
    """
    response = _without_end_tokens(_final_part(response))
    if form is Form.BOXED:
        return last_box(response)
    text = response if form is Form.WHOLE else _marked(response)
    if text is None or (len(text) > MAX_CHARS and "\\" not in text):
        return None
    inner = last_box(text) if _last_command(text) >= 0 else text.strip()
    return inner if inner and len(inner) <= MAX_CHARS else None


_THOUGHTS = [  # how they begin, and end
    *((f"<{name}>", f"</{name}>") for name in ("think", "thinking", "thought", "reasoning")),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
]


def _final_part(response: str) -> str:
    """What stands behind the last thoughts; nothing where they do not end."""
    for begin, end in _THOUGHTS:
        ended = response.rfind(end)
        if response.find(begin, max(ended, 0)) >= 0:
            return ""
        if ended >= 0:
            response = response[ended + len(end) :]
    return response


_END_TOKEN = re.compile(r"<(?:[|｜][^<>|｜\s]{1,30}[|｜]|/?s|eos|pad|end_of_turn|end_of_text)>")


def _without_end_tokens(response: str) -> str:
    """Without tokens that end a text or a turn, at the end, where a decoder left them in."""
    while True:
        text = response.rstrip()
        start = text.rfind("<", max(0, len(text) - 40)) if text.endswith(">") else -1
        if start < 0 or _END_TOKEN.fullmatch(text, start) is None:
            return response
        response = text[:start]


def last_box(text: str) -> str | None:
    """Content of the last ``\\boxed{...}`` or ``\\fbox{...}``; also ``\\boxed 5`` and ``\\boxed {5}``."""
    start = _last_command(text)
    if start < 0:
        return None
    match = _BOX.match(text, start)
    if match is None or match.end() >= len(text):
        return None
    if text[match.end()] != "{":
        token = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z]").match(text, match.end())
        return token.group() if token else None
    end = closing(text, match.end(), "{", "}", limit=MAX_CHARS)
    content = "" if end is None else text[match.end() + 1 : end].strip()
    return content or None


def closing(text: str, start: int, left: str, right: str, limit: int | None = None) -> int | None:
    """Index of the bracket that closes the one at ``start``; ``None`` if there is none within ``limit`` characters."""
    depth = 0
    stop = len(text) if limit is None else min(len(text), start + limit + 2)
    i = start
    while i < stop:
        character = text[i]
        if character == "\\" and left == "{":  # \{ and \} are printed braces, not groups
            i += 2
            continue
        if character == left:
            depth += 1
        elif character == right:
            depth -= 1
            if depth == 0:
                return i
        i += 1
    return None


def _last_command(text: str) -> int:
    return max(text.rfind(command) for command in _COMMANDS)


def _marked(response: str) -> str | None:
    last = None
    for last in _MARK.finditer(response):  # noqa: B007
        pass
    if last is None:
        return None
    rest = response[last.end() : last.end() + 2 * MAX_CHARS].replace("\r\n", "\n").lstrip(" \t")
    if ends := _BOLD_ENDS.match(rest):
        rest = rest[ends.end() :].lstrip(" \t")
    if rest.startswith("\n"):
        box = _TO_A_BOX.match(rest)
        if box is None:
            return None
        rest = rest[box.end() :]
    end = _SENTENCE_END.search(rest)
    said = _without_half_bold((rest[: end.start()] if end else rest).strip())
    return _GOES_ON.split(_LEADS.sub("", said), maxsplit=1)[0].strip() or None


_LEADS = re.compile(
    r"^(?:(?:therefore|thus|hence|then|so|simply|just|clearly|obviously|indeed|probably|most likely|likely"
    r"|I (?:think|believe|guess)(?: that)?(?: the answer is| it is| it's)?|it is|it's|equal to)(?:, | +))+",
    re.IGNORECASE,
)
"""Words in front of an answer that say nothing about it."""

_GOES_ON = re.compile(
    r"(?<=\S),? (?:because|since|which is|so that|as we|as the|as it)\b|(?<=\S), (?:not|but not|and not)\b"
)
"""How a sentence goes on behind its answer."""


def _without_half_bold(text: str) -> str:
    """Without asterisks and underscores around it, or whose other half is outside: ``34**`` of ``**Answer: 34**``."""
    if inner := _EMPHASIS.fullmatch(text):
        return inner[2].strip()
    if text.count("**") % 2 == 0:
        return text
    return (text.removeprefix("**") if text.startswith("**") else text.removesuffix("**")).strip()
