"""Each alarm at both sides of its thresholds, the sentence it says, and histories with gaps."""

from __future__ import annotations

import dataclasses
import math

import pytest

from lagproof.config import AlarmConfig, Config
from lagproof.data.rows import Row
from lagproof.errors import ConfigError
from lagproof.monitor.alarm import RULES, Monitor, Severity, alarms

CONFIG = AlarmConfig(window=2, k3=(1e-3, 2.8e-3))
HEALTHY = {
    "d_bar": 0.05,
    "k3": 1e-4,
    "abs_d_q50": 0.01,
    "abs_d_q999": 0.5,
    "loss_mass_ratio": 1.5,
    "entropy": 1.0,
    "response_tokens": 100.0,
    "truncated": 0.01,
    "reward": 0.5,
    "clipped_high": 0.01,
    "clipped_low": 0.02,
    "ess": 0.97,
    "time/learner_wait_s": 0.1,
    "time/rollout_wait_s": 0.1,
    "time/step_s": 1.0,
}


def history(*changes: dict, healthy_steps: int = 3):
    rows = [HEALTHY] * healthy_steps + [HEALTHY | change for change in changes]
    return [Row.parse({"step": i, **row}) for i, row in enumerate(rows, 1)]


def fired(*changes: dict, config: AlarmConfig = CONFIG, healthy_steps: int = 3):
    return [(a.step, a.name, a.severity) for a in alarms(history(*changes, healthy_steps=healthy_steps), config)]


# name of the alarm, a change that is just inside the band, one that is yellow, one that is red
CASES = [
    ("mismatch", {"d_bar": 0.15}, {"d_bar": 0.1501}, {"d_bar": 0.401}),
    ("divergence", {"k3": 1e-3}, {"k3": 1.01e-3}, {"k3": 2.81e-3}),
    ("heavy_tail", {"abs_d_q999": 4.0}, {"abs_d_q999": 4.01}, {"abs_d_q999": 8.01}),
    ("negative_side", {"loss_mass_ratio": 5.0}, {"loss_mass_ratio": 5.01}, {"loss_mass_ratio": 20.1}),
    ("entropy_collapse", {"entropy": 0.5}, {"entropy": 0.499}, {"entropy": 0.199}),
    ("length", {"response_tokens": 150.0}, {"response_tokens": 151.0}, {"response_tokens": 251.0}),
    ("truncated", {"truncated": 0.3}, {"truncated": 0.31}, {"truncated": 0.81}),
    ("reward_collapse", {"reward": 0.375}, {"reward": 0.374}, {"reward": 0.249}),
    ("saturated", {"clipped_high": 0.23}, {"clipped_high": 0.231}, {"clipped_low": 0.75}),
    ("effective_size", {"ess": 0.6}, {"ess": 0.599}, {"ess": 0.199}),
    ("learner_starved", {"time/learner_wait_s": 0.5}, {"time/learner_wait_s": 0.51}, {"time/learner_wait_s": 0.91}),
    ("rollouts_starved", {"time/rollout_wait_s": 0.5}, {"time/rollout_wait_s": 0.51}, {"time/rollout_wait_s": 0.91}),
]
EVEN = dataclasses.replace(CONFIG, growth=(math.inf, math.inf))  # d_bar also grows; that is a rule of its own


@pytest.mark.parametrize(("name", "inside", "yellow", "red"), CASES)
def test_each_alarm_rings_beyond_its_threshold_and_not_at_it(name, inside, yellow, red):
    assert fired(inside, inside, inside, config=EVEN) == []
    assert fired(yellow, yellow, yellow, config=EVEN) == [(5, name, Severity.YELLOW)]
    assert fired(red, red, red, config=EVEN)[-1] == (5, name, Severity.RED)
    assert {found[1] for found in fired(red, red, red, config=EVEN)} == {name}


@pytest.mark.parametrize(
    ("name", "at_red"),
    [("mismatch", {"d_bar": 0.4}), ("truncated", {"truncated": 0.8}), ("effective_size", {"ess": 0.2})],
)
def test_a_red_threshold_itself_is_yellow(name, at_red):
    assert [(found, how) for _, found, how in fired(at_red, at_red, at_red, config=EVEN)] == [(name, Severity.YELLOW)]


def test_growth_is_against_the_runs_own_beginning():
    steady = dataclasses.replace(CONFIG, d_bar=(0.2, 0.4))
    assert fired({"d_bar": 0.149}, {"d_bar": 0.149}, config=steady) == []
    assert fired({"d_bar": 0.16}, {"d_bar": 0.16}, config=steady) == [(5, "mismatch_growth", Severity.YELLOW)]
    names = fired({"d_bar": 0.26}, {"d_bar": 0.26}, config=steady)
    assert (5, "mismatch_growth", Severity.RED) in names
    assert (5, "mismatch", Severity.YELLOW) in names


def test_growth_below_the_floor_means_nothing():
    tiny = [Row.parse({"step": i, "d_bar": d}) for i, d in enumerate([1e-4, 1e-4, 0.019, 0.019], 1)]
    assert alarms(tiny, CONFIG) == []
    tiny[-1] = Row.parse({"step": 4, "d_bar": 0.022})  # the mean of the last two is .0205
    assert [a.name for a in alarms(tiny, CONFIG)] == ["mismatch_growth"]


def test_a_large_quantile_without_a_tail_is_no_heavy_tail():
    wide = {"abs_d_q999": 9.0, "abs_d_q50": 0.5}  # 18 times the median
    assert fired(wide, wide, config=EVEN) == []
    flat = {"abs_d_q999": 9.0, "abs_d_q50": 0.0}
    assert [name for _, name, _ in fired(flat, flat, config=EVEN)] == ["heavy_tail", "heavy_tail"]


def test_one_batch_never_rings_and_a_full_window_does():
    spike = {"ess": 0.3}  # with .97 before it the mean is .635
    assert fired(spike) == [] and fired(spike, {}) == []
    assert fired(spike, spike) == [(5, "effective_size", Severity.YELLOW)]
    assert fired(spike, config=dataclasses.replace(CONFIG, window=1)) == [(4, "effective_size", Severity.YELLOW)]


def test_nothing_is_judged_before_there_is_a_window():
    rows = [Row.parse({"step": i, "ess": 0.1}) for i in range(1, 10)]
    assert [a.step for a in alarms(rows, AlarmConfig(window=8))] == [8]


def test_an_alarm_rings_once_and_once_more_when_it_turns_red():
    y, r = {"truncated": 0.5}, {"truncated": 0.9}
    # the first mean above .8 is that of steps 11 and 12; that of 10 and 11 is .7
    assert fired(y, y, y, {}, {}, y, y, r, r, r, {}, {}, r, r) == [
        (5, "truncated", Severity.YELLOW),
        (12, "truncated", Severity.RED),
    ]


def test_the_sentence_has_the_numbers():
    (alarm,) = alarms(history({"reward": 0.3}, {"reward": 0.3}), CONFIG)
    assert alarm.sentence == (
        "the reward fell to 60% of its peak: 0.3 over the last 2 steps, 0.5 at its best (threshold 75%)"
    )
    assert alarm.to_dict() == {
        "step": 5,
        "name": "reward_collapse",
        "severity": "yellow",
        "sentence": alarm.sentence,
    }


def test_a_step_that_was_given_up_rings_at_once():
    rows = history({"outcome": "non_finite"})
    assert [(a.step, a.name, a.severity) for a in alarms(rows, CONFIG)] == [(4, "non_finite", Severity.RED)]
    assert alarms(history({"outcome": "zero_variance"}), CONFIG) == []


def test_windows_are_of_optimiser_steps():
    """Batches that made no step have rows of their own, with rewards and lengths, under the step made last."""
    idle = [
        Row.parse({"step": 1, "reward": 0.0, "truncated": 0.9, "outcome": outcome})
        for outcome in ("zero_variance", "zero_variance", "zero_variance")
    ]
    assert alarms([Row.parse({"step": 1, **HEALTHY}), *idle], CONFIG) == []
    late = [Row.parse({"step": step, **HEALTHY, "truncated": 0.5}) for step in (2, 3)]
    (alarm,) = alarms([Row.parse({"step": 1, **HEALTHY, "truncated": 0.0}), *idle, late[0], *idle, late[1]], CONFIG)
    assert (alarm.step, alarm.name) == (3, "truncated")
    assert (
        alarm.sentence == "50% of the responses are truncated at the length limit over the last 2 steps (threshold 30%)"
    )


@pytest.mark.parametrize("name", [case[0] for case in CASES])
def test_every_sentence_says_which_steps_its_numbers_are_of(name):
    red = next(case[3] for case in CASES if case[0] == name)
    found = [a.sentence for a in alarms(history(red, red, red), EVEN) if a.name == name]
    assert found and all("over the last 2 steps" in sentence for sentence in found)
    single = dataclasses.replace(EVEN, window=1)
    assert all("in this step" in a.sentence for a in alarms(history(red), single) if a.name == name)


def test_rows_without_a_metric_do_not_ring_for_it_and_do_not_count():
    bad = {"ess": 0.3}
    rows = history(bad)
    rows.insert(3, Row.parse({"step": 3, "eval/accuracy": 0.1}))
    rows += [Row.parse({"step": 5, "reward": 0.5}), Row.parse({"step": 6, **HEALTHY, **bad})]
    found = alarms(rows, CONFIG)
    assert [(a.step, a.name) for a in found] == [(6, "effective_size")]
    assert alarms([], CONFIG) == [] and alarms([Row.parse({"step": 0, "eval/accuracy": 0.5})], CONFIG) == []


def test_peaks_of_a_reward_that_is_never_positive_mean_nothing():
    rows = [Row.parse({"step": i, "reward": r}) for i, r in enumerate([-1.0, -1.0, -3.0, -3.0], 1)]
    assert alarms(rows, CONFIG) == []


def test_watching_row_by_row_is_reading_the_history():
    rows = history(*({"d_bar": 0.1 * i, "reward": 0.5 - 0.05 * i} for i in range(8)))
    monitor = Monitor(CONFIG)
    assert [alarm for row in rows for alarm in monitor.observe(row)] == alarms(rows, CONFIG)
    assert len(alarms(rows, CONFIG)) >= 4


def test_infinity_and_zero_never_ring():
    never = dict.fromkeys(("d_bar", "growth", "tail", "negative", "length", "waiting"), (math.inf, math.inf))
    never |= {"truncated": (math.inf, math.inf), "clipped": (math.inf, math.inf)}
    quiet = AlarmConfig(window=1, **never, entropy=(0, 0), reward=(0, 0), ess=(0, 0))
    terrible = dict.fromkeys(HEALTHY, 1000000.0) | {"reward": 1e-9, "entropy": 0.0, "ess": 1e-9, "time/step_s": 1e-9}
    assert alarms(history(terrible), quiet) == []


def test_every_rule_has_a_case():
    assert {case[0] for case in CASES} | {"mismatch_growth", "missing_anchor", "non_finite"} == set(RULES)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("alarm.d_bar=[0.5, 0.1]", r"alarm\.d_bar = \[0\.5, 0\.1\]: must be a yellow threshold > 0"),
        ("alarm.d_bar=[0.0, 0.1]", "inf never fires"),
        ("alarm.d_bar=0.3", "expected a list of 2 numbers"),
        ("alarm.ess=[0.2, 0.6]", r"alarm\.ess = \[0\.2, 0\.6\]: must be shares"),
        ("alarm.reward=[1.5, 0.5]", "must be shares"),
        ("alarm.window=0", r"alarm\.window = 0: must be >= 1"),
        ("alarm.tail_ratio=-1.0", ">= 0"),
        ("alarm.d_bar=[nan, nan]", "must be a yellow threshold"),
        ("alarm.growth_floor=nan", ">= 0"),
        ("alarm.dbar=[0.1, 0.2]", "did you mean 'alarm.d_bar'"),
        ("probe.every=-1", "0 never probes"),
        ("probe.versions=0", ">= 1"),
        ("probe.responses=0", ">= 1"),
    ],
)
def test_thresholds_that_cannot_be(override, message):
    with pytest.raises(ConfigError, match=message):
        Config.load(None, [override])


def test_thresholds_survive_the_file(tmp_path):
    config = Config.load(None, ["alarm.d_bar=[0.1, inf]", "alarm.ess=[1, 0]", "probe.every=5"])
    assert config.alarm.d_bar == (0.1, math.inf) and config.alarm.ess == (1.0, 0.0)
    config.save_toml(tmp_path / "config.toml")
    assert Config.load(tmp_path / "config.toml") == config


def test_tokens_without_an_anchor_fire_by_their_share():
    few, many = {"missing_anchor": 5, "tokens": 95}, {"missing_anchor": 20, "tokens": 80}
    window = dataclasses.replace(CONFIG, window=1)
    assert fired(few, config=window) == [(4, "missing_anchor", Severity.YELLOW)]
    assert fired(many, config=window) == [(4, "missing_anchor", Severity.RED)]
    assert fired({"missing_anchor": 0, "tokens": 95}, config=window) == []
