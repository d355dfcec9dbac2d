from __future__ import annotations

import pytest

from lagproof.data.samples import Finish
from lagproof.rollout.engine import Request, Sampling
from lagproof.rollout.scripted import ScriptedEngine


def script(request: Request, number: int) -> list[int]:
    return [*request.prompt_ids, 10 + number, 1, 99]


def test_it_plays_the_script_and_stamps_the_version() -> None:
    engine = ScriptedEngine(script)
    engine.load(5, {})
    (group,) = engine.generate([Request([7, 8], 2, seed=0)], Sampling(12))
    assert [s.response_ids for s in group] == [[7, 8, 10, 1], [7, 8, 11, 1]]  # what follows a stop token is cut
    assert [s.text for s in group] == ["7 8 10", "7 8 11"]
    assert all(s.finish is Finish.STOP and s.version == [5] * 4 and s.sampler_logp == [-0.5] * 4 for s in group)
    assert engine.version == 5 and engine.loaded == [5]


def test_the_limit_cuts_and_greedy_has_no_log_probability() -> None:
    (group,) = ScriptedEngine(script).generate([Request([7, 8], 1, seed=0)], Sampling(2, temperature=0.0))
    assert group[0].response_ids == [7, 8]
    assert group[0].finish is Finish.LENGTH and group[0].sampler_logp is None


def test_a_stop_string_ends_the_script() -> None:
    (group,) = ScriptedEngine(script).generate([Request([7, 8, 9], 1, 0, stop=("8", "9"))], Sampling(12))
    assert (group[0].response_ids, group[0].text, group[0].finish) == ([7, 8], "7 ", Finish.STOP)


def test_it_fails_at_the_request_it_was_told_to() -> None:
    engine = ScriptedEngine(script, fail_at=2, error=OSError("gone"))
    requests = [Request([i], 1, seed=i) for i in range(3)]
    engine.generate(requests[:1], Sampling(4))
    with pytest.raises(OSError, match="gone"):
        engine.generate(requests[1:], Sampling(4))
    assert engine.served == requests[:2]
