"""Log-probabilities against one forward a sample, the softmax written out, and autograd through both."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

from lagproof.data.samples import Finish, Sample
from lagproof.errors import InputError
from lagproof.models import logprobs
from lagproof.models.layout import RowCost, layout
from lagproof.models.logprobs import Head, check_head, response_logprobs, row_cost
from lagproof.models.tiny import tiny_model

PLAIN = RowCost(shares_prompts=False)
TREE = RowCost(shares_prompts=True, pairs_per_token=1e12)
V = 16
SMALL = {
    "vocab_size": V,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "initializer_range": 0.3,
}


def gpt2() -> PreTrainedModel:
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=V, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1)
    )
    model.lm_head.bias = torch.nn.Parameter(torch.linspace(-1, 1, V))  # no model of transformers' own has one left
    return model


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "dense": lambda: tiny_model("tiny-dense"),
    "moe": lambda: tiny_model("tiny-moe"),
    "tied": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True)),
    "bias and learned positions": gpt2,
    "soft cap and sliding window": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SMALL, final_logit_softcapping=2.0, sliding_window=4, attn_implementation="eager")
    ),
}


@pytest.fixture(params=MODELS)
def model(request) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MODELS[request.param]().eval()


def groups(seed: int = 0, support: bool = False) -> list[list[Sample]]:
    """Three prompts with responses of one to nine tokens that begin alike, some of them equal."""
    rng = random.Random(seed)
    out: list[list[Sample]] = []
    for length in (2, 8, 5):
        prompt = [rng.randrange(V) for _ in range(length)]
        responses = [[rng.randrange(3) for _ in range(rng.randint(1, 9))] for _ in range(4)]
        responses.append(responses[0])
        out.append([])
        for ids in responses:
            kept = [sorted({t, *rng.sample(range(V), 3)}) for t in ids] if support else None
            out[-1].append(Sample(prompt, ids, [0] * len(ids), Finish.STOP, support=kept))
    return out


def oracle(model: PreTrainedModel, samples: list[Sample], temperature: float) -> tuple[Tensor, Tensor]:
    """One whole forward a sample; logits at t - 1, over T, over the support; entropy of the same distribution."""
    logp, entropy = [], []
    for s in samples:
        logits = model(torch.tensor([[*s.prompt_ids, *s.response_ids]]), use_cache=False).logits[0].double()
        for t, token in enumerate(s.response_ids):
            z = logits[len(s.prompt_ids) + t - 1] / temperature
            kept = range(V) if s.support is None else s.support.rows()[t].tolist()
            total = sum(z[v].exp() for v in kept)
            logp.append(z[token] - total.log())
            entropy.append(-sum((z[v].exp() / total) * (z[v] - total.log()) for v in kept))
    return torch.stack(logp), torch.stack(entropy).detach()


def gradients(model: PreTrainedModel, logp: Tensor) -> Tensor:
    model.zero_grad()
    weight = torch.linspace(-1, 1, len(logp), dtype=logp.dtype)
    (logp * weight).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def costs(model: PreTrainedModel) -> list[RowCost]:
    return [PLAIN, TREE] if row_cost(model).shares_prompts else [PLAIN]


@pytest.mark.parametrize("support", [False, True])
@pytest.mark.parametrize("chunk", [4_000_000, 3 * V + 1])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_entropies_and_gradients_in_every_layout(
    model, monkeypatch, close, temperature: float, chunk: int, support: bool
) -> None:
    drawn = groups(support=support)
    expected, entropy = oracle(model, [s for g in drawn for s in g], temperature)
    expected_gradient = gradients(model, expected)
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", chunk)
    for cost in costs(model):
        lay = layout(drawn, cost)
        assert (lay.visible is not None) == cost.shares_prompts
        scored = response_logprobs(model, lay, temperature, entropy=True)
        assert scored.logp.dtype == torch.float32
        assert not scored.entropy.requires_grad
        close(scored.logp.detach(), expected.detach(), 5e-6)
        close(scored.entropy, entropy, 5e-6)
        scale = float(expected_gradient.abs().max())
        close(gradients(model, scored.logp) / scale, expected_gradient / scale, 1e-5)


def test_frozen_weights_get_no_gradient_and_hidden_states_still_do(monkeypatch, close) -> None:
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", 3 * V)
    model = tiny_model("tiny-dense")
    model.lm_head.weight.requires_grad_(False)
    drawn = groups()
    got = gradients(model, response_logprobs(model, layout(drawn)).logp)
    expected = gradients(model, oracle(model, [s for g in drawn for s in g], 1.0)[0])
    assert model.lm_head.weight.grad is None
    close(got / expected.abs().max(), expected / expected.abs().max(), 1e-5)


def test_temperature_divides_logits_not_log_probabilities(close) -> None:
    # logits [2, 0] at T = .5: log sigmoid(4) = -0.01815; log-probabilities over T would give -0.25386
    logp, _ = logprobs._score(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), 0.5, None, False)
    close(logp, [-0.01815], 1e-5)


def test_a_replayed_support_restores_the_sampler_s_probability(close) -> None:
    # p = [.5, .3, .2] cut to the first two: .5 / .8 = .625 and not .5
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    logp, entropy = logprobs._score(logits, torch.tensor([0]), 1.0, torch.tensor([[True, True, False]]), True)
    close(logp.exp(), [0.625], 1e-6)
    close(entropy, [-0.625 * math.log(0.625) - 0.375 * math.log(0.375)], 1e-6)


def test_the_first_prompt_token_has_no_score_and_the_end_has_one(close) -> None:
    # prompt of two, three tokens follow: three scores, the first of them given the prompt alone
    model = tiny_model("tiny-dense").eval()
    logp = response_logprobs(model, layout([[Sample([4, 5], [6, 7, 8], [0] * 3, Finish.STOP)]])).logp
    log_law = model(torch.tensor([[4, 5, 6, 7, 8]])).logits[0].log_softmax(-1)
    close(logp.detach(), [log_law[1, 6].item(), log_law[2, 7].item(), log_law[3, 8].item()], 1e-6)


def test_nothing_to_score_is_a_tensor_with_a_graph() -> None:
    model = tiny_model("tiny-dense")
    scored = response_logprobs(model, layout([[Sample([4], [], [], Finish.LENGTH)]]), entropy=True)
    assert scored.logp.shape == scored.entropy.shape == (0,)
    scored.logp.sum().backward()


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_that_has_no_log_probability(temperature: float) -> None:
    with pytest.raises(InputError, match="temperature"):
        response_logprobs(tiny_model("tiny-dense"), layout(groups()), temperature)


class Stateful(LlamaForCausalLM):
    """Says, as recurrent models do, that what it carries along cannot be masked."""

    _is_stateful = True


def test_which_models_share_prompts() -> None:
    assert row_cost(tiny_model("tiny-dense")) == RowCost(True, 6 * 64)
    assert row_cost(MODELS["tied"]()).shares_prompts
    assert not row_cost(MODELS["soft cap and sliding window"]()).shares_prompts
    assert not row_cost(MistralForCausalLM(MistralConfig(**SMALL, sliding_window=8))).shares_prompts
    assert not row_cost(Stateful(LlamaConfig(**SMALL))).shares_prompts
    mamba = MambaConfig(vocab_size=V, hidden_size=16, num_hidden_layers=1, state_size=4)
    assert not row_cost(MambaForCausalLM(mamba)).shares_prompts


def test_rows_a_model_cannot_run_exactly_are_refused() -> None:
    model = MODELS["soft cap and sliding window"]()
    with pytest.raises(InputError, match=r"row_cost\(model\)"):
        response_logprobs(model, layout(groups(), TREE))


class Doubled(LlamaForCausalLM):
    """A model that does something to its logits that the head does not show."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = output.logits * 2
        return output


def test_a_head_that_is_more_than_a_matrix_is_refused() -> None:
    for name in MODELS:
        check_head(MODELS[name]().eval())
    with pytest.raises(InputError, match="Doubled"):
        check_head(Doubled(LlamaConfig(**SMALL)))


def test_a_head_that_is_no_linear_layer_is_refused() -> None:
    model = tiny_model("tiny-dense")
    model.lm_head = torch.nn.Identity()  # type: ignore[assignment]
    with pytest.raises(InputError, match="Identity"):
        Head.of(model)


def test_nothing_of_vocabulary_size_is_kept_for_backward() -> None:
    config = LlamaConfig(**{**SMALL, "vocab_size": 100_000, "num_hidden_layers": 1})
    model = LlamaForCausalLM(config)
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            sizes.append(tensor.numel())
        return tensor

    lay = layout([[Sample([4, 5], [6] * 60, [0] * 60, Finish.LENGTH)]])  # 60 x 100 000 is above CHUNK_ELEMENTS
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        response_logprobs(model, lay)
    assert 60 * 32 <= max(sizes) < 100_000
