from __future__ import annotations

import pytest
import torch
from transformers import AutoTokenizer

from lagproof.errors import UnknownNameError
from lagproof.models.tiny import TINY_MODELS, tiny_model, tiny_tokenizer


@pytest.mark.parametrize(("kind", "low", "high"), [("tiny-dense", 90_000, 110_000), ("tiny-moe", 215_000, 235_000)])
def test_sizes(kind: str, low: int, high: int) -> None:
    assert low < sum(p.numel() for p in tiny_model(kind).parameters()) < high


@pytest.mark.parametrize("kind", TINY_MODELS)
def test_the_seed_decides_the_weights_and_the_global_stream_is_left_alone(kind: str) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    a, b, c = tiny_model(kind, 1), tiny_model(kind, 1), tiny_model(kind, 2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(a.parameters(), c.parameters(), strict=True))


def test_input_and_output_embeddings_are_two_parameters() -> None:
    model = tiny_model("tiny-dense")
    assert model.get_input_embeddings().weight is not model.get_output_embeddings().weight


def test_another_kind_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="tiny-moe"):
        tiny_model("tiny-mo")


def test_one_token_a_character_and_back() -> None:
    tokenizer = tiny_tokenizer()
    text = "7+5-9+3=12,-3,6$"
    ids = tokenizer.encode(text)
    assert len(ids) == len(text) and len(set(ids)) == len(set(text))
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == text[:-1]
    assert tokenizer.convert_ids_to_tokens(tokenizer.eos_token_id) == "$"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert len(tokenizer) == 16


def test_the_tokenizer_survives_saving(tmp_path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.encode("1+2=$") == tiny_tokenizer().encode("1+2=$")
    assert again.decode([3, 12, 4]) == "1+2"
    assert (again.eos_token, again.pad_token) == ("$", "<pad>")
