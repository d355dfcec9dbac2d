"""docs/compare.md: its code runs, its example is allowed, and it names every kind of claim and every verdict."""

from __future__ import annotations

import doctest
import re
import tomllib
from pathlib import Path

from lagproof.experiments import collapse
from lagproof.experiments.claims import ClaimKind, ClaimVerdict
from lagproof.experiments.grid import from_tree

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_code_runs() -> None:
    parsed = doctest.DocTestParser().get_doctest(TEXT.replace("```", ""), {}, "compare.md", str(PAGE), 0)
    assert len(parsed.examples) >= 5
    runner = doctest.DocTestRunner()
    runner.run(parsed)
    assert runner.failures == 0


def test_the_example_is_a_comparison() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    grid = from_tree(tomllib.loads(block), "page")
    assert len(grid.cells()) == 3 * 3 * 8
    assert grid.base.eval.problems == "by_seed"
    labels = [entry.label for entry in grid.entries]
    assert all({*claim.entries, claim.than} <= {*labels} for claim in grid.claims)


def test_every_kind_and_every_verdict_is_on_it() -> None:
    kinds = TEXT[TEXT.index("| kind |") : TEXT.index('"No worse"')]
    assert {*re.findall(r"`(\w+)`", re.sub(r"(?m)\|[^|\n]*\|[^|\n]*\|$", "", kinds))} == {str(k) for k in ClaimKind}
    verdicts = TEXT[TEXT.index("| verdict |") :]
    for verdict in ClaimVerdict:
        assert f"| {verdict.split(':')[0]} |" in verdicts


def test_the_numbers_of_a_collapse_are_those_of_the_code() -> None:
    assert (collapse.SHARE, collapse.RECOVERED, collapse.FINAL, collapse.WINDOW) == (0.75, 0.9, 0.1, 3)
    for said in ("below .75 of", "at .9 of the best", "the last tenth of its evaluations, at least three"):
        assert said in re.sub(r"\s+", " ", TEXT)


def test_the_readme_leads_here() -> None:
    assert "](docs/compare.md)" in (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
