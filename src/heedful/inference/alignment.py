"""Word alignments: source word -> target word, read off the cross-attention of a pair.

The pair runs through the model once with teacher forcing, so any output can be aligned, however it was found. Not every
head aligns words. The heads to read are chosen by occlusion: their attention agrees best with how much the probability
of each label falls when one source token is hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.data.batch import Batch
from heedful.errors import SettingError
from heedful.inference.record import activation_names, record
from heedful.inference.results import Alignment
from heedful.model.transformer import EncoderDecoder
from heedful.text import NO_WORD

AGREEMENT_RATIO = 0.7  # heads are read whose agreement is at least this fraction of the best
MIN_WEIGHT = 0.05  # attention from which an unaligned source word is linked to the target word that attends to it most
MAX_OCCLUSIONS = 32  # source tokens of a sentence that are hidden, one at a time, at most
LOGITS_PER_PASS = 2**25  # computed at once


@dataclass(frozen=True)
class HeadChoice:
    """Heads to read, as (decoder layer, head), and the step: that predicts a label, or with `shift` the next one."""

    heads: tuple[tuple[int, int], ...]
    shift: bool = False

    @property
    def names(self) -> list[str]:
        return [f"decoder.{layer}.cross.{head}" for layer, head in self.heads]


@torch.inference_mode()
def cross_attention(model: EncoderDecoder, batch: Batch, choice: HeadChoice | None = None) -> Tensor:
    """-> (B, T, S): attention of each label to each source token, the mean of the chosen heads."""
    weights = _weights(model, batch)
    choice = choice or choose_heads(model, batch)
    mean = torch.stack([weights[:, layer, head] for layer, head in choice.heads]).mean(0)
    return torch.cat((mean[:, 1:], mean[:, -1:]), 1) if choice.shift else mean


@torch.inference_mode()
def choose_heads(model: EncoderDecoder, batch: Batch) -> HeadChoice:
    """The heads whose attention agrees best with the occlusion effect.

    Deep decoders often attend to the source of a word one step later, when it is their input (Chen et al., 2020): both
    steps are tried.
    """
    effect = occlusion_effect(model, batch)  # (B, T, S)
    weights = _weights(model, batch)  # (B, L, H, T, S)
    shifted = torch.cat((weights[:, :, :, 1:], torch.zeros_like(weights[:, :, :, :1])), 3)
    agreement = torch.stack(
        [(attention * effect[:, None, None]).sum((0, 3, 4)) for attention in (weights, shifted)]
    )  # (2, L, H)
    shift = bool(agreement[1].max() > agreement[0].max())
    by_head = agreement[int(shift)]
    chosen = (by_head >= AGREEMENT_RATIO * by_head.max()).nonzero().tolist()
    return HeadChoice(tuple((layer, head) for layer, head in chosen), shift)


@torch.inference_mode()
def occlusion_effect(model: EncoderDecoder, batch: Batch) -> Tensor:
    """-> (B, T, S): the log-probability that each label loses when one source token is replaced by padding.

    In a long source only some tokens are hidden, evenly spaced; the others, and eos, have 0.
    """
    pad, labels = model.config.pad_id, batch.labels
    effect = torch.zeros(*labels.shape, batch.source.size(1))
    complete = _log_probs(model, batch.source, batch.decoder_input, labels)
    hidden = [
        (row, place)
        for row, length in enumerate(batch.source_lengths.tolist())
        for place in range(0, length - 1, -(-length // MAX_OCCLUSIONS))
    ]
    step = max(1, LOGITS_PER_PASS // (labels.size(1) * model.config.vocab_size))
    for start in range(0, len(hidden), step):
        rows = torch.tensor([row for row, _ in hidden[start : start + step]])
        places = torch.tensor([place for _, place in hidden[start : start + step]])
        source = batch.source[rows].clone()
        source[range(len(rows)), places] = pad
        occluded = _log_probs(model, source, batch.decoder_input[rows], labels[rows])
        effect[rows, :, places] = ((complete[rows] - occluded) * (labels[rows] != pad)).clamp(min=0).cpu()
    return effect


def weights_by_word(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """(T, S) weights of tokens -> weights of words: the sum over a source word's tokens, the mean over a target word's.

    The word number of each token is given, `NO_WORD` for tokens outside words.
    """
    columns = [place for place, word in enumerate(source_words) if word != NO_WORD]
    rows = [place for place, word in enumerate(target_words) if word != NO_WORD]
    source, target = torch.tensor([source_words[i] for i in columns]), torch.tensor([target_words[i] for i in rows])
    by_source = weights.new_zeros(len(rows), int(source.max()) + 1)
    by_source.index_add_(1, source, weights[rows][:, columns])
    by_word = weights.new_zeros(int(target.max()) + 1, by_source.size(1))
    by_word.index_add_(0, target, by_source)
    return by_word / target.bincount().clamp(min=1).unsqueeze(1)


def align_words(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Alignment:
    """(T, S) weights of tokens -> links between words.

    Each target word is linked to the source word that its tokens attend to most; a source word without a link is linked
    to the target word that attends to it most, if the weight is at least MIN_WEIGHT.
    """
    sources, targets = (sorted(set(words) - {NO_WORD}) for words in (source_words, target_words))
    if not sources or not targets:
        return []
    words = weights_by_word(weights, source_words, target_words)[targets][:, sources]  # words that have tokens
    links = {(sources[source], targets[target]) for target, source in enumerate(words.argmax(1).tolist())}
    linked = {source for source, _ in links}
    for source, most, target in zip(sources, words.amax(0).tolist(), words.argmax(0).tolist(), strict=True):
        if source not in linked and most >= MIN_WEIGHT:
            links.add((source, targets[target]))
    return sorted(links)


def symmetrize(forward: Iterable[tuple[int, int]], backward: Iterable[tuple[int, int]]) -> Alignment:
    """grow-diag-final-and (Koehn et al., 2003): one alignment from two, both as (source, target).

    Starts with the intersection, adds neighbors from the union, and finally links between unaligned words.
    """
    one, other = set(forward), set(backward)
    links, union = one & other, one | other
    grown = True
    while grown:
        grown = False
        for i, j in sorted(links):
            for near in sorted({(i + di, j + dj) for di in (-1, 0, 1) for dj in (-1, 0, 1)} & union - links):
                if _is_unaligned(near[0], links, 0) or _is_unaligned(near[1], links, 1):
                    links.add(near)
                    grown = True
    for candidates in (one, other):
        for link in sorted(candidates - links):
            if _is_unaligned(link[0], links, 0) and _is_unaligned(link[1], links, 1):
                links.add(link)
    return sorted(links)


def alignment_error(
    predicted: Sequence[Iterable[tuple[int, int]]], reference: Sequence[Iterable[tuple[int, int]]]
) -> float:
    """Alignment error rate (Och and Ney, 2003) over all sentences, with every reference link a sure one."""
    correct = total = 0
    for links, expected in zip(map(set, predicted), map(set, reference), strict=True):
        correct, total = correct + len(links & expected), total + len(links) + len(expected)
    return 1 - 2 * correct / total if total else 0.0


def _is_unaligned(word: int, links: set[tuple[int, int]], side: int) -> bool:
    return all(link[side] != word for link in links)


def _weights(model: EncoderDecoder, batch: Batch) -> Tensor:
    """-> (B, L, H, T, S), of the layers with cross-attention: all, except in recurrent models."""
    if not any(name.endswith(".cross.weights") for name in activation_names(model)):
        raise SettingError("this model has no attention over its source, so there is no alignment to read off.")
    with record(model, "decoder.*.cross.weights") as trace:
        model(batch.source, batch.decoder_input)
    return torch.stack([weights.as_subclass(Tensor) for weights in trace.values()], 1).float().cpu()


def _log_probs(model: EncoderDecoder, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
    """-> (B, T): the log-probability of each label."""
    logits = model.project(model(source, target)).float()
    return logits.gather(2, labels.unsqueeze(2)).squeeze(2) - logits.logsumexp(2)
