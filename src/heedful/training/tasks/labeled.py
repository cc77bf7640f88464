"""What the tasks of an encoder with labels share: corpus, settings, batches; a subclass adds loss and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from heedful.config import RunConfig
from heedful.data.batch import LabeledBatch, collate_text_pairs
from heedful.data.bucketing import Lengths
from heedful.data.corpus import CorpusCache
from heedful.data.labeled_corpus import LabeledCorpus, LabeledFormat, Labels, prepare_labeled
from heedful.data.pairs import Pairs
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer
from heedful.text.sentence_splitting import MARKS
from heedful.training.tasks.encoder_task import EncoderTask
from heedful.training.tasks.task import Indices


class LabeledTask(EncoderTask):
    """An encoder that predicts labels."""

    epochs: ClassVar[tuple[int, int]] = (8, 20)
    form: ClassVar[LabeledFormat[Any]]
    default_length: ClassVar[int] = 256  # tokens that a new model takes

    def __init__(self, corpus: LabeledCorpus) -> None:
        self.corpus: LabeledCorpus = corpus

    @classmethod
    def open(cls, config: RunConfig, init: ModelFolder | None, cache: CorpusCache) -> Self:
        longest = init.config.max_length if init else cls._new_length(config)
        return cls(prepare_labeled(config, *cache, cls.form, init.tokenizer if init else None, longest))

    @classmethod
    def known(cls, user_config: RunConfig) -> dict[str, Any]:
        return super().known(user_config) | {"label_kind": cls.form.kind}

    def label_settings(self) -> dict[str, Any]:
        return {"labels": self.corpus.labels, "label_kind": self.form.kind}

    def new_model(self, user_config: RunConfig) -> dict[str, Any]:
        settings: dict[str, Any] = {"max_length": self._new_length(user_config)}
        if user_config.model.one_state:
            settings["sentence_ends"] = _sentence_ends(self.corpus.tokenizer)
        return settings

    def side_lengths(self, pairs: Pairs) -> Sequence[Lengths]:
        """Both texts are read as one, with a separator and without BOS."""
        return [pairs.sources.lengths + pairs.targets.lengths + (pairs.targets.lengths > 0)]

    def collate(self, training: bool, indices: Indices) -> LabeledBatch:
        corpus = self.corpus
        pairs, labels = (corpus.train, corpus.train_labels) if training else (corpus.valid, corpus.valid_labels)
        rows = [(pairs.sources[int(i)].tolist(), pairs.targets[int(i)].tolist()) for i in indices]
        ids, types = collate_text_pairs(rows, corpus.tokenizer.specials, self.types)
        return LabeledBatch(ids, types, self.batch_labels(pairs, labels, indices, ids.size(1)))

    def batch_labels(self, pairs: Pairs, labels: Labels, indices: Indices, width: int) -> Tensor:
        """The labels of some examples, whose ids are padded to `width`: (B,) numbers."""
        return torch.from_numpy(np.asarray(labels[indices], np.int64))

    @classmethod
    def _new_length(cls, config: RunConfig) -> int:
        chosen = "max_length" in config.model.model_fields_set
        return config.model.max_length if chosen else cls.default_length


def _sentence_ends(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The tokens that end a sentence: one mark or several, and nothing else."""
    pieces = (piece.strip("▁Ġ") for piece in tokenizer.pieces(range(tokenizer.vocab_size)))
    return tuple(token for token, piece in enumerate(pieces) if piece and not piece.strip(MARKS + "。！？｡"))
