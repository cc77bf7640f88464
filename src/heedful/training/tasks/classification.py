"""Classification of texts or text pairs with a pretrained encoder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from heedful.config import Family, RunConfig
from heedful.config.presets import FINE_TUNING, LANGUAGE_MODEL
from heedful.data.batch import LabeledBatch, collate_text_pairs
from heedful.data.bucketing import micro_batches, plan_batches
from heedful.data.corpus import Accept, accept_any
from heedful.data.labeled_corpus import LabeledCorpus, prepare_labeled
from heedful.data.pairs import Pairs
from heedful.errors import SettingError
from heedful.evaluation.metrics import label_scores
from heedful.inference.encoder import Encoder
from heedful.ops.cross_entropy import Loss
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer
from heedful.training.losses import classification_loss
from heedful.training.run_report import Column
from heedful.training.tasks.task import Indices, MicroBatches, Progress, Scores, Task, describe_layers, resolved_model
from heedful.training.time_budget import TimeBudget

EPOCHS = 8  # unless train.max_updates is set


class ClassificationTask(Task):
    """Labeled texts; models are ranked by macro-F1 on the validation set, and by loss where it is equal."""

    family: ClassVar[Family] = "encoder"
    native_loss: ClassVar[bool] = True
    columns: ClassVar[tuple[Column, ...]] = (
        Column("valid_loss", "loss", 4),
        Column("valid_accuracy", "accuracy", percent=True),
        Column("valid_macro_f1", "macro-F1", percent=True),
    )

    def __init__(self, corpus: LabeledCorpus) -> None:
        self.corpus: LabeledCorpus = corpus
        self.batch_tokens = self.seed = self.types = 0

    @classmethod
    def open(
        cls, config: RunConfig, folder: Path, progress: Progress, init: ModelFolder | None, accept: Accept = accept_any
    ) -> ClassificationTask:
        if init is None:
            raise SettingError("a classifier starts from an encoder; give its folder, such as runs/bert, as init.")
        longest = init.config.max_length
        return cls(prepare_labeled(config, init.tokenizer, longest, folder, progress, accept))

    def resolve(self, user_config: RunConfig, init: ModelFolder | None) -> RunConfig:
        defaults = LANGUAGE_MODEL["train"] | FINE_TUNING
        batch_tokens = user_config.with_defaults({"train": defaults}).train.batch_tokens
        updates = sum(len(self._plan(batch_tokens, 1, epoch)) for epoch in range(EPOCHS))
        config = user_config.with_defaults({"train": defaults | {"max_updates": max(100, updates)}})
        derived = {"labels": self.corpus.labels}
        return config.replace(model=resolved_model(user_config, init, "encoder", derived))

    def prepare(self, config: RunConfig) -> None:
        self.batch_tokens, self.seed = config.train.batch_tokens, config.train.seed
        self.types = config.model.token_types

    @property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        return self.corpus.tokenizer, self.corpus.tokenizer

    def plan(self, epoch: int) -> list[Indices]:
        return self._plan(self.batch_tokens, self.seed, epoch)

    def split_batch(self, batch: Indices, update: int, count: int) -> MicroBatches:
        corpus = self.corpus
        collate = partial(self._collate, corpus.train, corpus.train_labels)
        return MicroBatches(
            len(batch), [partial(collate, part) if len(part) else None for part in micro_batches(batch, count)]
        )

    def loss(self, model: Any, micro_batch: Any, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
        return classification_loss(model, micro_batch, smoothing, sampled_softmax)

    def validation(self) -> Iterator[LabeledBatch]:
        lengths = _lengths(self.corpus.valid)
        for indices in plan_batches(lengths, lengths, self.batch_tokens, 0, 0):
            yield self._collate(self.corpus.valid, self.corpus.valid_labels, indices)

    def scores(self, likelihood: float, tokens: int) -> Scores:
        return {"valid_loss": likelihood / tokens}

    def measure(self, folder: ModelFolder, budget: TimeBudget, log: Progress) -> Scores:
        """Accuracy and macro-F1."""
        examples = self.corpus.valid_examples
        encoder = Encoder(folder, device=str(next(folder.model.parameters()).device))
        encoder.notice = lambda text: None  # the data report counts the texts that are truncated
        predicted = encoder.classify([example.text for example in examples], [example.second for example in examples])
        return label_scores([result.label for result in predicted], [example.label for example in examples])

    def rank(self, scores: Scores) -> list[float]:
        return [scores["valid_macro_f1"], -scores["valid_loss"]]

    def card(self, config: RunConfig, done: str, scores: Scores) -> str:
        labels = ", ".join(self.corpus.labels[:20])
        return (
            "---\nlibrary_name: heedful\npipeline_tag: text-classification\nmetrics:\n- accuracy\n- f1\n---\n\n"
            f"# A classifier trained with heedful\n\n{describe_layers(config)}; labels: {labels}.\n\n"
            f"{done} On examples that were held out: accuracy {scores['valid_accuracy']:.2f} %, "
            f"macro-F1 {scores['valid_macro_f1']:.2f} %.\n\n"
            "Use it: `heedful classify FOLDER < lines`, or `heedful.load(FOLDER).classify([...])` in Python.\n"
        )

    def _plan(self, batch_tokens: int, seed: int, epoch: int) -> list[Indices]:
        lengths = _lengths(self.corpus.train)
        return plan_batches(lengths, lengths, batch_tokens, seed, epoch)

    def _collate(self, pairs: Pairs, labels: Indices, indices: Indices) -> LabeledBatch:
        rows = [(pairs.source(int(i)).tolist(), pairs.target(int(i)).tolist()) for i in indices]
        ids, types = collate_text_pairs(rows, self.corpus.tokenizer.specials, self.types)
        return LabeledBatch(ids, types, torch.from_numpy(np.asarray(labels[indices], np.int64)))


def _lengths(pairs: Pairs) -> Indices:
    """Tokens of each example without BOS."""
    return pairs.source_lengths + pairs.target_lengths + (pairs.target_lengths > 0)
