"""Policy, anchor and sampler: numbers worked by hand on one batch, and the laws that three policies obey.

The batch: two responses of 3 and 2 tokens. Token 1 was moved by the engine only; at token 2 the engine hides a large
update; token 3 is quiet; token 4 is a negative pushed far down; token 5 a negative that came back up.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lagproof as lp
from lagproof.data.tokens import TokenBatch
from lagproof.objectives import TABLE, Scope
from lagproof.objectives.masks import MASKS, parse_mask
from lagproof.objectives.reduction import ResponseMean
from lagproof.tensors.advantage import optimal

MU = [-0.50, -2.00, -0.10, -1.00, -3.00]
ANCHOR = [-0.25, -2.30, -0.09, -1.31, -2.80]
PI = [-0.28, -1.95, -0.14, -1.90, -2.70]
A = [1.0, 1.0, 1.0, -1.0, -1.0]
AGE = [2, 2, 1, 4, 4]
RESPONSE = [0, 0, 0, 1, 1]


def batch(anchor=ANCHOR, mu=MU, pi=PI, a=A) -> TokenBatch:
    made = {name: torch.tensor(x, dtype=torch.float64) for name, x in (("pi", pi), ("mu", mu), ("anchor", anchor))}
    return TokenBatch(
        *(made["pi"], torch.tensor(a, dtype=torch.float64), torch.tensor(RESPONSE), 2, made["mu"]),
        anchor_logp=made["anchor"],
        version=9 - torch.tensor(AGE),
        learner_version=9,
    )


def weigh(tokens: TokenBatch, name: str, **options):
    """Weights before the reduction, and J with response_mean."""
    weighting = lp.objective(name, **options).weigh(tokens, reduction=ResponseMean())
    return weighting.weight * torch.tensor([6.0, 6.0, 6.0, 4.0, 4.0]), weighting.value


def thrice(x: float, y: float) -> list[float]:
    return [x, x, x, y, y]


GRPO = [0.0, 1.051271, 0.960789, 0.0, -1.349859]
WORKED = [
    ("grpo", {}, GRPO, -0.002121),
    ("tis", {}, [1.246077, 1.051271, 0.960789, -0.406570, -1.349859], 0.682044),
    ("decoupled-grpo", {}, [1.246077, 0.0, 0.960789, 0.0, -1.349859], 0.031821),
    ("decoupled-gspo", {}, [0.0] * 5, 0.020474),
    ("decoupled-gspo", {"low": 0.3, "high": 0.3}, thrice(1.079682, -0.740818), 0.169432),
    ("minirl", {}, [1.246077, 0.0, 0.960789, 0.0, -1.349859], 0.830586),
    ("a3po", {}, [1.246077, 1.051271, 0.960789, 0.0, -1.349859], 0.103727),
    ("m2po", {}, [1.246077, 1.051271, 0.960789, 0.0, -1.349859], 0.205558),
    ("m2po", {"form": "winsorised"}, [1.246077, 1.051271, 0.960789, 0.0, -1.349859], 0.013347),
    ("grpo", {"masks": ("opsm(delta=0.5)",)}, GRPO, -0.002121),
    ("grpo", {"masks": ("opsm(delta=0.1)",)}, [0.0, 1.051271, 0.960789, 0.0, 0.0], 0.535343),
    ("tis", {"masks": ("seq-mask(stat=geo, low=0.99, high=1.01)",)}, [0.0] * 5, 0.0),
    (
        "tis",
        {"masks": ("seq-mask(stat=product, low=0.5, high=2)",)},
        [1.246077, 1.051271, 0.960789, -0.40657, -1.349859],
    ),
    ("tis", {"masks": ("seq-mask(stat=k3_mean, high=0.01)",)}, [1.246077, 1.051271, 0.960789, 0.0, 0.0], -0.422232),
    ("seq-tis", {}, thrice(1.258600, -0.548812), 0.133986),
    ("seq-tis", {"normalise": "batch"}, thrice(1.392710, -0.607290), 0.148263),
    ("seq-tis", {"form": "mask", "cap": 1.2}, thrice(0.0, -0.548812), 0.631133),
    ("dis", {}, [1.246077, 1.051271, 0.960789, 0.0, -1.349859], 0.488923),
    ("dis", {"low": 0.8, "high": 3.0}, [1.246077, 1.051271, 0.960789, -0.406570, -1.349859], 0.682044),
    (
        "decoupled-grpo",
        {"correction": "none", "masks": ("kpop(phi=0.05)",)},
        [0.0, 0.0, 0.951229, 0.0, -1.105171],
        -0.117754,
    ),
    (
        "decoupled-grpo",
        {"correction": "none", "masks": ("kpop(phi=0.01)",)},
        [0.0, 0.0, 0.951229, 0.0, -1.105171],
        0.082246,
    ),
    ("icepop", {}, [0.970446, 0.0, 0.951229, 0.0, -1.105171]),
    ("vespo", {}, thrice(0.729205, -0.407537), 0.180632),
    ("sapo", {}, [1.227402, 1.050581, 0.960420, -0.369526, -1.305324], 0.147678),
    ("topr", {}, thrice(1.0, -0.548812), 0.236133),
    ("topr", {"level": "token"}, [1.0, 1.0, 1.0, -0.406570, -1.0], 0.473121),
    ("pmd", {}, [0.978, 0.995, 1.004, -0.910, -1.030], 0.743313),
    ("pmd", {"beta": 1.0}, [0.78, 0.95, 1.04, -0.10, -1.30], 0.638125),
    ("pmd", {"level": "response"}, thrice(0.977, -0.940)),
    ("sat-grpo", {"high": 0.28, "alpha": 0.4}, [0.0, 1.051271, 0.960789, 0.0, -1.349859], -0.068989),
    (
        "sat-grpo",
        {"high": 0.28, "alpha": 0.4, "risk": "staleness"},
        [1.246077, 0.0, 0.960789, 0.0, -1.349859],
        -0.049767,
    ),
    (
        "sat-grpo",
        {"high": 0.28, "alpha": 0.4, "risk": "staleness", "form": "decoupled"},
        [1.246077, 0.0, 0.960789, 0.0, -1.349859],
        -0.027167,
    ),
]


@pytest.mark.parametrize(("name", "options", "expected"), [row[:3] for row in WORKED], ids=lambda x: str(x)[:60])
def test_worked_weights(name, options, expected, close):
    close(weigh(batch(), name, **options)[0], expected, 2e-6)


@pytest.mark.parametrize(("name", "options", "value"), [(*row[:2], row[3]) for row in WORKED if len(row) > 3])
def test_worked_values(name, options, value, close):
    close(weigh(batch(), name, **options)[1], value, 2e-6)


def test_worked_value_of_a_sum_over_tokens(close):
    # the terms that made .830586 with response_mean, each response summed over its tokens
    close(lp.objective("minirl").weigh(batch()).value, 1.580604, 2e-6)


def test_worked_regression_on_the_optimal_advantage(close):
    # V = log((e + 1) / 2) = .620115; weights 2 beta ((x - V) - beta S), S = .23 and -.60
    advantage = optimal(torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([5, 5]))
    close(advantage, [0.379885, -0.620115], 1e-6)
    tokens = batch(a=[float(advantage[0])] * 3 + [float(advantage[1])] * 2)
    for beta, first, second, value in (
        (1e-3, 0.000759311, -0.00123903, -0.263968),
        (0.1, 0.0713771, -0.112023, -0.220548),
    ):
        weighting = lp.objective("oapl", beta=beta).weigh(tokens)
        close(2 * weighting.weight, thrice(first, second), 1e-6)
        close(weighting.value, value, 2e-6)


def test_worked_cutoffs(close):
    weighing = lp.objective("m2po").weigh(batch())
    # harmful: tokens 1, 2 and 4; without token 4 their mean square is (.22^2 + .05^2) / 2 = .02545 < .04
    close(weighing.stats["m2po/cutoff"], 0.22, 1e-9)
    # .05^2 + 2 t^2 would be .12 with t = .242; but .22 is below that, so .05^2 + .22^2 + t^2 = .12: t = .262869
    close(lp.objective("m2po", form="winsorised").weigh(batch()).stats["m2po/cutoff"], 0.262869, 1e-6)


BYPASS = [("decoupled-grpo", "grpo"), ("decoupled-gspo", "gspo"), ("icepop", "grpo")]


@pytest.mark.parametrize(("name", "base"), BYPASS)
def test_with_the_sampler_as_anchor_it_is_its_base(name, base):
    tokens = batch(anchor=MU)
    own, its = (lp.objective(which).weigh(tokens) for which in (name, base))
    assert torch.equal(own.weight, its.weight) and torch.equal(own.contribution, its.contribution)


def test_with_the_policy_as_anchor_no_clip_acts(close):
    tokens = batch(anchor=PI)
    for name in ("decoupled-grpo", "minirl"):
        cap = {"decoupled-grpo": 2.0, "minirl": 5.0}[name]
        close(weigh(tokens, name)[0], weigh(tokens, "tis", cap=cap)[0], 1e-12)
    rho = [math.exp(0.23 / 3)] * 3 + [math.exp(-0.60 / 2)] * 2
    close(weigh(tokens, "decoupled-gspo")[0], [r * a for r, a in zip(rho, A, strict=True)], 1e-9)
    assert bool((weigh(tokens, "sat-grpo", risk="staleness")[0] == weigh(tokens, "grpo")[0]).all())
    close(weigh(tokens, "sat-grpo", risk="staleness", form="decoupled")[0], weigh(tokens, "tis")[0], 1e-12)


def test_young_tokens_are_grpos(close):
    young = replace(batch(), version=torch.tensor([9, 9, 8, 8, 8]))
    own, its = (lp.objective(name).weigh(young) for name in ("a3po", "grpo"))
    assert torch.equal(own.weight, its.weight) and torch.equal(own.contribution, its.contribution)
    # age 4, low .2: the limit is .8^4 = .4096, just above r = e^-.9 = .40657; at age 5 it is .32768
    assert float(weigh(batch(), "a3po")[0][3]) == 0.0
    older = replace(batch(), version=9 - torch.tensor([2, 2, 1, 5, 5]))
    close(weigh(older, "a3po")[0][3], -0.406570, 1e-6)


logps = st.lists(st.floats(-6.0, -0.01), min_size=5, max_size=5)


@settings(max_examples=150, deadline=None)
@given(logps, logps, logps, logps, st.sampled_from(["drop-in", "decoupled"]))
def test_the_gate_does_not_see_the_engine(pi, anchor, mu, other, form):
    """Any change of the engine leaves q, the gate and, decoupled, the set of rejected tokens alone."""
    options = {"risk": "staleness", "form": form, "alpha": 0.4, "cap": math.inf}
    one, two = (lp.objective("sat-grpo", **options).weigh(batch(anchor, x, pi)) for x in (mu, other))
    for key in ("sat/q", "sat/gated"):
        assert one.stats[key] == two.stats[key]
    if form == "decoupled":
        assert torch.equal(one.weight == 0, two.weight == 0)


@settings(max_examples=150, deadline=None)
@given(logps, logps, st.sampled_from(["drop-in", "decoupled"]), st.sampled_from(["sat-grpo", "sat-gspo"]))
def test_an_exact_engine_gives_the_papers_risk(pi, mu, form, name):
    tokens = batch(mu, mu, pi)
    options = {"alpha": 0.4} | ({"low": 0.2, "high": 0.2} if name == "sat-gspo" else {})
    own = lp.objective(name, risk="staleness", form=form, **options).weigh(tokens)
    its = lp.objective(name, **options).weigh(tokens)
    assert torch.equal(own.weight, its.weight) and torch.equal(own.contribution, its.contribution)


@settings(max_examples=150, deadline=None)
@given(logps, logps, logps, st.sampled_from(["drop-in", "decoupled"]))
def test_staleness_only_takes_weight_away(pi, anchor, mu, form):
    tokens = batch(anchor, mu, pi)
    base = "grpo" if form == "drop-in" else "decoupled-grpo"
    sat, its = (
        lp.objective(name, **options).weigh(tokens)
        for name, options in (("sat-grpo", {"risk": "staleness", "form": form, "alpha": 0.4}), (base, {}))
    )
    assert bool((sat.contribution <= its.contribution + 1e-12).all())
    assert bool(((sat.weight == its.weight) | (sat.weight == 0)).all())


@settings(max_examples=100, deadline=None)
@given(logps, logps, logps, logps)
def test_which_tokens_a_decoupled_objective_rejects_does_not_depend_on_the_engine(pi, anchor, mu, other):
    for name in ("decoupled-grpo", "minirl"):
        one, two = (lp.objective(name, cap=math.inf).weigh(batch(anchor, x, pi)) for x in (mu, other))
        assert torch.equal(one.weight == 0, two.weight == 0)


@settings(max_examples=100, deadline=None)
@given(logps, logps, st.floats(0.001, 0.5), st.floats(0.001, 0.5))
def test_m2po_drops_less_under_a_larger_bound(pi, mu, tau, other):
    tokens = batch(mu, mu, pi)
    d, a = (torch.tensor(pi) - torch.tensor(mu)).double(), torch.tensor(A)
    harmful = a * d > 0
    small, large = (lp.objective("m2po", tau=x).weigh(tokens).weight == 0 for x in sorted((tau, other)))
    assert not bool((large & ~small).any())
    assert not bool((small & ~harmful & (d != 0)).any())
    kept = harmful & ~small
    assert not bool(kept.any()) or float(d[kept].square().mean()) < min(tau, other) + 1e-6


def test_a_floor_under_the_quantile(close):
    weighting = lp.objective("sat-grpo", alpha=0.4, floor=0.25).weigh(batch())
    assert weighting.stats["sat/q"] == 0.25  # the batch's own is .152
    close(lp.objective("sat-grpo", alpha=0.4, floor=0.1).weigh(batch()).stats["sat/q"], 0.152, 1e-9)
    assert lp.objective("sat-grpo", q=0.1, floor=0.3).weigh(batch()).stats["sat/q"] == 0.3


def test_masks_commute_and_multiply():
    texts = ("opsm(delta=0.1)", "seq-mask(stat=k3_max, high=0.2)", "kpop(phi=0.05)")
    assert {parse_mask(text).name for text in texts} == set(MASKS)
    there, back = (lp.objective("tis", masks=order).weigh(batch()) for order in (texts, texts[::-1]))
    assert torch.equal(there.weight, back.weight)
    alone = [lp.objective("tis", masks=(text,)).weigh(batch()).weight != 0 for text in texts]
    assert torch.equal(there.weight != 0, alone[0] & alone[1] & alone[2])


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize(
    "mask", ["opsm(delta=inf)", "seq-mask(stat=geo)", "kpop(phi=inf)", "opsm(delta=inf, against=anchor)"]
)
def test_an_open_mask_changes_nothing(name, mask):
    open_, plain = lp.objective(name, masks=(mask,)).weigh(batch()), lp.objective(name).weigh(batch())
    assert torch.equal(open_.weight, plain.weight) and open_.value == plain.value
    assert open_.stats[f"{mask.split('(')[0]}/masked"] == 0.0


def test_what_a_mask_needs_and_sees_is_added():
    naive = lp.objective("naive", masks=("opsm(delta=0.1)",))
    assert naive.needs.sampler and naive.scope is Scope.RESPONSE
    assert lp.objective("grpo", masks=("kpop(phi=1)",)).needs.anchor
    assert lp.objective("grpo", masks=("kpop(phi=1)",)).scope is Scope.TOKEN
    assert lp.objective("sat-grpo", masks=("kpop(phi=1)",)).scope is Scope.BATCH


def test_a_masked_response_keeps_its_place_in_the_denominator(close):
    masked = lp.objective("tis", masks=("seq-mask(stat=k3_mean, high=0.01)",)).weigh(batch())
    assert masked.counts.num_responses == 2
    close(masked.stats["seq-mask/masked"], 0.4, 1e-12)
    close(masked.weight[0], 1.246077 / 6, 1e-6)


def test_repeated_tokens_move_the_product_and_not_the_mean():
    twice = batch().rows(torch.tensor([0, 1, 2, 0, 1, 2, 3, 4, 3, 4]))
    geo, product = ("seq-mask(stat=geo, low=0.7, high=1.2)", "seq-mask(stat=product, low=0.5, high=1.3)")
    for tokens, expected in ((batch(), True), (twice, False)):
        assert bool((lp.objective("tis", masks=(geo,)).weigh(tokens).weight != 0).all())
        assert bool((lp.objective("tis", masks=(product,)).weigh(tokens).weight != 0).all()) is expected


def test_a_missing_anchor_is_counted_and_never_filled_in(close):
    tokens = batch(anchor=[*ANCHOR[:4], math.nan])
    weighting = lp.objective("decoupled-grpo").weigh(tokens)
    assert float(weighting.weight[4]) == 0.0 and weighting.stats["missing_anchor"] == 1
    assert weighting.counts.num_tokens == 4
    assert lp.objective("grpo").weigh(tokens).counts.num_tokens == 5
    with pytest.raises(lp.LagproofError, match="anchor_logp is missing: decoupled-grpo"):
        lp.objective("decoupled-grpo").weigh(replace(tokens, anchor_logp=None))
    with pytest.raises(lp.LagproofError, match="the age of the tokens is missing: a3po"):
        lp.objective("a3po").weigh(replace(tokens, version=None))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("opsm", "lacks delta, which has no default"),
        ("kpop()", "lacks phi"),
        ("opsn(delta=1)", "did you mean 'opsm'"),
        ("opsm(delta=x)", "must be a number"),
        ("opsm(delta=-1)", "must be >= 0"),
        ("opsm(dleta=1)", "did you mean 'delta'"),
        ("seq-mask(stat=geometric)", "allowed: geo, k3_max"),
        ("seq-mask(stat=geo, low=2, high=1)", "below high = 1.0"),
        ("opsm(delta=1, against=reference)", "allowed: anchor, sampler"),
        ("opsm delta=1", "must be a name with options"),
    ],
)
def test_a_mask_that_cannot_be_is_refused(text, message):
    with pytest.raises(lp.LagproofError, match=message):
        lp.objective("grpo", masks=(text,))


def test_forms_that_exclude_each_other_are_refused():
    with pytest.raises(lp.LagproofError, match="needs risk = 'staleness'"):
        lp.objective("sat-grpo", form="decoupled")
    with pytest.raises(lp.LagproofError, match="must be floor < cap"):
        lp.objective("decoupled-grpo", correction="gate", floor=3.0)
    with pytest.raises(lp.LagproofError, match="a list of texts"):
        lp.objective("grpo", masks="opsm(delta=1)")


def test_gates_and_limits_of_the_drop_in_are_not_comparable():
    """q at or beyond both limits changes nothing, but for staleness as a drop-in: a large u that the engine hides."""
    # token 1: u = .62 is beyond q = .5 and log 1.2 = .182; c = 1 / (1 + 1.24^2) = .394, limit 1.079; r = e^.12 = 1.127
    tokens = batch(anchor=[-0.9, *ANCHOR[1:]], mu=[-0.40, *MU[1:]])
    drop_in = lp.objective("sat-grpo", risk="staleness", q=0.5)
    assert drop_in.weigh(tokens).stats["sat/changed"] > 0
    assert not drop_in.meets_limits
    assert lp.objective("sat-grpo", risk="staleness", form="decoupled", q=0.5).weigh(tokens).stats["sat/changed"] == 0
