from __future__ import annotations

import pytest
import torch

from lagproof.errors import UsageError
from lagproof.models.tiny import tiny_model
from lagproof.runtime.publication import MemoryChannel


def weights(value: float) -> dict[str, torch.Tensor]:
    return {"a": torch.full((2, 2), value), "b": torch.full((3,), -value)}


def test_nothing_before_the_first_publication() -> None:
    channel = MemoryChannel()
    assert channel.version is None
    with pytest.raises(UsageError, match="nothing was published"):
        channel.fetch()


def test_the_newest_version_is_fetched_as_often_as_one_likes() -> None:
    channel = MemoryChannel()
    channel.publish(0, weights(0.0))
    channel.publish(3, weights(3.0))
    for _ in range(2):
        version, got = channel.fetch()
        assert (version, channel.version) == (3, 3)
        assert got.keys() == weights(3.0).keys()
        assert all(torch.equal(got[name], expected) for name, expected in weights(3.0).items())


@pytest.mark.parametrize("version", [2, 3])
def test_versions_only_grow(version: int) -> None:
    channel = MemoryChannel()
    channel.publish(3, weights(3.0))
    with pytest.raises(UsageError, match=f"version {version} was published after version 3"):
        channel.publish(version, weights(9.0))
    assert float(channel.fetch()[1]["a"][0, 0]) == 3.0


def test_later_steps_do_not_reach_what_was_published_nor_what_was_fetched() -> None:
    model = tiny_model("tiny-dense")
    channel = MemoryChannel()
    channel.publish(1, dict(model.named_parameters()))
    _, first = channel.fetch()
    before = {name: w.clone() for name, w in first.items()}
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)
    assert all(torch.equal(first[name], w) and not first[name].requires_grad for name, w in before.items())
    channel.publish(2, dict(model.named_parameters()))
    assert all(torch.equal(first[name], w) for name, w in before.items())
    assert torch.equal(channel.fetch()[1]["lm_head.weight"], model.lm_head.weight.detach())


class Unreadable:
    def detach(self):
        raise OSError("lost in transfer")


def test_a_publication_that_fails_half_way_did_not_happen() -> None:
    channel = MemoryChannel()
    channel.publish(1, weights(1.0))
    with pytest.raises(OSError):
        channel.publish(2, {"a": torch.zeros(2, 2), "b": Unreadable()})  # type: ignore[dict-item]
    version, got = channel.fetch()
    assert version == channel.version == 1
    assert float(got["a"][0, 0]) == 1.0


def test_what_was_fetched_has_no_entries_to_replace() -> None:
    channel = MemoryChannel()
    channel.publish(1, weights(1.0))
    with pytest.raises(TypeError):
        channel.fetch()[1]["a"] = torch.zeros(2, 2)  # type: ignore[index]
