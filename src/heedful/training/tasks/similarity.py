"""Sentence representations by contrastive learning: the two texts of a pair are embedded near each other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from heedful.config import Family, RunConfig, preset_for_text
from heedful.config.presets import FINE_TUNING, LABELED_FROM_SCRATCH, LANGUAGE_MODEL, preset
from heedful.data.batch import TextPairBatch, collate_text_pairs
from heedful.data.bucketing import micro_batches, plan_batches
from heedful.data.corpus import Accept, accept_any
from heedful.data.labeled_corpus import LabeledExample, read_labeled
from heedful.data.pairs import Pairs, RaggedIds
from heedful.data.parallel_corpus import ParallelCorpus, prepare_parallel
from heedful.errors import SettingError
from heedful.evaluation.metrics import correlation_scores
from heedful.inference.encoder import Encoder
from heedful.ops.cross_entropy import Loss
from heedful.storage.folder import ModelFolder
from heedful.training.losses import similarity_loss
from heedful.training.run_report import Column
from heedful.training.tasks.labeled import labeled_card
from heedful.training.tasks.task import Indices, MicroBatches, Progress, Scores, Task, resolved_model
from heedful.training.time_budget import TimeBudget

EPOCHS = 4  # unless train.max_updates is set
NEW_LENGTH = 258  # tokens that a new model takes: the longest text of a corpus with [CLS] and [SEP]


class SimilarityTask(Task):
    """Pairs of texts that mean the same; the other pairs of a micro-batch are the negatives.

    Models are ranked by Spearman's correlation with given similarities if there are any (data.valid_labeled), else by
    how often the partner of a text is the nearest of all validation texts.
    """

    family: ClassVar[Family] = "encoder"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("valid_loss", "loss", 4),
        Column("valid_accuracy", "partner is nearest", percent=True),
        Column("valid_spearman", "Spearman", percent=True),
    )

    def __init__(self, corpus: ParallelCorpus, scored: list[LabeledExample]) -> None:
        self.corpus: ParallelCorpus = corpus
        self.scored = scored
        self.batch_tokens = self.seed = self.types = self.longest = 0

    @classmethod
    def open(
        cls, config: RunConfig, folder: Path, progress: Progress, init: ModelFolder | None, accept: Accept = accept_any
    ) -> Self:
        if not config.text.joint:
            raise SettingError("text.joint is false, but both texts of a pair are read by one encoder; leave it out.")
        scored = read_labeled(config.data.valid_labeled, numbers=True) if config.data.valid_labeled else []
        tokenizers = (init.tokenizer, init.tokenizer) if init else None
        return cls(prepare_parallel(config, folder, progress, tokenizers, accept), scored)

    @classmethod
    def known(cls, user_config: RunConfig) -> dict[str, Any]:
        return {"head": "none", "output_bias": False}

    def resolve(self, user_config: RunConfig, init: ModelFolder | None) -> RunConfig:
        train, tokenizer = self.corpus.train, self.corpus.tokenizer
        derived: dict[str, Any] = {}
        filled: dict[str, Any] = {}
        defaults = {"train": LANGUAGE_MODEL["train"] | FINE_TUNING}
        if init is None:
            name = user_config.preset or preset_for_text(int(train.source_lengths.sum() + train.target_lengths.sum()))
            defaults = preset("encoder", name, user_config.model.architecture)
            defaults["train"] |= LABELED_FROM_SCRATCH
            filled = {"preset": name}
            derived = {"vocab_size": tokenizer.vocab_size, "pad_id": tokenizer.pad_id, "bos_id": tokenizer.bos_id}
            derived |= {"eos_id": tokenizer.eos_id} | self.known(user_config)
            if "max_length" not in user_config.model.model_fields_set:
                derived["max_length"] = max(NEW_LENGTH, user_config.data.max_length + 2)
        batch_tokens = user_config.with_defaults(defaults).train.batch_tokens
        updates = sum(len(self._plan(batch_tokens, 1, epoch)) for epoch in range(EPOCHS))
        defaults["train"] = defaults["train"] | {"max_updates": max(100, updates)}
        config = user_config.with_defaults(defaults, **filled)
        return config.replace(model=resolved_model(user_config, init, "encoder", derived))

    def prepare(self, config: RunConfig) -> None:
        self.batch_tokens, self.seed = config.train.batch_tokens, config.train.seed
        self.types, self.longest = config.model.token_types, config.model.max_length - 2

    def plan(self, epoch: int) -> list[Indices]:
        return self._plan(self.batch_tokens, self.seed, epoch)

    def split_batch(self, batch: Indices, update: int, count: int) -> MicroBatches:
        collate = partial(self._collate, self.corpus.train)
        parts = micro_batches(batch, count)
        return MicroBatches(len(batch), [partial(collate, part) if len(part) else None for part in parts])

    def loss(self, model: Any, micro_batch: Any, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
        return similarity_loss(model, micro_batch, smoothing, sampled_softmax)

    def validation(self) -> Iterator[TextPairBatch]:
        valid = self.corpus.valid
        for indices in plan_batches(valid.source_lengths, valid.target_lengths, self.batch_tokens, 0, 0):
            yield self._collate(valid, indices)

    def scores(self, likelihood: float, tokens: int) -> Scores:
        return {"valid_loss": likelihood / tokens}

    def measure(self, folder: ModelFolder, budget: TimeBudget, log: Progress) -> Scores:
        """How often the partner of a text is the nearest one, and Spearman's correlation with given similarities."""
        encoder = Encoder(folder, device=str(next(folder.model.parameters()).device))
        encoder.notice = lambda text: None
        first, second = (encoder.embed(list(texts)) for texts in zip(*self.corpus.valid_text, strict=True))
        nearest = (first @ second.T).argmax(1)
        scores = {"valid_accuracy": 100 * float((nearest == np.arange(len(first))).mean())}
        if self.scored:
            first, second = (
                encoder.embed([getattr(each, side) for each in self.scored]) for side in ("text", "second")
            )
            expected = [float(example.label) for example in self.scored]
            scores["valid_spearman"] = correlation_scores((first * second).sum(1).tolist(), expected)["valid_spearman"]
        return scores

    def rank(self, scores: Scores) -> list[float]:
        return [scores.get("valid_spearman", scores["valid_accuracy"]), -scores["valid_loss"]]

    def card(self, config: RunConfig, done: str, scores: Scores) -> str:
        result = f"the partner is the nearest text for {scores['valid_accuracy']:.2f} %"
        if "valid_spearman" in scores:
            result += f", Spearman {scores['valid_spearman']:.2f} %"
        use = "`heedful embed FOLDER < lines > vectors.npy`, or `heedful.load(FOLDER).embed([...])` in Python."
        return labeled_card("sentence-similarity", "A sentence encoder", config, done, result, use)

    def _plan(self, batch_tokens: int, seed: int, epoch: int) -> list[Indices]:
        train = self.corpus.train
        return plan_batches(train.source_lengths, train.target_lengths, batch_tokens, seed, epoch)

    def _collate(self, pairs: Pairs, indices: Indices) -> TextPairBatch:
        (first, first_types), (second, second_types) = (self._side(s, indices) for s in (pairs.sources, pairs.targets))
        return TextPairBatch((first, second), (first_types, second_types))

    def _side(self, texts: RaggedIds, indices: Indices) -> tuple[Any, Any]:
        rows: list[tuple[list[int], list[int]]] = [(texts[int(i)][: self.longest].tolist(), []) for i in indices]
        return collate_text_pairs(rows, self.corpus.tokenizer.specials, self.types)
