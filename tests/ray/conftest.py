"""One Ray for all tests here; `make test-ray` installs it and runs them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

MISSING = importlib.util.find_spec("ray") is None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "ray":
            item.add_marker(pytest.mark.ray)
            if MISSING:
                item.add_marker(pytest.mark.skip(reason="ray is not installed: make test-ray installs it"))


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """A local Ray that runs in this process join, so that not each of them waits for one of its own."""
    from lagproof.runtime.ray.cluster import start_local
    from lagproof.runtime.ray.cluster import stop as stop_local

    start_local(num_cpus=8)
    yield
    stop_local()
