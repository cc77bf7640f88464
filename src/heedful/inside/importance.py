"""Head importance: ablate each attention head by itself and measure how much the loss rises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.data.batch import collate
from heedful.data.bucketing import plan_batches
from heedful.data.pairs import Pairs
from heedful.errors import DataError, SettingError
from heedful.evaluation.metrics import quick_scores
from heedful.inference.translator import Translator
from heedful.inside.patch import Head, heads, heads_off
from heedful.model.transformer import DecoderModel, EncoderDecoder
from heedful.ops.cross_entropy import linear_cross_entropy
from heedful.storage.folder import ModelFolder
from heedful.storage.model_kind import model_kind

TOKENS = 2048  # that are run at once
MASKED = 7  # every seventh token of an encoder's text is to be guessed

Step = tuple[
    tuple[Tensor, ...], Tensor
]  # what a model is given, and the labels of its positions, -1 where there is none


@dataclass(frozen=True)
class Measure:
    """The quality of a model on a text: loss in nats per token, and BLEU if requested."""

    loss: float
    bleu: float | None = None


@dataclass(frozen=True)
class Importance:
    """Quality of the whole model, and without each head."""

    whole: Measure
    without: dict[Head, Measure]

    def rise(self, head: Head) -> float:
        """How much the loss rises without a head."""
        return self.without[head].loss - self.whole.loss

    def drop(self, head: Head) -> float | None:
        """How much BLEU falls without a head."""
        whole, without = self.whole.bleu, self.without[head].bleu
        return None if whole is None or without is None else whole - without

    def ranked(self) -> list[Head]:
        """The heads, most important first."""
        return sorted(self.without, key=lambda head: -self.rise(head))

    def as_json(self) -> dict[str, object]:
        whole = {"loss": self.whole.loss} | ({} if self.whole.bleu is None else {"bleu": self.whole.bleu})
        return {
            "whole": whole,
            "heads": [
                {"head": str(head), "loss": measure.loss, "rise": self.rise(head)}
                | ({} if measure.bleu is None else {"bleu": measure.bleu, "drop": self.drop(head)})
                for head, measure in self.without.items()
            ],
        }


def importance(
    folder: ModelFolder,
    sources: Sequence[str],
    references: Sequence[str] | None = None,
    bleu: bool = False,
    progress: Callable[[Head, int], None] | None = None,
) -> Importance:
    """Measure a model without each of its heads, on sentences and, for a translator, their translations."""
    translates = isinstance(folder.model, EncoderDecoder)
    if translates and references is None:
        raise SettingError(
            "a translator is measured against references; give the translation of each line as reference."
        )
    if not translates and (references is not None or bleu):
        kind = model_kind(folder.config, folder.task).title
        raise SettingError(f"{kind} is measured on its text alone; leave out references and BLEU.")
    if references is not None and len(references) != len(sources):
        raise DataError(f"{len(sources)} sentences and {len(references)} references; give one for each.")
    if folder.model.config.family == "encoder" and folder.model.config.head == "none":
        raise SettingError(f"{folder.path} has no head to guess tokens with: there is no loss to measure.")
    if not heads(folder.model):
        raise SettingError(f"{folder.path} holds a model without attention: there is no head to switch off.")
    steps = list(_steps(folder, sources, references))
    if not steps:
        raise DataError("there is nothing to measure on: no line has text that fits the model.")
    translator = Translator([folder]) if bleu else None

    def measure(off: Head | None) -> Measure:
        with heads_off(folder.model, [off]) if off else nullcontext():
            bleu_score = None
            if translator is not None:
                bleu_score = quick_scores(translator.translate(list(sources)), list(references or []))["valid_bleu"]
            return Measure(_loss(folder, steps), bleu_score)

    whole, without = measure(None), dict[Head, Measure]()
    for number, head in enumerate(heads(folder.model), 1):
        without[head] = measure(head)
        if progress is not None:
            progress(head, number)
    return Importance(whole, without)


@torch.inference_mode()
def _loss(folder: ModelFolder, steps: list[Step]) -> float:
    """Loss in nats per token."""
    model, total, tokens = folder.model.eval(), 0.0, 0
    for inputs, labels in steps:
        hidden = model.before_output(model(*inputs))
        real = labels >= 0
        _, likelihood = linear_cross_entropy(hidden[real], model.output_weight, model.output_bias, labels[real], 0.0)
        total, tokens = total + float(likelihood), tokens + int(real.sum())
    return total / tokens


def _steps(folder: ModelFolder, sources: Sequence[str], references: Sequence[str] | None) -> Iterator[Step]:
    model, tokenizer, longest = folder.model, folder.tokenizer, folder.model.config.max_length - 2
    ids = folder.source_tokenizer.encode_batch(list(sources))
    if isinstance(model, EncoderDecoder):
        targets = tokenizer.encode_batch(list(references or []))
        both = [pair for pair in zip(ids, targets, strict=True) if all(pair) and max(map(len, pair)) <= longest]
        pairs = Pairs.of(both)
        for rows in plan_batches(pairs.sources.lengths, pairs.targets.lengths, TOKENS, 0, 0):
            batch = collate(pairs, rows, folder.source_tokenizer.specials, tokenizer.specials)
            yield (batch.source, batch.decoder_input), batch.labels.masked_fill(batch.labels == tokenizer.pad_id, -1)
        return
    for line in ids:  # alone, since a GPT has no padding
        whole = line[: longest + 1] if isinstance(model, DecoderModel) else line[:longest]
        if len(whole) > 1:
            yield _next(whole) if isinstance(model, DecoderModel) else _hidden(folder, whole)


def _next(ids: list[int]) -> Step:
    return (torch.tensor([ids[:-1]]),), torch.tensor([ids[1:]])


def _hidden(folder: ModelFolder, ids: list[int]) -> Step:
    """Mask some tokens, always the same ones."""
    tokenizer = folder.tokenizer
    if tokenizer.mask_id is None:
        raise SettingError(f"the vocabulary of {folder.path} has no mask, so there is nothing that it could guess.")
    whole = torch.tensor([[tokenizer.bos_id, *ids, tokenizer.eos_id]])
    masked = torch.zeros_like(whole, dtype=torch.bool)
    masked[:, 1:-1:MASKED] = True
    return (whole.masked_fill(masked, tokenizer.mask_id),), whole.masked_fill(~masked, -1)
