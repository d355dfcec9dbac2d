"""Documents say what the code does: generated pages are fresh, and the code in them runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import lagproof as lp

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_page_of_objectives_is_fresh():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "objectives.md").read_text() == module.page(), "run: python docs/generate.py"


def test_the_readme_has_every_objective_with_its_name():
    for entry in lp.OBJECTIVES.values():
        assert f"`{entry.name}`" in README


def test_every_link_of_the_documents_leads_somewhere():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_python_of_the_readme_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})


def test_the_readme_shows_code():
    assert len(BLOCKS) >= 2
