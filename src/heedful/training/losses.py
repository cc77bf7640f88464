"""Losses: sums over real tokens, with their number.

An update divides the sum by the number of tokens over all micro-batches and ranks, so that neither changes the result.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.config import ModelConfig, TrainSettings
from heedful.data.batch import Batch, LabeledBatch, TextPairBatch
from heedful.data.blocks import TokenBlocks
from heedful.data.masking import MaskedBatch
from heedful.data.token_labels import UNLABELED
from heedful.model.transformer import DecoderModel, EncoderDecoder, EncoderModel, Model
from heedful.ops.cross_entropy import (
    Loss,
    linear_cross_entropy,
    linear_pointer_cross_entropy,
    linear_rdrop_cross_entropy,
)
from heedful.training.auxiliary_losses import with_auxiliary_losses

SIMILARITY_SCALE = 20.0  # of cosine similarities, as in sentence-transformers


def uniform_label_smoothing(settings: TrainSettings, config: ModelConfig) -> float:
    """ε of uniform label smoothing that equals the form that is set."""
    if settings.label_smoothing_form == "others":
        return settings.label_smoothing * config.vocab_size / (config.vocab_size - 1)
    return settings.label_smoothing


@with_auxiliary_losses(lambda batch: (batch.source, batch.labels))
def translation_loss(model: EncoderDecoder, batch: Batch, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
    """Label-smoothed cross-entropy of the target given the source; logits are computed only for real tokens."""
    if model.pointer is not None:
        return _pointer_loss(model, batch, smoothing, sampled_softmax)
    hidden: Tensor = model(batch.source, batch.decoder_input)  # (B, T, D)
    real = batch.labels != model.config.pad_id  # (B, T)
    return _output_loss(model, hidden[real], batch.labels[real], smoothing, sampled_softmax)


def _output_loss(model: Model, hidden: Tensor, labels: Tensor, smoothing: float, sampled_softmax: int = 0) -> Loss:
    """(N, D), (N) -> cross-entropy of the labels after the output projection."""
    sums = linear_cross_entropy(hidden, model.output_weight, model.output_bias, labels, smoothing, sampled_softmax)
    return Loss(*sums, len(labels))


def _pointer_loss(model: EncoderDecoder, batch: Batch, smoothing: float, sampled_softmax: int) -> Loss:
    context = model.encode(batch.source)
    hidden = model.decode(batch.decoder_input, context)  # (B, T, D)
    real = batch.labels != model.config.pad_id  # (B, T)
    assert model.pointer is not None and context.copies is not None
    smoothed, likelihood = linear_pointer_cross_entropy(
        hidden[real],
        model.output_weight,
        model.output_bias,
        batch.labels[real],
        smoothing,
        sampled_softmax,
        gates=model.pointer.log_gates(hidden[real]),
        copied=model.pointer.log_copied(hidden, context.copies, batch.labels)[real],
    )
    return Loss(smoothed, likelihood, batch.tokens)


def speech_loss(model: EncoderDecoder, batch: Batch, smoothing: float, ctc_weight: float, prompt: int = 0) -> Loss:
    """Cross-entropy of the transcript given the recording, and the CTC loss of the encoder with weight `ctc_weight`.

    The first `prompt` labels are not text, so CTC does not see them; its blank is the padding token.
    """
    context = model.encode(batch.source, batch.source_lengths)
    hidden = model.decode(batch.decoder_input, context)  # (B, T, D)
    places = torch.arange(batch.labels.size(1), device=hidden.device)
    real = places < batch.target_lengths.unsqueeze(1)  # (B, T): the padding token of some models is eos
    loss = _output_loss(model, hidden[real], batch.labels[real], smoothing)
    if model.ctc is not None and ctc_weight:
        assert context.memory is not None
        ctc = F.ctc_loss(
            model.ctc(context.memory).float().log_softmax(-1).transpose(0, 1),  # (S, B, V)
            batch.labels[:, prompt:],
            batch.source_lengths,
            batch.target_lengths - 1 - prompt,
            blank=model.config.pad_id,
            reduction="sum",
            zero_infinity=True,  # transcripts that have more tokens than the recording has positions
        )
        loss = replace(loss, smoothed=(1 - ctc_weight) * loss.smoothed + ctc_weight * ctc)
    return loss


def rdrop_loss(model: Any, batch: Any, smoothing: float, sampled_softmax: int, rdrop: float) -> Loss:
    """R-Drop (Liang et al., 2021): the batch holds every pair twice, and each copy gets its own dropout mask.

    The loss is the mean `translation_loss` of the copies plus `rdrop` / 4 times their symmetric KL divergence.
    """
    hidden: Tensor = model(batch.source, batch.decoder_input)  # (2B, T, D)
    real = batch.labels != model.config.pad_id  # (2B, T)
    smoothed, likelihood = linear_rdrop_cross_entropy(
        hidden[real],
        model.output_weight,
        model.output_bias,
        batch.labels[real],
        smoothing,
        sampled_softmax,
        rdrop,
    )
    return Loss(smoothed, likelihood, batch.tokens // 2)


@with_auxiliary_losses(lambda blocks: (blocks.ids[:, :-1],))
def language_loss(model: DecoderModel, blocks: TokenBlocks, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
    """Cross-entropy of every token given the tokens before it in its block."""
    hidden: Tensor = model(blocks.ids[:, :-1])  # (B, T, D)
    return _output_loss(model, hidden.flatten(0, 1), blocks.ids[:, 1:].flatten(), smoothing, sampled_softmax)


@with_auxiliary_losses(lambda masked: (masked.ids,))
def masked_loss(model: EncoderModel, masked: MaskedBatch, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
    """Cross-entropy of the masked tokens; logits are computed only for those."""
    hidden: Tensor = model(masked.ids, types=masked.types)  # (B, T, D)
    masked_states = model.before_output(hidden[masked.chosen])  # (N, D)
    return _output_loss(model, masked_states, masked.labels[masked.chosen], smoothing, sampled_softmax)


@with_auxiliary_losses(lambda examples: (examples.ids,))
def classification_loss(
    model: EncoderModel, examples: LabeledBatch, smoothing: float = 0.0, sampled_softmax: int = 0
) -> Loss:
    """Cross-entropy of the labels: (B,) of each text, or (B, T) of each token that has one."""
    assert model.classifier is not None
    hidden: Tensor = model(examples.ids, types=examples.types)  # (B, T, D)
    vectors = model.classifier_input(hidden, examples.ids != model.config.pad_id)  # (B, D) or (B, T, D)
    labeled = examples.labels != UNLABELED
    smoothed, likelihood = linear_cross_entropy(
        vectors[labeled],
        model.classifier.weight,
        model.classifier.bias,
        examples.labels[labeled],
        smoothing,
        sampled_softmax,
    )
    return Loss(smoothed, likelihood, int(labeled.sum()))


@with_auxiliary_losses(lambda examples: (examples.ids,))
def regression_loss(
    model: EncoderModel, examples: LabeledBatch, smoothing: float = 0.0, sampled_softmax: int = 0
) -> Loss:
    """Squared error of the predicted numbers; `examples.labels` is (B,)."""
    predicted = _label_logits(model, examples).squeeze(1)  # (B,)
    error = (predicted - examples.labels).square().sum()
    return Loss(error, error.detach(), len(predicted))


@with_auxiliary_losses(lambda examples: (examples.ids,))
def answer_loss(model: EncoderModel, examples: LabeledBatch, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
    """Mean cross-entropy of the first and of the last token of the answer; `examples.labels` is (B, 2)."""
    padded = (examples.ids == model.config.pad_id).unsqueeze(2)  # (B, T, 1)
    logits = _label_logits(model, examples).masked_fill(padded, -torch.inf)  # (B, T, 2)
    loss = F.cross_entropy(logits, examples.labels, reduction="sum") / 2
    return Loss(loss, loss.detach(), len(examples.labels))


@with_auxiliary_losses(lambda pairs: (pairs.second,))
def similarity_loss(
    model: EncoderModel, pairs: TextPairBatch, smoothing: float = 0.0, sampled_softmax: int = 0
) -> Loss:
    """Multiple-negatives ranking loss (Henderson et al., 2017): a text selects its partner among those of the batch."""
    first, second = model.embed(pairs.first, pairs.first_types), model.embed(pairs.second, pairs.second_types)  # (B, D)
    scores = SIMILARITY_SCALE * (first @ second.t()).float()  # (B, B)
    loss = F.cross_entropy(scores, torch.arange(len(scores), device=scores.device), reduction="sum")
    return Loss(loss, loss.detach(), len(scores))


def _label_logits(model: EncoderModel, examples: LabeledBatch) -> Tensor:
    hidden: Tensor = model(examples.ids, types=examples.types)  # (B, T, D)
    return model.classify(hidden, examples.ids != model.config.pad_id).float()
