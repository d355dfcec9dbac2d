"""Which objectives ``whatif`` compares, each with the advantage and the reduction that make its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lagproof import objectives as rules
from lagproof.data.tokens import Needs, TokenBatch
from lagproof.dumps.dump import Dump, DumpBatch
from lagproof.objectives import Objective
from lagproof.objectives.reduction import Reduction, reduction
from lagproof.runs.files import read_toml
from lagproof.runs.layout import RunLayout
from lagproof.settings.toml import parse_override
from lagproof.tensors.advantage import ADVANTAGES


@dataclass(frozen=True)
class Choice:
    """An objective with everything that makes its weights.

    Attributes:
        label: what it is called in tables: its name, with the options that were given.
        advantage: ``recorded``, or the name of the one that is computed from the rewards.
        max_tokens: the fixed length of the reduction ``constant``.
    """

    label: str
    objective: Objective
    advantage: str
    reduction: str
    max_tokens: int | None = None

    @property
    def how(self) -> Reduction:
        return reduction(self.reduction, self.max_tokens)

    def tokens(self, batch: DumpBatch) -> TokenBatch:
        """The tokens with the advantage that this objective brings."""
        if self.advantage not in ADVANTAGES:
            return batch.tokens
        assert batch.reward is not None and batch.tokens.group is not None
        advantage = ADVANTAGES[self.advantage](batch.reward, batch.tokens.group)
        return replace(batch.tokens, advantage=advantage.float()[batch.tokens.response])


def parse(text: str) -> Objective:
    """``name`` or ``name:option=value:option=value``; values as in TOML."""
    name, *options = text.split(":")
    return rules.objective(name, **dict(parse_override(option) for option in options))


def baseline_choice(path: Path, name: str | None) -> Choice:
    """The baseline: the run's own objective, for a dump ``grpo``, unless one is named."""
    file = RunLayout(path).config
    if name is None and file.is_file():
        config = read_toml(file)  # every key stands in it, since a run saves what it resolved
        learner, options = config["learner"], dict(config["objective"])
        name = str(options.pop("name"))
        objective = rules.objective(name, **options)
        kept = "recorded" if learner["advantage"] == objective.default_advantage else "recorded, as set"
        return Choice(_label(name, options), objective, kept, learner["reduction"], config["rollout"]["max_tokens"])
    label = name or rules.BASELINE
    objective = parse(label)
    return Choice(label, objective, "recorded", objective.default_reduction)


def _label(name: str, options: Mapping[str, Any]) -> str:
    """As :func:`parse` reads it, with the options that are not the default ones."""
    usual = rules.defaults(name)
    given = (
        f":{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in options.items()
        if value != usual.get(key)
    )
    return name + "".join(given)


def beside(text: str, now: Choice) -> Choice:
    """An objective beside the baseline: its own advantage and reduction, unless the run had set them itself."""
    objective = parse(text)
    own = now.objective
    how = objective.default_reduction if now.reduction == own.default_reduction else now.reduction
    same = objective.default_advantage == own.default_advantage or now.advantage == "recorded, as set"
    return Choice(text, objective, "recorded" if same else objective.default_advantage, how, now.max_tokens)


def weighable(dump: Dump, notes: list[str]) -> list[str]:
    """Names of the objectives that read nothing that the dump lacks; the others are named in a note."""
    has = Needs(
        sampler=all(batch.tokens.sampler_logp is not None for batch in dump.batches),
        anchor=all(batch.tokens.anchor_logp is not None for batch in dump.batches),
        age=all(batch.tokens.age is not None for batch in dump.batches),
    )
    for need, known in has._asdict().items():
        lacking = [name for name, info in rules.OBJECTIVES.items() if getattr(info.needs, need)]
        if not known and lacking:
            notes.append(f"left out, since the dump has no {_NEED_NAMES[need]}: {', '.join(lacking)}")
    return [name for name, info in rules.OBJECTIVES.items() if info.needs | has == has]


_NEED_NAMES = {
    "sampler": "log-probabilities of the sampler",
    "anchor": "anchor (the learner's log-probabilities at the version that sampled)",
    "age": "version of the tokens and the learner",
}


def with_rewards(choice: Choice, dump: Dump, notes: list[str]) -> Choice:
    """The recorded advantages where others cannot be computed."""
    has = all(batch.reward is not None and batch.tokens.group is not None for batch in dump.batches)
    if choice.advantage in ADVANTAGES and not has:
        notes.append(
            f"{choice.label} brings the advantage {choice.advantage}, which needs the rewards of groups: "
            "the recorded one was used"
        )
        return replace(choice, advantage="recorded")
    return choice
