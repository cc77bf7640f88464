"""Which source word each target word comes from, read off the cross-attention of a given pair.

The pair is run through the model once, as in training, so alignments are there for any output, however it was found.
Not every head follows the words. Those are read that agree best with an experiment on the same pair: hide one source
token, and see which labels become less probable.
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

AGREEMENT_RATIO = 0.7  # heads that agree so well, relative to the best, are read
MIN_WEIGHT = 0.05  # weight from which on a source word that nobody took is given to who looks at it most
MAX_OCCLUSIONS = 32  # source tokens of a sentence that are hidden, one at a time
LOGITS_PER_PASS = 2**25  # that are computed at once


@dataclass(frozen=True)
class HeadChoice:
    """The heads to read, each a decoder layer and a number, and when: as a label is written, or once it was read."""

    heads: tuple[tuple[int, int], ...]
    shift: bool = False

    @property
    def names(self) -> list[str]:
        return [f"decoder.{layer}.cross.{head}" for layer, head in self.heads]


@torch.inference_mode()
def cross_attention(model: EncoderDecoder, batch: Batch, choice: HeadChoice | None = None) -> Tensor:
    """-> (B, T, S): how much each label attends to each source token, in the chosen heads, or those that agree best."""
    weights = _weights(model, batch)
    choice = choice or choose_heads(model, batch)
    mean = torch.stack([weights[:, layer, head] for layer, head in choice.heads]).mean(0)
    return torch.cat((mean[:, 1:], mean[:, -1:]), 1) if choice.shift else mean


@torch.inference_mode()
def choose_heads(model: EncoderDecoder, batch: Batch) -> HeadChoice:
    """The heads whose weights lie where hiding a source token does most harm.

    Deep decoders often look for a word's source only when they have read it (Chen et al., 2020): both are tried.
    """
    effect = occlusion_effect(model, batch)  # (B, T, S)
    weights = _weights(model, batch)  # (B, L, H, T, S)
    read = torch.cat((weights[:, :, :, 1:], torch.zeros_like(weights[:, :, :, :1])), 3)
    agreement = torch.stack([(each * effect[:, None, None]).sum((0, 3, 4)) for each in (weights, read)])  # (2, L, H)
    shift = bool(agreement[1].max() > agreement[0].max())
    mine = agreement[int(shift)]
    chosen = (mine >= AGREEMENT_RATIO * mine.max()).nonzero().tolist()
    return HeadChoice(tuple((layer, head) for layer, head in chosen), shift)


@torch.inference_mode()
def occlusion_effect(model: EncoderDecoder, batch: Batch) -> Tensor:
    """-> (B, T, S): how much log-probability each label loses when one source token cannot be seen.

    Of a long source only some tokens are hidden, evenly spaced; the others, and the end, have 0.
    """
    pad, labels = model.config.pad_id, batch.labels
    effect = torch.zeros(*labels.shape, batch.source.size(1))
    whole = _log_probs(model, batch.source, batch.decoder_input, labels)
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
        without = _log_probs(model, source, batch.decoder_input[rows], labels[rows])
        effect[rows, :, places] = ((whole[rows] - without) * (labels[rows] != pad)).clamp(min=0).cpu()
    return effect


def weights_by_word(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """(T, S) weights over pieces -> over words: summed over the pieces of a source word, averaged over a target's.

    The numbers of the words are given for each piece, `NO_WORD` for one that belongs to none.
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
    """(T, S) weights over pieces -> links between words.

    Each target word takes the source word that its pieces attend to most; a source word that none of them took goes to
    the target word that attends to it most, if it does so at all.
    """
    sources, targets = (sorted(set(words) - {NO_WORD}) for words in (source_words, target_words))
    if not sources or not targets:
        return []
    words = weights_by_word(weights, source_words, target_words)[targets][:, sources]  # those that have pieces
    links = {(sources[source], targets[target]) for target, source in enumerate(words.argmax(1).tolist())}
    taken = {source for source, _ in links}
    for source, most, target in zip(sources, words.amax(0).tolist(), words.argmax(0).tolist(), strict=True):
        if source not in taken and most >= MIN_WEIGHT:
            links.add((source, targets[target]))
    return sorted(links)


def symmetrize(forward: Iterable[tuple[int, int]], backward: Iterable[tuple[int, int]]) -> Alignment:
    """One alignment of two, both as (source, target): what they share, grown by neighbours that only one of them has.

    This is grow-diag-final-and (Koehn et al., 2003): at last, links between words that have none yet.
    """
    one, other = set(forward), set(backward)
    links, union = one & other, one | other
    grown = True
    while grown:
        grown = False
        for i, j in sorted(links):
            for near in sorted({(i + di, j + dj) for di in (-1, 0, 1) for dj in (-1, 0, 1)} & union - links):
                if _free(near[0], links, 0) or _free(near[1], links, 1):
                    links.add(near)
                    grown = True
    for candidates in (one, other):
        for link in sorted(candidates - links):
            if _free(link[0], links, 0) and _free(link[1], links, 1):
                links.add(link)
    return sorted(links)


def alignment_error(found: Sequence[Iterable[tuple[int, int]]], true: Sequence[Iterable[tuple[int, int]]]) -> float:
    """Alignment error rate (Och and Ney, 2003) over all sentences, every true link a sure one."""
    right = given = known = 0
    for mine, theirs in zip(map(set, found), map(set, true), strict=True):
        right, given, known = right + len(mine & theirs), given + len(mine), known + len(theirs)
    return 1 - 2 * right / (given + known) if given + known else 0.0


def _free(word: int, links: set[tuple[int, int]], side: int) -> bool:
    return all(link[side] != word for link in links)


def _weights(model: EncoderDecoder, batch: Batch) -> Tensor:
    """-> (B, L, H, T, S), of the layers that look at the source: all, but for recurrent systems."""
    if not any(name.endswith(".cross.weights") for name in activation_names(model)):
        raise SettingError(
            "this model never looks at single words of its source, so there is no alignment to read off."
        )
    with record(model, "decoder.*.cross.weights") as trace:
        model(batch.source, batch.decoder_input)
    return torch.stack([weights.as_subclass(Tensor) for weights in trace.values()], 1).float().cpu()


def _log_probs(model: EncoderDecoder, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
    """-> (B, T): the log-probability of each label."""
    logits = model.project(model(source, target)).float()
    return logits.gather(2, labels.unsqueeze(2)).squeeze(2) - logits.logsumexp(2)
