"""Learning on a CPU by the compiled engine: the loss of a batch and all gradients, as torch has them, sooner.

It knows the encoder-decoder of the paper, with norms before or after; anything else is left to torch. Products with
weights are computed in float32, or in bfloat16 where the CPU is faster in it: by tiles (AMX) or by pairs (AVX-512).
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

# What a model has to be like, besides an encoder-decoder on a CPU whose widths suit the CPU's registers.
KNOWN = {
    "architecture": "transformer",
    "attention": "full",
    "attention_of_decoder": "full",
    "universal": False,
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
    """The engine for this model, if it knows such models and there is an engine; 'auto' takes what is faster."""
    config = model.config
    if not isinstance(model, EncoderDecoder) or any(getattr(config, name) != KNOWN[name] for name in KNOWN):
        return None
    if config.key_width != config.d_head or any(each.device.type != "cpu" for each in model.parameters()):
        return None
    loaded = library()
    if loaded is None:
        return None
    panel = loaded.heedful_panel()  # of two registers; heads may end with the first of them
    if config.d_model % panel or config.d_ff % panel or config.d_head % (panel // 2):
        return None
    return NativeTrainer(model, loaded, training_precision(precision, loaded))


class NativeTrainer:
    """The weights of a model that learns, where they are."""

    def __init__(self, model: EncoderDecoder, loaded: ctypes.CDLL, precision: str) -> None:
        self.library, self.config, self.precision = loaded, model.config, precision
        self.parameters = _in_order(model)
        self.sizes = [each.numel() for each in self.parameters]
        config, count = self.config, len(self.parameters)
        self.positions = torch.from_numpy(sinusoids(config.max_length, config.d_model))
        scale = config.d_model**0.5 if config.scale_embedding else 1.0
        outline = TrainConfigStruct(
            config.d_model, config.d_ff, config.n_heads, config.encoder_layers, config.decoder_layers,
            config.vocab_size, config.pre_norm, config.norm_eps, scale, config.dropout,
        )  # fmt: skip
        where = (c_void_p * count)(*(each.data_ptr() for each in self.parameters))
        sizes = (c_int64 * count)(*self.sizes)
        halves = precision == "bfloat16"
        found = loaded.heedful_learner(byref(outline), where, sizes, count, _at(self.positions), halves)
        self.learner = c_void_p(found)
        self._checked(0 if self.learner else -1)

    def __del__(self) -> None:
        if getattr(self, "learner", None):
            self.library.heedful_learner_free(self.learner)

    def loss(self, batch: Batch, smoothing: float = 0.0, negatives: int = 0, consistency: float = 0.0) -> Loss:
        """What `translation_loss` gives for the model while it learns; what is dropped follows from torch's seed."""
        smoothed, likelihood = _Learned.apply(self, batch, smoothing, negatives, consistency, *self.parameters)  # type: ignore[no-untyped-call]
        return Loss(smoothed, likelihood, batch.tokens // 2 if consistency else batch.tokens)

    def learn(self, batch: Batch, smoothing: float, negatives: int, consistency: float = 0.0) -> tuple[Tensor, Tensor]:
        """(2) sums of the smoothed loss and of the negative log-likelihood; the gradients of the first, flat."""
        if consistency:  # twins stand side by side there
            batch = batch.rows(torch.arange(len(batch)).view(2, -1).t().flatten())
        longest = max(batch.source.size(1), batch.labels.size(1))
        if longest > self.config.max_length:
            raise ValueError(f"{longest} tokens, but the model takes {self.config.max_length} at most")
        real = torch.arange(batch.labels.size(1)) < batch.target_lengths.unsqueeze(1)  # (B, T)
        read = torch.arange(batch.source.size(1)) < batch.source_lengths.unsqueeze(1)  # (B, S)
        labels = batch.labels[real]
        vocabulary = self.config.vocab_size
        candidates, weights = sample_softmax_tokens(labels, vocabulary, negatives or vocabulary)
        place = torch.empty(self.config.vocab_size, dtype=torch.int32)
        place[candidates] = torch.arange(len(candidates), dtype=torch.int32)
        shifts = torch.full((len(candidates) + 64,), -1e30)  # a whole number of registers
        shifts[: len(candidates)] = weights.log()
        lent = [
            each.int().contiguous()
            for each in (batch.source[read], batch.source_lengths, batch.decoder_input[real], batch.target_lengths)
        ]
        lent += [place[labels], candidates.int(), shifts]
        seed = int(torch.randint(2**63 - 1, ()).item())
        lesson = BatchStruct(*map(_at, lent), len(batch), len(candidates), smoothing, consistency, seed)
        sums, gradients = (c_double * 2)(), torch.empty(sum(self.sizes))
        self._checked(
            self.library.heedful_learn(self.learner, byref(lesson), torch.get_num_threads(), _at(gradients), sums)
        )
        return torch.tensor(sums[:]), gradients

    def _checked(self, code: int) -> None:
        if code < 0:
            raise HeedfulError(f"the engine cannot learn: {self.library.heedful_error().decode()}.")


class _Learned(torch.autograd.Function):
    """Gradients are found with the loss, and handed out when they are asked for."""

    @staticmethod
    def forward(
        ctx: Any,
        by: NativeTrainer,
        batch: Batch,
        smoothing: float,
        negatives: int,
        consistency: float,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        sums, ctx.gradients = by.learn(batch, smoothing, negatives, consistency)
        ctx.sizes, ctx.shapes = by.sizes, [each.shape for each in parameters]
        smoothed, likelihood = sums.float().unbind()
        ctx.mark_non_differentiable(likelihood)
        return smoothed, likelihood

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        parts = torch.split(ctx.gradients.mul_(grads[0]), ctx.sizes)
        return None, None, None, None, None, *(part.view(shape) for part, shape in zip(parts, ctx.shapes, strict=True))


def _in_order(model: EncoderDecoder) -> list[nn.Parameter]:
    """All weights in the order in which the engine meets them, which is that of the tensor spec."""
    return [model.get_parameter(name) for name in tensor_spec(model.config)]


def _at(tensor: Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())
