"""Prompts as token ids: text as it is, chat messages through the model's own template, and how long they may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lagproof.errors import InputError, PromptError

if TYPE_CHECKING:
    from lagproof.models.loading import Loaded

SHOWN = 80
"""Characters of a prompt in a message."""

_MARK = "0123"


def encode(
    loaded: Loaded, prompt: str | Sequence[Mapping[str, str]], template: Mapping[str, Any] | None = None
) -> list[int]:
    """Token ids of a prompt, special tokens once.

    Text is tokenised as it is, with what the tokenizer itself puts in front (a beginning-of-text token, where the
    model was trained with one), unless the text already starts with it; what the tokenizer puts behind (an
    end-of-text token) is left out, since the response continues there. Chat messages go through the model's chat
    template, which ends with the start of the assistant's turn and brings its own special tokens.

    Args:
        loaded: whose tokenizer and template.
        prompt: text, or chat messages.
        template: arguments of the chat template, such as ``enable_thinking``.

    Raises:
        PromptError: messages for a model without a chat template, text that the tokenizer has no tokens for, or
            tokens that the model has no embedding of.
        InputError: an empty prompt, or messages that the chat template refuses.
    """
    ids = _plain(loaded, prompt) if isinstance(prompt, str) else _chat(loaded, prompt, template or {})
    if not ids:
        raise InputError(f"the prompt {prompt!r} has no tokens: must have at least one")
    embeddings: Any = loaded.model.get_input_embeddings()
    rows = int(embeddings.num_embeddings)
    if max(ids) >= rows:
        raise PromptError(
            loaded.source,
            f"has {rows} embeddings, and its tokenizer makes token {max(ids)} of {_shown(prompt)}",
            "the tokenizer belongs to another model: copy the right one into the folder",
        )
    return ids


def check_length(prompts: Iterable[int], max_tokens: int, positions: int | None, option: str) -> None:
    """Refuse prompts that leave no room for a response.

    Args:
        prompts: their tokens.
        max_tokens: response tokens at most.
        positions: of the model, see :func:`positions`.
        option: what ``max_tokens`` is called.

    Raises:
        InputError: names the longest prompt, ``max_tokens`` and the positions.
    """
    longest = max(prompts, default=0)
    if positions is None or longest + max_tokens <= positions:
        return
    room = positions - longest
    remedy = f"lower {option} to {room}, or" if room > 0 else "take"
    raise InputError(
        f"the longest prompt has {longest} tokens and {option} = {max_tokens}: together at most {positions}, the "
        f"positions of the model; {remedy} shorter prompts (fewer task.shots), or another model"
    )


def positions(model: PreTrainedModel) -> int | None:
    """Tokens that a model with learned positions can read; ``None`` where positions are computed, without an end."""
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding) and m is not model.get_input_embeddings()]
    # some tables have two rows more, which no token uses
    return most if any(most in (table.num_embeddings, table.num_embeddings - 2) for table in tables) else None


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token that the chat template puts behind an assistant's turn; ``None`` without one."""
    if not tokenizer.chat_template:
        return None
    turns = [{"role": "user", "content": "1"}, {"role": "assistant", "content": _MARK}]
    try:
        text = str(tokenizer.apply_chat_template(turns, tokenize=False))
    except (TemplateError, ValueError, TypeError):  # a template with demands of its own
        return None
    behind = tokenizer.encode(text.rpartition(_MARK)[2].lstrip(), add_special_tokens=False)
    special = {*tokenizer.all_special_ids, *(i for i, t in tokenizer.added_tokens_decoder.items() if t.special)}
    return behind[0] if behind and behind[0] in special else None


def _plain(loaded: Loaded, text: str) -> list[int]:
    bos = loaded.tokenizer.bos_token
    bare = _tokenize(loaded, text, add_special_tokens=False)
    if bos and text.startswith(str(bos)):
        return bare
    whole = _tokenize(loaded, text, add_special_tokens=True)
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return whole[: start + len(bare)]
    while whole and whole[-1] in loaded.stop_ids:
        whole.pop()
    return whole


def _chat(loaded: Loaded, messages: Sequence[Mapping[str, str]], template: Mapping[str, Any]) -> list[int]:
    tokenizer = loaded.tokenizer
    if not tokenizer.chat_template:
        raise PromptError(
            loaded.source,
            "has no chat template, and the prompt is a list of chat messages",
            "use a model that was trained to chat (smollm2), put a chat_template.jinja into its folder, "
            "or set task.prompt = 'plain' (the tiny models read only the task arithmetic)",
        )
    turns: Any = [dict(message) for message in messages]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **template)
    except (TemplateError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{loaded.source}: its chat template refuses the messages ({', '.join(m['role'] for m in turns)}"
            f"{''.join(f', {k} = {v!r}' for k, v in template.items())}): {_first_line(error)}; {_remedy(turns)}"
        ) from error
    return _tokenize(loaded, str(text), add_special_tokens=False)


def _remedy(messages: Sequence[Mapping[str, str]]) -> str:
    others = "set task.prompt = 'plain' (lagproof eval: --set prompt=plain)"
    if any(message["role"] == "system" for message in messages):
        return f"""leave the system message out with task.system = "" (lagproof eval: --set 'system=""'), or {others}"""
    return f"correct the messages or task.chat_template_kwargs, or {others}"


def _tokenize(loaded: Loaded, text: str, *, add_special_tokens: bool) -> list[int]:
    try:
        return list(loaded.tokenizer.encode(text, add_special_tokens=add_special_tokens))
    except Exception as error:  # the tokenizers library raises bare Exception for text it has no tokens for
        raise PromptError(
            loaded.source,
            f"has no tokens for {_shown(text)} ({_first_line(error)})",
            "its alphabet is another one (the tiny models read only the arithmetic task); take a model that reads "
            "text, for example model = 'smollm2'",
        ) from error


def _shown(prompt: object) -> str:
    text = prompt if isinstance(prompt, str) else repr(prompt)
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
