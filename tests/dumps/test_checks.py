"""Log-probabilities that are none, or say nothing: the verdict says so first, and is never 'healthy' on them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lagproof.cli.diagnosing import run_doctor
from lagproof.dumps.doctor import Status, doctor
from lagproof.dumps.whatif import whatif
from lagproof.errors import ConfigError, InputError, UnknownNameError

SPREAD = 0.008  # d_bar is .0064: healthy at any scale


def logps(n=8, length=40, spread=SPREAD, seed=0):
    """Policy and sampler of ``n`` responses, as verl calls them."""
    rng = np.random.default_rng(seed)
    policy = -rng.exponential(1.0, (n, length)) - 0.05
    return policy, np.minimum(policy + spread * rng.standard_normal((n, length)), -1e-3)


def written(path, policy, sampler, **columns):
    rows = [
        {
            "old_log_probs": list(p),
            "rollout_log_probs": list(s),
            **{name: values[k] for name, values in columns.items()},
        }
        for k, (p, s) in enumerate(zip(policy, sampler, strict=True))
    ]
    path = path / "dump.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_dump_that_the_others_are_made_from_is_healthy(tmp_path):
    verdict = doctor(written(tmp_path, *logps()))
    assert (verdict.status, verdict.exit_code) == (Status.HEALTHY, 0)
    assert verdict.sentence.endswith(
        "The model's size is unknown: yellow as for large models, red as for tiny ones; say --scale large or tiny."
    )


@pytest.mark.parametrize(("shift", "where"), [(1, "later"), (-1, "earlier")])
def test_a_shift_by_one_token_is_recognised(shift, where, tmp_path):
    policy, sampler = logps()
    verdict = doctor(written(tmp_path, np.roll(policy, shift, axis=1), sampler))
    assert (verdict.status, verdict.exit_code) == (Status.UNKNOWN, 3)
    assert verdict.sentence.startswith(f"Unknown: old_log_probs lies one token {where} than rollout_log_probs: mean")
    assert not verdict.alarms and not any("lag" in line for line in verdict.advice)
    assert "d_bar" not in verdict.numbers and not any(line.startswith("mismatch") for line in verdict.evidence)


def test_a_large_mismatch_is_no_shift(tmp_path):
    policy, sampler = logps(spread=1.5)
    verdict = doctor(written(tmp_path, policy, sampler), scale="large")
    assert verdict.exit_code == 1 and "lies one token" not in verdict.sentence


def test_two_columns_that_are_one_say_nothing(tmp_path):
    policy, _ = logps()
    verdict = doctor(written(tmp_path, policy, policy))
    assert verdict.exit_code == 3 and "are one: equal to the last bit on 100% of the tokens" in verdict.sentence
    assert "bypass_mode=False" in verdict.advice[0]


@pytest.mark.parametrize("missing", [None, float("nan"), float("-inf"), -9999.0, -1e30])
def test_half_of_the_log_probabilities_missing_is_yellow(missing, tmp_path):
    policy, sampler = logps()
    rows = [[missing if t % 2 else x for t, x in enumerate(row)] for row in sampler.tolist()]
    verdict = doctor(written(tmp_path, policy, rows))
    assert (verdict.status, verdict.exit_code) == (Status.WATCH, 0)
    assert verdict.sentence.startswith("Worth watching: 160 of 320 tokens lack a finite log-probability")
    assert verdict.numbers["d_bar"] == pytest.approx(SPREAD * 0.8, rel=0.2)


@pytest.mark.parametrize("sentinel", [-9999.0, -1e30])
def test_one_sentinel_is_left_out(sentinel, tmp_path):
    policy, sampler = logps()
    sampler[0, 3] = sentinel
    verdict = doctor(written(tmp_path, policy, sampler))
    assert verdict.status is Status.HEALTHY and verdict.numbers["tokens"] == 319
    assert any("on 1 token: no softmax in float32 gives that" in note for note in verdict.notes)


@pytest.mark.parametrize("side", ["sampler", "policy"])
def test_zeros_that_were_filled_in_are_left_out_and_said(side, tmp_path):
    policy, sampler = logps()
    policy[:, 10:26] -= 3.0
    (sampler if side == "sampler" else policy)[:, 10:26] = 0.0
    verdict = doctor(written(tmp_path, policy, sampler))
    name = "rollout_log_probs" if side == "sampler" else "old_log_probs"
    assert verdict.status is Status.WATCH and f"{name} is exactly 0 on 4" in verdict.sentence
    assert verdict.numbers["d_bar"] < 0.01
    assert verdict.advice == ["tell the sampled tokens from the others: write response_mask beside them"]


def test_nothing_but_filled_in_zeros_is_unknown(tmp_path):
    policy, sampler = logps()
    verdict = doctor(written(tmp_path, policy - 0.2, sampler * 0))
    assert verdict.exit_code == 3 and "exactly 0 on 100% of the tokens" in verdict.sentence


def test_padding_does_not_thin_out_the_mismatch(tmp_path):
    policy, sampler = logps(spread=0.08)
    policy[:, 22:], sampler[:, 22:] = 0.0, 0.0
    verdict = doctor(written(tmp_path, policy, sampler), scale="large")
    assert verdict.exit_code == 1 and verdict.numbers["d_bar"] == pytest.approx(0.064, rel=0.1)
    assert "But: 8 of 8 responses end with log-probabilities of exactly 0 on both sides, 144 tokens" in verdict.sentence


def test_a_mismatch_needs_no_reward(tmp_path):
    verdict = doctor(written(tmp_path, *logps(), reward=[None] * 8, uid=[0] * 8))
    assert verdict.numbers["tokens"] == 320 and "reward" not in verdict.numbers
    assert "reward is null for every response" in verdict.notes
    half = doctor(written(tmp_path, *logps(), reward=[1.0, 0.0, None, None] * 2, uid=[0] * 8))
    assert half.numbers["tokens"] == 320
    assert any("4 of 8 responses have no finite reward" in note for note in half.notes)


def test_groups_of_one_response_are_said(tmp_path):
    path = written(tmp_path, *logps(), reward=[1.0, 0.0] * 4, uid=[f"traj-{k}" for k in range(8)])
    verdict = doctor(path)
    assert any("each group has one response: no advantage can be computed" in note for note in verdict.notes)
    with pytest.raises(InputError, match="has no advantages"):
        whatif(path)


def test_thresholds_of_a_scale(tmp_path):
    policy, sampler = logps(n=50, spread=0.08)  # d_bar .064, k3 .0032: beyond the paper's .03 and 2.8e-3
    path = written(tmp_path, policy, sampler)
    large, tiny, unknown = (doctor(path, scale=scale) for scale in ("large", "tiny", None))
    assert [verdict.exit_code for verdict in (large, tiny, unknown)] == [1, 0, 0]
    assert {alarm.name for alarm in large.alarms} == {"mismatch", "divergence"}
    assert large.sentence.endswith("By the thresholds of large models.")
    assert tiny.status is Status.HEALTHY and tiny.sentence.endswith("By the thresholds of tiny models.")
    assert unknown.status is Status.WATCH and unknown.to_dict()["scale"] == "unknown"
    assert doctor(path, scale="large", overrides={"d_bar": [0.1, 0.2], "k3": [0.1, 0.2]}).status is Status.HEALTHY
    with pytest.raises(UnknownNameError, match="did you mean 'large'"):
        doctor(path, scale="larg")
    with pytest.raises(ConfigError, match=r"configuration key 'alarm\.dbar'"):
        doctor(path, overrides={"dbar": [0.1, 0.2]})


@pytest.mark.parametrize(("top", "scale"), [(151_000, "large"), (17, "tiny")])
def test_the_scale_is_guessed_from_token_ids(top, scale, tmp_path):
    verdict = doctor(written(tmp_path, *logps(), responses=[[top, 3]] * 8))
    assert verdict.sentence.endswith(f"By the thresholds of {scale} models.")


def test_advice_is_in_the_words_of_the_trainer(tmp_path):
    verdict = doctor(written(tmp_path, *logps(spread=1.0)), scale="large")
    assert any("actor_rollout_ref.actor.optim.lr" in line for line in verdict.advice)
    path = tmp_path / "plain.jsonl"
    rows = [{"a": list(p), "b": list(s)} for p, s in zip(*logps(spread=1.0), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = doctor(path, {"policy_logp": "a", "sampler_logp": "b"}, scale="large")
    words = " ".join([*verdict.advice, *plain.advice])
    keys = ("schedule.", "learner.", "rollout.max_tokens", "probe.every", "task.", "objective.")
    assert plain.advice and not any(key in words for key in keys)


def test_the_command_has_thresholds_and_an_exit_code_for_the_unknown(tmp_path, capsys):
    policy, sampler = logps()
    path = written(tmp_path, policy, sampler)
    assert run_doctor(path, overrides=["alarm.d_bar=[1e-4, 1e-3]"]) == 1
    assert run_doctor(path, scale="tiny") == 0
    capsys.readouterr()
    assert run_doctor(path, overrides=["learner.lr=1"]) == 2
    assert "doctor has thresholds only" in capsys.readouterr().err
    assert run_doctor(written(tmp_path, policy, policy), as_json=True) == 3
    assert json.loads(capsys.readouterr().out)["status"] == "unknown"
