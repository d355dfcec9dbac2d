"""docs/evidence says what its numbers say, and its numbers are what their runs give."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scipy import stats

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
JUDGED_AGAIN = ("asympo", "sat", "sat-mid")
PAGE = (EVIDENCE / "README.md").read_text(encoding="utf-8")
WORDS = re.sub(r"\s+", " ", re.sub(r"<!-- tables.*?<!-- end -->", "", PAGE, flags=re.DOTALL))


def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence_tables", EVIDENCE / "tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbers(name: str) -> dict[str, Any]:
    return json.loads((EVIDENCE / f"{name}.json").read_text(encoding="utf-8"))


def test_the_tables_are_those_of_the_numbers() -> None:
    assert PAGE.count("<!-- tables:") == PAGE.count("<!-- end -->") == 8
    assert tables().written(PAGE) == PAGE, "run python docs/evidence/tables.py"


@pytest.mark.parametrize("file", sorted(EVIDENCE.glob("*.json")), ids=lambda file: file.stem)
def test_intervals_of_differences_are_those_of_paired_t_tests(file: Path) -> None:
    found = json.loads(file.read_text(encoding="utf-8"))
    values = {(run["label"], str(run["lag"]), run["seed"]): run["values"] for run in found["runs"]}
    for item in found["differences"]:
        for name, estimate in item["estimates"].items():
            lag, seeds = str(item["lag"]), item["seeds"]
            ours, theirs = ([values[who, lag, s][name] for s in seeds] for who in (item["label"], item["baseline"]))
            assert estimate["n"] == len(seeds)
            assert estimate["mean"] == pytest.approx(sum(ours) / len(seeds) - sum(theirs) / len(seeds), abs=1e-9)
            if estimate["interval"] is not None:
                theirs_too = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
                assert estimate["interval"] == pytest.approx([theirs_too.low, theirs_too.high], abs=1e-9)


@pytest.mark.parametrize("name", JUDGED_AGAIN)
def test_verdicts_are_those_of_todays_rules(name: str) -> None:
    module, found = tables(), numbers(name)
    kept = {item["claim"]["text"]: item for item in found["claims"]}
    compared = 0
    for judged in module.judge(module.claims_of(found), [], module.summaries(found)):
        if judged.claim.kind in module.BOUNDS:
            continue
        compared += 1
        item = kept[judged.claim.text]
        assert (item["verdict"], [part["verdict"] for part in item["parts"]]) == (
            judged.verdict,
            [part.verdict for part in judged.parts],
        )
        assert [part["p"] for part in item["parts"]] == [
            None if part.p is None else pytest.approx(part.p) for part in judged.parts
        ]
    assert compared >= 6


def test_claims_that_fail_are_said_as_loudly_as_those_that_hold() -> None:
    claims = [item for name in JUDGED_AGAIN for item in numbers(name)["claims"]]
    failed = {item["claim"]["text"].split(",")[0] for item in claims if item["verdict"] == "does not hold"}
    assert len(failed) >= 3
    for text in failed:
        assert f"**Does not hold.** That {text}" in WORDS
    assert WORDS.count("**Does not hold.**") == len(failed)


def test_nothing_undecided_is_said_to_hold() -> None:
    bullets = re.findall(r"\*\*Holds\.\*\*(.*?)(?= \* |$)", WORDS)
    open_claims = {
        item["claim"]["text"].split(",")[0]
        for name in JUDGED_AGAIN
        for item in numbers(name)["claims"]
        if item["verdict"] != "holds"
    }
    assert bullets and len(open_claims) > 5
    assert not [(text, said) for said in bullets for text in open_claims if text in said]


def test_old_pages_say_what_replaces_them() -> None:
    for name in (*JUDGED_AGAIN, "sat-token"):
        assert "percentile bootstraps" in (EVIDENCE / f"{name}.html").read_text(encoding="utf-8")[:200_000]
        assert "judged_again" in numbers(name)
