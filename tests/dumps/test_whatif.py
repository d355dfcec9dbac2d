"""Weights against weights: masses by hand, invariants over every objective, and what SAT and ASymPO could do."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import lagproof as lp
from lagproof.cli.diagnosing import run_whatif
from lagproof.config import Config
from lagproof.data.slices import Sign
from lagproof.dumps.choices import parse
from lagproof.dumps.dump import read_dump
from lagproof.dumps.whatif import whatif
from lagproof.errors import ConfigError, InputError, UnknownNameError
from lagproof.metrics.ccdf import EDGES
from lagproof.metrics.slices import pieces
from lagproof.objectives import TABLE, without


def write(path, policy, sampler, advantage, **columns):
    table = {"policy_logp": policy, "sampler_logp": sampler, "advantage": advantage, **columns}
    pq.write_table(pa.table(table), path)
    return path


def by_label(found):
    return {c.choice.label: c for c in found.comparisons}


def random_dump(path, spread=0.3, responses=60, steps=3, seed=0, **columns):
    rng = np.random.default_rng(seed)
    policy = [list(-rng.exponential(1.0, rng.integers(1, 8)) - 1e-3) for _ in range(responses)]
    sampler = [[min(x + spread * rng.standard_normal(), -1e-4) for x in row] for row in policy]
    reward = rng.integers(0, 2, responses).astype(float)
    group = np.arange(responses) // 4
    advantage = reward - 0.4
    rows = {"reward": reward, "group": group, "step": np.arange(responses) // (responses // steps)}
    rows |= {"version": rng.integers(0, 4, responses), "learner_version": np.full(responses, 3)} | columns
    return write(path, policy, sampler, advantage, **rows)


def test_masses_by_hand(tmp_path):
    """One response, A = 1, r = 1, 1.5, 3: GRPO keeps 1 of the three, TIS (cap 2) puts 1, 1.5 and 2, naive 1 each."""
    policy = [[math.log(0.2), math.log(0.3), math.log(0.6)]]
    sampler = [[math.log(0.2)] * 3]
    found = by_label(whatif(write(tmp_path / "d.parquet", policy, sampler, [1.0]), ["tis", "naive"]))
    assert found["grpo"].mass[None].baseline == pytest.approx(1 / 3, rel=1e-5)
    assert found["tis"].mass[None].shares == pytest.approx({"kept": 1.0, "removed": 0.0, "added": 3.5}, abs=1e-5)
    assert found["naive"].mass[None].shares == pytest.approx({"kept": 1.0, "removed": 0.0, "added": 2.0}, abs=1e-5)
    assert found["tis"].differs == pytest.approx(2 / 3) and found["grpo"].differs == 0
    assert found["naive"].cosine == pytest.approx(1 / math.sqrt(3), rel=1e-5)
    assert found["grpo"].stats["clipped_high"] == pytest.approx(2 / 3)


def test_against_tis_grpo_removes(tmp_path):
    policy = [[math.log(0.2), math.log(0.3)], [math.log(0.2), math.log(0.1)]]
    path = write(tmp_path / "d.parquet", policy, [[math.log(0.2)] * 2] * 2, [1.0, -1.0])
    found = by_label(whatif(path, ["grpo"], baseline="tis"))
    # tis: 1, 1.5 | -1, -.5, each over R m = 4; grpo rejects the second and the fourth
    mass = found["grpo"].mass
    assert mass[None].shares == pytest.approx({"kept": 2 / 4, "removed": 2 / 4, "added": 0.0}, abs=1e-5)
    assert mass[Sign.POSITIVE].shares["removed"] == pytest.approx(1.5 / 2.5, abs=1e-5)
    assert mass[Sign.NEGATIVE].shares["removed"] == pytest.approx(0.5 / 1.5, abs=1e-5)


@pytest.mark.parametrize("baseline", ["grpo", "naive", "asympo"])
def test_what_holds_for_every_objective(baseline, tmp_path):
    found = whatif(random_dump(tmp_path / "d.parquet"), baseline=baseline)
    assert found.comparisons[0].choice.label == baseline and found.steps == 3
    assert [c.choice.label for c in found.comparisons[1:]] == [name for name in without("anchor") if name != baseline]
    same = found.comparisons[0]
    assert same.differs == 0 and same.cosine == pytest.approx(1.0) and same.mass[None].shares["kept"] == 1.0
    for c in found.comparisons:
        shares = c.mass[None].shares
        assert shares["kept"] + shares["removed"] == pytest.approx(1.0)
        assert 0 <= c.differs <= 1 and -1 - 1e-9 <= c.cosine <= 1 + 1e-9
        for names in (tuple(Sign), tuple(c.ages)):
            for what in ("baseline", "other", "kept"):
                total = sum(getattr(c.mass[name], what) for name in names)
                assert total == pytest.approx(getattr(c.mass[None], what)), (c.choice.label, names)


def test_weights_are_those_of_each_step_by_itself(tmp_path):
    path = random_dump(tmp_path / "d.parquet")
    found = by_label(whatif(path, ["sat-grpo:alpha=0.5"]))["sat-grpo:alpha=0.5"]
    total = kept = other = 0.0
    for batch in read_dump(path).batches:
        p = lp.objective("grpo").weigh(batch.tokens).weight.double()
        w = lp.objective("sat-grpo", alpha=0.5).weigh(batch.tokens).weight.double()
        total += float(p.abs().sum())
        other += float(w.abs().sum())
        kept += sum(min(abs(a), abs(b)) for a, b in zip(p.tolist(), w.tolist(), strict=True) if a * b > 0)
    mass = found.mass[None]
    assert (mass.baseline, mass.other, mass.kept) == pytest.approx((total, other, kept))
    assert found.finding.numbers["removed"] == pytest.approx((total - other) / total)
    assert mass.shares["removed"] == pytest.approx(found.finding.numbers["removed"]) and mass.shares["added"] < 1e-9


def test_a_sign_that_flips_is_removed_and_added(tmp_path):
    # recorded advantages have the opposite sign of what gpg makes of the rewards
    path = write(
        tmp_path / "d.parquet", [[-1.0], [-1.0]], [[-1.0], [-1.0]], [-1.0, 1.0], reward=[1.0, 0.0], group=[0, 0]
    )
    gpg = by_label(whatif(path, ["gpg"]))["gpg"]
    assert gpg.choice.advantage == "gpg" and gpg.cosine == pytest.approx(-1.0)
    assert gpg.mass[None].shares == pytest.approx({"kept": 0.0, "removed": 1.0, "added": 0.5})


def test_an_advantage_that_cannot_be_computed_is_noted(tmp_path):
    found = whatif(write(tmp_path / "d.parquet", [[-1.0]], [[-1.0]], [1.0]), ["gpg"])
    assert found.comparisons[1].choice.advantage == "recorded"
    assert any("gpg brings the advantage gpg" in note for note in found.notes)


def with_log_ratios(path, d, advantage=1.0, steps=1):
    policy = [[-2.0 + x for x in d]] * steps
    return write(path, policy, [[-2.0] * len(d)] * steps, [advantage] * steps, step=list(range(steps)))


def test_sat_cannot_act_beyond_the_clip(tmp_path):
    # the .9 quantile of |d| is .37 of .3 .. .4: above log(1.2) = .182 and -log(.8) = .223
    found = by_label(
        whatif(with_log_ratios(tmp_path / "d.parquet", list(np.linspace(0.3, 0.4, 21)) + [0.1] * 3), ["sat-grpo"])
    )
    finding = found["sat-grpo"].finding
    assert "sat-grpo cannot act on this data" in finding.sentence and "it is grpo on every token" in finding.sentence
    assert "at or above log(1 + high) = 0.182 and -log(1 - low) = 0.223: it is grpo" in finding.sentence
    assert finding.numbers["can_act_high"] == finding.numbers["can_act_low"] == 0 and found["sat-grpo"].differs == 0


def test_sat_with_a_closed_gate(tmp_path):
    finding = by_label(whatif(with_log_ratios(tmp_path / "d.parquet", [0.0] * 20 + [0.1]), ["sat-grpo"]))[
        "sat-grpo"
    ].finding
    assert "cannot act" in finding.sentence and "q of tokens is 0 nats, so the gate stays closed" in finding.sentence


def test_sat_can_act_below_the_clip(tmp_path):
    d = [0.01 * i for i in range(10)] + [0.17, 0.17]  # the .9 quantile is below .17 < log(1.2)
    found = by_label(whatif(with_log_ratios(tmp_path / "d.parquet", d), ["sat-grpo"]))["sat-grpo"]
    # the two that are gated have r = exp(.17), the others exp(0) to exp(.09)
    gone, all_of_it = 2 * math.exp(0.17), sum(math.exp(x) for x in d)
    assert found.finding.sentence.startswith(
        f"sat-grpo rejects 2 of 12 tokens (16.67%, {gone / all_of_it:.2%} of the gradient mass) that grpo keeps: q of"
    )
    assert "below log(1 + high) = 0.182 and below -log(1 - low) = 0.223" in found.finding.sentence
    assert found.finding.numbers["changed"] == pytest.approx(2 / 12) == found.differs


def test_sat_can_act_between_the_two_limits_on_the_way_down_only(tmp_path):
    d = [-0.2] * 20 + [-0.21]  # q = .2: above .182, below .223
    path = with_log_ratios(tmp_path / "d.parquet", d, advantage=-1.0)
    finding = by_label(whatif(path, ["sat-grpo"]))["sat-grpo"].finding
    assert (finding.numbers["can_act_high"], finding.numbers["can_act_low"]) == (0, 1)
    assert "not below log(1 + high) = 0.182 and below -log(1 - low) = 0.223" in finding.sentence
    assert finding.numbers["changed"] == pytest.approx(1 / 21)


def of_steps(path, *steps, advantage=1.0):
    """One response a step with these log-ratios."""
    policy, sampler = [[-2.0 + x for x in d] for d in steps], [[-2.0] * len(d) for d in steps]
    return write(path, policy, sampler, [advantage] * len(steps), step=list(range(len(steps))))


def test_sat_says_in_how_many_steps_its_quantile_is_below_each_limit(tmp_path):
    # q (the .9 quantile of equal values) is .1, .2, .3 and 0; one token beyond it in the first step, r = exp(.15)
    path = of_steps(tmp_path / "d.parquet", [0.1] * 20 + [0.15], [0.2] * 20, [0.3] * 20, [0.0] * 20)
    finding = by_label(whatif(path, ["sat-grpo"]))["sat-grpo"].finding
    assert finding.sentence.startswith("sat-grpo rejects 1 of 81 tokens (1.23%, ")
    assert finding.sentence.endswith(
        "below log(1 + high) = 0.182 in 1 of 4 steps and below -log(1 - low) = 0.223 in 2 of 4 steps "
        "(0 in 1, where the gate stays closed)"
    )
    assert (finding.numbers["can_act_high"], finding.numbers["can_act_low"]) == (0.25, 0.5)


def test_sat_that_could_act_and_changes_nothing_does_not_say_both(tmp_path):
    path = of_steps(tmp_path / "d.parquet", [0.1] * 20, [0.3] * 20)  # nothing lies beyond the quantile
    sentence = by_label(whatif(path, ["sat-grpo"]))["sat-grpo"].finding.sentence
    assert sentence.startswith("sat-grpo rejects none of 40 tokens that grpo keeps: q of tokens is 0.2 nats (median")
    assert "below log(1 + high) = 0.182 in 1 of 2 steps and below -log(1 - low) = 0.223 in 1 of 2" in sentence


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (([0.3] * 20 + [0.1], [0.4] * 20), "-log(1 - low) = 0.223 in all 2 steps: it is grpo"),
        (
            ([0.3] * 20, [0.0] * 20),
            "in 1 of 2 steps and 0, where the gate stays closed, in the others: it is grpo on every token",
        ),
    ],
)
def test_sat_that_never_can_says_why(steps, said, tmp_path):
    sentence = by_label(whatif(of_steps(tmp_path / "d.parquet", *steps), ["sat-grpo"]))["sat-grpo"].finding.sentence
    assert "cannot act on this data" in sentence and said in sentence


def test_sat_on_responses_is_judged_by_their_quantile(tmp_path):
    finding = by_label(whatif(random_dump(tmp_path / "d.parquet"), ["sat-gspo"]))["sat-gspo"].finding
    assert "cannot act" in finding.sentence and "q of responses" in finding.sentence
    assert finding.numbers["limit_high"] == pytest.approx(math.log(1.0004))


def test_sat_with_another_risk_is_not_measured_in_nats(tmp_path):
    label = "sat-grpo:risk=probability_mass"
    finding = by_label(whatif(random_dump(tmp_path / "d.parquet"), [label]))[label].finding
    assert "probability_mass" in finding.sentence and "limit_high" not in finding.numbers


def test_the_scale_factors_of_asympo(tmp_path):
    # S = .1 (A = 1), 5 (A = -1), .005 (A = 1): factors 10, .2, and 100 at the floor of .01
    path = write(
        tmp_path / "d.parquet",
        [[-0.05, -0.15], [-4.0, -6.0, -5.0], [-0.005]],
        [[-1.0] * 2, [-1.0] * 3, [-1.0]],
        [1.0, -1.0, 1.0],
    )
    finding = by_label(whatif(path, ["asympo"], baseline="naive"))["asympo"].finding
    assert finding.numbers["largest"] == pytest.approx(100.0) and finding.numbers["floored"] == 1
    assert finding.numbers["median_negative"] == pytest.approx(0.2, rel=1e-5) and finding.numbers["responses"] == 3
    assert "1 of 3 responses are at the floor of 0.01 nats" in finding.sentence


def test_the_present_objective_of_a_run_is_its_own(tmp_path):
    config = Config.load(None, ['objective.name="tis"', "objective.cap=3.0", 'learner.reduction="token_mean"'])
    (tmp_path / "rollouts").mkdir()
    random_dump(tmp_path / "rollouts" / "step-000003.parquet")
    config.save_toml(tmp_path / "config.toml")
    found = whatif(tmp_path, ["grpo", "gpg"])
    assert found.baseline == "tis:cap=3.0" and found.comparisons[0].choice.objective.cap == 3.0
    assert parse(found.baseline) == found.comparisons[0].choice.objective
    assert list(by_label(whatif(tmp_path, ["tis"]))) == ["tis:cap=3.0", "tis"]  # the usual one is another
    assert {c.choice.reduction for c in found.comparisons} == {"token_mean"}  # the run had set it
    assert by_label(whatif(tmp_path, ["grpo"], baseline="naive"))["grpo"].choice.reduction == "response_mean"


def test_options_after_the_name():
    assert parse("sat-grpo:alpha=0.5:kernel=exp") == lp.objective("sat-grpo", alpha=0.5, kernel="exp")
    with pytest.raises(UnknownNameError, match=r"did you mean 'objective\.alpha'"):
        parse("sat-grpo:alhpa=0.5")
    with pytest.raises(UnknownNameError, match="did you mean 'asympo'"):
        parse("asymp")
    with pytest.raises(ConfigError, match="must be in"):
        parse("spo:alpha=2")


def test_what_cannot_be_compared(tmp_path):
    path = tmp_path / "bare.parquet"
    pq.write_table(pa.table({"policy_logp": [[-1.0]], "sampler_logp": [[-1.0]]}), path)
    with pytest.raises(InputError, match="has no advantages, and no rewards"):
        whatif(path)
    with pytest.raises(InputError, match="every weight of grpo is 0"):
        whatif(write(path, [[-1.0]], [[-1.0]], [0.0]))


def test_the_command_prints_a_table_or_json(tmp_path, capsys):
    path = random_dump(tmp_path / "d.parquet")
    assert run_whatif(path) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and max(map(len, out.splitlines())) <= 80
    assert all(name in out for name in TABLE) and "By sign of the advantage" in out and "by age" in out
    assert "cannot act on this data" in out or "can act" in out
    assert run_whatif(path, ["sat-grpo", "asympo"], as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert [o["objective"] for o in told["objectives"]] == ["grpo", "sat-grpo", "asympo"]
    assert told["objectives"][1]["kept"] + told["objectives"][1]["removed"] == pytest.approx(1.0)
    assert {"sign/positive", "sign/negative", "age/0", "age/3"} <= set(told["objectives"][1]["groups"])
    assert run_whatif(path, ["sat-grpp"], as_json=True) == 2
    assert "did you mean" in json.loads(capsys.readouterr().out)["error"]
    assert run_whatif(tmp_path / "nothing") == 2


def test_weighing_piece_by_piece_changes_no_number(tmp_path, monkeypatch):
    path = random_dump(tmp_path / "d.parquet", steps=2)
    whole = whatif(path)
    monkeypatch.setattr("lagproof.metrics.slices.PIECE_TOKENS", 11)
    monkeypatch.setattr("lagproof.dumps.tally.BLOCK_TOKENS", 4)
    cut = whatif(path)
    for a, b in zip(whole.comparisons, cut.comparisons, strict=True):
        assert a.differs == b.differs and a.mass.keys() == b.mass.keys() and a.choice == b.choice
        for name in a.mass:
            assert [*a.mass[name].shares.values()] == pytest.approx([*b.mass[name].shares.values()], rel=1e-6), name
        assert b.stats == pytest.approx(a.stats, rel=1e-6)
        assert (a.finding is None) == (b.finding is None)
        assert a.finding is None or a.finding.sentence == b.finding.sentence
    assert np.array(cut.cosines) == pytest.approx(np.array(whole.cosines), rel=1e-6)
    assert {u: (m.up.above.tolist(), m.down.tokens) for u, m in cut.ccdf.items()} == {
        u: (m.up.above.tolist(), m.down.tokens) for u, m in whole.ccdf.items()
    }


def test_a_response_longer_than_a_piece_stays_whole():
    response = torch.tensor([1, 1, 1, 2, 4, 4])  # responses 0 and 3 have no token
    tokens = lp.TokenBatch(torch.zeros(6), torch.zeros(6), response, 6)
    found = {}
    for size in (1, 2, 4, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lagproof.metrics.slices.PIECE_TOKENS", size)
            found[size] = [(s.start, s.stop) for s in pieces(tokens)]
    assert found == {1: [(0, 3), (3, 4), (4, 6)], 2: [(0, 3), (3, 4), (4, 6)], 4: [(0, 4), (4, 6)], 100: [(0, 6)]}


def test_cosines_of_each_two_are_those_of_the_weights_over_all_steps(tmp_path):
    path = random_dump(tmp_path / "d.parquet")
    names = ["grpo", "spo", "tis", "asympo"]
    found = whatif(path, names)
    vectors = {
        name: np.concatenate(
            [lp.objective(name).weigh(b.tokens).weight.double().numpy() for b in read_dump(path).batches]
        )
        for name in names
    }
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            u, v = vectors[a], vectors[b]
            assert found.cosines[i][j] == pytest.approx(u @ v / np.linalg.norm(u) / np.linalg.norm(v), rel=1e-9)
    assert found.cosines[1][2] < 0.9999 and found.comparisons[1].cosine == found.cosines[0][1]


def test_how_far_tokens_and_responses_have_moved(tmp_path):
    # d = .3, -.12 | .02; means of the responses .09 and .02; the third token of the first one has no log-probability
    path = write(tmp_path / "d.parquet", [[-1.0, -1.0, -1.0], [-1.0]], [[-1.3, -0.88, math.nan], [-1.02]], [1.0, -1.0])
    found = whatif(path, ["grpo"]).ccdf

    def shares(tail):
        """At .01, .1 and 1 nats."""
        return [int(tail.above[np.searchsorted(EDGES, 0.999 * x)]) / tail.tokens for x in (0.01, 0.1, 1.0)]

    assert shares(found["tokens"].up) == pytest.approx([2 / 3, 1 / 3, 0])
    assert shares(found["tokens"].down) == pytest.approx([1 / 3, 1 / 3, 0])
    assert shares(found["responses"].up) == [1, 0, 0] and shares(found["responses"].down) == [0, 0, 0]


def test_tokens_that_cannot_be_scored_count_for_neither(tmp_path):
    path = write(tmp_path / "d.parquet", [[-1.0, -1.0]], [[-1.0, math.nan]], [1.0])
    found = by_label(whatif(path, ["naive"]))
    # grpo: one token, weight 1; naive: two tokens, weight 1/2 each
    assert found["naive"].mass[None].shares == pytest.approx({"kept": 0.5, "removed": 0.5, "added": 0.5})
    assert found["naive"].differs == 1.0 and torch.isfinite(torch.tensor(found["naive"].cosine))
