"""What problems say, in a few digits each, so that samples of one data set are not taken for those of another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from lagproof.tasks.task import Problem

Fingerprints = Mapping[str, Mapping[str, str]]
"""By task and id of a problem: digests of its ``prompt`` and its ``gold``."""

_NAMES = {"prompt": "another prompt", "gold": "another right answer"}


def fingerprints(problems: Sequence[Problem]) -> dict[str, dict[str, str]]:
    """The fingerprint of each problem, in their order."""
    return {f"{p.task}/{p.id}": {"prompt": _digest(p.prompt), "gold": _digest(p.gold)} for p in problems}


def changes(before: Fingerprints, now: Fingerprints) -> list[str]:
    """What became of problems that are in ``before``, in words, one text a problem that is gone or another one."""
    out = []
    for key, was in before.items():
        found = now.get(key)
        parts = [] if found is None else [text for name, text in _NAMES.items() if found[name] != was[name]]
        if found is None or parts:
            out.append(f"{key} is gone" if found is None else f"{key} has {' and '.join(parts)}")
    return out


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()[:16]
