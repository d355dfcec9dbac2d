"""The page of whatif: its words, its charts and its tables hold what was found, and nothing comes from outside."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vl_convert

from lagproof.data.slices import AgeBand, Sign
from lagproof.dumps.whatif import WhatIf, whatif
from lagproof.dumps.words import verdicts
from lagproof.errors import RunDirError
from lagproof.report import write_whatif
from lagproof.report.charts import LONGEST, bar_domain
from lagproof.report.colours import DARK, LIGHT

STEPS = 3


def dump(path: Path, *, versions: bool = True, spread: float = 0.3) -> Path:
    rng = np.random.default_rng(0)
    n = 60
    policy = [list(-rng.exponential(1.0, rng.integers(2, 8)) - 1e-3) for _ in range(n)]
    sampler = [[min(x + spread * rng.standard_normal(), -1e-4) for x in row] for row in policy]
    reward = rng.integers(0, 2, n).astype(float)
    table: dict[str, Any] = {"policy_logp": policy, "sampler_logp": sampler, "advantage": reward - 0.4}
    table |= {"reward": reward, "group": np.arange(n) // 4, "step": np.arange(n) // (n // STEPS)}
    if versions:
        table |= {"version": rng.integers(0, 4, n), "learner_version": np.full(n, 3)}
    pq.write_table(pa.table(table), path)
    return path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> WhatIf:
    return whatif(dump(tmp_path_factory.mktemp("whatif") / "a <b>.parquet"))


@pytest.fixture(scope="module")
def page(found: WhatIf, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_whatif(found, tmp_path_factory.mktemp("page") / "deep" / "page.html").read_text(encoding="utf-8")


def visible(page: str) -> str:
    return re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)


def specs(page: str) -> dict[str, dict[str, Any]]:
    match = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    return {spec["description"]: spec for spec in json.loads(match[1])["specs"].values()}


def rows(spec: dict[str, Any], having: str) -> list[dict[str, Any]]:
    return [row for data in spec["datasets"].values() for row in data if having in row]


def cells(section: str) -> list[list[str]]:
    """Text of the cells of each row of a table."""
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", section)[1:]]


def section(page: str, title: str) -> str:
    start = page.index(f"<h2>{title}</h2>")
    return page[start : page.index("</section>", start)]


def test_it_begins_with_a_verdict_on_each_objective(page: str, found: WhatIf) -> None:
    text = visible(page)
    assert "<h1>What if: a &lt;b&gt;.parquet</h1>" in text and "<b>" not in text
    top = text[: text.index("<h2>")]
    said = re.findall(r"<li><strong>(.*?)</strong> (.*?)</li>", top)
    assert [label for label, _ in said] == [c.choice.label for c in found.comparisons]
    assert dict(said)["sat-gspo"].startswith("cannot act on this data: q of responses is ")
    assert dict(said)["grpo"].startswith("is the baseline, and rejects ")


def test_it_needs_nothing_from_outside_and_every_chart_can_be_drawn(page: str) -> None:
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page) and "<link" not in page
    assert len(specs(page)) == 6
    for spec in specs(page).values():
        text = json.dumps(spec)
        for name in set(re.findall(r'"@(\w+)"', text)):
            assert name in LIGHT and name in DARK
        vl_convert.vegalite_to_vega(re.sub(r'"@\w+"', '"#123456"', text))


def test_bars_are_the_masses_of_each_sign(page: str, found: WhatIf) -> None:
    for sign, name in (("> 0", Sign.POSITIVE), ("< 0", Sign.NEGATIVE)):
        spec = specs(page)[f"Gradient mass kept, removed and added. Advantage {sign}"]
        drawn = {(row["y"], row["k"]): row for row in rows(spec, "k")}
        for c in found.comparisons[1:]:
            shares = c.mass[name].shares
            for kind, x in shares.items():
                if x > 1e-3 and shares["kept"] < LONGEST:
                    assert drawn[c.choice.label, kind]["v"] == pytest.approx(x)
            removed = drawn.get((c.choice.label, "removed"))
            assert removed is None or (removed["a"], removed["b"]) == (pytest.approx(-shares["removed"], rel=1e-3), 0)
        (axis,) = {json.dumps(x["encoding"]["x"]["scale"]["domain"]) for x in spec["layer"] if "x2" in x["encoding"]}
        assert json.loads(axis)[1] <= LONGEST


def test_a_bar_that_is_truncated_says_how_long_it_is(tmp_path: Path) -> None:
    """Responses of probability near 1: asympo multiplies them by 50, so all bars but its own end at 1."""
    path = tmp_path / "sure.parquet"
    lists = {"policy_logp": [[-0.02] * 3, [-0.02] * 3], "sampler_logp": [[-0.02] * 3, [-0.02] * 3]}
    pq.write_table(pa.table(lists | {"advantage": [1.0, -1.0]}), path)
    text = write_whatif(whatif(path, ["asympo", "naive"]), tmp_path / "p.html").read_text(encoding="utf-8")
    spec = specs(text)["Gradient mass kept, removed and added. Advantage > 0"]
    assert [row["text"] for row in rows(spec, "text")] == ["5000% →"]
    assert {row["b"] for row in rows(spec, "k")} == {1, LONGEST}


def test_the_axis_of_the_bars_spans_the_longest_of_both_signs() -> None:
    def shares(kept: float, removed: float, added: float) -> dict[str, float]:
        return {"kept": kept, "removed": removed, "added": added}

    assert bar_domain([{"a": shares(0.4, 0.6, 0.1)}, {"a": shares(1.0, 0.0, 0.5), "b": {}}]) == (-0.6, 1.5)
    assert bar_domain([{"a": shares(1.0, 0.0, 9.0)}]) == (-0.1, LONGEST)


def test_ages_add_up_to_the_mass_of_each_objective(page: str, found: WhatIf) -> None:
    spec = specs(page)["Gradient mass by age."]
    for c in found.comparisons:
        drawn = {row["band"]: row for row in rows(spec, "band") if row["y"] == c.choice.label}
        for age in range(4):
            assert drawn[str(age)]["v"] == pytest.approx(c.mass[AgeBand(age, age)].other / c.mass[None].other, rel=1e-6)
        assert max(row["b"] for row in drawn.values()) == pytest.approx(1.0)
    table = cells(section(page, "Removed, by age"))
    assert [row[0] for row in table] == [c.choice.label for c in found.comparisons[1:]]
    spo = next(row for row in table if row[0] == "spo")
    mass = next(c for c in found.comparisons if c.choice.label == "spo").mass
    assert spo[1:] == [f"{mass[AgeBand(age, age)].shares['removed']:.1%}" for age in range(4)]


def test_without_versions_nothing_is_said_by_age(tmp_path: Path) -> None:
    text = write_whatif(whatif(dump(tmp_path / "d.parquet", versions=False)), tmp_path / "p.html").read_text()
    assert "by age" not in visible(text) and "Gradient mass kept" in text


def test_limits_and_quantiles_stand_where_they_are(page: str, found: WhatIf) -> None:
    finding = {c.choice.label: c.finding for c in found.comparisons}
    for unit, label, low, high in (("Tokens", "sat-grpo", 0.2, 0.2), ("Responses", "sat-gspo", 3e-4, 4e-4)):
        spec = specs(page)[f"Complementary CDF of |log-ratio|, and where the limits are. {unit}"]
        q = finding[label].numbers
        up, down = math.log1p(high), -math.log1p(-low)
        want = {f"log(1 + high) = {up:.3g}": up, f"-log(1 - low) = {down:.3g}": down}
        want[f"q of {label}: {q['q_median']:.3g}"] = q["q_median"]
        assert {row["label"]: row["m"] for row in rows(spec, "m")} == pytest.approx(want, rel=1e-3)
        colours = {row["label"]: row["o"] for row in rows(spec, "m")}
        assert [colours[name] for name in want] == ["o8", "o9", "o2"]  # dashed as the curve that each concerns
        lines = sorted(want.values())
        (band,) = rows(spec, "low")
        assert (band["low"], band["high"]) == (pytest.approx(q["q_min"]), pytest.approx(q["q_max"]))
        across = next(x["encoding"]["x"]["scale"]["domain"] for x in spec["layer"] if "scale" in x["encoding"]["x"])
        assert across[0] <= lines[0] and lines[-1] <= across[1]


def test_tails_are_shares_of_all_tokens(page: str, found: WhatIf) -> None:
    spec = specs(page)["Complementary CDF of |log-ratio|, and where the limits are. Tokens"]
    drawn = [row for row in rows(spec, "v") if "x" in row]
    ups, downs = ([(r["x"], r["v"]) for r in drawn if r["o"] == key] for key in ("o0", "o1"))
    assert len(ups) > 10 and len(downs) > 10
    for points, tail in ((ups, found.ccdf["tokens"].up), (downs, found.ccdf["tokens"].down)):
        assert points == [(pytest.approx(x, rel=1e-3), pytest.approx(s, rel=1e-3)) for x, s in tail.points()]
    assert ups[0][1] + downs[0][1] == pytest.approx(1.0, abs=0.01)


def test_the_cosines_of_each_two(page: str, found: WhatIf) -> None:
    table = cells(section(page, "Which objectives pull the same way"))
    assert [row[0] for row in table] == [c.choice.label for c in found.comparisons]
    assert [row[1:] for row in table] == [[f"{x:.2f}" for x in row] for row in found.cosines]
    shades = [int(x) for x in re.findall(r"--heat: (\d+)%", section(page, "Which objectives pull the same way"))]
    assert max(shades) == 60 and len(shades) == len(table) ** 2


def test_a_cosine_below_0_has_another_colour(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    lists = {"policy_logp": [[-1.0], [-1.0]], "sampler_logp": [[-1.0], [-1.0]], "advantage": [-1.0, 1.0]}
    pq.write_table(pa.table(lists | {"reward": [1.0, 0.0], "group": [0, 0]}), path)
    text = write_whatif(whatif(path, ["gpg"]), tmp_path / "p.html").read_text()
    assert '<td class="heat minus" style="--heat: 60%">-1.00</td>' in section(
        text, "Which objectives pull the same way"
    )


def test_the_factors_of_asympo(page: str, found: WhatIf) -> None:
    spec = specs(page)["Scale factors of asympo."]
    n = next(c.finding for c in found.comparisons if c.choice.label == "asympo").numbers
    assert f"largest {n['largest']:.3g}" in section(page, "Scale factors of asympo")
    top = max(row["x"] for row in rows(spec, "v") if "x" in row)
    assert n["largest"] / 1.2 < top <= n["largest"] * 1.001  # sixteen edges a decade
    text = specs(page)
    assert sum(description.startswith("Scale factors") for description in text) == 1


def test_notes_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"policy_logp": [[-1.0]], "sampler_logp": [[-1.1]], "advantage": [1.0]}), path)
    text = write_whatif(whatif(path, ["gpg"]), tmp_path / "p.html").read_text()
    assert "gpg brings the advantage gpg, which needs the rewards" in section(text, "Notes")


def test_words_say_which_side_loses_and_when_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    logp = [[-1.0, -2.0], [-1.0, -2.0]]
    pq.write_table(pa.table({"policy_logp": logp, "sampler_logp": logp, "advantage": [1.0, -1.0]}), path)
    said = dict(verdicts(whatif(path, ["naive", "spo"])))
    assert said["naive"] == "gives every token the weight that grpo gives it."
    # a fifth of the negative half is left: cos = (1 + .2) / sqrt(2 * 1.04)
    assert said["spo"] == (
        "gives 50.0% of the tokens another weight than grpo; of the gradient mass it removes 40.0% (80.0% where A < 0) "
        f"and adds nothing; cosine {1.2 / math.sqrt(2 * 1.04):.3f}."
    )


def test_a_page_that_cannot_be_written_is_said(found: WhatIf, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirError, match="cannot be written"):
        write_whatif(found, tmp_path / "file" / "page.html")
