"""Two language models small enough to train in minutes on one core: one dense, one mixture of experts.

Both read and write the 16 characters of the arithmetic task, one token a character.
"""

from __future__ import annotations

import torch
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from lagproof.errors import UnknownNameError

TINY_MODELS = ("tiny-dense", "tiny-moe")

PAD, STOP = "<pad>", "$"
CHARACTERS = "0123456789+-=,"
VOCABULARY = (PAD, STOP, *CHARACTERS)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A character-level tokenizer over 16 tokens; ``$`` ends a response, padding has a token of its own.

    Any other character is an error of the tokenizer, not a token: there is no unknown token to hide behind.
    """
    vocabulary = {token: i for i, token in enumerate(VOCABULARY)}
    core = Tokenizer(WordLevel(vocabulary, unk_token="<none>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=STOP, pad_token=PAD, clean_up_tokenization_spaces=False
    )


def tiny_model(kind: str, seed: int = 0) -> Qwen3ForCausalLM | Qwen3MoeForCausalLM:
    """An untrained tiny model: about 100 k parameters (``tiny-dense``) or 225 k (``tiny-moe``), float32.

    Input and output embeddings are separate parameters: at 16 tokens tying saves 1 % of the parameters, and separate
    ones make the mapping from names to tensors one to one. The global random stream is left as it was.

    Raises:
        UnknownNameError: another ``kind``.
    """
    shape = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 192,
        "max_position_embeddings": 256,
        "tie_word_embeddings": False,
        "pad_token_id": VOCABULARY.index(PAD),
        "eos_token_id": VOCABULARY.index(STOP),
        "bos_token_id": None,
        "initializer_range": 0.02,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "tiny-dense":
            return Qwen3ForCausalLM(Qwen3Config(**shape))
        if kind == "tiny-moe":
            experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
            return Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **experts))
    raise UnknownNameError("tiny model", kind, TINY_MODELS)
