"""Training on a CPU by the compiled engine: the loss of a batch and the gradients of all weights.

`training.backend` uses it in place of torch for the encoder-decoder of the paper, pre-norm or post-norm; other models
are left to torch. GEMMs with weights are computed in float32, or in bfloat16 where that is faster on the CPU (AMX, or
AVX-512 with bf16 instructions).
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_double, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.errors import HeedfulError
from heedful.model.spec import tensor_spec
from heedful.model.transformer import EncoderDecoder, Model
from heedful.native.capi import BatchStruct, TrainConfigStruct
from heedful.native.engine import library, training_precision
from heedful.ops.cross_entropy import Loss, sample_softmax_tokens
from heedful.ops.position_tables import sinusoids

# Settings that the engine requires of an encoder-decoder, besides widths that are multiples of its panels.
REQUIRED = {
    "architecture": "transformer",
    "attention": "full",
    "attention_of_decoder": "full",
    "universal": False,
    "norm": "layer",
    "experts": 0,
    "activation": "relu",
    "positions": "sinusoidal",
    "tie": "all",
    "bias": True,
    "output_bias": False,
    "embedding_norm": False,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
}


def native_trainer(model: Model, precision: str = "float32") -> NativeTrainer | None:
    """The engine's trainer, or None if there is no engine or it does not support the model."""
    config = model.config
    if not isinstance(model, EncoderDecoder) or any(getattr(config, name) != value for name, value in REQUIRED.items()):
        return None
    if config.key_width != config.d_head or any(parameter.device.type != "cpu" for parameter in model.parameters()):
        return None
    loaded = library()
    if loaded is None:
        return None
    panel = loaded.heedful_panel_width()  # two registers; the width of a head may be a multiple of one
    if config.d_model % panel or config.d_ff % panel or config.d_head % (panel // 2):
        return None
    return NativeTrainer(model, loaded, training_precision(precision, loaded))


class NativeTrainer:
    """Computes losses and gradients of a model; reads the weights of its parameters in place."""

    def __init__(self, model: EncoderDecoder, loaded: ctypes.CDLL, precision: str) -> None:
        self.library, self.config, self.precision = loaded, model.config, precision
        self.parameters = _ordered_parameters(model)
        self.sizes = [parameter.numel() for parameter in self.parameters]
        config, count = self.config, len(self.parameters)
        self.positions = torch.from_numpy(sinusoids(config.max_length, config.d_model))
        scale = config.d_model**0.5 if config.scale_embedding else 1.0
        struct = TrainConfigStruct(
            config.d_model, config.d_ff, config.n_heads, config.encoder_layers, config.decoder_layers,
            config.vocab_size, config.pre_norm, config.norm_eps, scale, config.dropout,
        )  # fmt: skip
        weights = (c_void_p * count)(*(parameter.data_ptr() for parameter in self.parameters))
        sizes, bf16 = (c_int64 * count)(*self.sizes), precision == "bfloat16"
        trainer = loaded.heedful_trainer_new(byref(struct), weights, sizes, count, _pointer(self.positions), bf16)
        self.trainer = c_void_p(trainer)
        self._check(0 if self.trainer else -1)

    def __del__(self) -> None:
        if getattr(self, "trainer", None):
            self.library.heedful_trainer_free(self.trainer)

    def loss(self, batch: Batch, smoothing: float = 0.0, negatives: int = 0, rdrop: float = 0.0) -> Loss:
        """`translation_loss` or `rdrop_loss` in training mode; the dropout masks follow from torch's seed."""
        smoothed, likelihood = _NativeLoss.apply(self, batch, smoothing, negatives, rdrop, *self.parameters)  # type: ignore[no-untyped-call]
        return Loss(smoothed, likelihood, batch.tokens // 2 if rdrop else batch.tokens)

    def train_step(self, batch: Batch, smoothing: float, negatives: int, rdrop: float = 0.0) -> tuple[Tensor, Tensor]:
        """(2) sums of the smoothed loss and the negative log-likelihood; all gradients of the first, concatenated."""
        if rdrop:  # the engine expects the two passes of a sentence side by side
            batch = batch.rows(torch.arange(len(batch)).view(2, -1).t().flatten())
        longest = max(batch.source.size(1), batch.labels.size(1))
        if longest > self.config.max_length:
            raise ValueError(f"{longest} tokens, but the model takes {self.config.max_length} at most")
        target_mask = torch.arange(batch.labels.size(1)) < batch.target_lengths.unsqueeze(1)  # (B, T)
        source_mask = torch.arange(batch.source.size(1)) < batch.source_lengths.unsqueeze(1)  # (B, S)
        labels = batch.labels[target_mask]
        vocabulary = self.config.vocab_size
        candidates, weights = sample_softmax_tokens(labels, vocabulary, negatives or vocabulary)
        index = torch.empty(vocabulary, dtype=torch.int32)  # of each candidate, by its token
        index[candidates] = torch.arange(len(candidates), dtype=torch.int32)
        logit_bias = torch.full((len(candidates) + 64,), -1e30)  # padded to whole panels
        logit_bias[: len(candidates)] = weights.log()
        sources, inputs = batch.source[source_mask], batch.decoder_input[target_mask]
        integers = (sources, batch.source_lengths, inputs, batch.target_lengths, index[labels], candidates)
        arrays = [*(tensor.int().contiguous() for tensor in integers), logit_bias]
        seed = int(torch.randint(2**63 - 1, ()).item())
        struct = BatchStruct(*map(_pointer, arrays), len(batch), len(candidates), smoothing, rdrop, seed)
        sums, gradients = (c_double * 2)(), torch.empty(sum(self.sizes))
        self._check(
            self.library.heedful_train_step(
                self.trainer, byref(struct), torch.get_num_threads(), _pointer(gradients), sums
            )
        )
        return torch.tensor(sums[:]), gradients

    def _check(self, code: int) -> None:
        if code < 0:
            raise HeedfulError(f"the engine cannot train: {self.library.heedful_error().decode()}.")


class _NativeLoss(torch.autograd.Function):
    """The engine computes gradients together with the loss; the backward pass hands them out."""

    @staticmethod
    def forward(
        ctx: Any,
        trainer: NativeTrainer,
        batch: Batch,
        smoothing: float,
        negatives: int,
        rdrop: float,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        sums, ctx.gradients = trainer.train_step(batch, smoothing, negatives, rdrop)
        ctx.sizes, ctx.shapes = trainer.sizes, [parameter.shape for parameter in parameters]
        smoothed, likelihood = sums.float().unbind()
        ctx.mark_non_differentiable(likelihood)
        return smoothed, likelihood

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        parts = torch.split(ctx.gradients.mul_(grads[0]), ctx.sizes)
        return None, None, None, None, None, *(part.view(shape) for part, shape in zip(parts, ctx.shapes, strict=True))


def _ordered_parameters(model: EncoderDecoder) -> list[nn.Parameter]:
    """All weights in the order of the tensor spec, which is the order in which the engine numbers them."""
    return [model.get_parameter(name) for name in tensor_spec(model.config)]


def _pointer(tensor: Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())
