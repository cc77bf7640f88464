"""What training lowers: sums over real tokens, and how many there were.

An update divides the sum by the number of tokens over all its pieces and all ranks, so that neither changes the result.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from heedful.config import ModelConfig, TrainSettings
from heedful.data.batch import Batch, LabeledBatch
from heedful.data.blocks import TokenBlocks
from heedful.data.masking import MaskedBatch
from heedful.model.baselines.universal import UniversalStack
from heedful.model.transformer import DecoderModel, EncoderDecoder, EncoderModel, Model
from heedful.ops.cross_entropy import Loss, linear_cross_entropy, linear_rdrop_cross_entropy

LossFunction = TypeVar("LossFunction", bound=Callable[..., "Loss"])


def uniform_label_smoothing(settings: TrainSettings, config: ModelConfig) -> float:
    """ε of the uniform form that equals the form asked for."""
    if settings.label_smoothing_form == "others":
        return settings.label_smoothing * config.vocab_size / (config.vocab_size - 1)
    return settings.label_smoothing


def with_ponder_cost(read: Callable[[Any], tuple[Tensor, ...]]) -> Callable[[LossFunction], LossFunction]:
    """Let a loss charge for the steps that halting tokens take; `read` gives ids that show where a token is.

    A token pays for its steps and for its remainder (Graves, 2016); only the remainder can be differentiated.
    """

    def decorate(loss_of: LossFunction) -> LossFunction:
        @wraps(loss_of)
        def charged(model: Model, piece: Any, smoothing: float = 0.0, negatives: int = 0) -> Loss:
            if not model.config.act_halting:
                return loss_of(model, piece, smoothing, negatives)
            with ExitStack() as stack:
                times: list[Tensor] = []  # (B, T) of each side, in the order in which they ran
                for side in (each for each in model.children() if isinstance(each, UniversalStack)):
                    stack.enter_context(side.ponder.register_forward_hook(lambda tap, given, out: times.append(out)))
                loss = loss_of(model, piece, smoothing, negatives)
            real = [ids != model.config.pad_id for ids in read(piece)]
            spent = torch.cat([time[mask] for time, mask in zip(times, real, strict=True)])  # (N)
            steps = (spent.detach() - 1e-4).floor().sum()  # without the remainders, which are at most 1
            pondered = torch.stack((steps, steps.new_tensor(float(len(spent)))))
            return replace(loss, smoothed=loss.smoothed + model.config.ponder_cost * spent.sum(), pondered=pondered)

        return cast(LossFunction, charged)

    return decorate


@with_ponder_cost(lambda batch: (batch.source, batch.labels))
def translation_loss(model: EncoderDecoder, batch: Batch, smoothing: float = 0.0, negatives: int = 0) -> Loss:
    """Label-smoothed cross-entropy of the target, given the source; logits only where there is a real token."""
    hidden: Tensor = model(batch.source, batch.decoder_input)  # (B, T, D)
    real = batch.labels != model.config.pad_id  # (B, T)
    smoothed, likelihood = linear_cross_entropy(
        hidden[real], model.output_weight, model.output_bias, batch.labels[real], smoothing, negatives
    )
    return Loss(smoothed, likelihood, batch.tokens)


def rdrop_loss(model: Any, batch: Any, smoothing: float, negatives: int, consistency: float) -> Loss:
    """The mean `translation_loss` of both halves of a batch, which are the same, and how far dropout drives them apart.

    R-Drop (Liang et al., 2021): what is said of a token with some of the network dropped is to be what is said with
    others dropped. The distance is the divergence of both from each other, `consistency` / 4 times.
    """
    hidden: Tensor = model(batch.source, batch.decoder_input)  # (2B, T, D)
    real = batch.labels != model.config.pad_id  # (2B, T)
    smoothed, likelihood = linear_rdrop_cross_entropy(
        hidden[real], model.output_weight, model.output_bias, batch.labels[real], smoothing, negatives, consistency
    )
    return Loss(smoothed, likelihood, batch.tokens // 2)


@with_ponder_cost(lambda blocks: (blocks.ids[:, :-1],))
def language_loss(model: DecoderModel, blocks: TokenBlocks, smoothing: float = 0.0, negatives: int = 0) -> Loss:
    """Cross-entropy of every token of a text, given those before it in its block."""
    hidden: Tensor = model(blocks.ids[:, :-1])  # (B, T, D)
    smoothed, likelihood = linear_cross_entropy(
        hidden.flatten(0, 1), model.output_weight, model.output_bias, blocks.ids[:, 1:].flatten(), smoothing, negatives
    )
    return Loss(smoothed, likelihood, blocks.tokens)


@with_ponder_cost(lambda masked: (masked.ids,))
def masked_loss(model: EncoderModel, masked: MaskedBatch, smoothing: float = 0.0, negatives: int = 0) -> Loss:
    """Cross-entropy of the tokens that have to be guessed, given what is left; logits only where one is."""
    hidden: Tensor = model(masked.ids, types=masked.types)  # (B, T, D)
    guessed = model.before_output(hidden[masked.chosen])  # (N, D)
    smoothed, likelihood = linear_cross_entropy(
        guessed, model.output_weight, model.output_bias, masked.labels[masked.chosen], smoothing, negatives
    )
    return Loss(smoothed, likelihood, masked.tokens)


@with_ponder_cost(lambda examples: (examples.ids,))
def classification_loss(
    model: EncoderModel, examples: LabeledBatch, smoothing: float = 0.0, negatives: int = 0
) -> Loss:
    """Cross-entropy of the label of every text."""
    assert model.classifier is not None
    hidden: Tensor = model(examples.ids, types=examples.types)  # (B, T, D)
    vectors = model.pool_sequence(hidden, examples.ids != model.config.pad_id)  # (B, D)
    smoothed, likelihood = linear_cross_entropy(
        vectors, model.classifier.weight, model.classifier.bias, examples.labels, smoothing, negatives
    )
    return Loss(smoothed, likelihood, len(examples.labels))
