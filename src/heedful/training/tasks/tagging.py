"""Token tagging: names or parts of speech, one tag for each word of a sentence."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from heedful.data.labeled_corpus import Labels
from heedful.data.pairs import Pairs, RaggedIds
from heedful.data.token_labels import UNLABELED, TaggingFormat
from heedful.evaluation.tags import tag_scores
from heedful.storage.folder import ModelFolder
from heedful.training.losses import classification_loss
from heedful.training.run_report import Column
from heedful.training.tasks.labeled import LabeledTask
from heedful.training.tasks.task import Indices, Progress, Scores
from heedful.training.time_budget import TimeBudget


class TaggingTask(LabeledTask):
    """Sentences with a tag for each word; models are ranked by F1 of the entities, and by loss where it is equal."""

    form = TaggingFormat()
    counted: ClassVar[str] = "words"
    loss_function = staticmethod(classification_loss)
    columns = (
        Column("valid_loss", "loss", 4),
        Column("valid_accuracy", "accuracy", percent=True),
        Column("valid_f1", "F1", percent=True),
    )

    def count_labels(self, batch: Indices) -> int:
        labels, offsets = self.corpus.train_labels, self.corpus.train.sources.offsets
        return sum(int((labels[offsets[i] : offsets[i + 1]] != UNLABELED).sum()) for i in batch)

    def batch_labels(self, pairs: Pairs, labels: Labels, indices: Indices, width: int) -> Tensor:
        """(B, T) after [CLS]; special tokens and padding have none."""
        rows = torch.full((len(indices), width), UNLABELED)
        ragged: RaggedIds = RaggedIds(labels, pairs.sources.offsets)  # type: ignore[arg-type]
        for row, index in enumerate(indices):
            numbers = np.asarray(ragged[int(index)], np.int64)
            rows[row, 1 : 1 + len(numbers)] = torch.from_numpy(numbers)
        return rows

    def measure(self, folder: ModelFolder, budget: TimeBudget, log: Progress) -> Scores:
        """Accuracy of the words and F1 of the entities."""
        sentences = self.corpus.valid_examples
        predicted = self.encoder(folder).tag([sentence["words"] for sentence in sentences])
        tags = [[word.tag for word in words] for words in predicted]
        return tag_scores(tags, [sentence["tags"] for sentence in sentences])

    def rank(self, scores: Scores) -> list[float]:
        return [scores["valid_f1"], -scores["valid_loss"]]
