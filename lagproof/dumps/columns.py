"""Which column of somebody's rollout dump means what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lagproof.dumps.trainers import TRAINERS, of_text
from lagproof.errors import InputError, UnknownNameError

ROLES: dict[str, str] = {
    "policy_logp": "log-probability of each token under the policy being trained, before the step, nats",
    "sampler_logp": "log-probability of each token as the engine sampled it, nats",
    "anchor_logp": "log-probability of each token under the learner at the version that sampled it, nats",
    "mask": "1 on the tokens that count, 0 on padding, prompts and tool output",
    "keep": "1 on the responses that count, 0 on those that the loss leaves out",
    "advantage": "of a response, or of each token",
    "reward": "of a response; of each token, then it is added up",
    "group": "the same for all responses to one prompt",
    "version": "policy version that sampled a response, or each token",
    "learner_version": "policy version before the step that trained it",
    "step": "optimiser step that trained it",
    "entropy": "of the distribution each token was sampled from, nats",
    "response": "which response a token belongs to, for dumps with one row a token",
    "finish": "'length' where a response was truncated",
}
"""What a column can mean, in words."""

NEEDED = ("policy_logp", "sampler_logp")

OTHERS: dict[str, tuple[str, ...]] = {
    "anchor_logp": ("anchor_logp",),
    "mask": (
        "mask",
        "response_mask",
        "completion_mask",
        "action_mask",
        "loss_mask",
        "loss_masks",
        "token_mask",
        "token_loss_mask",
    ),
    "keep": ("keep", "sample_loss_mask", "sample_mask", "remove_sample"),
    "advantage": ("advantage", "advantages"),
    "reward": ("reward", "rewards", "score", "scores", "token_level_scores", "token_level_rewards", "rm_scores"),
    "group": ("group", "uid", "uids", "group_index", "group_id", "group_ids", "prompt_id"),
    "version": ("version", "versions", "policy_version", "weight_version", "weight_versions"),
    "learner_version": ("learner_version", "trainer_version"),
    "step": ("step", "global_step", "global_steps", "training_step", "rollout_id"),
    "entropy": ("entropy", "entropys", "entropies"),
    "response": ("response", "response_id", "sample_id"),
    "finish": ("finish", "finish_reason", "stop_reason", "status", "truncated", "is_truncated"),
}
"""What the other columns are called, the most specific name first."""

INVERTED = ("remove_sample",)
"""Names of columns that say the opposite of their role."""


class MissingColumnError(InputError):
    """There is no column for one of the two log-probabilities."""


def resolve(columns: Sequence[str], mapping: Mapping[str, str] | None = None) -> dict[str, str]:
    """The column of each role that is there; ``mapping`` (ours to theirs) goes before what is recognised.

    A role that is mapped to the empty text is not looked for.

    Raises:
        UnknownNameError: a role that does not exist.
        InputError: a mapped column that is not there, or one of the two log-probabilities is switched off.
        MissingColumnError: no column for the two log-probabilities.
    """
    mapping = mapping or {}
    for role, column in mapping.items():
        if role not in ROLES:
            raise UnknownNameError("role in --map", role, ROLES)
        if not column and role in NEEDED:
            raise InputError(f"--map {role}=: {role} is needed; name its column, there are {_listed(columns)}")
        if column and column not in columns:
            raise InputError(f"--map {role}={column}: there is no such column; there are {_listed(columns)}")
    found = {role: column for role, column in mapping.items() if column}
    trainer = next((t for t in TRAINERS if t.policy in columns and t.sampler in columns), None)
    if trainer is not None:
        found = dict(zip(NEEDED, (trainer.policy, trainer.sampler), strict=True)) | found
    if any(role not in found for role in NEEDED):
        raise MissingColumnError(_missing(columns, found) + _how(columns))
    taken = set(found.values())
    for role, names in OTHERS.items():
        name = next((n for n in names if n in columns and n not in taken), None)
        if role not in mapping and name is not None:
            found[role] = name
    return found


def _how(columns: Sequence[str]) -> str:
    """Where the file is one that a trainer writes without them: how to get one that has them."""
    trainer = of_text(columns)
    return "" if trainer is None else f". It looks like a file of {trainer.name}: {trainer.record}"


def _missing(columns: Sequence[str], found: Mapping[str, str]) -> str:
    """What is said where a log-probability has no column, or only one of them has."""
    there = f"there are {_listed(columns)}"
    for here, lost in (NEEDED, NEEDED[::-1]):
        if here in found:
            return f"no column for {lost}: only {here} was named ({found[here]}); {there}: add --map {lost}=<column>"
    for side, (here, lost) in enumerate((NEEDED, NEEDED[::-1])):
        pairs = {trainer.name: (trainer.policy, trainer.sampler) for trainer in TRAINERS}
        name = next((pair[side] for pair in pairs.values() if pair[side] in columns), None)
        if name is not None:
            known = {trainer: pair[1 - side] for trainer, pair in pairs.items() if pair[side] == name}
            return (
                f"no column for {lost}: {name!r} is there, {here} as {' and '.join(known)} has it, and not "
                f"{' or '.join(dict.fromkeys(known.values()))}, which goes with it; {there}: name it with "
                f"--map {here}={name} --map {lost}=<column>"
            )
    looked = "; ".join(f"{trainer.policy} and {trainer.sampler}" for trainer in TRAINERS)
    return (
        f"no column for policy_logp and sampler_logp: looked for {looked}; {there}: name yours with "
        "--map policy_logp=<column> --map sampler_logp=<column>"
    )


def parse_mapping(texts: Iterable[str]) -> dict[str, str]:
    """``ours=theirs`` of the command line; ``ours=`` switches a role off.

    Raises:
        InputError: not of that form.
    """
    out: dict[str, str] = {}
    for text in texts:
        ours, separator, theirs = text.partition("=")
        if not separator or not ours:
            raise InputError(f"--map {text!r}: expected ours=theirs, for example --map policy_logp=actor_logprobs")
        out[ours] = theirs
    return out


def _listed(columns: Sequence[str], at_most: int = 24) -> str:
    more = f" and {len(columns) - at_most} more" if len(columns) > at_most else ""
    return (", ".join(sorted(columns)[:at_most]) or "none") + more
