"""The built wheel: bare beside torch and numpy it has the core, and with the extras it is the command line."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ("torch", "numpy")
REFUSED = ("transformers", "pydantic", "rich", "typer", "scipy", "math_verify", "altair", "safetensors", "tomli_w")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree, so that nothing is written beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "lagproof", "pyproject.toml", "README.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("lagproof-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A folder with the package as the wheel has it, and nothing else."""
    folder = wheel.parent / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def required(name: str, seen: set[str]) -> set[str]:
    """The distribution and everything that it needs without extras."""
    if name in seen:
        return seen
    try:
        wanted = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return seen  # needed elsewhere only: another system, another Python
    seen.add(name)
    for line in wanted:
        if "extra ==" not in line and (found := re.match(r"[A-Za-z0-9_.-]+", line)):
            required(found[0], seen)
    return seen


@pytest.fixture(scope="module")
def bare(installed: Path) -> Path:
    """A folder to import from: the wheel, torch, numpy, and what those two need."""
    folder = installed.parent / "bare"
    folder.mkdir()
    names = set().union(*(required(name, set()) for name in CORE))
    for name in names:
        for file in importlib.metadata.files(name) or ():
            top = file.parts[0]
            target = Path(str(file.locate()))
            for _ in file.parts[1:]:
                target = target.parent
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(target)
    (folder / "lagproof").symlink_to(installed / "lagproof")
    return folder


def run(code: str, folder: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A Python without site-packages that sees ``folder`` only."""
    start = f"import sys; sys.path.append({str(folder)!r})\n"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", start + code], cwd=cwd, capture_output=True, text=True, timeout=120
    )


def test_the_bare_wheel_needs_torch_and_numpy_only(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("METADATA"))
        needed = [line for line in archive.read(name).decode().split("\n") if line.startswith("Requires-Dist")]
    core = {re.match(r"Requires-Dist: ([a-z0-9-]+)", line)[1] for line in needed if "extra ==" not in line}  # type: ignore[index]
    assert core == set(CORE)


def test_the_core_of_the_bare_wheel(bare: Path, tmp_path: Path):
    code = """
import torch, lagproof as lp
assert lp.__file__.startswith(sys.path[-1]), lp.__file__
logp = -torch.rand(3, 5)
loss, stats = lp.loss("sat-gspo", policy_logp=logp.requires_grad_(), sampler_logp=logp.detach() - 0.1,
                      advantage=torch.tensor([1.0, -1.0, 0.5]), mask=torch.ones(3, 5, dtype=torch.bool))
loss.backward()
assert stats["tokens"] == 15 and abs(stats["d_bar"] - 0.1) < 1e-6, stats
batch = lp.TokenBatch.from_padded(policy_logp=logp.detach(), sampler_logp=logp.detach() - 0.1,
                                  advantage=torch.ones(3), mask=torch.ones(3, 5, dtype=torch.bool))
assert lp.mismatch(batch)["tokens"] == 15
assert len(list(lp.OBJECTIVES)) >= 13
for name in REFUSED:
    assert name not in sys.modules, name
    try:
        __import__(name)
    except ImportError:
        continue
    raise AssertionError(f"{name} can be imported: this is no bare environment")
print("done")
"""
    done = run(f"REFUSED = {REFUSED!r}\n" + code, bare, tmp_path)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


def test_a_missing_package_is_named_with_the_extra_that_has_it(bare: Path, installed: Path, tmp_path: Path):
    (info,) = (p for p in installed.iterdir() if p.name.endswith(".dist-info"))
    link = bare / info.name
    if not link.exists():
        link.symlink_to(info)
    done = run("import lagproof as lp\ntry: lp.train\nexcept ImportError as e: print(e)", bare, tmp_path)
    assert "pip install 'lagproof[" in done.stdout, done.stdout + done.stderr
    done = run("import lagproof.__main__ as m; m.main()", bare, tmp_path)
    assert done.returncode == 2 and "typer is not installed: pip install 'lagproof[" in done.stderr, done.stderr


def test_doctor_and_whatif_need_only_pyarrow_besides(bare: Path, tmp_path: Path):
    import pyarrow

    code = f"""
import importlib.util, json
spec = importlib.util.spec_from_file_location("pyarrow", {pyarrow.__file__!r},
    submodule_search_locations=[{str(Path(pyarrow.__file__).parent)!r}])
module = importlib.util.module_from_spec(spec); sys.modules["pyarrow"] = module; spec.loader.exec_module(module)
token = dict(policy_logp=[-0.5, -1.0], sampler_logp=[-0.6, -0.9])
rows = [dict(step=1 + i // 4, advantage=(-1.0) ** i, **token) for i in range(8)]
with open("dump.jsonl", "w") as file:
    file.writelines(json.dumps(row) + "\\n" for row in rows)
import lagproof as lp
found = lp.doctor("dump.jsonl")
assert abs(found.numbers["d_bar"] - 0.1) < 1e-6, found.numbers
effects = lp.whatif("dump.jsonl")
assert effects.tokens == 16
assert not set(REFUSED) & sys.modules.keys(), set(REFUSED) & sys.modules.keys()
print("done")
"""
    done = run(f"REFUSED = {REFUSED!r}\n" + code, bare, tmp_path)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


def lagproof(folder: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line of the wheel, with this environment's other packages."""
    code = (
        "import sys, lagproof.__main__ as m; sys.argv[0] = 'lagproof'; print(m.__file__, file=sys.stderr, flush=True)\n"
        "m.main()"
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )


def test_the_command_line_of_the_wheel_outside_the_repository(installed: Path, tmp_path: Path):
    helped = lagproof(installed, tmp_path, "--help")
    assert helped.returncode == 0 and "doctor" in helped.stdout
    assert helped.stderr.startswith(str(installed)), helped.stderr

    (tmp_path / "answers.jsonl").write_text('{"answer": "so \\\\boxed{1/2}", "gold": "0.5"}\n')
    graded = lagproof(installed, tmp_path, "grade", "answers.jsonl")
    assert graded.returncode == 0, graded.stderr
    assert json.loads(graded.stdout)["reward"] == 1.0

    row = {"step": 1, "policy_logp": [-0.5, -1.0], "sampler_logp": [-0.6, -0.9], "advantage": 1.0}
    (tmp_path / "dump.jsonl").write_text(json.dumps(row) + "\n")
    judged = lagproof(installed, tmp_path, "doctor", "dump.jsonl", "--scale", "tiny", "--json")
    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout)["status"] == "healthy"


def test_everything_that_is_read_at_run_time_is_in_the_wheel(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    data = [p for p in (ROOT / "lagproof").rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")]
    assert len(data) > 5
    assert [str(p.relative_to(ROOT)) for p in data if str(p.relative_to(ROOT)) not in packed] == []
