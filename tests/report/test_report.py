"""Pages: they hold what was run, need nothing from outside, and do not break on what runs leave behind."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
import vl_convert

from lagproof.config import Config
from lagproof.data.table import Column, Style, Table, TableCell, TableRow
from lagproof.errors import RunDirError
from lagproof.experiments.claims import ClaimVerdict
from lagproof.experiments.comparison import cell_dir, open_or_create, read_comparison
from lagproof.experiments.grid import from_tree
from lagproof.report import write, write_comparison
from lagproof.report.colours import DARK, LIGHT
from lagproof.report.comparison_page import STYLES
from lagproof.report.page import Alarms, Claims, Figure, JudgedClaim, Notes, Numbers, Page, Panel, _environment, render

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from made_runs import make_run

TREE: dict[str, Any] = {
    "title": "Which <objectives> survive?",
    "objectives": ["naive", "sat-grpo", {"name": "spo", "label": "spo-0.2"}],
    "lags": [1, 8],
    "seeds": [0, 1],
    "baseline": "spo-0.2",
    "steps": 40,
}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("comparison") / "out"
    grid = from_tree(TREE, "x")
    open_or_create(out, grid)
    for cell in grid.cells():
        alarms = [(20 + cell.seed, "red", "mismatch left its band"), (30, "yellow", "x")] if cell.lag == 8 else []
        alarms = alarms if cell.entry.name == "naive" else []
        make_run(cell_dir(out, cell), cell.entry.name, lag=cell.lag, seed=cell.seed, alarms=alarms)
    return out


@pytest.fixture(scope="module")
def page(comparison: Path) -> str:
    return write([comparison]).read_text(encoding="utf-8")


def visible(page: str) -> str:
    """The page without its scripts and styles."""
    return re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)


def specs(page: str) -> dict[str, dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])["specs"]


def test_it_says_what_was_run_and_what_came_out(page: str) -> None:
    text = visible(page)
    assert "<h1>Which &lt;objectives&gt; survive?</h1>" in text
    assert "3 objectives × lags 1, 8, seeds 0, 1. tiny-dense on arithmetic, 40 steps of 16 prompts per step × 8" in text
    assert "<li>Lag 1: nothing collapsed.</li>" in text
    fell = (
        r"<li>Lag 8: collapsed: naive \(2 of 2 seeds, from step \d+( \(\d+-\d+\))?\)\. Held: sat-grpo, spo-0\.2\.</li>"
    )
    assert re.search(fell, text)
    assert "<li>Exploratory at lag 1, 8: fewer than 5 seeds of an objective there.</li>" in text
    assert 'class="verdict bad"' in text
    assert text.count('<tr class="bad">') == 1
    for title in ("Results", "By lag", "Differences, seed by seed", "Accuracy over steps", "Mismatch over steps"):
        assert f"<h2>{title}</h2>" in text
    for title in ("Complementary CDF of |log-ratio|", "Realised age", "How it was made"):
        assert f"<h2>{title}</h2>" in text
    assert "lagproof compare" in text and "lr = 0.0001" in text


def test_there_is_a_panel_for_each_lag(page: str) -> None:
    text = visible(page)
    assert text.count("<h3>Lag 1</h3>") == text.count("<h3>Lag 8</h3>") == 4
    assert text.count('class="chart"') == len(specs(page)) == 2 + 4 * 2


def test_first_alarms_are_listed_and_drawn(page: str) -> None:
    said = "naive, lag 8: first alarm at step 20 (seed 0), 21 (seed 1): mismatch left its band"
    assert f'<li class="red">{said}</li>' in page
    for spec in specs(page).values():
        drawn = "seed 1: mismatch left its band" in json.dumps(spec)
        assert drawn == (spec["description"] in ("Accuracy over steps. Lag 8", "Mismatch over steps. Lag 8"))


def test_the_table_has_the_first_alarms(page: str) -> None:
    text = visible(page)
    assert text.count("<h2>First alarm, step</h2>") == 1
    assert text.count("<td>21 (20-21), 2 of 2</td>") == 2  # any, red; the higher of two in the middle


def test_claims_stand_above_the_results(comparison: Path, tmp_path: Path) -> None:
    found = read_comparison(comparison)
    claim = {"text": "naive <fails>", "kind": "collapses", "entries": ["naive"], "lags": [1, 8]}
    bound = {
        "text": "no mismatch",
        "kind": "within",
        "metric": "d_bar",
        "limit": 0.0,
        "entries": ["naive"],
        "lags": [8],
    }
    grid = from_tree({**found.grid.tree(), "claims": [claim, bound]}, "x")
    text = visible(write_comparison(replace(found, grid=grid), tmp_path / "p.html").read_text(encoding="utf-8"))
    few = "exploratory, no verdict: fewer than 5 seeds"
    assert f'naive &lt;fails&gt; <span class="judged muted">{few}</span>' in text
    assert f"<li>naive at lag 1: 0 of 2 seeds collapsed [0%, 84%]: {few}</li>" in text  # 1 - .025^(1/2)
    assert f"<li>naive at lag 8: 2 of 2 seeds collapsed [16%, 100%]: {few}</li>" in text
    assert 'no mismatch <span class="judged bad">does not hold</span>' in text  # one counterexample is enough
    assert text.index("<h2>Claims</h2>") < text.index("<h2>Results</h2>")


def test_it_needs_nothing_from_outside(page: str) -> None:
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert not re.search(r"@import|url\(", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    assert "<link" not in page and page.count("<script") == 4
    assert len(page.encode()) < 1_400_000


def test_every_chart_is_one_that_vega_accepts(page: str) -> None:
    for spec in specs(page).values():
        text = json.dumps(spec)
        for name in set(re.findall(r'"@(\w+)"', text)):
            assert name in LIGHT and name in DARK
        compiled = vl_convert.vegalite_to_vega(re.sub(r'"@\w+"', '"#123456"', text))
        assert any(signal["name"] == "focus" for signal in compiled["signals"])
        assert spec["width"] == "container" and spec["description"]


def test_accuracy_is_drawn_from_0_to_1(page: str) -> None:
    for spec in specs(page).values():
        if spec["description"].startswith("Accuracy over steps"):
            scales = [layer["encoding"]["y"]["scale"] for layer in spec["layer"] if "y" in layer["encoding"]]
            assert scales and all(scale["domain"] == [0, 1] for scale in scales)


def test_curves_hold_the_numbers_of_the_runs(page: str, comparison: Path) -> None:
    run = next(r for r in read_comparison(comparison).runs if (r.label, r.lag, r.seed) == ("naive", 8, 1))
    spec = next(s for s in specs(page).values() if s["description"] == "Accuracy over steps. Lag 8")
    thin = next(rows for rows in spec["datasets"].values() if any("r" in row for row in rows))
    drawn = {row["s"]: row["v"] for row in thin if row["r"] == 1 and row["o"] == "o1"}
    expected = dict(zip(*run.series("eval/accuracy"), strict=True))
    assert drawn == pytest.approx(expected, abs=1e-4) and len(drawn) == 5


def test_the_same_runs_make_the_same_page(page: str, comparison: Path, tmp_path: Path) -> None:
    assert write([comparison], tmp_path / "deep" / "again.html").read_text(encoding="utf-8") == page


def test_one_run(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", "sat-grpo", lag=8, alarms=[(30, "red", "d_bar < band & more")])
    text = write([path]).read_text(encoding="utf-8")
    assert (path / "report.html").is_file()
    seen = visible(text)
    assert "<h1>sat-grpo at lag 8</h1>" in seen and "Finished: 40 steps." in seen
    assert '<li class="red">Step 30: d_bar &lt; band &amp; more</li>' in seen
    for heading in (
        "Accuracy (evaluation)",
        "mean |log-ratio| (d_bar), nats",
        "Share of tokens clipped",
        "Realised age",
    ):
        assert heading in seen
    found = specs(text)
    drawn = [s for s in found.values() if "d_bar < band & more" in json.dumps(s)]
    assert len(drawn) >= 8  # over every curve
    for spec in found.values():
        vl_convert.vegalite_to_vega(re.sub(r'"@\w+"', '"#123456"', json.dumps(spec)))


HEADINGS = {
    "mean |log-ratio| (d_bar) by the age of the tokens": lambda step: {
        "age/1/d_bar": 0.1,
        "age/2/d_bar": 0.2,
        "age/1/tokens": 3,
    },
    "What adds to mean |log-ratio|, nats": lambda step: (
        {} if step % 5 else {"probe/policy": 0.1, "probe/engine": -0.01}
    ),
    "Gradient mass by sign and age": lambda step: {"mass_positive": 1.0, "age/1/mass_positive": 1.0},
    "Share of the time of a step": lambda step: {"time/step_s": 1.0},
}


@pytest.mark.parametrize("heading", HEADINGS)
def test_what_a_run_has_recorded_is_drawn_and_nothing_else(tmp_path: Path, heading: str) -> None:
    path = make_run(tmp_path / "r", alarms=[(30, "red", "fired")])
    metrics = path / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    rows = [row | HEADINGS[heading](row["step"]) if row["step"] else row for row in rows]
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = write([path]).read_text(encoding="utf-8")
    assert [found for found in HEADINGS if f">{found}</h" in visible(text)] == [heading]
    for spec in specs(text).values():
        described = json.dumps(spec)
        for name in set(re.findall(r'"@(\w+)"', described)):
            assert name in LIGHT and name in DARK
        vl_convert.vegalite_to_vega(re.sub(r'"@\w+"', '"#123456"', described))


@pytest.mark.parametrize("waits", [{}, {"time/learner_wait_s": 0.5, "time/rollout_wait_s": 0.0}])
def test_a_run_in_one_process_says_that_nobody_waits(tmp_path: Path, waits: dict[str, float]) -> None:
    path = make_run(tmp_path / "r")
    metrics = path / "metrics.jsonl"
    rows = [json.loads(line) | {"time/step_s": 1.0} | waits for line in metrics.read_text().splitlines()]
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = visible(write([path]).read_text(encoding="utf-8"))
    time = text[text.index("<h2>Time</h2>") :]
    assert ("samples and learns in turn, so neither side waits" in time) is not bool(waits)
    assert ("the learner waits</span>" in time) is bool(waits)


def test_idle_batches_before_the_first_step_leave_the_page_as_it_is(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r")
    before = write([path], tmp_path / "before.html").read_text(encoding="utf-8")
    metrics = path / "metrics.jsonl"
    first, *rest = metrics.read_text().splitlines()
    idle = {"reward": 0.0, "outcome": "zero_variance", "time/step_s": 9.0}
    tied = [json.dumps({"step": step, **idle}) for step in (0, 0, 40)]
    metrics.write_text("\n".join([first, *tied[:2], *rest, tied[2]]) + "\n")
    after = write([path], tmp_path / "after.html").read_text(encoding="utf-8")
    said = "<li>3 batches made no step: every group had zero variance, or gradients were not finite.</li>"
    assert said in after and after.replace(said, "") == before


def test_a_run_that_still_runs_is_not_judged(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", "naive", lag=8, stop_at=30)
    text = visible(write([path]).read_text(encoding="utf-8"))
    assert "Not finished: step 30 of 40." in text
    assert 'class="verdict bad"' not in text and "ollapsed" not in text


def test_a_run_that_ended_early_says_why(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", stop_at=30)
    result = {"reason": "no_signal", "success": False, "detail": "no group had a signal", "steps": 30}
    (path / "result.json").write_text(json.dumps(result))
    text = visible(write([path]).read_text(encoding="utf-8"))
    assert "Ended after step 30 of 40: no group had a signal." in text and 'class="verdict bad"' in text


def test_a_run_without_evaluations_and_rollouts(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", evaluate=False, rollouts=False)
    text = visible(write([path]).read_text(encoding="utf-8"))
    assert "This run has no evaluation" in text and "No rollouts with log-probabilities" in text
    assert "Reward (trained responses)" in text


def test_a_run_that_has_written_nothing_yet(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r")
    for name in ("metrics.jsonl", "result.json"):
        (path / name).unlink()
    assert "Not finished: step 0 of 40." in visible(write([path]).read_text(encoding="utf-8"))


def test_a_line_that_is_truncated_is_said(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r")
    metrics = path / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-7])
    text = visible(write([path]).read_text(encoding="utf-8"))
    assert (
        "What could not be read:" in text and "metrics.jsonl: the last line (41) is truncated and was left out" in text
    )


def test_an_unfinished_comparison(tmp_path: Path) -> None:
    grid = from_tree(TREE, "x")
    open_or_create(tmp_path / "out", grid)
    empty = visible(write([tmp_path / "out"]).read_text(encoding="utf-8"))
    assert "No run with an evaluation has ended yet." in empty and "No run has recorded d_bar." in empty
    first, second = grid.cells()[:2]
    make_run(cell_dir(tmp_path / "out", first), first.entry.name)
    make_run(cell_dir(tmp_path / "out", second), second.entry.name, stop_at=20)
    text = visible(write_comparison(read_comparison(tmp_path / "out")).read_text(encoding="utf-8"))
    assert "11 of 12 runs have no result yet." in text and "<h3>Lag 1</h3>" in text


def test_runs_from_anywhere_side_by_side(tmp_path: Path, comparison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = make_run(tmp_path / "a", "grpo"), make_run(tmp_path / "b", "grpo")
    out = write([one, two, comparison])
    assert out == Path("report.html") and out.is_file()
    text = visible(out.read_text(encoding="utf-8"))
    assert "14 runs" in text and "grpo (a)" in text and "grpo (b)" in text and "spo-0.2" in text


def test_runs_of_different_tasks_are_not_said_to_have_the_same_prompts(tmp_path: Path) -> None:
    one, two = make_run(tmp_path / "a", "grpo"), make_run(tmp_path / "b", "grpo")
    assert "Evaluation on the same prompts" in visible(write([one, two], tmp_path / "x.html").read_text("utf-8"))
    config = Config.load(two / "config.toml", ["task.name=words"])
    config.save_toml(two / "config.toml")
    text = visible(write([one, two], tmp_path / "y.html").read_text("utf-8"))
    assert "Evaluation on the same prompts" not in text
    assert "heights do not compare" in text and "accuracies do not compare" in text


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="is not a run directory"):
        write([tmp_path])
    with pytest.raises(RunDirError, match="nothing to report on"):
        write([])


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirError, match="cannot be written"):
        write([make_run(tmp_path / "r")], tmp_path / "file" / "page.html")


def test_no_text_can_leave_its_place() -> None:
    evil = "</script><script>alert('1')</script>{{page}}\"&"
    table = Table(
        evil, [Column(evil, help=evil, group=evil), Column("n")], [[TableRow([evil, TableCell(evil)])]], evil, [evil]
    )
    page = Page(
        title=evil,
        lead=evil,
        verdict=[(evil, evil)],
        bad=False,
        sections=[
            Alarms([("red", evil)]),
            Figure(evil, evil, {evil: 0, "b": 1}, [Panel(evil, {"mark": "line", "title": evil}, {evil: 0, "c": 1})]),
            Numbers(table, {evil: 3}),
            Claims([JudgedClaim(evil, evil, Style.BAD, [evil])]),
            Notes(evil, [evil]),
        ],
        files=[(evil, evil)],
        command=evil,
        problems=[evil],
    )
    text = render(page)
    assert "<script>alert" not in text and text.count("<script") == 4
    assert visible(text).count("{{page}}") == 28  # once for each place it was put
    assert visible(text).count("alert(&#39;1&#39;)") == 28 and '"&"' not in visible(text)
    assert specs(text)["chart0"]["title"] == evil


def test_names_of_runs_are_text(tmp_path: Path) -> None:
    path = make_run(tmp_path / "<i>'\"x")
    text = write([path], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<i>" not in visible(text) and "&lt;i&gt;&#39;&#34;x, seed 0." in visible(text)


def test_a_template_that_names_what_is_not_there_fails() -> None:
    with pytest.raises(jinja2.UndefinedError):
        _environment().from_string("{{ page.nothing }}").render(page={})


def test_what_is_no_code_is_in_the_package() -> None:
    root = Path(__file__).parents[2]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["lagproof"]
    files = [p.relative_to(root / "lagproof") for p in (root / "lagproof" / "report").rglob("*") if p.is_file()]
    others = [p for p in files if p.suffix not in (".py", ".pyc")]
    assert len(others) >= 3 and all(any(p.match(pattern) for pattern in patterns) for p in others)


def test_every_verdict_of_a_claim_has_a_style() -> None:
    assert set(STYLES) == set(ClaimVerdict)


def test_an_evaluation_has_no_page_and_says_where_its_numbers_are(tmp_path):
    (tmp_path / "result.json").write_text('{"results": {}}')
    with pytest.raises(RunDirError, match=r"is an evaluation, which has no page; .*result\.json"):
        write([tmp_path])
