"""Classification and regression of texts or text pairs, such as textual entailment and relatedness."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from heedful.data.labeled_corpus import ClassificationFormat, LabeledExample, Labels, RegressionFormat
from heedful.data.pairs import Pairs
from heedful.evaluation.metrics import correlation_scores, label_scores
from heedful.model.transformer import EncoderModel
from heedful.ops.cross_entropy import Loss
from heedful.storage.folder import ModelFolder
from heedful.training.losses import classification_loss, regression_loss
from heedful.training.run_report import Column
from heedful.training.tasks.labeled import LabeledTask
from heedful.training.tasks.task import Indices, Progress, Scores
from heedful.training.time_budget import TimeBudget


class ClassificationTask(LabeledTask):
    """Texts with a label; models are ranked by macro-F1 on the validation set, and by loss where it is equal."""

    form = ClassificationFormat()
    loss_function = staticmethod(classification_loss)
    native_loss: ClassVar[bool] = True
    columns = (
        Column("valid_loss", "loss", 4),
        Column("valid_accuracy", "accuracy", percent=True),
        Column("valid_macro_f1", "macro-F1", percent=True),
    )

    def measure(self, folder: ModelFolder, budget: TimeBudget, log: Progress) -> Scores:
        """Accuracy and macro-F1."""
        examples = self.examples
        predicted = self.encoder(folder).classify(
            [example.text for example in examples], [example.second for example in examples]
        )
        return label_scores([result.label for result in predicted], [example.label for example in examples])

    def rank(self, scores: Scores) -> list[float]:
        return [scores["valid_macro_f1"], -scores["valid_loss"]]

    @property
    def examples(self) -> list[LabeledExample]:
        return [LabeledExample(**example) for example in self.corpus.valid_examples]


class RegressionTask(ClassificationTask):
    """Texts with a number; models are ranked by Spearman's correlation, and by squared error where it is equal.

    Training predicts standardized numbers: the first updates need not learn the mean, and prices learn as fast as
    probabilities. The published classifier has mean and deviation in its weights.
    """

    form = RegressionFormat()
    loss_function = staticmethod(regression_loss)
    native_loss: ClassVar[bool] = False
    columns = (
        Column("valid_loss", "squared error", 4),
        Column("valid_pearson", "Pearson", percent=True),
        Column("valid_spearman", "Spearman", percent=True),
    )

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Mean and standard deviation of the training labels."""
        return float(np.mean(self.corpus.train_labels)), float(np.std(self.corpus.train_labels))

    def batch_labels(self, pairs: Pairs, labels: Labels, indices: Indices, width: int) -> Tensor:
        mean, deviation = self.scale
        return torch.from_numpy(np.asarray((labels[indices] - mean) / deviation, np.float32))

    def loss(self, model: Any, micro_batch: Any, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
        loss = super().loss(model, micro_batch, smoothing, sampled_softmax)
        return replace(loss, likelihood=loss.likelihood * self.scale[1] ** 2)

    def adopted(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        if "classifier.weight" not in weights:
            return weights
        mean, deviation = self.scale
        bias, weight = (weights["classifier.bias"] - mean) / deviation, weights["classifier.weight"] / deviation
        return weights | {"classifier.bias": bias, "classifier.weight": weight}

    @torch.no_grad()
    def published(self, folder: ModelFolder) -> ModelFolder:
        model, (mean, deviation) = copy.deepcopy(folder.model), self.scale
        assert isinstance(model, EncoderModel) and model.classifier is not None
        model.classifier.weight.mul_(deviation)
        model.classifier.bias.mul_(deviation).add_(mean)
        return replace(folder, weights=model)

    def measure(self, folder: ModelFolder, budget: TimeBudget, log: Progress) -> Scores:
        """Correlation of predicted and given numbers."""
        examples = self.examples
        predicted = self.encoder(folder).score(
            [example.text for example in examples], [example.second for example in examples]
        )
        return correlation_scores(predicted, [float(example.label) for example in examples])

    def rank(self, scores: Scores) -> list[float]:
        return [scores["valid_spearman"], -scores["valid_loss"]]
