"""Imports point down only; some rooms never see torch; the three rooms around the runtime never see each other."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lagproof"
# from top to bottom; rooms of one line may not import each other
ORDER = [
    {"cli"},
    {"report"},
    {"experiments"},
    {"runtime"},
    {"config"},
    {"dumps", "evaluation"},
    {"learner", "rollout"},
    {"tasks"},
    {"grading"},
    {"models"},
    {"runs"},
    {"monitor"},
    {"metrics"},
    {"functional"},
    {"objectives"},
    {"data"},
    {"tensors"},
    {"settings"},
    {"names"},
    {"errors"},
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
NO_TORCH = [
    "lagproof",
    "lagproof.config",
    "lagproof.errors",
    "lagproof.names",
    "lagproof.settings.keys",
    "lagproof.monitor.thresholds",
    "lagproof.learner.optimization",
    "lagproof.data.samples",
    "lagproof.data.slices",
    "lagproof.data.metrics",
    "lagproof.evaluation.run",
    "lagproof.grading",
    "lagproof.rollout.engine",
    "lagproof.tasks",
]


def room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "lagproof" and len(parts) > 1 else None


def arrows() -> list[tuple[str, str, str]]:
    """(importing room, imported room, where), also of imports inside functions; not those for type checkers only."""
    out = []
    for file in sorted(PACKAGE.rglob("*.py")):
        relative = file.relative_to(PACKAGE)
        source = relative.parts[0].removesuffix(".py")
        if source.startswith("__"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module] if node.module != "lagproof" else [f"lagproof.{a.name}" for a in node.names]
            elif isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            out += [(source, target, f"{relative}:{node.lineno}") for n in names if (target := room(n)) in LEVEL]
    return out


def test_every_room_has_its_place():
    rooms = {p.stem if p.suffix == ".py" else p.name for p in PACKAGE.iterdir() if not p.name.startswith("__")}
    assert rooms <= LEVEL.keys()


def test_imports_point_down_only():
    found = arrows()
    assert len(found) > 100
    wrong = [
        f"{where} imports {target}"
        for source, target, where in found
        if source != target and LEVEL[source] >= LEVEL[target]
    ]
    assert wrong == []


@pytest.mark.parametrize("module", NO_TORCH)
def test_rooms_without_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_only_the_learner_calls_backward():
    callers = set()
    for file in PACKAGE.rglob("*.py"):
        calls = (node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
        if any(isinstance(f, ast.Attribute) and f.attr == "backward" for f in calls):
            callers.add(str(file.relative_to(PACKAGE)))
    assert callers == {"learner/step.py", "learner/warmstart.py"}


FILE_NAMES = re.compile(
    r"(metrics|alarms|problems)\.jsonl|(config|compare)\.toml|(result|table|settings|data|manifest|state)\.json\b"
    r"|notes\.txt|(samples|held)\.parquet|step-\d|step-\*|part-\*|\.tmp\b|^(rollouts|checkpoints|cells|logs)(/.*)?$"
)
"""Files and folders of runs, comparisons and evaluations."""
HELP = {  # words for people, and a folder of the package itself
    "folder for samples, tables and result.json",
    "write every trained token to rollouts/*.parquet",
    "checkpoints",
    "rollouts",
}


def literals(tree: ast.Module) -> list[ast.Constant]:
    """The texts of a module that are no docstrings."""
    bodies = [body for node in ast.walk(tree) if isinstance(body := getattr(node, "body", None), list)]
    docstrings = {id(statement.value) for body in bodies for statement in body if isinstance(statement, ast.Expr)}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node for node in found if id(node) not in docstrings]


def test_only_runs_names_its_files_locks_and_renames():
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        where = file.relative_to(PACKAGE)
        if where.parts[0] == "runs":
            continue
        tree = ast.parse(file.read_text())
        wrong += [
            f"{where}:{node.lineno}: {node.value!r}"
            for node in literals(tree)
            if FILE_NAMES.search(node.value) and node.value not in HELP
        ]
        wrong += [
            f"{where}:{node.lineno}: renames or locks"
            for node in ast.walk(tree)
            if (isinstance(node, ast.Import) and node.names[0].name in ("fcntl", "filelock"))
            or (isinstance(node, ast.ImportFrom) and node.module == "filelock")
            or (isinstance(node, ast.Attribute) and node.attr in ("rename", "renames"))
            or (isinstance(node, ast.Attribute) and ast.unparse(node) == "os.replace")
            or (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "replace"
                and len(node.args) == 1
                and not node.keywords
            )
        ]
    assert wrong == []


def test_one_name_for_one_thing():
    """No two rooms have a class of the same name."""
    where = defaultdict[str, list[str]](list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                where[node.name].append(str(file.relative_to(PACKAGE)))
    assert {name: files for name, files in where.items() if len(files) > 1} == {}
