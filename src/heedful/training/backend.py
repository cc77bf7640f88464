"""The loss that an update minimizes, by the native engine where it supports the model, else by PyTorch."""

from __future__ import annotations

import torch

from heedful.config import RunConfig, TrainSettings
from heedful.data.batch import Batch, MicroBatch
from heedful.model.transformer import Model
from heedful.native.flat_batch import TrainingBatch
from heedful.native.trainer import native_trainer, training_obstacle
from heedful.ops.cross_entropy import Loss
from heedful.ops.precision import autocast, choose_precision
from heedful.training.losses import rdrop_loss, uniform_label_smoothing
from heedful.training.tasks import TASKS
from heedful.training.tasks.task import Task


class LossBackend:
    """Computes the loss of a micro-batch; `backward()` on it gives the gradients."""

    def __init__(self, model: Model, task: Task, config: RunConfig, device: torch.device) -> None:
        self.model, self.task, self.settings, self.device = model, task, config.train, device
        self.smoothing = uniform_label_smoothing(config.train, config.model)
        self.precision = choose_precision(config.train.precision, device.type)
        if self.precision == "bfloat16" and device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # for matrix products outside autocast
        if config.train.compile:
            model.compile(dynamic=True)  # batch shapes vary
        self.obstacle = _torch_setting(config.train) or _loss_obstacle(task) or training_obstacle(model)
        self.native = None if self.obstacle else native_trainer(model, config.train.precision)

    def loss(self, micro_batch: MicroBatch) -> Loss:
        """Loss of a micro-batch, summed over its tokens."""
        sampled_softmax, rdrop = self.settings.sampled_softmax, self.settings.rdrop
        if isinstance(micro_batch, Batch) and rdrop:
            micro_batch = micro_batch.doubled()
        if self.native is not None and isinstance(micro_batch, TrainingBatch):
            return self.native.loss(micro_batch, self.smoothing, sampled_softmax, rdrop)
        with autocast(self.precision, self.device):
            if rdrop:
                return rdrop_loss(self.model, micro_batch, self.smoothing, sampled_softmax, rdrop)
            return self.task.loss(self.model, micro_batch, self.smoothing, sampled_softmax)

    def describe(self) -> str:
        """'bfloat16 on 2 threads by the native engine' for the report."""
        threads = torch.get_num_threads()
        where = f"{threads} thread{'s' * (threads > 1)}" if self.device.type == "cpu" else str(self.device)
        if self.native is None:
            return f"{self.precision} on {where} by PyTorch (not by the native engine: {self.obstacle})"
        return f"{self.native.precision} on {where} by the native engine"


def _torch_setting(settings: TrainSettings) -> str:
    """The setting that asks for PyTorch, as a clause for the log; empty if none does."""
    if settings.backend == "torch":
        return "train.backend is torch"
    return "train.compile is true" if settings.compile else ""


def _loss_obstacle(task: Task) -> str:
    if task.native_loss:
        return ""
    name = next((f"task={name}" for name, kind in TASKS.items() if type(task) is kind), f"class {type(task).__name__}")
    return f"it does not compute the loss of {name}"
