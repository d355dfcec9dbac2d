"""Write ``docs/objectives.md`` from the docstrings of the objectives: ``python docs/generate.py``."""

from __future__ import annotations

import inspect
from pathlib import Path

import lagproof as lp
from lagproof.objectives import Option
from lagproof.objectives.masks import MASKS

HEAD = """# Objectives

Generated from the docstrings by `python docs/generate.py`; `lagproof objectives NAME` prints the same text.

An objective turns log-probabilities and advantages into one detached weight per token. For each of them the gradient
of the maximised objective `J` is `sum_t w_t grad log pi(a_t)`, so weights are computed once per optimiser batch and
any cut into micro-batches gives the same gradient. The loss that a training loop sees has the value `-J` and the
gradient `-w`.

`pi` is the policy being trained, `mu` the sampler: the distribution a token was really drawn from, after temperature,
top-k and top-p. `d = log pi(a) - log mu(a)`, `r = exp(d)` with `d` clamped to +-20; where the ratio itself carries the
gradient a token beyond the clamp has weight 0 and is counted (`ratio_overflow`); where it is only a factor (`sg(...)`
in the formula) the clamped ratio is that factor.

`pi_anchor` is the anchor: what the learner itself gave the token at an earlier version, best the one that sampled it.
`d = u + e`: `u = log pi - log pi_anchor` is what updates did, `e = log pi_anchor - log mu` what the engine computes
differently. An objective that reads the anchor cannot score a token without one (`missing_anchor`).

Every objective has the option `masks`, 0/1 factors on its weights, in any order: see the end of the page.

A token whose log-probability is missing (NaN, -inf) on a side that the objective reads, or whose response has no
reward, leaves the loss, every denominator, the quantile and every metric, and is counted (`dropped_tokens`). A token
that a trust region rejects has weight 0 and keeps its place in the denominators.

| reduction | factor on a token of response g | |
|---|---|---|
| `response_mean` | `1 / (R m_g)` | the default of most |
| `token_mean` | `1 / N` | DAPO, GPG, VESPO |
| `response_sum` | `1 / R` | MiniRL, OAPL |
| `constant` | `1 / (R L)`, L = `max_tokens` | Dr. GRPO |

`R` counts the responses with at least one scorable token, `m_g` and `N` scorable tokens; over the whole optimiser
batch.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for entry in lp.OBJECTIVES.values():
        options = ", ".join(_option(option) for option in entry.options.values() if not option.shared) or "none"
        needs = ", ".join(["policy", *(name for name, needed in entry.needs._asdict().items() if needed)])
        parts.append(
            f"## {entry.name}\n\n{entry.summary}\n\n"
            f"Options: {options}. Reads {needs}. Scope: {entry.scope}. "
            f"Reduction: `{entry.reduction}`, advantage: `{entry.advantage}`.\n\n"
            f"```\n{entry.doc.split(chr(10) * 2, 1)[1]}\n```\n"
            + "".join(f"\nNote: {caveat}.\n" for caveat in entry.caveats)
        )
    said = "`masks = ['opsm(delta=0.5)', 'kpop(phi=1e-3)']`; a rejected token keeps its place in every denominator."
    parts.append(f"## Masks\n\n{said}\n")
    parts += [f"### {name}\n\n{_text(cls)}" for name, cls in MASKS.items()]
    return "\n".join(parts)


def _text(cls: type) -> str:
    summary, rest = (inspect.getdoc(cls) or "").split("\n\n", 1)
    return f"{summary}\n\n```\n{rest}\n```\n"


def _option(option: Option) -> str:
    allowed = f" ({option.allowed})" if option.allowed else ""
    return f"`{option.name}` = {'none' if option.default is None else option.default}{allowed}".replace("|", "or")


if __name__ == "__main__":
    (Path(__file__).parent / "objectives.md").write_text(page(), encoding="utf-8")
