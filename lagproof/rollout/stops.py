"""Stop strings: text that ends a response, found while the response is sampled. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Texts = Callable[[Sequence[Sequence[int]]], Sequence[str]]
"""Token ids of some responses -> their texts."""

_MARGIN = 8
"""Characters of a decoded tail that may differ from the whole text: where it begins, half a character or a missing
space."""


class StopStrings:
    """Tells which samples have just completed one of their stop strings.

    A response ends with the first token after which its decoded text contains one. Text is decoded from a few tokens
    back, once a token for all samples together: far enough that a string is seen wherever in its tokens it begins.

    Args:
        stop: the strings of each sample; none for one that ends in other ways only.
        texts: the decoder.
    """

    def __init__(self, stop: Sequence[Sequence[str]], texts: Texts) -> None:
        self._tails = {i: _Tail(tuple(strings)) for i, strings in enumerate(stop) if strings}
        self._texts = texts

    def completed(self, samples: Sequence[int], tokens: Sequence[int]) -> list[bool]:
        """Whether each of these samples ends with the token that it just drew."""
        tails = [self._tails.get(sample) for sample in samples]
        watched = [tail for tail in tails if tail is not None]
        for tail, token in zip(tails, tokens, strict=True):
            if tail is not None:
                tail.ids.append(token)
        texts = iter(self._texts([tail.ids for tail in watched]) if watched else ())
        return [tail is not None and tail.ends(next(texts), self._texts) for tail in tails]


@dataclass
class _Tail:
    """The last tokens of one sample. Those before ``mark`` go once there is enough text behind it.

    Attributes:
        stop: its stop strings.
        ids: the tokens.
        mark: number of tokens before the mark.
        chars: length of the text before the mark.
    """

    stop: tuple[str, ...]
    ids: list[int] = field(default_factory=list[int])
    mark: int = 0
    chars: int = 0

    def ends(self, text: str, texts: Texts) -> bool:
        """Whether the text of the tokens holds a stop string; if not, forget what is not needed any more."""
        if any(string in text for string in self.stop):
            return True
        if len(text) - self.chars >= max(map(len, self.stop)) + _MARGIN:
            del self.ids[: self.mark]
            self.mark, self.chars = len(self.ids), len(texts([self.ids])[0])
        return False


def truncate(text: str, stop: Sequence[str]) -> str:
    """Text up to the stop string that is complete first; of several that end there, up to the longest."""
    found = [(start + len(string), start) for string in stop if (start := text.find(string)) >= 0]
    return text[: min(found)[1]] if found else text
