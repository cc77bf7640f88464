"""Batches of every task as the engine's trainer reads them: the real tokens, concatenated without padding."""

from __future__ import annotations

from ctypes import c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.data.batch import Batch, LabeledBatch
from heedful.data.blocks import TokenBlocks
from heedful.data.masking import MaskedBatch
from heedful.native.capi import BatchStruct
from heedful.ops.cross_entropy import sample_softmax_tokens

TrainingBatch = Batch | TokenBlocks | MaskedBatch | LabeledBatch


@dataclass(frozen=True)
class LossOptions:
    """What the loss is besides the cross-entropy."""

    smoothing: float = 0.0
    sampled_softmax: int = 0  # other tokens that the softmax sums over; 0 for all
    rdrop: float = 0.0


@dataclass(frozen=True)
class FlatBatch:
    """The arrays of `Batch` in csrc/trainer.h, as int32 tensors."""

    tokens: int  # real labels, over whose number the loss is averaged
    labels: Tensor
    target_lengths: Tensor  # labels of each example
    sources: Tensor | None = None
    source_lengths: Tensor | None = None
    types: Tensor | None = None
    inputs: Tensor | None = None
    predicted: Tensor | None = None

    def arguments(self, vocabulary: int, options: LossOptions) -> tuple[BatchStruct, list[Tensor]]:
        """The C structure, and the tensors that it points to; `vocabulary` counts the labels that exist.

        Sampled tokens and the seed of the dropout masks come from torch's random numbers, in this order.
        """
        labels, candidates, bias, count = self.labels, None, None, vocabulary
        if 0 < options.sampled_softmax < vocabulary:
            candidates, weights = sample_softmax_tokens(labels.long(), vocabulary, options.sampled_softmax)
            index = torch.empty(vocabulary, dtype=torch.int32)  # of each candidate, by its token
            count = len(candidates)
            index[candidates] = torch.arange(count, dtype=torch.int32)
            labels, candidates, bias = index[labels.long()], candidates.int().contiguous(), weights.log()
        arrays = (self.sources, self.source_lengths, self.types, self.inputs, self.target_lengths, self.predicted)
        pointers = [*arrays, labels, candidates, bias]
        seed = int(torch.randint(2**63 - 1, ()).item())
        struct = BatchStruct(
            *(None if tensor is None else c_void_p(tensor.data_ptr()) for tensor in pointers),
            len(self.target_lengths), count, options.smoothing, options.rdrop, seed,
        )  # fmt: skip
        return struct, [tensor for tensor in pointers if tensor is not None]


def flatten(batch: TrainingBatch, pad_id: int, max_length: int, rdrop: bool = False) -> FlatBatch:
    """Any task's batch; refuses sequences longer than `max_length`."""
    match batch:
        case Batch():
            _check_length(max(batch.source.size(1), batch.labels.size(1)), max_length)
            return _flatten_pairs(batch, rdrop)
        case TokenBlocks():
            _check_length(batch.ids.size(1) - 1, max_length)
            return _flatten_blocks(batch)
        case MaskedBatch():
            _check_length(batch.ids.size(1), max_length)
            return _flatten_masked(batch, pad_id)
        case LabeledBatch():
            _check_length(batch.ids.size(1), max_length)
            real = batch.ids != pad_id
            ones = torch.ones(len(batch.labels), dtype=torch.int32)
            return FlatBatch(
                len(batch.labels), _ints(batch.labels), ones, _ints(batch.ids[real]), _ints(real.sum(1)),
                _ints(batch.types[real]),
            )  # fmt: skip


def _flatten_pairs(batch: Batch, rdrop: bool) -> FlatBatch:
    if rdrop:  # the engine expects the two passes of a sentence side by side
        batch = batch.rows(torch.arange(len(batch)).view(2, -1).t().flatten())
    target_mask = torch.arange(batch.labels.size(1)) < batch.target_lengths.unsqueeze(1)  # (B, T)
    source_mask = torch.arange(batch.source.size(1)) < batch.source_lengths.unsqueeze(1)  # (B, S)
    return FlatBatch(
        batch.tokens // 2 if rdrop else batch.tokens,
        _ints(batch.labels[target_mask]),
        _ints(batch.target_lengths),
        _ints(batch.source[source_mask]),
        _ints(batch.source_lengths),
        inputs=_ints(batch.decoder_input[target_mask]),
    )


def _flatten_blocks(blocks: TokenBlocks) -> FlatBatch:
    rows, length = blocks.ids.shape
    lengths = torch.full((rows,), length - 1, dtype=torch.int32)
    return FlatBatch(blocks.tokens, _ints(blocks.ids[:, 1:]), lengths, inputs=_ints(blocks.ids[:, :-1]))


def _flatten_masked(masked: MaskedBatch, pad_id: int) -> FlatBatch:
    real, chosen = masked.ids != pad_id, masked.chosen
    positions = torch.arange(masked.ids.size(1)).expand_as(chosen)[chosen]
    return FlatBatch(
        masked.tokens,
        _ints(masked.labels[chosen]),
        _ints(chosen.sum(1)),
        _ints(masked.ids[real]),
        _ints(real.sum(1)),
        _ints(masked.types[real]),
        predicted=_ints(positions),
    )


def _check_length(length: int, longest: int) -> None:
    if length > longest:
        raise ValueError(f"{length} tokens, but the model takes {longest} at most")


def _ints(tensor: Tensor) -> Tensor:
    return tensor.to(torch.int32, memory_format=torch.contiguous_format).contiguous()
