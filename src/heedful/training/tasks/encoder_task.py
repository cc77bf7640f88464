"""What tasks of an encoder on texts share: settings, batches, and the model as it is measured."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from heedful.config import Family, Preset, RunConfig
from heedful.config.presets import FINE_TUNING, LABELED_FROM_SCRATCH, LANGUAGE_MODEL, TOKENS, preset, preset_for
from heedful.data.batch import MicroBatch
from heedful.data.bucketing import Lengths, plan_batches
from heedful.data.corpus import ignore_progress
from heedful.data.labeled_corpus import LabeledCorpus
from heedful.data.pairs import Pairs
from heedful.data.parallel_corpus import ParallelCorpus
from heedful.inference.encoder import Encoder
from heedful.storage.folder import ModelFolder
from heedful.training.tasks.task import (
    Indices,
    MicroBatches,
    Scores,
    Task,
    device_of,
    resolved_model,
    vocabulary_settings,
)


class EncoderTask(Task):
    """An encoder that starts from a pretrained one, or from nothing."""

    family: ClassVar[Family] = "encoder"
    counted: ClassVar[str] = "examples"
    epochs: ClassVar[tuple[int, int]]  # from a pretrained encoder, and from nothing, unless train.max_updates is set
    batch_tokens = seed = types = longest = 0

    corpus: LabeledCorpus | ParallelCorpus

    @classmethod
    def known(cls, user_config: RunConfig) -> dict[str, Any]:
        return {"head": "none", "output_bias": False}

    def label_settings(self) -> dict[str, Any]:
        """Model settings that follow from the labels of the corpus."""
        return {}

    @abstractmethod
    def new_model(self, user_config: RunConfig) -> dict[str, Any]:
        """Settings of a new model that follow from the corpus, besides those of its vocabulary."""

    @abstractmethod
    def side_lengths(self, pairs: Pairs) -> Sequence[Lengths]:
        """Tokens of each example: of both its sides, or of all that is read as one."""

    @abstractmethod
    def collate(self, training: bool, indices: Indices) -> MicroBatch:
        """Examples of the training set or of the validation set as tensors."""

    def preset_for_corpus(self) -> Preset:
        return preset_for(sum(int(side.sum()) for side in self.side_lengths(self.corpus.train)), TOKENS)

    def resolve(self, user_config: RunConfig, init: ModelFolder | None) -> RunConfig:
        defaults, derived = {"train": LANGUAGE_MODEL["train"] | FINE_TUNING}, dict[str, Any]()
        filled: dict[str, Any] = {}
        if init is None:
            filled["preset"] = name = user_config.preset or self.preset_for_corpus()
            defaults = preset("encoder", name, user_config.model.architecture)
            defaults["train"] |= LABELED_FROM_SCRATCH
            derived = vocabulary_settings(self.corpus.tokenizer) | self.known(user_config) | self.new_model(user_config)
        batch_tokens = user_config.with_defaults(defaults).train.batch_tokens
        epochs = range(self.epochs[init is None])
        updates = sum(len(self._plan(self.corpus.train, batch_tokens, 1, epoch)) for epoch in epochs)
        defaults["train"] = defaults["train"] | {"max_updates": max(100, updates)}
        config = user_config.with_defaults(defaults, **filled)
        return config.replace(model=resolved_model(user_config, init, "encoder", derived | self.label_settings()))

    def prepare(self, config: RunConfig) -> None:
        self.batch_tokens, self.seed = config.train.batch_tokens, config.train.seed
        self.types, self.longest = config.model.token_types, config.model.max_length - 2

    def plan(self, epoch: int) -> list[Indices]:
        return self._plan(self.corpus.train, self.batch_tokens, self.seed, epoch)

    def _plan(self, pairs: Pairs, batch_tokens: int, seed: int, epoch: int) -> list[Indices]:
        sides = self.side_lengths(pairs)
        return plan_batches(sides[0], sides[-1], batch_tokens, seed, epoch)

    def split_batch(self, batch: Indices, update: int, count: int) -> MicroBatches:
        return MicroBatches.of(self.count_labels(batch), batch, count, partial(self.collate, True))

    def count_labels(self, batch: Indices) -> int:
        """The divisor of the loss of these training examples."""
        return len(batch)

    def validation(self) -> Iterator[MicroBatch]:
        return (self.collate(False, indices) for indices in self._plan(self.corpus.valid, self.batch_tokens, 0, 0))

    def scores(self, likelihood: float, tokens: int) -> Scores:
        return {"valid_loss": likelihood / tokens}

    def encoder(self, folder: ModelFolder) -> Encoder:
        """The model as users get it, without notices: the data report counts the texts that are truncated."""
        encoder = Encoder(folder, device=device_of(folder))
        encoder.notice = ignore_progress
        return encoder
