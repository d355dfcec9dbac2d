"""What every objective of the table must satisfy; a new row is covered by being in the table."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import lagproof as lp
from lagproof.data.metrics import flat as plain
from lagproof.data.metrics import merge
from lagproof.data.tokens import Counts, TokenBatch
from lagproof.objectives import TABLE, Scope, apply, options
from lagproof.objectives.reduction import Constant
from lagproof.objectives.scorable import TokenWeights

sys.path.insert(0, str(Path(__file__).parent))
from oracles import ORACLES, reduce

NAMES = list(TABLE)
REDUCTIONS = {name: name for name in ("response_mean", "token_mean", "response_sum")} | {"constant": Constant(7)}
# defaults, and for GSPO's tiny radii a wide one too, so that both sides of the clip are seen
VARIANTS = [(name, {}) for name in NAMES] + [
    ("gspo", {"low": 0.1, "high": 0.15}),
    ("sat-gspo", {"low": 0.3, "high": 0.4, "alpha": 0.5}),
    ("sat-grpo", {"alpha": 0.5}),
    ("grpo", {"low": 0.3, "high": 0.1}),
    ("spo", {"alpha": 0.0}),
    ("dppo-tv", {"delta": 0.02}),
    ("m2po", {"form": "winsorised"}),
    ("m2po", {"tau": 0.001}),
    ("seq-tis", {"normalise": "batch"}),
    ("seq-tis", {"form": "mask", "cap": 1.2, "floor": 0.8}),
    ("topr", {"level": "token"}),
    ("pmd", {"level": "response"}),
    ("decoupled-gspo", {"low": 0.1, "high": 0.15}),
    *(("decoupled-grpo", {"correction": how, "floor": 0.9, "cap": 1.1}) for how in ("clamp", "mask", "gate", "none")),
    *(("sat-grpo", {"risk": "staleness", "form": form, "alpha": 0.5}) for form in ("drop-in", "decoupled")),
    *(
        ("sat-gspo", {"risk": "staleness", "form": form, "alpha": 0.5, "low": 0.3, "high": 0.4})
        for form in ("drop-in", "decoupled")
    ),
]
COUNTED = ("dropped_tokens", "missing_anchor")
PULLED = {"pmd", "oapl"}  # a token whose advantage is 0 is pulled back to the sampler


def random_rows(seed: int, lengths: tuple[int, ...] = (5, 1, 0, 7, 3, 2, 6)) -> list[list[tuple[float, float, float]]]:
    """Responses with heavy-tailed log-ratios; one is empty; one advantage is exactly 0."""
    rng = np.random.default_rng(seed)
    rows = []
    for g, n in enumerate(lengths):
        a = 0.0 if g == 4 else float(rng.normal())
        mu = -rng.gamma(1.0, 1.0, n) - 1e-3
        pi = np.minimum(mu + rng.standard_t(2, n) * 0.15, -1e-4)
        rows.append([(float(p), float(m), a) for p, m in zip(pi, mu, strict=True)])
    return rows


def behind(place: int, pi: float, mu: float) -> tuple[float, int]:
    """An anchor on, between or beyond policy and sampler, and an age."""
    share = (0.5, 1.0, -0.5, 0.2, 1.6, 0.0, 0.9)[place % 7]
    return mu + share * (pi - mu), place % 5


def flat(rows, dtype=torch.float64) -> TokenBatch:
    response = torch.tensor([g for g, row in enumerate(rows) for _ in row])
    pi, mu, a = (torch.tensor([t[i] for row in rows for t in row], dtype=dtype) for i in range(3))
    extra = [behind(place, t[0], t[1]) for row in rows for place, t in enumerate(row)]
    return TokenBatch(
        *(pi.requires_grad_(), a, response, len(rows), mu),
        anchor_logp=torch.tensor([anchor for anchor, _ in extra], dtype=dtype),
        version=torch.tensor([7 - age for _, age in extra]),
        learner_version=7,
    )


def oracle_gradient(name, rows, reduction, options):
    leaves = [[torch.tensor(p, dtype=torch.float64, requires_grad=True) for p, _, _ in row] for row in rows]
    terms = ORACLES[name](
        [
            [(x, m, a, *behind(place, p, m)) for place, (x, (p, m, a)) in enumerate(zip(xs, row, strict=True))]
            for xs, row in zip(leaves, rows, strict=True)
        ],
        **options,
    )
    value = reduce(terms, reduction)
    value.backward()
    return value.item(), torch.stack([x.grad if x.grad is not None else x.new_zeros(()) for xs in leaves for x in xs])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=lambda v: str(v))
def test_weight_is_the_gradient_of_the_textbook_surrogate(name, options, reduction, close):
    for seed in range(5):
        rows = random_rows(seed)
        value, gradient = oracle_gradient(name, rows, reduction, options)
        weighting = lp.objective(name, **options).weigh(flat(rows), reduction=REDUCTIONS[reduction])
        close(weighting.weight, gradient, 1e-9)
        close(weighting.value, value, 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_loss_has_minus_the_value_and_minus_the_weight(name, close):
    tokens = flat(random_rows(1))
    weighting = lp.objective(name).weigh(tokens)
    loss = weighting.loss(tokens.policy_logp)
    (3.0 * loss).backward()
    close(loss.detach(), -weighting.value, 1e-12)
    close(tokens.policy_logp.grad, -3.0 * weighting.weight, 1e-12)
    assert weighting.weight.abs().sum() > 0
    assert not weighting.weight.requires_grad


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_micro_batches_of_whole_responses_add_up_to_the_batch(name, reduction, close):
    tokens = flat(random_rows(2))
    objective, how = lp.objective(name), REDUCTIONS[reduction]
    whole = objective.weigh(tokens, reduction=how)
    fitted = objective.fit(tokens)
    assert fitted.scope is not Scope.BATCH
    for cut in ([[3], [0, 6], [5, 4, 1], [2]], [[6, 5, 4, 3, 2, 1, 0]], [[g] for g in range(7)]):
        parts = [torch.isin(tokens.response, torch.tensor(part)).nonzero().squeeze(1) for part in cut]
        weighed = [fitted.weigh(tokens.rows(rows), reduction=how, counts=whole.counts) for rows in parts]
        got = torch.zeros_like(whole.weight)
        for rows, part in zip(parts, weighed, strict=True):
            got[rows] = part.weight
        close(got, whole.weight, 1e-12)
        close(sum(part.value for part in weighed), whole.value, 1e-12)
        merged = plain(merge(part.metrics for part in weighed))
        for key, value in whole.stats.items():
            close(merged[key], value, 1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=lambda v: str(v))
def test_blocks_change_nothing_but_the_speed(name, options, reduction, monkeypatch, close):
    """Blocks cut through responses; what is known of a response must stay that of the whole."""
    tokens = flat(random_rows(2))
    tokens.sampler_logp[3] = float("nan")
    objective, how = lp.objective(name, **options), REDUCTIONS[reduction]
    whole = objective.weigh(tokens, reduction=how)
    for size in (1, 4, 23):
        monkeypatch.setattr(apply, "BLOCK_TOKENS", size)
        blocks = objective.weigh(tokens, reduction=how)
        assert torch.equal(blocks.weight, whole.weight)
        assert torch.equal(blocks.contribution, whole.contribution)
        assert blocks.counts == whole.counts
        assert blocks.stats.keys() == whole.stats.keys()
        for key, value in whole.stats.items():
            close(blocks.stats[key], value, 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_losses_of_row_slices_add_up(name, close):
    tokens = flat(random_rows(3))
    weighting = lp.objective(name).weigh(tokens)
    losses = [weighting.loss(tokens.policy_logp[s], rows=s) for s in (slice(0, 4), slice(4, 5), slice(5, None))]
    sum(losses).backward()
    close(sum(losses).detach(), -weighting.value, 1e-12)
    close(tokens.policy_logp.grad, -weighting.weight, 1e-12)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("asympo", "oapl")])
def test_on_policy_gives_the_reinforce_gradient(name, close):
    rows = [[(p, p, abs(a) if name == "spo" else a) for p, _, a in row] for row in random_rows(4)]
    tokens = flat(rows)
    weighting = lp.objective(name).weigh(tokens, reduction="token_mean")
    close(weighting.weight, tokens.advantage / len(tokens), 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_padded_and_flat_agree_whatever_the_padding_holds(name, close):
    rows = random_rows(5)
    width = 9
    for junk in (0.0, float("nan"), float("inf"), -float("inf"), -1e10):
        pi, mu, anchor = (torch.full((len(rows), width), junk, dtype=torch.float64) for _ in range(3))
        age = torch.full((len(rows), width), -99)
        mask = torch.zeros(len(rows), width, dtype=torch.bool)
        for b, row in enumerate(rows):
            for t, (p, m, _) in enumerate(row):
                pi[b, t], mu[b, t], mask[b, t] = p, m, True
                anchor[b, t], age[b, t] = behind(t, p, m)
        pi.requires_grad_()
        advantage = torch.tensor([row[0][2] if row else 1.0 for row in rows], dtype=torch.float64)
        loss, stats = lp.loss(
            name, policy_logp=pi, sampler_logp=mu, anchor_logp=anchor, age=age, advantage=advantage, mask=mask
        )
        loss.backward()
        tokens = flat(rows)
        weighting = lp.objective(name).weigh(tokens)
        close(loss.detach(), -weighting.value, 1e-12)
        close(pi.grad[mask], -weighting.weight, 1e-12)
        assert bool((pi.grad[~mask] == 0).all())
        assert stats == weighting.stats


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("d", [-80.0, -21.0, -20.0, -1.0, 0.0, 1.0, 20.0, 21.0, 80.0])
@pytest.mark.parametrize("a", [-1.0, 1.0])
def test_finite_for_any_log_ratio(name, d, a):
    mu = torch.tensor([-85.0, -0.5, -2.0])
    pi = torch.tensor([-85.0 + d, -0.4, -2.5], requires_grad=True)
    tokens = TokenBatch(
        *(pi, torch.tensor([a, -a, a]), torch.tensor([0, 1, 1]), 2, mu),
        anchor_logp=mu - d,
        version=torch.tensor([0, 3, 9]),
        learner_version=9,
    )
    weighting = lp.objective(name).weigh(tokens)
    weighting.loss(pi).backward()
    assert torch.isfinite(pi.grad).all()
    assert np.isfinite(weighting.value)
    assert all(np.isfinite(v) for v in weighting.stats.values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [float("nan"), -float("inf"), float("inf")])
@pytest.mark.parametrize("where", ["policy", "sampler", "anchor", "both", "advantage"])
def test_a_token_that_cannot_be_scored_leaves_everything_and_is_counted(name, bad, where, close):
    rows = random_rows(6)
    clean = flat(rows)
    objective = lp.objective(name)
    broken = replace(
        clean,
        policy_logp=clean.policy_logp.detach().clone(),
        sampler_logp=clean.sampler_logp.clone(),
        anchor_logp=clean.anchor_logp.clone(),
        advantage=clean.advantage.clone(),
    )
    victims = torch.tensor([0, 5, 9])  # token 5 is a response of its own
    for attribute in {"both": ["policy_logp", "sampler_logp"]}.get(
        where, [where if where == "advantage" else f"{where}_logp"]
    ):
        getattr(broken, attribute)[victims] = bad
    broken.policy_logp.requires_grad_()
    weighting = objective.weigh(broken)
    weighting.loss(broken.policy_logp).backward()
    dropped = {"sampler": objective.needs.sampler, "anchor": objective.needs.anchor}.get(where, True)
    kept = torch.ones(len(clean), dtype=torch.bool)
    kept[victims] = not dropped
    expected = objective.weigh(clean.rows(kept))
    close(weighting.weight[kept], expected.weight, 1e-12)
    close(weighting.value, expected.value, 1e-12)
    assert bool((broken.policy_logp.grad[~kept] == 0).all())
    assert torch.isfinite(broken.policy_logp.grad).all()
    assert weighting.stats["dropped_tokens"] == (3 if dropped else 0)
    assert weighting.counts.num_responses == (5 if dropped else 6)
    if dropped:
        assert {k: v for k, v in weighting.stats.items() if k not in COUNTED} == {
            k: v for k, v in expected.stats.items() if k not in COUNTED
        }


@pytest.mark.parametrize("name", [n for n in NAMES if n not in PULLED])
def test_no_advantage_no_gradient(name):
    tokens = flat([[(p, m, 0.0) for p, m, _ in row] for row in random_rows(7)])
    loss = lp.objective(name).weigh(tokens).loss(tokens.policy_logp)
    loss.backward()
    assert bool((tokens.policy_logp.grad == 0).all())


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_train_on_is_a_loss_of_zero_with_a_graph(name):
    pi = torch.randn(2, 3, requires_grad=True)
    loss, stats = lp.loss(
        name,
        policy_logp=pi,
        sampler_logp=torch.randn(2, 3),
        anchor_logp=torch.randn(2, 3),
        age=torch.ones(2, dtype=torch.long),
        advantage=torch.ones(2),
        mask=torch.zeros(2, 3).bool(),
    )
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert bool((pi.grad == 0).all())
    assert "ratio_max" not in stats
    assert "d_bar" not in stats
    assert stats["tokens"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_weighed_in_float32(name, close):
    tokens = flat(random_rows(8), torch.bfloat16)
    weighting = lp.objective(name).weigh(tokens)
    assert weighting.weight.dtype == torch.float32
    wide = replace(
        tokens,
        policy_logp=tokens.policy_logp.detach().float(),
        sampler_logp=tokens.sampler_logp.float(),
        anchor_logp=tokens.anchor_logp.float(),
        advantage=tokens.advantage.float(),
    )
    close(weighting.weight, lp.objective(name).weigh(wide).weight, 1e-7)
    weighting.loss(tokens.policy_logp).backward()
    assert tokens.policy_logp.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("name", NAMES)
def test_sampler_log_probabilities_are_asked_for_exactly_where_needed(name):
    tokens = replace(flat(random_rows(9)), sampler_logp=None)
    objective = lp.objective(name)
    if not objective.needs.sampler:
        assert "d_bar" not in objective.weigh(tokens).stats
        return
    with pytest.raises(lp.LagproofError, match="sampler_logp is missing"):
        objective.weigh(tokens)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_says_what_the_objective_is(name):
    entry = next(e for e in lp.OBJECTIVES.values() if e.name == name)
    built = lp.objective(name, **{option.name: option.default for option in entry.options.values()})
    assert built == lp.objective(name)
    assert built.name == name
    for part in ("Formula:", "Weight:", "Inputs:", "Options:", "Invariants:", "Source:", "Raises:"):
        assert part in entry.doc, part
    for option in options(name):
        assert (option.name in entry.doc or option.shared) and option.help, option.name


def test_counts_must_be_those_the_reduction_divides_by():
    pi = torch.full((1, 2), -1.0)
    kwargs = {"policy_logp": pi, "advantage": torch.ones(1), "mask": torch.ones(1, 2).bool()}
    with pytest.raises(lp.LagproofError, match="num_responses = None"):
        lp.loss("naive", num_tokens=10, **kwargs)
    with pytest.raises(lp.LagproofError, match="num_tokens = None"):
        lp.loss("gpg", num_responses=10, **kwargs)
    with pytest.raises(lp.LagproofError, match="num_tokens = 1: this micro-batch alone has 2"):
        lp.loss("gpg", num_tokens=1, **kwargs)
    two = {name: torch.cat([value, value]) for name, value in kwargs.items()}
    with pytest.raises(lp.LagproofError, match="num_responses = 1: this micro-batch alone has 2"):
        lp.loss("naive", num_responses=1, **two)
    loss, _ = lp.loss("gpg", num_tokens=10, **kwargs)
    assert float(loss) == pytest.approx(0.2)


@pytest.mark.parametrize("name", NAMES)
def test_negative_control_a_flipped_sign_is_noticed(name, monkeypatch, close):
    """The comparison with the oracle can fail: flip the sign of the weight and it does."""
    cls = type(lp.objective(name))
    rule = cls.rule
    monkeypatch.setattr(
        cls, "rule", lambda self, t: TokenWeights(-(r := rule(self, t)).weight, r.value, r.flags, r.stats)
    )
    with pytest.raises(AssertionError):
        test_weight_is_the_gradient_of_the_textbook_surrogate(name, {}, "response_mean", close)


def test_counts_are_of_the_scorable_tokens():
    assert lp.objective("naive").weigh(flat(random_rows(1))).counts == Counts(num_responses=6, num_tokens=24)


@pytest.mark.parametrize("name", ["dppo-tv", "dppo-kl", "tis"])
@pytest.mark.parametrize(("d", "weight"), [(2.0, -3.0), (20.0, -3.0), (21.0, -3.0), (80.0, -3.0), (1.0, -math.e)])
def test_a_detached_ratio_stays_the_capped_factor_beyond_the_clamp(name, d, weight):
    mu = torch.tensor([-81.0], dtype=torch.float64)
    tokens = TokenBatch(mu + d, torch.tensor([-1.0], dtype=torch.float64), torch.tensor([0]), 1, mu)
    found = lp.objective(name, cap=3.0).weigh(tokens, reduction="sum").weight
    torch.testing.assert_close(found, torch.tensor([weight], dtype=torch.float64))


LOGP = torch.tensor([-0.5, -0.25, -1.0])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy_logp": -LOGP}, "policy_logp has a token with 1: a log-probability is <= 0"),
        ({"sampler_logp": -LOGP}, "sampler_logp has a token with 1"),
        ({"sampler_logp": torch.full((3,), math.nan)}, "sampler_logp is missing .* on all 3 tokens"),
        ({"policy_logp": torch.full((3,), -math.inf)}, "policy_logp is missing"),
        ({"policy_logp": [-0.5, -0.25, -1.0]}, "policy_logp is list: must be a tensor"),
        ({"response": [0, 0, 1]}, "response is list"),
        ({"name": object()}, "name is object: must be a name"),
    ],
)
def test_what_no_training_loop_can_mean_is_refused(changes, said):
    given = {"name": "grpo", "policy_logp": LOGP, "sampler_logp": LOGP, "advantage": [1.0, 1.0, -1.0]}
    with pytest.raises((lp.LagproofError), match=said):
        lp.loss(**(given | {"response": torch.tensor([0, 0, 1])} | changes))


@pytest.mark.parametrize("advantage", [[1.0, 1.0, -1.0], (1, 1, -1), torch.tensor([1, 1, -1])])
def test_advantages_may_be_a_list_or_integers(advantage):
    other = {"policy_logp": LOGP, "sampler_logp": LOGP, "response": torch.tensor([0, 0, 1])}
    found, _ = lp.loss("grpo", advantage=advantage, **other)
    torch.testing.assert_close(found, lp.loss("grpo", advantage=torch.tensor([1.0, 1.0, -1.0]), **other)[0])


@pytest.mark.parametrize("name", ["naive", "sat-grpo"])
def test_an_objective_is_built_without_reading_annotations_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of ``lp.loss`` builds one; evaluating its annotations took longer than the loss of a small batch."""
    lp.objective(name)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("annotations were evaluated again")

    monkeypatch.setattr("typing.get_type_hints", never)
    lp.objective(name)
