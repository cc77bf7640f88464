"""What training lowers: sums over real tokens, and how many there were.

An update divides the sum by the number of tokens over all its pieces and all ranks, so that neither changes the result.
"""

from dataclasses import dataclass

from torch import Tensor

from heedful.config import ModelConfig, TrainSettings
from heedful.data.batch import Batch
from heedful.data.blocks import Blocks
from heedful.data.labelled import Examples
from heedful.data.masking import Masked
from heedful.model import DecoderModel, EncoderDecoder, EncoderModel
from heedful.ops import linear_cross_entropy


@dataclass(frozen=True)
class Loss:
    """Sums over the real target tokens of a batch."""

    smoothed: Tensor  # differentiable
    likelihood: Tensor  # negative log-likelihood, the logarithm of perplexity once divided by `tokens`
    tokens: int


def smoothing_of(settings: TrainSettings, config: ModelConfig) -> float:
    """ε of the uniform form that equals the form asked for."""
    if settings.smoothing == "others":
        return settings.label_smoothing * config.vocab_size / (config.vocab_size - 1)
    return settings.label_smoothing


def translation_loss(model: EncoderDecoder, batch: Batch, smoothing: float = 0.0) -> Loss:
    """Label-smoothed cross-entropy of the target, given the source; logits only where there is a real token."""
    hidden: Tensor = model(batch.source, batch.decoder_input)  # (B, T, D)
    real = batch.labels != model.config.pad_id  # (B, T)
    smoothed, likelihood = linear_cross_entropy(
        hidden[real], model.output_weight, model.output_bias, batch.labels[real], smoothing
    )
    return Loss(smoothed, likelihood, batch.tokens)


def language_loss(model: DecoderModel, blocks: Blocks, smoothing: float = 0.0) -> Loss:
    """Cross-entropy of every token of a text, given those before it in its block."""
    hidden: Tensor = model(blocks.ids[:, :-1])  # (B, T, D)
    smoothed, likelihood = linear_cross_entropy(
        hidden.flatten(0, 1), model.output_weight, model.output_bias, blocks.ids[:, 1:].flatten(), smoothing
    )
    return Loss(smoothed, likelihood, blocks.tokens)


def masked_loss(model: EncoderModel, masked: Masked, smoothing: float = 0.0) -> Loss:
    """Cross-entropy of the tokens that have to be guessed, given what is left; logits only where one is."""
    hidden: Tensor = model(masked.ids, types=masked.types)  # (B, T, D)
    guessed = model.before_output(hidden[masked.chosen])  # (N, D)
    smoothed, likelihood = linear_cross_entropy(
        guessed, model.output_weight, model.output_bias, masked.labels[masked.chosen], smoothing
    )
    return Loss(smoothed, likelihood, masked.tokens)


def classification_loss(model: EncoderModel, examples: Examples, smoothing: float = 0.0) -> Loss:
    """Cross-entropy of the label of every text."""
    assert model.classifier is not None
    hidden: Tensor = model(examples.ids, types=examples.types)  # (B, T, D)
    vectors = model.summarise(hidden, examples.ids != model.config.pad_id)  # (B, D)
    smoothed, likelihood = linear_cross_entropy(
        vectors, model.classifier.weight, model.classifier.bias, examples.labels, smoothing
    )
    return Loss(smoothed, likelihood, len(examples.labels))
