"""Reading comprehension: the answer to a question is a span of a passage, or there is none (SQuAD)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from heedful.data.labeled_corpus import Labels
from heedful.data.pairs import Pairs
from heedful.data.token_labels import AnswerFormat
from heedful.evaluation.answers import answer_scores
from heedful.storage.folder import ModelFolder
from heedful.training.losses import answer_loss
from heedful.training.run_report import Column
from heedful.training.tasks.labeled import LabeledTask
from heedful.training.tasks.task import Indices, Progress, Scores
from heedful.training.time_budget import TimeBudget


class QuestionAnsweringTask(LabeledTask):
    """Questions about passages; models are ranked by the answers' F1, and by loss where it is equal."""

    form = AnswerFormat()
    default_length: ClassVar[int] = 384
    loss_function = staticmethod(answer_loss)
    columns = (
        Column("valid_loss", "loss", 4),
        Column("valid_exact", "exact match", percent=True),
        Column("valid_f1", "F1", percent=True),
    )

    def batch_labels(self, pairs: Pairs, labels: Labels, indices: Indices, width: int) -> Tensor:
        """(B, 2): positions of the first and the last token of the answer."""
        return torch.from_numpy(np.asarray(labels.reshape(-1, 2)[indices], np.int64))

    def measure(self, folder: ModelFolder, budget: TimeBudget, log: Progress) -> Scores:
        """Exact match and F1 of the answers."""
        examples, encoder = self.corpus.valid_examples, self.encoder(folder)
        answers = encoder.answer_batch([(example["question"], example["context"]) for example in examples])
        references = [[text for _, text in example["answers"]] for example in examples]
        return answer_scores([answer.text for answer in answers], references)

    def rank(self, scores: Scores) -> list[float]:
        return [scores["valid_f1"], -scores["valid_loss"]]
