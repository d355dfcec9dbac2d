"""The embedded engine against one uncached forward a sample, written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MptConfig,
    MptForCausalLM,
    PreTrainedModel,
)

from lagproof.data.samples import Finish, Sample
from lagproof.errors import ConfigError, InputError, RunStoppedError
from lagproof.models.layout import layout
from lagproof.models.loading import load
from lagproof.models.logprobs import response_logprobs, row_cost
from lagproof.models.tiny import TINY_MODELS, tiny_model, tiny_tokenizer
from lagproof.rollout import decoding, hf
from lagproof.rollout.engine import Request, Sampling
from lagproof.rollout.hf import HFEngine

SMALL = {
    "vocab_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "initializer_range": 0.3,
}
MODELS = {
    "dense": lambda: tiny_model("tiny-dense"),
    "moe": lambda: tiny_model("tiny-moe"),
    "tied": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True)),
    "sliding window": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=4)),
}
PROMPTS = ([9, 12, 7, 13, 11, 12, 5, 14], [3, 12, 4, 14], [5], [8, 13, 8, 12, 2, 14])
START = [2 + (7 * i * i) % 13 for i in range(20)]
BEGINNING_ALIKE = {
    "unequal ends": [START + p for p in PROMPTS],
    "ends of one length": [[*START, i, 12, 3] for i in (4, 6, 9)],
    "one the beginning of the others": [START, [*START, 5], START + PROMPTS[0]],
    "all the same": [START] * 3,
}


@pytest.fixture(params=MODELS)
def model(request) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return MODELS[request.param]().eval()


def engine(model: PreTrainedModel, **options) -> HFEngine:
    return HFEngine(model, tiny_tokenizer(), (1,), **options)


def requests(prompts=PROMPTS, samples: int = 5) -> list[Request]:
    return [Request(prompt, samples, seed=100 + i) for i, prompt in enumerate(prompts)]


def flat(out: list[list[Sample]]) -> list[Sample]:
    return [s for group in out for s in group]


@torch.no_grad()
def law(model: PreTrainedModel, s: Sample, temperature: float = 1.0) -> Tensor:
    """Log-probabilities of every token at every response position, ``[T, V]``, by one uncached forward."""
    logits = model(torch.tensor([[*s.prompt_ids, *s.response_ids]]), use_cache=False).logits[0].double()
    start = len(s.prompt_ids) - 1
    return (logits[start : start + len(s.response_ids)] / temperature).log_softmax(-1)


def plain(s: Sample) -> tuple:
    logp = None if s.sampler_logp is None else s.sampler_logp.tolist()
    return (s.prompt_ids.tolist(), s.response_ids.tolist(), s.version.tolist(), s.finish, logp, s.text, kept([s]))


def kept(samples: list[Sample]) -> list[list[list[int]] | None]:
    return [None if s.support is None else [row.tolist() for row in s.support.rows()] for s in samples]


def recorded(samples: list[Sample]) -> Tensor:
    return torch.tensor([x for s in samples for x in s.sampler_logp], dtype=torch.float64)


@pytest.mark.parametrize(
    "prompts",
    [PROMPTS, PROMPTS[:1] * 3, *BEGINNING_ALIKE.values()],
    ids=["unequal prompts", "equal prompts", *BEGINNING_ALIKE],
)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_recorded_log_probabilities_are_those_of_a_fresh_forward(model, close, prompts, temperature: float) -> None:
    out = engine(model, version=7).generate(requests(prompts), Sampling(10, temperature))
    assert [len(group) for group in out] == [5] * len(prompts)
    for group, prompt in zip(out, prompts, strict=True):
        for s in group:
            assert s.prompt_ids.tolist() == prompt
            assert set(s.version) == {7}
            assert s.support is None
    expected = [law(model, s, temperature)[t, token] for s in flat(out) for t, token in enumerate(s.response_ids)]
    close(recorded(flat(out)), torch.stack(expected), 3e-6)


def test_the_learner_agrees_with_unchanged_weights(model, close) -> None:
    for sampling in (Sampling(10), Sampling(10, 0.6, top_p=0.7), Sampling(10, 1.3, top_k=3)):
        out = engine(model).generate(requests(), sampling)
        scored = response_logprobs(model, layout(out, row_cost(model)), sampling.temperature)
        close(scored.logp.detach(), recorded(flat(out)), 5e-6)


def test_a_response_ends_with_its_stop_token_or_at_the_limit(model) -> None:
    samples = flat(engine(model).generate(requests(samples=30), Sampling(6)))
    assert {s.finish for s in samples} == {Finish.STOP, Finish.LENGTH}
    tokenizer = tiny_tokenizer()
    for s in samples:
        stopped = s.finish is Finish.STOP
        assert bool(s.response_ids[-1] == 1) is stopped
        assert 1 not in s.response_ids[:-1]
        assert stopped or len(s.response_ids) == 6
        assert s.text == tokenizer.decode(s.response_ids, skip_special_tokens=True)
        assert "$" not in s.text


def test_every_stop_id_stops() -> None:
    samples = flat(HFEngine(tiny_model("tiny-dense"), tiny_tokenizer(), (1, 9)).generate(requests(), Sampling(60)))
    assert {s.response_ids[-1] for s in samples} == {1, 9}
    assert all(s.finish is Finish.STOP for s in samples)
    assert all(s.text.endswith("7") is (s.response_ids[-2:-1].tolist() == [9]) or "7" not in s.text for s in samples)


def ids(samples: list[Sample]) -> list[list[int]]:
    return [list(s.response_ids) for s in samples]


@pytest.mark.parametrize("prompts", [PROMPTS, BEGINNING_ALIKE["unequal ends"]], ids=["different", "beginning alike"])
def test_what_is_drawn_depends_on_the_request_alone(model, prompts) -> None:
    together = engine(model).generate(requests(prompts), Sampling(10))
    for number, request in enumerate(requests(prompts)):
        alone = engine(model).generate([request], Sampling(10))[0]
        assert ids(alone) == ids(together[number])
    reverse = engine(model).generate(requests(prompts)[::-1], Sampling(10))
    assert [ids(group) for group in reverse[::-1]] == [ids(group) for group in together]


@pytest.mark.parametrize("prompts", BEGINNING_ALIKE.values(), ids=BEGINNING_ALIKE)
@pytest.mark.parametrize(
    "sampling",
    [Sampling(10), Sampling(10, 0.8, top_p=0.7), Sampling(10, temperature=0.0)],
    ids=["whole", "top-p", "greedy"],
)
def test_a_beginning_that_is_run_once_changes_no_sample(model, close, prompts, sampling, monkeypatch) -> None:
    run: list[tuple[int, int]] = []
    real = decoding._forward
    monkeypatch.setattr(decoding, "_forward", lambda m, ids_, *rest: run.append((*ids_.shape,)) or real(m, ids_, *rest))
    once = flat(engine(model).generate(requests(prompts), sampling))
    shared = min(20, min(map(len, prompts)) - 1)
    beginning = [(1, shared), (len(prompts), max(map(len, prompts)) - shared)]
    whole = [(len(prompts), max(map(len, prompts)))]
    slides = model.config.model_type == "mistral"
    assert run[: 1 if slides else 2] == (whole if slides else beginning)
    run.clear()
    monkeypatch.setattr(decoding, "SHARED_TOKENS", 21)
    each = flat(engine(model).generate(requests(prompts), sampling))
    assert run[:1] == whole
    assert ids(once) == ids(each)
    assert kept(once) == kept(each)
    if sampling.temperature > 0:
        close(recorded(once), recorded(each), 1e-5)


def test_a_longer_limit_continues_the_same_responses(monkeypatch) -> None:
    monkeypatch.setattr(decoding, "DRAW_TOKENS", 4)
    model = tiny_model("tiny-dense")
    short = flat(engine(model).generate(requests(), Sampling(5)))
    long = flat(engine(model).generate(requests(), Sampling(11)))
    assert max(map(len, ids(long))) > 8  # more than two draws
    assert ids(short) == [row[:5] for row in ids(long)]


def test_batches_bounded_by_memory_give_the_same_samples(monkeypatch) -> None:
    model = tiny_model("tiny-dense")
    whole = flat(engine(model).generate(requests(), Sampling(8)))
    batches: list[int] = []
    real = hf.decode
    monkeypatch.setattr(hf, "decode", lambda m, batch, *rest: batches.append(len(batch)) or real(m, batch, *rest))
    monkeypatch.setattr(hf, "BATCH_BYTES", 1)
    assert ids(flat(engine(model).generate(requests(), Sampling(8)))) == ids(whole)
    assert batches == [1] * len(PROMPTS)


def test_seeds_differ_and_the_global_stream_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    a, b = engine(tiny_model("tiny-dense")).generate([Request([3], 8, 0), Request([3], 8, 1)], Sampling(8))
    assert ids(a) != ids(b)
    assert len(set(map(tuple, ids(a)))) > 1
    assert torch.equal(torch.random.get_rng_state(), before)


def test_frequencies_are_the_model_s() -> None:
    model = tiny_model("tiny-dense", seed=2)
    out = flat(engine(model).generate([Request([3, 12], 4000, seed=0)], Sampling(1)))
    frequency = torch.bincount(torch.tensor([s.response_ids[0] for s in out]), minlength=16) / 4000
    p = law(model, out[0])[0].exp()
    # five standard errors of a share
    assert bool(((frequency - p).abs() <= 5 * (p * (1 - p) / 4000).sqrt()).all())


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (0, 0.5), (4, 0.6), (1, 1.0)])
def test_a_truncated_distribution_is_recorded_with_its_support(model, close, top_k: int, top_p: float) -> None:
    samples = flat(engine(model).generate(requests(), Sampling(8, 0.8, top_p, top_k)))
    for s in samples:
        log_p = law(model, s, 0.8)
        for t, (token, logp, kept) in enumerate(zip(s.response_ids, s.sampler_logp, s.support.rows(), strict=True)):
            order = log_p[t].argsort(descending=True).tolist()
            order = order[: top_k or None]
            mass = sum(log_p[t, v].exp() for v in order)
            expected: list[int] = []
            while sum(log_p[t, v].exp() for v in expected) < top_p * mass and len(expected) < len(order):
                expected.append(order[len(expected)])
            assert kept.tolist() == sorted(expected)
            assert token in kept
            close([logp], [log_p[t, token] - log_p[t, expected].logsumexp(0)], 1e-5)


def test_greedy_takes_the_most_likely_token_and_records_no_probability(model) -> None:
    out = engine(model).generate(requests(samples=2), Sampling(6, temperature=0.0))
    for s in flat(out):
        assert s.sampler_logp is None and s.support is None
        assert list(s.response_ids) == law(model, s).argmax(-1).tolist()
    assert all(ids([a]) == ids([b]) for a, b in out)


def test_log_probabilities_are_left_out_when_nobody_wants_them() -> None:
    model = tiny_model("tiny-dense")
    without = flat(engine(model).generate(requests(), Sampling(6, record_logp=False)))
    assert all(s.sampler_logp is None for s in without)
    assert ids(without) == ids(flat(engine(model).generate(requests(), Sampling(6))))


def test_samples_that_agree_are_one_row_until_they_part(monkeypatch) -> None:
    model = tiny_model("tiny-dense")
    rows: list[int] = []
    real = decoding._forward
    monkeypatch.setattr(decoding, "_forward", lambda m, ids_, *rest: rows.append(len(ids_)) or real(m, ids_, *rest))
    engine(model).generate(requests(samples=6), Sampling(5, temperature=0.0))
    assert set(rows) == {len(PROMPTS)}
    rows.clear()
    out = engine(model).generate(requests(samples=6), Sampling(5))
    beginnings = [
        {(number, *row[:t]) for number, group in enumerate(out) for row in ids(group) if len(row) > t} for t in range(5)
    ]
    assert rows == [len(b) for b in beginnings]
    assert rows[0] < rows[1]


def test_a_model_that_is_not_told_positions_runs_every_prompt_whole(close) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MptForCausalLM(
            MptConfig(d_model=32, n_heads=2, n_layers=2, vocab_size=16, initializer_range=0.3)
        ).eval()
    samples = flat(engine(model).generate(requests(BEGINNING_ALIKE["unequal ends"]), Sampling(10)))
    expected = [law(model, s)[t, token] for s in samples for t, token in enumerate(s.response_ids)]
    close(recorded(samples), torch.stack(expected), 1e-5)


def weights(model: PreTrainedModel) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "int6"])
def test_after_loading_nothing_of_the_weights_before_is_left(precision: str, close) -> None:
    first, second = tiny_model("tiny-moe", 0), tiny_model("tiny-moe", 1)
    e = engine(first, precision=precision)
    e.generate(requests(), Sampling(8))
    e.load(4, weights(second))
    assert e.version == 4
    out = flat(e.generate(requests(), Sampling(8)))
    assert {v for s in out for v in s.version} == {4}
    fresh = flat(engine(second, precision=precision, version=4).generate(requests(), Sampling(8)))
    assert list(map(plain, out)) == list(map(plain, fresh))


def test_the_engine_has_weights_of_its_own() -> None:
    model = tiny_model("tiny-dense")
    e = engine(model)
    before = ids(flat(e.generate(requests(), Sampling(8))))
    given = {name: torch.zeros_like(p) for name, p in weights(model).items()}
    e.load(1, given)
    for tensor in given.values():
        tensor.fill_(torch.nan)
    e.generate(requests(), Sampling(2))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    e2 = engine(tiny_model("tiny-dense"))
    assert ids(flat(e2.generate(requests(), Sampling(8)))) == before


def test_a_whole_state_dict_loads_too_also_with_tied_embeddings(model) -> None:
    e = engine(model)
    before = list(map(plain, flat(e.generate(requests(), Sampling(8)))))
    e.load(0, model.state_dict())
    assert list(map(plain, flat(e.generate(requests(), Sampling(8))))) == before


@pytest.mark.parametrize("fault", ["missing", "unknown", "misshapen"])
def test_incomplete_weights_change_nothing(fault: str) -> None:
    e = engine(tiny_model("tiny-dense", 0), version=2)
    before = list(map(plain, flat(e.generate(requests(), Sampling(8)))))
    given = weights(tiny_model("tiny-dense", 1))
    if fault == "missing":
        del given["model.norm.weight"]
    elif fault == "unknown":
        given["model.nrom.weight"] = torch.zeros(64)
    else:
        given["model.norm.weight"] = torch.zeros(63)
    with pytest.raises(InputError, match=r"model\.n\w+\.weight"):
        e.load(3, given)
    assert e.version == 2
    assert list(map(plain, flat(e.generate(requests(), Sampling(8))))) == before


def test_broken_weights_stop_the_run_instead_of_sampling_anything() -> None:
    e = engine(tiny_model("tiny-dense"))
    e.load(1, {name: torch.full_like(p, torch.nan) for name, p in weights(tiny_model("tiny-dense")).items()})
    for temperature in (0.0, 1.0):
        with pytest.raises(RunStoppedError, match="not finite"):
            e.generate(requests(), Sampling(4, temperature))


def test_lower_precisions_differ_a_little_and_in_order() -> None:
    loaded = load("tiny-moe")
    error = {}
    for precision in ("float32", "bfloat16", "int8", "int6"):
        e = HFEngine(loaded.model, loaded.tokenizer, loaded.stop_ids, precision)
        samples = flat(e.generate([Request(loaded.tokenizer.encode("7+5-9+3="), 64, 0)], Sampling(12)))
        logp = response_logprobs(loaded.model, layout([samples])).logp.detach()
        error[precision] = float((logp - recorded(samples)).abs().mean())
    assert error["float32"] < 1e-5
    assert 1e-3 < error["bfloat16"] < 0.1
    assert 1e-3 < error["int8"] < error["int6"] < 0.2


def test_an_unknown_precision() -> None:
    with pytest.raises(ConfigError, match=r"'int4'.*int8"):
        engine(tiny_model("tiny-dense"), precision="int4")


def test_a_view_follows_the_learner_and_leaves_its_mode_and_gradients_alone() -> None:
    model = tiny_model("tiny-dense").train()
    view = HFEngine.view(model, tiny_tokenizer(), (1,), version=3)
    before = ids(flat(view.generate(requests(), Sampling(8))))
    assert before == ids(flat(engine(model).generate(requests(), Sampling(8))))
    assert model.training and all(p.requires_grad for p in model.parameters())
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
    after = ids(flat(view.generate(requests(), Sampling(8))))
    assert after == ids(flat(engine(model).generate(requests(), Sampling(8))))
    assert after != before
    response_logprobs(model, layout(view.generate(requests(), Sampling(8)))).logp.sum().backward()
    assert view.version == 3
    with pytest.raises(InputError, match="view"):
        view.load(4, weights(model))


def test_progress_counts_every_token() -> None:
    told: list[int] = []
    samples = flat(engine(tiny_model("tiny-dense"), on_tokens=told.append).generate(requests(), Sampling(6)))
    assert sum(told) == sum(len(s.response_ids) for s in samples)
    assert len(told) == 6


@pytest.mark.parametrize("request_", [Request([], 1, 0), Request([3], 0, 0)])
def test_requests_that_cannot_be_answered(request_: Request) -> None:
    with pytest.raises(InputError, match="request"):
        engine(tiny_model("tiny-dense")).generate([request_], Sampling(4))


def test_no_requests_no_samples() -> None:
    assert engine(tiny_model("tiny-dense")).generate([], Sampling(4)) == []


@pytest.mark.parametrize("kind", TINY_MODELS)
def test_the_shipped_models_solve_about_half_of_the_problems(kind: str) -> None:
    loaded = load(kind)
    rng = torch.Generator().manual_seed(0)
    digits = torch.randint(0, 10, (400, 4), generator=rng)
    signs = 1 - 2 * torch.randint(0, 2, (400, 3), generator=rng)
    todo, golds = [], []
    for i, (d, s) in enumerate(zip(digits.tolist(), signs.tolist(), strict=True)):
        text = str(d[0]) + "".join(f"{'+' if sign > 0 else '-'}{x}" for sign, x in zip(s, d[1:], strict=True))
        todo.append(Request(loaded.tokenizer.encode(text + "="), 1, seed=i))
        golds.append(str(d[0] + sum(sign * x for sign, x in zip(s, d[1:], strict=True))))
    out = HFEngine(loaded.model, loaded.tokenizer, loaded.stop_ids).generate(todo, Sampling(12))
    solved = [s.finish is Finish.STOP and s.text.rsplit(",", 1)[-1] == g for (s,), g in zip(out, golds, strict=True)]
    assert 0.44 < sum(solved) / len(solved) < 0.60  # .52 on 2000; a standard error of 400 is .025


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_the_cache_is_given_by_the_name_that_the_model_has_for_it(name: str) -> None:
    fields: dict = {}
    exec(f"def forward(self, input_ids, {name}=None, **kwargs): ...", fields)
    assert decoding.cache_argument(type("Model", (), {"forward": fields["forward"]})) == name
