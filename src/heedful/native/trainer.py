"""Training on a CPU by the compiled engine: the loss of a batch and the gradients of all weights.

`training.backend` uses it in place of torch for the models that it supports, of all three families. GEMMs with weights
are computed in float32, or in bfloat16 where that is faster on the CPU (AMX, or AVX-512 with bf16 instructions).
"""

from __future__ import annotations

import ctypes
import re
from ctypes import byref, c_char_p, c_double, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from heedful.errors import HeedfulError
from heedful.model.transformer import Model
from heedful.native.capi import NamedWeightsStruct
from heedful.native.engine import library, training_precision
from heedful.native.flat_batch import FlatBatch, LossOptions, TrainingBatch, flatten
from heedful.native.support import config_struct, position_table, unsupported_setting
from heedful.ops.cross_entropy import Loss

KNOWN_WEIGHTS = re.compile(  # what TransformerTrainer in csrc/trainer.h looks up
    r"(source_)?embedding\.weight|token_types\.weight|output\.weight|output_bias"
    r"|(encoder|decoder)\.(position\.table|(first_norm|norm)\.(weight|bias)"
    r"|\d+\.((self|cross)\.(query|key|value|output)|(self|cross|feed)_residual\.norm|feed\.(up|gate|down))\.(weight|bias))"
    r"|(transform\.dense|transform\.norm|pooler|classifier|pointer\.(query|key|gate))\.(weight|bias)"
)


def native_trainer(model: Model, precision: str = "float32") -> NativeTrainer | None:
    """The engine's trainer, or None if there is no engine or it does not support the model."""
    loaded = library()
    if loaded is None or training_obstacle(model):
        return None
    return NativeTrainer(model, loaded, training_precision(precision, loaded))


def training_obstacle(model: Model) -> str:
    """Why the engine does not train a model, as a clause for the log; empty if it does."""
    config, loaded = model.config, library()
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        return "it trains on a CPU"
    if loaded is None:
        return "it is not loaded"
    if setting := unsupported_setting(config, training=True):
        return f"it does not know {setting}"
    if unknown := [name for name, _ in model.named_parameters() if not KNOWN_WEIGHTS.fullmatch(name)]:
        return f"it does not know the weight {unknown[0]}"
    panel = loaded.heedful_panel_width()  # two registers; the width of a head may be a multiple of one
    for name, width, multiple in (
        ("d_model", config.d_model, panel),
        ("d_ff", config.d_ff, panel),
        ("d_model / n_heads", config.d_head, panel // 2),
    ):
        if width % multiple:
            return f"model.{name} is {width} and must be a multiple of {multiple} for it"
    return ""


class NativeTrainer:
    """Computes losses and gradients of a model; reads the weights of its parameters in place."""

    def __init__(self, model: Model, loaded: ctypes.CDLL, precision: str) -> None:
        self.library, self.config, self.precision = loaded, model.config, precision
        named = list(model.named_parameters())
        self.parameters = [parameter for _, parameter in named]
        self.sizes = [parameter.numel() for parameter in self.parameters]
        table = position_table(model.config, model.config.max_length)
        self.positions = None if table is None else torch.from_numpy(table)
        count = len(named)
        names = (c_char_p * count)(*(name.encode() for name, _ in named))
        values = (c_void_p * count)(*(parameter.data_ptr() for parameter in self.parameters))
        sizes, bf16 = (c_int64 * count)(*self.sizes), precision == "bfloat16"
        weights = NamedWeightsStruct(
            *(ctypes.cast(array, c_void_p) for array in (names, values, sizes)),
            count,
            None if self.positions is None else _pointer(self.positions),
        )
        self.trainer = c_void_p(loaded.heedful_trainer_new(byref(config_struct(self.config)), byref(weights), bf16))
        self._check(0 if self.trainer else -1)
        self.buffer: Tensor | None = None  # (threads, size) of concatenated gradients, for the next loss
        self.anchor = torch.zeros((), requires_grad=True)  # stands for all parameters in autograd's graph

    def __del__(self) -> None:
        if getattr(self, "trainer", None):
            self.library.heedful_trainer_free(self.trainer)

    def loss(self, batch: TrainingBatch, smoothing: float = 0.0, sampled_softmax: int = 0, rdrop: float = 0.0) -> Loss:
        """The loss of a batch in training mode; the dropout masks follow from torch's seed."""
        config = self.config
        flat = flatten(batch, config.pad_id, config.max_length, rdrop > 0)
        options = LossOptions(smoothing, sampled_softmax, rdrop)
        hooked = any(parameter._backward_hooks for parameter in self.parameters)
        inputs = self.parameters if hooked else [self.anchor]
        smoothed, likelihood = _NativeLoss.apply(self, flat, options, *inputs)  # type: ignore[no-untyped-call]
        return Loss(smoothed, likelihood, flat.tokens)

    def train_step(self, batch: FlatBatch, options: LossOptions, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """(2) sums of the smoothed loss and the negative log-likelihood; the gradients of the first by each thread.

        `gradients` has a row of all concatenated gradients for each thread; the rows that were needed are returned.
        """
        classify = self.config.family == "encoder" and batch.predicted is None
        labels = len(self.config.labels) if classify else self.config.vocab_size
        struct, alive = batch.arguments(labels, options)
        sums, threads = (c_double * 2)(), len(gradients)
        used = self.library.heedful_train_step(self.trainer, byref(struct), threads, _pointer(gradients), sums)
        self._check(used)
        del alive
        return torch.tensor(sums[:]), gradients[:used]

    def new_gradients(self) -> Tensor:
        """Memory for the gradients of one loss, (threads, size)."""
        buffer, self.buffer, threads = self.buffer, None, torch.get_num_threads()
        return buffer if buffer is not None and len(buffer) == threads else torch.empty(threads, sum(self.sizes))

    def add_gradients(self, gradients: Tensor, scale: float) -> None:
        """Add `scale` times the sum of the gradients of all threads to those of the parameters.

        At once if these are consecutive.
        """
        flat = self._flat_gradients()
        total = torch.zeros(gradients.size(1)) if flat is None else flat
        threads = torch.get_num_threads()
        status = self.library.heedful_add_gradients(
            gradients.data_ptr(), len(gradients), len(total), scale, total.data_ptr(), threads
        )
        self._check(status)
        if flat is not None:
            return
        for parameter, part in zip(self.parameters, torch.split(total, self.sizes), strict=True):
            added = part.view_as(parameter)
            parameter.grad = added.clone() if parameter.grad is None else parameter.grad + added

    def _flat_gradients(self) -> Tensor | None:
        """The gradients of all parameters as one tensor, if they are views of it."""
        first = self.parameters[0].grad
        if first is None or first._base is None:
            return None
        end = first.data_ptr()
        for parameter, size in zip(self.parameters, self.sizes, strict=True):
            if parameter.grad is None or parameter.grad.data_ptr() != end or not parameter.grad.is_contiguous():
                return None
            end += 4 * size
        return first.as_strided((sum(self.sizes),), (1,))

    def _check(self, code: int) -> None:
        if code < 0:
            raise HeedfulError(f"the engine cannot train: {self.library.heedful_error().decode()}.")


class _NativeLoss(torch.autograd.Function):
    """The engine computes gradients together with the loss; the backward pass hands them out.

    Its input is the trainer's anchor, and it adds to the gradients of all parameters itself: autograd's accumulation,
    parameter by parameter, takes as long as a layer of a small model. If a parameter has a hook, all are inputs.
    """

    @staticmethod
    def forward(
        ctx: Any, trainer: NativeTrainer, batch: FlatBatch, options: LossOptions, *inputs: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.trainer, ctx.shapes = trainer, [tensor.shape for tensor in inputs]
        ctx.direct = inputs[0] is trainer.anchor
        ctx.memory = trainer.new_gradients()
        sums, ctx.gradients = trainer.train_step(batch, options, ctx.memory)
        smoothed, likelihood = sums.float().unbind()
        ctx.mark_non_differentiable(likelihood)
        return smoothed, likelihood

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.direct:
            ctx.trainer.add_gradients(ctx.gradients, float(grads[0]))
            ctx.trainer.buffer = ctx.memory
            return None, None, None, None
        parts = torch.split(ctx.gradients.sum(0).mul_(grads[0]), ctx.trainer.sizes)
        return None, None, None, *(part.view(shape) for part, shape in zip(parts, ctx.shapes, strict=True))


def _pointer(tensor: Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())
