"""What the tasks of an encoder with labels share: corpus, settings, batches; a subclass adds loss and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from heedful.config import Family, RunConfig, preset_for_text
from heedful.config.presets import FINE_TUNING, LABELED_FROM_SCRATCH, LANGUAGE_MODEL, preset
from heedful.data.batch import LabeledBatch, collate_text_pairs
from heedful.data.bucketing import micro_batches, plan_batches
from heedful.data.corpus import Accept, accept_any
from heedful.data.labeled_corpus import LabeledCorpus, LabeledFormat, Labels, prepare_labeled
from heedful.data.pairs import Pairs
from heedful.inference.encoder import Encoder
from heedful.ops.cross_entropy import Loss
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer
from heedful.text.sentence_splitting import MARKS
from heedful.training.tasks.task import Indices, MicroBatches, Progress, Scores, Task, describe_layers, resolved_model

EPOCHS, EPOCHS_FROM_SCRATCH = 8, 20  # unless train.max_updates is set


class LabeledTask(Task):
    """An encoder that predicts labels; it starts from a pretrained one, or from nothing."""

    family: ClassVar[Family] = "encoder"
    form: ClassVar[LabeledFormat[Any]]
    default_length: ClassVar[int] = 256  # tokens that a new model takes
    loss_function: ClassVar[Callable[..., Loss]]

    def __init__(self, corpus: LabeledCorpus) -> None:
        self.corpus: LabeledCorpus = corpus
        self.batch_tokens = self.seed = self.types = 0

    @classmethod
    def open(
        cls, config: RunConfig, folder: Path, progress: Progress, init: ModelFolder | None, accept: Accept = accept_any
    ) -> Self:
        longest = init.config.max_length if init else cls._new_length(config)
        return cls(
            prepare_labeled(config, cls.form, init.tokenizer if init else None, longest, folder, progress, accept)
        )

    @classmethod
    def known(cls, user_config: RunConfig) -> dict[str, Any]:
        return {"head": "none", "output_bias": False}

    def resolve(self, user_config: RunConfig, init: ModelFolder | None) -> RunConfig:
        derived: dict[str, Any] = {"labels": self.corpus.labels, "label_kind": self.form.kind}
        if init is not None:
            defaults, epochs = {"train": LANGUAGE_MODEL["train"] | FINE_TUNING}, EPOCHS
            filled: dict[str, Any] = {}
        else:
            tokenizer = self.corpus.tokenizer
            name = user_config.preset or preset_for_text(int(_lengths(self.corpus.train).sum()))
            defaults, epochs = preset("encoder", name, user_config.model.architecture), EPOCHS_FROM_SCRATCH
            defaults["train"] |= LABELED_FROM_SCRATCH
            filled = {"preset": name}
            derived |= {"vocab_size": tokenizer.vocab_size, "pad_id": tokenizer.pad_id, "bos_id": tokenizer.bos_id}
            derived |= {"eos_id": tokenizer.eos_id, "max_length": self._new_length(user_config)}
            derived |= self.known(user_config)
            if user_config.model.architecture == "memory-network":
                derived["sentence_ends"] = _sentence_ends(tokenizer)
        batch_tokens = user_config.with_defaults(defaults).train.batch_tokens
        updates = sum(len(self._plan(batch_tokens, 1, epoch)) for epoch in range(epochs))
        defaults["train"] = defaults["train"] | {"max_updates": max(100, updates)}
        config = user_config.with_defaults(defaults, **filled)
        return config.replace(model=resolved_model(user_config, init, "encoder", derived))

    def prepare(self, config: RunConfig) -> None:
        self.batch_tokens, self.seed = config.train.batch_tokens, config.train.seed
        self.types = config.model.token_types

    def plan(self, epoch: int) -> list[Indices]:
        return self._plan(self.batch_tokens, self.seed, epoch)

    def split_batch(self, batch: Indices, update: int, count: int) -> MicroBatches:
        corpus = self.corpus
        collate = partial(self._collate, corpus.train, corpus.train_labels)
        return MicroBatches(
            self.count_labels(batch),
            [partial(collate, part) if len(part) else None for part in micro_batches(batch, count)],
        )

    def count_labels(self, batch: Indices) -> int:
        """The divisor of the loss of these training examples."""
        return len(batch)

    def batch_labels(self, pairs: Pairs, labels: Labels, indices: Indices, width: int) -> Tensor:
        """The labels of some examples, whose ids are padded to `width`: (B,) numbers."""
        return torch.from_numpy(np.asarray(labels[indices], np.int64))

    def loss(self, model: Any, micro_batch: Any, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
        return type(self).loss_function(model, micro_batch, smoothing, sampled_softmax)

    def validation(self) -> Iterator[LabeledBatch]:
        lengths = _lengths(self.corpus.valid)
        for indices in plan_batches(lengths, lengths, self.batch_tokens, 0, 0):
            yield self._collate(self.corpus.valid, self.corpus.valid_labels, indices)

    def scores(self, likelihood: float, tokens: int) -> Scores:
        return {"valid_loss": likelihood / tokens}

    def encoder(self, folder: ModelFolder) -> Encoder:
        """The model as users get it, without notices: the data report counts the texts that are truncated."""
        encoder = Encoder(folder, device=str(next(folder.model.parameters()).device))
        encoder.notice = lambda text: None
        return encoder

    @classmethod
    def _new_length(cls, config: RunConfig) -> int:
        chosen = "max_length" in config.model.model_fields_set
        return config.model.max_length if chosen else cls.default_length

    def _plan(self, batch_tokens: int, seed: int, epoch: int) -> list[Indices]:
        lengths = _lengths(self.corpus.train)
        return plan_batches(lengths, lengths, batch_tokens, seed, epoch)

    def _collate(self, pairs: Pairs, labels: Labels, indices: Indices) -> LabeledBatch:
        rows = [(pairs.source(int(i)).tolist(), pairs.target(int(i)).tolist()) for i in indices]
        ids, types = collate_text_pairs(rows, self.corpus.tokenizer.specials, self.types)
        return LabeledBatch(ids, types, self.batch_labels(pairs, labels, indices, ids.size(1)))


def labeled_card(tag: str, title: str, config: RunConfig, done: str, result: str, use: str) -> str:
    """README.md of a model with labels."""
    return (
        f"---\nlibrary_name: heedful\npipeline_tag: {tag}\n---\n\n"
        f"# {title} trained with heedful\n\n{describe_layers(config)}.\n\n"
        f"{done} On examples that were held out: {result}.\n\nUse it: {use}\n"
    )


def _sentence_ends(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The tokens that end a sentence: one mark or several, and nothing else."""
    pieces = (piece.strip("▁Ġ") for piece in tokenizer.pieces(range(tokenizer.vocab_size)))
    return tuple(token for token, piece in enumerate(pieces) if piece and not piece.strip(MARKS + "。！？｡"))


def _lengths(pairs: Pairs) -> Indices:
    """Tokens of each example without BOS."""
    return pairs.source_lengths + pairs.target_lengths + (pairs.target_lengths > 0)
