"""The configuration: what it accepts, what it says of the rest, and that each default stands once."""

from __future__ import annotations

import dataclasses
import pickle
import re
from typing import get_args

import pytest

import lagproof as lp
from lagproof import names
from lagproof.config import AlarmConfig, Config, LearnerConfig, ScheduleConfig, keys
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.grading.pool import Limits
from lagproof.learner.anchor import ANCHORS
from lagproof.learner.optimization import Optimization
from lagproof.monitor.thresholds import Thresholds
from lagproof.objectives.reduction import reduction
from lagproof.rollout.precision import compute_dtype
from lagproof.settings.keys import check, key, read
from lagproof.settings.models import Named
from lagproof.tasks.math import PromptOptions
from lagproof.tensors.advantage import ADVANTAGES

WRONG = [
    ("steps=0", "steps = 0: must be >= 1"),
    ("steps=true", "steps = True: expected int, got bool"),
    ("seed=-1", "seed = -1: must be >= 0"),
    ("epochs=0", "epochs = 0: must be >= 1"),
    ("runtime=spark", "runtime = 'spark': must be inline | simulated | ray"),
    ("run_dir=' '", "run_dir = ' ': must be a folder that does not exist yet"),
    ("rollout=3", "rollout = 3: is a section, not a value; set rollout.<key> instead"),
    ("rollout.prompts=1.0", "rollout.prompts = 1.0: expected int, got float"),
    ("rollout.samples=1", "rollout.samples = 1: must be >= 2: the advantage of a response is relative to its group, "),
    ("rollout.temperature=0", "rollout.temperature = 0: must be > 0: greedy samples have no log-probability"),
    ("rollout.top_p=0", "rollout.top_p = 0: must be in (0, 1]"),
    ("rollout.top_k=-1", "rollout.top_k = -1: must be >= 0; 0 keeps every token"),
    ("rollout.stop=x", "rollout.stop = 'x': expected a list, got str"),
    ("rollout.stop=[1]", "rollout.stop = 1: expected str, got int"),
    ("rollout.stop=['']", "rollout.stop = ('',): must be strings that are not empty; for none use []"),
    ("rollout.precision=int4", "rollout.precision = 'int4': must be float32 | bfloat16 | int8 | int6"),
    ("learner.lr=fast", "learner.lr = 'fast': expected float, got str"),
    ("learner.lr=nan", "learner.lr = nan: must be > 0"),
    ("learner.grad_clip=0", "learner.grad_clip = 0: must be > 0; for no limit use inf"),
    ("learner.betas=[0.9]", "learner.betas = [0.9]: expected a list of 2 numbers"),
    ("learner.betas=[0.9, 1.0]", "learner.betas = (0.9, 1.0): must be in [0, 1)"),
    ("learner.betas=[0.9, 0.9, 0.9]", "learner.betas = [0.9, 0.9, 0.9]: expected a list of 2 numbers"),
    (
        "learner.reduction=mean",
        "learner.reduction = 'mean': must be auto | response_mean | token_mean | response_sum | constant",
    ),
    ("schedule.staleness_threshold=inf", "schedule.staleness_threshold = inf: must be >= 0 and finite"),
    ("alarm.d_bar=0.3", "alarm.d_bar = 0.3: expected a list of 2 numbers"),
    ("save.rollouts=1", "save.rollouts = 1: expected bool, got int"),
    ("task=3", "task = 3: expected a section with a name, for example task.name=..."),
    ("task.name=3", "task = {'name': 3}: expected a section with a name, for example task.name=..."),
]


@pytest.mark.parametrize(("override", "message"), WRONG)
def test_a_wrong_value_is_named_with_what_is_allowed(override, message):
    with pytest.raises(ConfigError) as error:
        Config.load(None, [override])
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("stepz=3", "steps"),
        ("rollout.promts=3", "rollout.prompts"),
        ("alarm.dbar=[1, 2]", "alarm.d_bar"),
        ("learner.lrr=1", "learner.lr"),
    ],
)
def test_an_unknown_key_names_the_nearest_one(override, nearest):
    with pytest.raises(UnknownNameError) as error:
        Config.load(None, [override])
    assert error.value.nearest == nearest
    section = nearest.rpartition(".")[0]
    assert all(name.rpartition(".")[0] == section for name in error.value.allowed)


def test_an_unknown_key_comes_before_a_wrong_value():
    with pytest.raises(UnknownNameError, match="stepz"):
        Config(steps=0, stepz=3)


def test_sections_are_checked_where_they_are_built():
    with pytest.raises(ConfigError, match=r"schedule\.broadcast_every = 0: must be >= 1"):
        ScheduleConfig(0, 1)
    with pytest.raises(ConfigError, match="exclude each other"):
        ScheduleConfig(batches_ahead=1, staleness_threshold=0.5)
    with pytest.raises(ConfigError, match=r"learner\.lr = -1: must be > 0"):
        Optimization(lr=-1)
    with pytest.raises(ConfigError, match=r"alarm\.window = 0: must be >= 1"):
        Thresholds(window=0)


def test_python_writes_it_as_toml_does():
    written = lp.Config(objective="grpo", learner={"lr": 1}, schedule=ScheduleConfig(2, 4))
    loaded = Config.load(
        None, ["objective.name=grpo", "learner.lr=1.0", "schedule={broadcast_every=2, batches_ahead=4}"]
    )
    assert written == loaded and type(written.learner.lr) is float
    assert Config.load(None, ["objective=grpo"]).objective == Named("grpo")
    assert Config.load(None, ["task.terms=3"]).task == Named("arithmetic", {"terms": 3})
    assert pickle.loads(pickle.dumps(written)) == written


def test_it_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().steps = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().learner.lr = 3.0  # type: ignore[misc]


def test_what_is_saved_reads_back_to_the_same_text(tmp_path):
    config = Config.load(None, ["task.terms=3", "rollout.stop=['a']", "learner.grad_clip=inf", "alarm.d_bar=[1, inf]"])
    config.save_toml(tmp_path / "a.toml")
    again = Config.load(tmp_path / "a.toml")
    again.save_toml(tmp_path / "b.toml")
    assert again == config
    assert (tmp_path / "a.toml").read_text() == (tmp_path / "b.toml").read_text()


def test_replacing_keys():
    config = Config(objective={"name": "sat-grpo", "alpha": 0.5}, rollout={"samples": 4, "prompts": 2})
    other = config.replace(seed=3, rollout={"samples": 6}, objective={"low": 0.1})
    assert (other.seed, other.rollout.samples, other.rollout.prompts) == (3, 6, 2)
    assert other.objective == Named("sat-grpo", {"alpha": 0.5, "low": 0.1})
    assert config.replace(objective={"name": "grpo"}).objective == Named("grpo")
    assert config.replace(objective="naive").objective == Named("naive")
    assert config.replace() == config and config.rollout.samples == 4
    with pytest.raises(UnknownNameError, match=r"'rollout\.samples'"):
        config.replace(rollout={"sampels": 6})
    with pytest.raises(UnknownNameError, match="'steps'"):
        config.replace(stepz=6)


def test_every_key_has_a_help_text():
    assert all(text for _, _, text in keys())
    assert len({name for name, _, _ in keys()}) == len(keys()) > 50


class TestEachStandsOnce:
    def test_names_are_those_of_the_tables(self):
        assert set(get_args(names.AdvantageName)) == set(ADVANTAGES)
        assert set(get_args(names.AnchorName)) == set(ANCHORS)
        for name in get_args(names.ReductionName):
            reduction(name, 1)
        for name in get_args(names.Precision):
            compute_dtype(name)

    def test_sections_inherit_from_the_rooms_that_use_them(self):
        config = Config()
        assert isinstance(config.learner, Optimization) and isinstance(config.alarm, Thresholds)
        for own, of_room in ((LearnerConfig, Optimization), (AlarmConfig, Thresholds)):
            for f in dataclasses.fields(of_room):
                assert getattr(own(), f.name) == getattr(of_room(), f.name)
                assert f.name not in own.__annotations__

    def test_limits_of_grading(self):
        assert PromptOptions().limits() == Limits()


@dataclasses.dataclass(frozen=True)
class Plain:
    """Settings of a room without pydantic."""

    share: float = key(0.5, "a share", gt=0, le=1)
    pair: tuple[float, float] = key((1.0, 2.0), "a pair")
    limit: int | None = key(None, "at most", ge=1, hint="; absent: none")

    def __post_init__(self) -> None:
        check(self, "plain")


class TestPlainSettings:
    def test_a_table_is_read(self):
        assert read(Plain, {"pair": [3, 4]}, "plain") == Plain(pair=(3, 4))

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            ({"share": 0}, r"plain\.share = 0: must be in \(0, 1\]"),
            ({"share": float("nan")}, r"plain\.share = nan: must be in"),
            ({"share": "x"}, r"plain\.share = 'x': expected number, got str"),
            ({"pair": [1.0]}, r"plain\.pair = \[1\.0\]: expected a list of 2 numbers"),
            ({"pair": ["a", "b"]}, r"plain\.pair = .*: expected a list of 2 numbers"),
            ({"pair": 3}, r"plain\.pair = 3: expected a list of 2 numbers"),
            ({"shares": 1}, r"did you mean 'plain\.share'"),
        ],
    )
    def test_what_is_wrong_is_named(self, table, message):
        with pytest.raises(ConfigError, match=message):
            read(Plain, table, "plain")

    def test_bounds_of_what_may_be_absent(self):
        assert Plain(limit=1).limit == 1
        with pytest.raises(ConfigError, match=r"plain\.limit = 0: must be >= 1; absent: none"):
            Plain(limit=0)


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfseed = 3\r\n")
    assert Config.load(tmp_path / "a.toml").seed == 3


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("learning_rate=0.1", "here it is learner.lr"),
        ("learner.learning_rate=0.1", "here it is learner.lr"),
        ("num_generations=4", "here it is rollout.samples"),
        ("learner.epsilon=0.1", "objective.low and objective.high"),
        ("learner.beta=0.1", "no objective has a penalty"),
        ("device=cuda", "leave it out"),
        ("rollout.MAX_TOKENS=3", "did you mean 'rollout.max_tokens'"),
    ],
)
def test_a_key_of_another_trainer_names_its_counterpart(override, said):
    with pytest.raises(UnknownNameError, match=said):
        Config.load(None, [override])


def test_counterparts_are_keys_that_there_are():
    from lagproof.config import keys
    from lagproof.settings.models import COUNTERPARTS

    known = {name for name, _, _ in keys()}
    for text in COUNTERPARTS.values():
        named = re.findall(r"here it is ([a-z_.]+)", text)
        assert set(named) - {"an"} <= known


@pytest.mark.parametrize(
    ("name", "said"),
    [("GRPO", "did you mean 'grpo'"), ("sat_grpo", "did you mean 'sat-grpo'"), ("PPO", "its clip is here 'grpo'")],
)
def test_an_objective_by_another_name(name, said):
    import lagproof as lp

    with pytest.raises(UnknownNameError, match=said):
        lp.objective(name)


def test_an_objective_may_be_given_by_its_name_alone():
    assert Config(objective="grpo").objective.name == "grpo"
