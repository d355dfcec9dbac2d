"""The optimiser step: what it computes, and what it refuses to do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import lagproof as lp
from lagproof.config import LearnerConfig
from lagproof.data.batch import Batch
from lagproof.data.samples import Finish, Group, Sample, StepOutcome
from lagproof.data.slices import Key
from lagproof.learner import step as step_module
from lagproof.learner.batching import items, micro_batches
from lagproof.learner.step import Learner, Recipe
from lagproof.models.layout import RowCost, input_tokens
from lagproof.models.loading import load
from lagproof.objectives.reduction import reduction
from lagproof.tensors.advantage import ADVANTAGES


def group(prompt: int, responses: list[list[int]], rewards: list[float], seed: int = 0) -> Group:
    rng = torch.Generator().manual_seed(100 * prompt + seed)
    samples = [
        Sample(
            prompt_ids=[3 + prompt, 10, 4, 14],
            response_ids=ids,
            version=[0] * len(ids),
            finish=Finish.STOP,
            sampler_logp=(-2.5 * torch.rand(len(ids), generator=rng)).tolist(),
            reward=reward,
        )
        for ids, reward in zip(responses, rewards, strict=True)
    ]
    return Group(prompt, f"p{prompt}", samples)


GROUPS = [
    group(0, [[1, 2, 3], [4], [5, 6, 7, 8, 9, 1, 2], [3, 3]], [1.0, 0.0, 0.0, 1.0]),
    group(1, [[1, 1, 1, 1], [2, 2], [8, 7, 6], [5]], [0.0, 0.0, 0.0, 1.0]),
    group(2, [[9, 9], [1]], [1.0, 1.0]),
]


def learner(name: str = "grpo", how: str | None = None, **config) -> Learner:
    objective = lp.objective(name)
    return Learner(
        load("tiny-dense").model,
        Recipe(
            objective=objective,
            reduction=reduction(how or objective.default_reduction, 8),
            advantage=ADVANTAGES[objective.default_advantage],
            temperature=1.0,
            config=LearnerConfig(**config),
        ),
    )


def gradient_of_a_step(learner: Learner, groups, monkeypatch) -> tuple[dict[str, torch.Tensor], object]:
    """What the optimiser is given, without letting it move the weights."""
    seen: dict[str, torch.Tensor] = {}

    def capture() -> None:
        seen.update({n: p.grad.clone() for n, p in learner.model.named_parameters()})

    monkeypatch.setattr(learner.optimizer, "step", capture)
    return seen, learner.step(Batch.of(groups))


@pytest.mark.parametrize("how", ["response_mean", "token_mean", "constant"])
@pytest.mark.parametrize("name", ["grpo", "gspo", "sat-grpo", "sat-gspo", "asympo", "gpg"])
def test_the_gradient_is_that_of_the_padded_loss(name, how, monkeypatch, close):
    """Against a plain forward over padded rows, full logits and the public loss."""
    ours, result = gradient_of_a_step(learner(name, how, grad_clip=math.inf), GROUPS, monkeypatch)
    model = load("tiny-dense").model
    samples = [s for g in GROUPS for s in g.samples]
    width = max(len(s.prompt_ids) + len(s.response_ids) for s in samples)
    ids = torch.tensor(
        [[*s.prompt_ids, *s.response_ids] + [0] * (width - len(s.prompt_ids) - len(s.response_ids)) for s in samples]
    )
    logp = model(ids).logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)
    mask = torch.zeros(len(samples), width - 1, dtype=torch.bool)
    sampler = torch.full((len(samples), width - 1), math.nan)
    for b, s in enumerate(samples):
        first = len(s.prompt_ids) - 1
        mask[b, first : first + len(s.response_ids)] = True
        sampler[b, first : first + len(s.response_ids)] = torch.tensor(s.sampler_logp)
    reward = torch.tensor([s.reward for s in samples], dtype=torch.float64)
    number = torch.tensor([g for g, members in enumerate(GROUPS) for _ in members.samples])
    advantage = ADVANTAGES[lp.objective(name).default_advantage](reward, number).float()
    loss, stats = lp.loss(
        name, policy_logp=logp, sampler_logp=sampler, advantage=advantage, mask=mask, reduction=how, max_tokens=8
    )
    loss.backward()
    assert result.outcome is StepOutcome.TRAINED
    close(result.metrics[Key("loss")].value, loss.detach(), 1e-5)
    for key in ("d_bar", "k3", "mass_positive", "mass_negative"):
        close(result.metrics[Key(key)].value, stats[key], 1e-4)
    assert any(g.abs().max() > 1e-4 for g in ours.values())
    for parameter, p in model.named_parameters():
        close(ours[parameter], p.grad, 1e-5)


@pytest.mark.parametrize("how", ["response_mean", "token_mean", "constant"])
@pytest.mark.parametrize("name", ["grpo", "sat-grpo", "sat-gspo", "asympo"])
def test_the_cut_changes_nothing(name, how, monkeypatch, close):
    whole, first = gradient_of_a_step(learner(name, how, grad_clip=math.inf), GROUPS, monkeypatch)
    for budget in (1, 20, 40):
        parts, second = gradient_of_a_step(
            learner(name, how, grad_clip=math.inf, micro_batch_tokens=budget), GROUPS, monkeypatch
        )
        for parameter, g in whole.items():
            close(parts[parameter], g, 1e-5)
        assert first.metrics.keys() == second.metrics.keys()
        for key, metric in first.metrics.items():
            if metric.value is not None:
                close(second.metrics[key].value, metric.value, 1e-4)
        close(second.batch.policy_logp, first.batch.policy_logp, 1e-5)


def test_a_step_moves_the_weights_and_the_version():
    trained = learner()
    before = {n: p.clone() for n, p in trained.model.named_parameters()}
    result = trained.step(Batch.of(GROUPS))
    assert (result.outcome, trained.version) == (StepOutcome.TRAINED, 1)
    assert all(not torch.equal(before[n], p) for n, p in trained.model.named_parameters())
    assert result.metrics[Key("age_mean")].value is not None


@pytest.mark.parametrize("poison", ["gradient", "weights"])
def test_non_finite_numbers_never_reach_the_optimiser(poison, monkeypatch):
    trained = learner()
    trained.step(Batch.of(GROUPS))
    if poison == "weights":
        with torch.no_grad():
            next(trained.model.parameters())[5] = math.nan
    else:
        monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda parameters, limit: torch.tensor(math.nan))
    before = {n: p.clone() for n, p in trained.model.named_parameters()}
    state = trained.optimizer.state_dict()["state"][0]["step"].clone()
    result = trained.step(Batch.of(GROUPS))
    assert (result.outcome, trained.version) == (StepOutcome.NON_FINITE, 1)
    assert all(torch.equal(before[n].nan_to_num(7), p.nan_to_num(7)) for n, p in trained.model.named_parameters())
    assert trained.optimizer.state_dict()["state"][0]["step"] == state
    assert all(p.grad is None for p in trained.model.parameters())


def test_without_a_signal_nothing_is_run(monkeypatch):
    trained = learner()
    monkeypatch.setattr(trained.model, "forward", None)
    tied = [replace(g, samples=[replace(s, reward=0.9) for s in g.samples]) for g in GROUPS]
    result = trained.step(Batch.of(tied))
    assert (result.outcome, trained.version, result.batch.policy_logp) == (StepOutcome.ZERO_VARIANCE, 0, None)
    assert result.metrics[Key("zero_variance_groups")].value == 1.0


def test_an_unscored_response_takes_no_part(monkeypatch, close):
    broken = [
        replace(GROUPS[0], samples=[*GROUPS[0].samples, replace(GROUPS[0].samples[0], reward=math.nan)]),
        *GROUPS[1:],
    ]
    with_it, result = gradient_of_a_step(learner(grad_clip=math.inf), broken, monkeypatch)
    without, _ = gradient_of_a_step(learner(grad_clip=math.inf), GROUPS, monkeypatch)
    for parameter, g in without.items():
        close(with_it[parameter], g, 1e-5)
    assert result.metrics[Key("unscored")].value == 1
    assert result.metrics[Key("reward")].value == pytest.approx(0.5)


@pytest.mark.parametrize("how", ["response_mean", "token_mean", "constant"])
@pytest.mark.parametrize("budget", [8192, 20])
def test_a_token_that_turns_out_unscorable_leaves_the_denominators(how, budget, monkeypatch, close):
    """Group 1's last response has one token; without it R and N are smaller, which is known only after the forward."""
    known = replace(GROUPS[1], samples=[*GROUPS[1].samples[:3], replace(GROUPS[1].samples[3], sampler_logp=[math.nan])])
    expected, _ = gradient_of_a_step(
        learner("grpo", how, grad_clip=math.inf), [GROUPS[0], known, GROUPS[2]], monkeypatch
    )
    score = step_module.response_logprobs

    def hide(model, layout, *args, **kwargs):
        scored = score(model, layout, *args, **kwargs)
        following = torch.cat([layout.targets[1:], torch.tensor([-1])])
        lonely = (layout.targets == 5) & (following != 6)  # the other 5 starts 5 6 7 8 9
        return replace(scored, logp=torch.where(lonely, -math.inf, scored.logp))

    monkeypatch.setattr(step_module, "response_logprobs", hide)
    got, result = gradient_of_a_step(
        learner("grpo", how, grad_clip=math.inf, micro_batch_tokens=budget), GROUPS, monkeypatch
    )
    assert result.metrics[Key("dropped_tokens")].value == 1
    for parameter, g in expected.items():
        close(got[parameter], g, 1e-5)


def test_the_cut_respects_the_budget_and_loses_nobody():
    chosen = items(Batch.of(GROUPS))
    for budget in (1, 12, 25, 1000):
        pieces = micro_batches(chosen, budget, RowCost())
        assert sorted(t.index for piece in pieces for members in piece for t in members) == list(range(10))
        for piece in pieces:
            samples = [[t.sample for t in members] for members in piece]
            assert input_tokens(samples, RowCost()) <= budget or sum(map(len, piece)) == 1
    assert len(micro_batches(chosen, 1000, RowCost())) == 1
