"""Prompts of tokenizers and chat templates as they are published, on tiny models made for each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from lagproof.errors import InputError, PromptError
from lagproof.models.layout import layout
from lagproof.models.loading import Loaded, load, save
from lagproof.models.logprobs import Head, response_logprobs, row_cost
from lagproof.models.prompts import encode, end_of_turn, positions
from lagproof.rollout.engine import Request, Sampling
from lagproof.rollout.hf import HFEngine

WORDS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<pad>", *"abcdefghijklmnopqrstuvwxyz0123456789+=?:\n "]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}"
    "=={% endif %}{% endif %}"
)
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif %}" + CHATML


def make(template: str | None = None, processor: str | None = None, rows: int = len(WORDS)) -> Loaded:
    """A GPT-2 layout with 64 positions whose tokens are characters."""
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if processor is not None:
        core.post_processor = processors.TemplateProcessing(processor, special_tokens=[("<s>", 0), ("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        extra_special_tokens=["<|im_start|>", "<|im_end|>"],
    )
    tokenizer.chat_template = template
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=rows, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1)
    return Loaded(GPT2LMHeadModel(config).eval(), tokenizer, (1,), "made")


def reloaded(made: Loaded, folder: Path) -> Loaded:
    save(folder, made.model, made.tokenizer)
    return load(folder)


@pytest.mark.parametrize(
    ("processor", "before"),
    [("<s> $A </s>", [0]), ("$A </s>", []), ("<s> $A", [0]), (None, [])],
)
def test_a_prompt_begins_as_the_tokenizer_says_and_never_ends_with_what_it_puts_behind(processor, before):
    made = make(processor=processor)
    assert encode(made, "2+2=") == [*before, *(WORDS.index(c) for c in "2+2=")]


def test_a_stop_token_that_the_prompt_itself_has_stays():
    assert encode(make(processor="<s> $A </s>"), "a</s>") == [0, WORDS.index("a"), 1]


def test_a_template_that_refuses_a_role_says_so_in_its_own_words_and_what_to_try():
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}]
    with pytest.raises(InputError, match=r"made: .* \(system, user\): no system here; .*task\.system = \"\""):
        encode(make(NO_SYSTEM), messages)
    assert encode(make(NO_SYSTEM), messages[1:])


@pytest.mark.parametrize("thinking", [True, False])
def test_arguments_reach_the_chat_template(thinking):
    made = make(CHATML)
    text = made.tokenizer.decode(encode(made, [{"role": "user", "content": "a"}], {"enable_thinking": thinking}))
    assert text.replace(" ", "").endswith("==") == (not thinking)


@pytest.mark.parametrize(("template", "token"), [(CHATML, 3), (NO_SYSTEM, 3), (None, None), ("{{ 'a' }}", None)])
def test_the_token_behind_an_assistants_turn_ends_a_response(template, token, tmp_path):
    made = make(template)
    assert end_of_turn(made.tokenizer) == token
    assert reloaded(made, tmp_path).stop_ids == tuple(sorted({1, *([] if token is None else [token])}))


def test_learned_positions_are_an_end_and_computed_ones_are_not():
    assert positions(make().model) == 64
    assert positions(load("tiny-dense").model) is None


@pytest.mark.parametrize(("prompt", "max_tokens"), [(90, 16), (50, 15), (64, 1)])
def test_a_prompt_that_leaves_no_room_is_one_error_before_anything_is_sampled(prompt, max_tokens):
    made = make()
    engine = HFEngine(made.model, made.tokenizer, made.stop_ids)
    requests = [Request([5] * 3, 1, 0), Request([5] * prompt, 1, 0)]
    with pytest.raises(InputError, match=rf"{prompt} tokens and max_tokens = {max_tokens}: together at most 64"):
        engine.generate(requests, Sampling(max_tokens))


def test_a_prompt_and_response_that_just_fit_are_sampled():
    made = make()
    engine = HFEngine(made.model, made.tokenizer, made.stop_ids)
    (sample,) = engine.generate([Request([5] * 50, 1, 0)], Sampling(14))[0]
    assert len(sample.response_ids) <= 14


def test_ids_that_pad_the_vocabulary_are_never_drawn_and_outside_the_normaliser(tmp_path):
    loaded = reloaded(make(rows=len(WORDS) + 60), tmp_path)
    assert Head.of(loaded.model).weight.shape == (len(WORDS), 16)
    engine = HFEngine(loaded.model, loaded.tokenizer, loaded.stop_ids)
    samples = engine.generate([Request([5, 6, 7], 64, 1)], Sampling(16))[0]
    assert max(int(s.response_ids.max()) for s in samples) < len(WORDS)
    scored = response_logprobs(loaded.model, layout([samples], row_cost(loaded.model)))
    recorded = torch.cat([torch.tensor(s.sampler_logp) for s in samples])
    torch.testing.assert_close(scored.logp.detach(), recorded, rtol=1e-5, atol=1e-5)


def test_a_saved_model_keeps_the_rows_of_its_vocabulary(tmp_path):
    loaded = reloaded(make(rows=len(WORDS) + 60), tmp_path / "a")
    again = reloaded(loaded, tmp_path / "b")
    assert again.model.lm_head.weight.shape == (len(WORDS) + 60, 16)


def test_a_tokenizer_with_more_ids_than_the_model_has_embeddings_is_an_error():
    made = make(rows=20)
    with pytest.raises(PromptError, match="has 20 embeddings, and its tokenizer makes token"):
        encode(made, "z")


def test_a_folder_without_a_tokenizer_says_what_is_missing(tmp_path):
    made = make()
    made.model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"has no tokenizer \(none of tokenizer\.json, .*copy these files"):
        load(tmp_path)


def test_stop_ids_beyond_the_embeddings_are_left_out(tmp_path):
    made = make(CHATML)
    made.model.generation_config.eos_token_id = [1, 999]
    assert reloaded(replace(made), tmp_path).stop_ids == (1, 3)
