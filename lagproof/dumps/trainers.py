"""Trainers by the rollouts that they write: columns of the log-probabilities, files without them, and their words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lagproof.monitor.advice import PLAIN, Knobs


@dataclass(frozen=True)
class TrainerFormat:
    """One of them.

    Attributes:
        name: as its makers write it.
        policy, sampler: columns of ``policy_logp`` and ``sampler_logp``.
        knobs: what it calls the settings that advice is about.
        text_columns: columns by which files of it are known that hold text and no log-probabilities.
        record: how to get a file with both log-probabilities out of it.
    """

    name: str
    policy: str
    sampler: str
    knobs: Knobs = PLAIN
    text_columns: frozenset[str] = frozenset()
    record: str = ""


TRAINERS: tuple[TrainerFormat, ...] = (
    TrainerFormat("lagproof", "policy_logp", "sampler_logp"),
    TrainerFormat(
        "verl",
        "old_log_probs",
        "rollout_log_probs",
        Knobs(
            lag="the lag (async_training.staleness_threshold, or more prompts per mini-batch)",
            lr="actor_rollout_ref.actor.optim.lr",
            max_tokens="data.max_response_length",
            rescore="algorithm.rollout_correction.bypass_mode=False scores the tokens again with the policy",
            mask="write response_mask beside them",
        ),
        frozenset({"input", "output", "score", "step"}),
        "trainer.rollout_data_dir writes texts and scores only; write old_log_probs, rollout_log_probs, response_mask, "
        "uid and token_level_scores of the batch as parquet, with actor_rollout_ref.rollout.calculate_log_probs=True",
    ),
    TrainerFormat(
        "slime",
        "log_probs",
        "rollout_log_probs",
        Knobs(
            lag="the lag (--update-weights-interval, or a larger --global-batch-size)",
            lr="--lr",
            max_tokens="--rollout-max-response-len",
            rescore="without --use-rollout-logprobs the policy scores the tokens again",
            mask="give loss_mask of each sample, 0 on what the model did not sample",
        ),
        frozenset({"tokens", "response_length", "status", "label"}),
        "--save-debug-rollout-data has the engine's log-probabilities only; --save-debug-train-data has both",
    ),
    TrainerFormat(
        "OpenRLHF",
        "action_log_probs",
        "rollout_log_probs",
        Knobs(mask="write action_mask beside them"),
    ),
    TrainerFormat(
        "SkyRL",
        "action_log_probs",
        "rollout_logprobs",
        Knobs(
            lag="the lag (trainer.fully_async.max_staleness_steps)",
            lr="trainer.policy.optimizer_config.lr",
            max_tokens="generator.sampling_params.max_generate_length",
            mask="write loss_mask beside them",
        ),
        frozenset(),
        "trainer.dump_data_batch=true writes a pickle; load it with SkyRL and write action_log_probs, "
        "rollout_logprobs, loss_mask and rewards as parquet",
    ),
    TrainerFormat(
        "TRL",
        "old_per_token_logps",
        "sampling_per_token_logps",
        Knobs(
            lag="steps_per_generation and num_iterations",
            lr="learning_rate",
            max_tokens="max_completion_length",
            mask="write completion_mask (with tool_mask) beside them",
        ),
        frozenset({"step", "prompt", "completion", "advantage"}),
        "log_completions writes texts and rewards only; write old_per_token_logps, sampling_per_token_logps, "
        "completion_mask and advantages from the inputs of compute_loss",
    ),
    TrainerFormat(
        "prime-rl",
        "trainer_logprobs",
        "inference_logprobs",
        Knobs(
            lag="the lag (orchestrator.max_off_policy_steps)",
            lr="trainer.optim.lr",
            mask="loss_mask must be 0 on what the model did not sample",
        ),
        frozenset(),
        "trainer.enable_token_export = true writes token_exports/step_N/rank_R.jsonl with both",
    ),
    TrainerFormat(
        "AReaL",
        "prox_logp",
        "logprobs",
        Knobs(
            lag="the lag (rollout.max_head_offpolicyness)",
            lr="actor.optimizer.lr",
            max_tokens="gconfig.max_new_tokens",
            rescore="actor.recompute_logprob=true scores the tokens again with the policy",
            mask="write loss_mask beside them",
        ),
        frozenset({"head_version", "tail_version"}),
        "the dumped trajectories are texts; write prox_logp, logprobs, loss_mask, versions and rewards of the batch",
    ),
    TrainerFormat(
        "NeMo-RL",
        "prev_logprobs",
        "generation_logprobs",
        Knobs(
            lag="the lag (grpo.async_grpo.max_trajectory_age_steps)",
            lr="policy.optimizer.kwargs.lr",
            max_tokens="policy.generation.max_new_tokens",
            mask="token_loss_mask must be 0 on what the model did not sample",
        ),
        frozenset({"content", "rewards", "idx"}),
        "train_data_stepN.jsonl has both; val_data_stepN.jsonl and files of the NeMo-Gym responses do not",
    ),
)
"""In the order in which their columns are looked for."""


def of_columns(columns: Mapping[str, str]) -> TrainerFormat | None:
    """The trainer that calls the two log-probabilities so."""
    pair = columns.get("policy_logp"), columns.get("sampler_logp")
    return next((t for t in TRAINERS if (t.policy, t.sampler) == pair), None)


def of_text(columns: Collection[str]) -> TrainerFormat | None:
    """The trainer whose files of texts have these columns; the one of which the most are there."""
    known = [t for t in TRAINERS if t.text_columns and t.text_columns <= set(columns)]
    return max(known, key=lambda t: len(t.text_columns), default=None)
