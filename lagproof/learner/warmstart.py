"""The supervised start of the tiny models: from nothing to about half of the problems solved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM, Qwen3MoeForCausalLM

from lagproof.errors import UsageError
from lagproof.models.loading import save
from lagproof.models.tiny import PAD, STOP, VOCABULARY, tiny_model, tiny_tokenizer

Example = tuple[str, str]
TinyModel = Qwen3ForCausalLM | Qwen3MoeForCausalLM

BATCH = 128
LEARNING_RATE = 3e-3
CHECK_EVERY_STEPS = 10
CHECK_EXAMPLES = 2048
RESPONSE_TOKENS = 12
_CHECK_FROM = 1_000_000  # examples from this index on are only ever used to check


def warmstart(
    kind: str,
    folder: str | Path,
    example: Callable[[int], Example],
    *,
    seed: int = 0,
    target: float = 0.515,
    max_steps: int = 2000,
    progress: Callable[[int, float, float | None], None] | None = None,
) -> float:
    """Train a tiny model on worked examples until it solves a share of the problems when sampled; save it.

    A problem is solved when a response sampled at temperature 1 ends by itself with the same text after its last comma
    as the worked one. The check draws from a random stream of its own, the same each time, so that training stops at
    the same step every time.

    Args:
        kind: ``tiny-dense`` or ``tiny-moe``.
        folder: where the Hugging Face checkpoint goes; made if missing.
        example: index -> (prompt, worked response without the stop token).
        seed: of the initial weights.
        target: share at which training stops, in (0, 1).
        max_steps: optimiser steps at most.
        progress: called with (step, loss in nats a token, share if it was just measured).

    Returns:
        The share that was reached.

    Raises:
        UsageError: the target was not reached in ``max_steps``; nothing is saved.
    """
    tokenizer = tiny_tokenizer()
    model = tiny_model(kind, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    check = [example(_CHECK_FROM + i) for i in range(CHECK_EXAMPLES)]
    share = 0.0
    for step in range(1, max_steps + 1):
        first = (step - 1) * BATCH
        ids, labels = _batch([example(first + i) for i in range(BATCH)])
        loss = -_label_logp(model, ids, labels).sum() / (labels >= 0).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        checked = step % CHECK_EVERY_STEPS == 0
        if checked:
            share = _solved_share(model, tokenizer, check)
        if progress is not None:
            progress(step, float(loss.detach()), share if checked else None)
        if checked and share >= target:
            save(folder, model, tokenizer)
            return share
    raise UsageError(
        f"warmstart: {kind} solves {share:.2f} of the problems after {max_steps} steps: the target is {target}; "
        "allow more steps, another seed or a lower target"
    )


def _batch(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Right-padded ids and labels ``[B, L]``; label -100 where nothing is predicted (prompt and padding)."""
    tokenizer = tiny_tokenizer()
    prompts = [tokenizer.encode(prompt) for prompt, _ in examples]
    answers = [tokenizer.encode(answer + str(tokenizer.eos_token)) for _, answer in examples]
    width = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    ids = torch.full((len(examples), width), VOCABULARY.index(PAD))
    labels = torch.full((len(examples), width), -100)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : end] = torch.tensor(answer)
    return ids, labels


def _label_logp(model: TinyModel, ids: Tensor, labels: Tensor) -> Tensor:
    """Log-probability of each label ``[B, L - 1]``, 0 where there is none."""
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return -F.cross_entropy(logits.transpose(1, 2), labels[:, 1:], reduction="none")


def _solved_share(model: TinyModel, tokenizer: PreTrainedTokenizerFast, check: Sequence[Example]) -> float:
    """Share of the examples whose sampled response ends as the worked one does; their prompts are equally long."""
    prompts = tokenizer([prompt for prompt, _ in check], return_tensors="pt")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ids = model.generate(**prompts, do_sample=True, top_k=0, max_new_tokens=RESPONSE_TOKENS)  # type: ignore[attr-defined]
    texts = tokenizer.batch_decode(ids[:, prompts["input_ids"].shape[1] :])
    solved = [
        STOP in text and text.split(STOP, 1)[0].rsplit(",", 1)[-1] == worked.rsplit(",", 1)[-1]
        for text, (_, worked) in zip(texts, check, strict=True)
    ]
    return sum(solved) / len(solved)
