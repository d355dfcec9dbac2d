"""Stop strings against decoding the whole response after every token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE

from lagproof.data.samples import Finish
from lagproof.errors import InputError
from lagproof.models.tiny import tiny_model, tiny_tokenizer
from lagproof.rollout import hf
from lagproof.rollout.engine import Request, Sampling
from lagproof.rollout.hf import HFEngine
from lagproof.rollout.stops import StopStrings, truncate

STOPS = ("\nQuestion:", "né", "💡\n", "aa")


def byte_level() -> Tokenizer:
    """Every byte a token, some pieces of the stop strings too, and a special token that has no text."""
    letters = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {b: chr(b) for b in letters}
    alphabet |= {b: chr(256 + n) for n, b in enumerate(sorted(set(range(256)) - set(letters)))}
    pieces = ["\nQ", "uest", "ion", "ion: n", "Question:", "b\nQuestion:", "én", "aab", " Question"]
    words = [*alphabet.values(), *("".join(alphabet[b] for b in piece.encode()) for piece in pieces)]
    tokenizer = Tokenizer(BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """Pieces with a mark for a space, which decoding strips at the beginning, and bytes for everything else."""
    pieces = ["▁Question", "Question", ":", "▁", "a", "▁a", "aab", "n", "é", "ion", "▁Quest", "💡", "\n"]
    words = [*pieces, *(f"<0x{b:02X}>" for b in range(256))]
    tokenizer = Tokenizer(BPE({word: i for i, word in enumerate(words)}, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(  # type: ignore[assignment]
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


def first_end(ids: Sequence[int], stop: Sequence[str], text: Callable[[Sequence[int]], str]) -> int | None:
    """Tokens until the whole text has a stop string."""
    return next((t for t in range(1, len(ids) + 1) if any(s in text(ids[:t]) for s in stop)), None)


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_a_response_ends_where_its_whole_text_first_holds_a_stop_string(make) -> None:
    tokenizer = make()
    size = tokenizer.get_vocab_size()
    # bytes of the characters of the stop strings, the pieces, and the special token: matches are then frequent
    likely = [i for i in range(size) if tokenizer.decode([i]) in set("".join(STOPS)) or i >= 256 or i < 13]
    bytes_of = "é💡".encode()
    found: list[int] = []

    @settings(max_examples=300, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        byte = st.sampled_from([tokenizer.token_to_id(f"<0x{b:02X}>") or b for b in bytes_of])
        token = st.one_of(st.sampled_from(likely), st.integers(0, size - 1), byte)
        rows = data.draw(st.lists(st.lists(token, min_size=60, max_size=60), min_size=1, max_size=3))
        stop = [data.draw(st.sampled_from([(), *((s,) for s in STOPS), STOPS])) for _ in rows]
        expected = [first_end(row, s, tokenizer.decode) for row, s in zip(rows, stop, strict=True)]
        strings = StopStrings(stop, tokenizer.decode_batch)
        ended: list[int | None] = [None] * len(rows)
        for t in range(60):
            running = [i for i, end in enumerate(ended) if end is None]
            for i, done in zip(running, strings.completed(running, [rows[i][t] for i in running]), strict=True):
                ended[i] = t + 1 if done else None
        assert ended == expected
        found.extend(end for end in ended if end is not None)

    check()
    assert len(found) > 50 and max(found) > 30


def test_only_a_short_tail_is_decoded() -> None:
    lengths: list[int] = []

    def texts(rows: Sequence[Sequence[int]]) -> list[str]:
        lengths.extend(map(len, rows))
        return ["".join(map(chr, row)) for row in rows]

    strings = StopStrings([("stop",)], texts)
    for token in range(1000, 2000):
        assert strings.completed([0], [token]) == [False]
    assert max(lengths) < 30
    assert [strings.completed([0], [ord(c)]) for c in "stop"] == [[False], [False], [False], [True]]


@pytest.mark.parametrize("string", ["x", "xy", "\nQuestion:", "stop" * 12])
def test_a_string_is_seen_wherever_it_begins(string: str) -> None:
    for before in range(3 * len(string) + 30):
        strings = StopStrings([(string,)], lambda rows: ["".join(map(chr, row)) for row in rows])
        response = "-" * before + string
        assert [strings.completed([0], [ord(c)])[0] for c in response] == [False] * (len(response) - 1) + [True]


def test_text_is_cut_before_the_string_that_is_complete_first() -> None:
    assert truncate("ab\nQ: c\nQ: d", ("\nQ:",)) == "ab"
    assert truncate("xabcx", ("abcx", "bc", "abc")) == "x"  # "bc" and "abc" end together: the longer one
    assert truncate("xabcx", ("abcx", "bc")) == "xa"  # "abcx" begins first but ends later
    assert truncate("xabcx", ("y",)) == "xabcx"
    assert truncate("", ("y",)) == ""


PROMPTS = ([9, 12, 7, 13, 11, 12, 5, 14], [3, 12, 4, 14], [5], [8, 13, 8, 12, 2, 14])
STRINGS = ((), ("7", "12", "65"), ("-4", "33333"), ("0", "3,", "+"))


def generate(strings: Sequence[tuple[str, ...]], sampling: Sampling):
    engine = HFEngine(tiny_model("tiny-moe"), tiny_tokenizer(), (1,), version=3)
    todo = [Request(p, 12, 100 + i, stop) for i, (p, stop) in enumerate(zip(PROMPTS, strings, strict=True))]
    return engine.generate(todo, sampling)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(16), Sampling(16, 0.9, top_p=0.8), Sampling(16, temperature=0.0)],
    ids=["1", "top-p", "greedy"],
)
def test_what_is_drawn_is_the_beginning_of_what_is_drawn_without_stop_strings(sampling: Sampling, close) -> None:
    decode = tiny_tokenizer().decode
    pairs = [
        (stop, s, free)
        for stop, group, of_free in zip(STRINGS, generate(STRINGS, sampling), generate([()] * 4, sampling), strict=True)
        for s, free in zip(group, of_free, strict=True)
    ]
    ends: list[int | None] = []
    for stop, s, free in pairs:
        end = first_end(free.response_ids, stop, lambda ids: decode(ids, skip_special_tokens=True))
        ends.append(end)
        assert list(s.response_ids) == list(free.response_ids)[:end]
        assert s.finish is (free.finish if end is None else Finish.STOP)
        assert s.text == (free.text if end is None else min((free.text.split(x)[0] for x in stop), key=len))
        assert s.version.tolist() == [3] * len(s.response_ids)
        if free.sampler_logp is not None:
            close(s.sampler_logp.tolist(), free.sampler_logp[:end].tolist(), 1e-6)
        if free.support is not None:
            pairs = zip(s.support.rows(), free.support.rows(), strict=False)
            assert len(s.support) == len(s.response_ids) and all(np.array_equal(a, b) for a, b in pairs)
    assert any(end is None for end in ends) and len({end for end in ends if end is not None}) > 1


def test_a_string_that_is_complete_with_the_last_token_allowed_is_no_truncation() -> None:
    free = generate([()] * 4, Sampling(16))[1][0]
    last = tiny_tokenizer().decode(free.response_ids[4:5])
    short = generate([(), (last,), (), ()], Sampling(free.response_ids.tolist().index(free.response_ids[4]) + 1))[1][0]
    assert short.finish is Finish.STOP and last not in short.text
    assert short.response_ids[-1] == free.response_ids[4]


def test_a_stop_token_wins_over_a_string_that_it_would_complete() -> None:
    engine = HFEngine(tiny_model("tiny-dense"), tiny_tokenizer(), (1, 9))
    (group,) = engine.generate([Request([3, 12], 40, 0, ("7",))], Sampling(40))
    by_nine = [s for s in group if s.response_ids[-1] == 9]
    assert by_nine
    assert all(s.finish is Finish.STOP and "7" not in s.text for s in group)
    decode = tiny_tokenizer().decode
    assert all(s.text == decode(s.response_ids[:-1], skip_special_tokens=True) for s in by_nine)


def test_nothing_is_decoded_on_the_way_where_no_string_stops(monkeypatch) -> None:
    calls: list[int] = []
    real = hf._texts
    monkeypatch.setattr(hf, "_texts", lambda t, rows: calls.append(len(rows)) or real(t, rows))
    generate([()] * 4, Sampling(8))
    assert calls == [48]
    calls.clear()
    generate([(), ("7",), (), ()], Sampling(8))
    assert max(calls[:-1]) == 12  # those of one request, and nobody else's


def test_an_empty_stop_string() -> None:
    with pytest.raises(InputError, match="empty"):
        generate([(), ("7", ""), (), ()], Sampling(4))
