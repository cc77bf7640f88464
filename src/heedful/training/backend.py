"""What an update lowers, and by what it is computed: the compiled engine where it knows the model, else torch."""

from __future__ import annotations

import torch

from heedful.config import RunConfig
from heedful.data.batch import Batch
from heedful.model.transformer import Model
from heedful.native.trainer import native_trainer
from heedful.ops.cross_entropy import Loss
from heedful.ops.precision import autocast, choose_precision
from heedful.training.losses import rdrop_loss, uniform_label_smoothing
from heedful.training.tasks.task import MicroBatch, Task


class LossBackend:
    """A model with its losses; gradients follow from them."""

    def __init__(self, model: Model, task: Task, config: RunConfig, device: torch.device) -> None:
        self.model, self.task, self.settings, self.device = model, task, config.train, device
        self.smoothing = uniform_label_smoothing(config.train, config.model)
        self.precision = choose_precision(config.train.precision, device.type)
        if self.precision == "bfloat16" and device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # for products that autocast leaves alone
        if config.train.compile:
            model.compile(dynamic=True)  # batches are of all lengths
        plain = config.train.backend == "torch" or config.train.compile
        self.learner = None if plain else native_trainer(model, config.train.precision)

    def loss(self, piece: MicroBatch) -> Loss:
        """Sums over what is learned of a piece."""
        negatives, consistency = self.settings.sampled_softmax, self.settings.rdrop
        if isinstance(piece, Batch) and consistency:
            piece = piece.doubled()
        if isinstance(piece, Batch) and self.learner is not None:
            return self.learner.loss(piece, self.smoothing, negatives, consistency)
        with autocast(self.precision, self.device):
            if consistency:
                return rdrop_loss(self.model, piece, self.smoothing, negatives, consistency)
            return self.task.loss(self.model, piece, self.smoothing, negatives)

    def described(self) -> str:
        """'bfloat16 on 2 threads by the compiled engine' for the report."""
        where = f"{torch.get_num_threads()} threads" if self.device.type == "cpu" else str(self.device)
        if self.learner is None:
            return f"{self.precision} on {where} by torch"
        return f"{self.learner.precision} on {where} by the compiled engine"
