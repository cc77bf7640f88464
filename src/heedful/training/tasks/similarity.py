"""Sentence representations by contrastive learning: the two texts of a pair are embedded near each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from heedful.config import RunConfig
from heedful.data.batch import TextPairBatch, collate_text_pairs
from heedful.data.bucketing import Lengths
from heedful.data.corpus import CorpusCache
from heedful.data.labeled_corpus import LabeledExample, read_labeled
from heedful.data.pairs import Pairs, RaggedIds
from heedful.data.parallel_corpus import ParallelCorpus, prepare_parallel
from heedful.errors import SettingError
from heedful.evaluation.metrics import correlation_scores
from heedful.storage.folder import ModelFolder
from heedful.training.losses import similarity_loss
from heedful.training.run_report import Column
from heedful.training.tasks.encoder_task import EncoderTask
from heedful.training.tasks.task import Indices, Progress, Scores
from heedful.training.time_budget import TimeBudget

NEW_LENGTH = 258  # tokens that a new model takes: the longest text of a corpus with [CLS] and [SEP]


class SimilarityTask(EncoderTask):
    """Pairs of texts that mean the same; the other pairs of a micro-batch are the negatives.

    Models are ranked by Spearman's correlation with given similarities if there are any (data.valid_labeled), else by
    how often the partner of a text is the nearest of all validation texts.
    """

    folder_task: ClassVar[str] = "similarity"
    epochs: ClassVar[tuple[int, int]] = (4, 4)
    loss_function = staticmethod(similarity_loss)
    columns: tuple[Column, ...] = (
        Column("valid_loss", "loss", 4),
        Column("valid_accuracy", "partner is nearest", percent=True),
        Column("valid_spearman", "Spearman", percent=True),
    )

    def __init__(self, corpus: ParallelCorpus, scored: list[LabeledExample]) -> None:
        self.corpus: ParallelCorpus = corpus
        self.scored = scored
        if not scored:
            self.columns = self.columns[:2]

    @classmethod
    def open(cls, config: RunConfig, init: ModelFolder | None, cache: CorpusCache) -> Self:
        if not config.text.joint:
            raise SettingError("text.joint is false, but both texts of a pair are read by one encoder; leave it out.")
        scored = read_labeled(config.data.valid_labeled, numbers=True) if config.data.valid_labeled else []
        tokenizers = (init.tokenizer, init.tokenizer) if init else None
        return cls(prepare_parallel(config, *cache, tokenizers), scored)

    def new_model(self, user_config: RunConfig) -> dict[str, Any]:
        if "max_length" in user_config.model.model_fields_set:
            return {}
        return {"max_length": max(NEW_LENGTH, user_config.data.max_length + 2)}

    def side_lengths(self, pairs: Pairs) -> Sequence[Lengths]:
        return pairs.sources.lengths, pairs.targets.lengths

    def collate(self, training: bool, indices: Indices) -> TextPairBatch:
        pairs = self.corpus.train if training else self.corpus.valid
        return TextPairBatch(*self._side(pairs.sources, indices), *self._side(pairs.targets, indices))

    def measure(self, folder: ModelFolder, budget: TimeBudget, log: Progress) -> Scores:
        """How often the partner of a text is the nearest one, and Spearman's correlation with given similarities."""
        encoder = self.encoder(folder)
        first, second = (encoder.embed(list(texts)) for texts in zip(*self.corpus.valid_text, strict=True))
        nearest = (first @ second.T).argmax(1)
        scores = {"valid_accuracy": 100 * float((nearest == np.arange(len(first))).mean())}
        if self.scored:
            texts, seconds = [example.text for example in self.scored], [example.second for example in self.scored]
            expected = [float(example.label) for example in self.scored]
            scores["valid_spearman"] = correlation_scores(encoder.similarity(texts, seconds), expected)[
                "valid_spearman"
            ]
        return scores

    def rank(self, scores: Scores) -> list[float]:
        return [scores.get("valid_spearman", scores["valid_accuracy"]), -scores["valid_loss"]]

    def _side(self, texts: RaggedIds, indices: Indices) -> tuple[Any, Any]:
        rows: list[tuple[list[int], list[int]]] = [(texts[int(i)][: self.longest].tolist(), []) for i in indices]
        return collate_text_pairs(rows, self.corpus.tokenizer.specials, self.types)
