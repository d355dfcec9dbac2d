"""The learning side: batches to steps, their measures and records, published weights and checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from lagproof import objectives as rules
from lagproof.config import Config
from lagproof.data.batch import Batch
from lagproof.data.metrics import values
from lagproof.data.samples import Group, StepOutcome
from lagproof.data.slices import Key
from lagproof.learner.anchor import at_versions
from lagproof.learner.probe import probe
from lagproof.learner.step import Learner, Recipe
from lagproof.metrics.responses import by_task, reasons, responses
from lagproof.models.loading import Loaded
from lagproof.models.loading import save as save_model
from lagproof.objectives.reduction import reduction
from lagproof.runs import checkpoints
from lagproof.runs.writer import RunWriter
from lagproof.runtime.executor import Moment, Trained
from lagproof.runtime.publication import MemoryChannel
from lagproof.runtime.schedule import Train
from lagproof.runtime.watch import Watch
from lagproof.tensors.advantage import ADVANTAGES

Weights = Mapping[str, Tensor]


class Trainer:
    """Owns the newest weights: trains them, measures, publishes, saves.

    Args:
        config: resolved.
        loaded: the model that ``learner`` trains.
        learner: see :class:`Learner`.
        channel: where weights are published; holds those that the engines start with.
        writer: of rollouts and checkpoints.
        watch: for the seconds spent.
        kept: weights of versions in flight, of a restored run.
    """

    def __init__(
        self,
        config: Config,
        loaded: Loaded,
        learner: Learner,
        channel: MemoryChannel,
        writer: RunWriter,
        watch: Watch,
        kept: Mapping[int, Weights] | None = None,
    ) -> None:
        self._config, self._loaded, self._learner, self._writer = config, loaded, learner, writer
        self.channel, self._watch = channel, watch
        self._kept: dict[int, Weights] = dict(kept or {})

    @classmethod
    def build(
        cls,
        config: Config,
        loaded: Loaded,
        writer: RunWriter,
        watch: Watch,
        published: int,
        in_flight: Collection[int],
        state: checkpoints.Checkpoint | None,
    ) -> Trainer:
        """The learning side of a run that begins, or goes on from a checkpoint.

        Args:
            config, loaded, writer, watch: see :class:`Trainer`.
            published: version of the weights that the engines start with.
            in_flight: versions behind what is sampled and not trained yet.
            state: of the checkpoint.
        """
        learner = Learner(loaded.model, _recipe(config), 0 if state is None else state.version)
        channel = MemoryChannel()
        if state is None or state.sampler is None:
            channel.publish(published, dict(loaded.model.named_parameters()))
        else:
            channel.publish(published, state.sampler)
        if state is not None:
            learner.optimizer.load_state_dict(dict(state.optimizer))
        trainer = cls(config, loaded, learner, channel, writer, watch, None if state is None else state.kept)
        trainer.keep(in_flight)
        return trainer

    def train(self, command: Train, groups: Sequence[Group]) -> Trained:
        """One optimiser step, measured and recorded."""
        batch = self._anchored(Batch.of(groups))
        with self._watch.on("learn"):
            result = self._learner.step(batch)
        batch, step = result.batch, self._learner.version
        found = values(result.metrics | responses(batch.samples) | reasons(batch.samples) | by_task(batch.groups))
        if result.outcome is StepOutcome.TRAINED:
            if self._config.save.rollouts:
                self._writer.record(batch, step)
            found |= self._probe(batch, step)
        return Trained(command.batch, result.outcome, step, found, batch.num_tokens)

    def _anchored(self, batch: Batch) -> Batch:
        """With the learner's own log-probabilities at the versions that sampled; those of age 0 are the step's own."""
        if self._config.learner.anchor != "sampling_version":
            return batch
        kept = {version: weights for version, weights in self._kept.items() if version != self._learner.version}
        with self._watch.on("anchor"):
            then = at_versions(
                self._loaded.model,
                batch,
                kept,
                temperature=self._config.rollout.temperature,
                budget_tokens=self._config.learner.micro_batch_tokens,
            )
        return replace(batch, anchor_logp=then)

    def publish(self, version: int, in_flight: Collection[int]) -> None:
        """Copy the newest weights into the channel.

        Args:
            version: of the weights.
            in_flight: versions behind what is sampled, or being sampled, and not trained yet.
        """
        with self._watch.on("publish"):
            self.channel.publish(version, dict(self._loaded.model.named_parameters()))
        self.keep(in_flight)

    def keep(self, in_flight: Collection[int]) -> None:
        """Keep the weights of versions in flight for anchor and probe, the newest of them; the channel copied them."""
        limit = self._config.probe.versions if self._config.probe.every else 0
        if self._config.learner.anchor == "sampling_version":
            limit = max(limit, self._config.learner.anchor_versions)
        if not limit:
            return
        published, weights = self.channel.fetch()
        kept = {v: w for v, w in {**self._kept, published: weights}.items() if v in {published, *in_flight}}
        self._kept = {v: kept[v] for v in sorted(kept)[-limit:]}

    def save(self, moment: Moment, held: Mapping[int, Group]) -> None:
        """A checkpoint.

        Args:
            moment: see :class:`Moment`.
            held: groups that are sampled and not trained, by ticket.

        Raises:
            RunDirError: the disk is full or cannot be written.
        """
        self._writer.flush(moment.version)
        published, weights = self.channel.fetch()
        state = checkpoints.Checkpoint(
            version=moment.version,
            schedule=moment.schedule,
            held=held,
            optimizer=self._learner.optimizer.state_dict(),
            sampler=None if published == moment.version else weights,
            kept={v: weights for v, weights in self._kept.items() if v != published},
            written=moment.written,
        )
        loaded = self._loaded
        checkpoints.save(
            self._writer.layout,
            state,
            lambda folder: save_model(folder, loaded.model, loaded.tokenizer),
            self._config.save.keep,
        )

    def _probe(self, batch: Batch, step: int) -> dict[Key, float]:
        config = self._config.probe
        if not config.every or step % config.every:
            return {}
        with self._watch.on("probe"):
            split = probe(
                self._loaded.model,
                batch,
                self._kept,
                temperature=self._config.rollout.temperature,
                responses=config.responses,
                budget_tokens=self._config.learner.micro_batch_tokens,
            )
        return values(split)


def _recipe(config: Config) -> Recipe:
    return Recipe(
        objective=rules.objective(config.objective.name, **config.objective.options),
        reduction=reduction(config.learner.reduction, config.rollout.max_tokens),
        advantage=ADVANTAGES[config.learner.advantage],
        temperature=config.rollout.temperature,
        config=config.learner,
        anchor=config.learner.anchor,
    )
