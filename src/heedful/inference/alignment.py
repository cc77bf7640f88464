"""Word alignments: source word -> target word, read off the cross-attention of a pair. Imports no torch.

The pair runs through the model once with teacher forcing, so any output can be aligned, however it was found. Not every
head aligns words. The heads to read are chosen by occlusion: their attention agrees best with how much the probability
of each label falls when one source token is hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from heedful.errors import SettingError
from heedful.inference.forced_decoding import Floats, ForcedDecoder, Pair
from heedful.inference.results import Alignment
from heedful.text import NO_WORD

AGREEMENT_RATIO = 0.7  # heads are read whose agreement is at least this fraction of the best
MIN_WEIGHT = 0.05  # attention from which an unaligned source word is linked to the target word that attends to it most
MAX_OCCLUSIONS = 32  # source tokens of a sentence that are hidden, one at a time, at most


@dataclass(frozen=True)
class HeadChoice:
    """Heads to read, as (decoder layer, head), and the step: that predicts a label, or with `shift` the next one."""

    heads: tuple[tuple[int, int], ...]
    shift: bool = False

    @property
    def names(self) -> list[str]:
        return [f"decoder.{layer}.cross.{head}" for layer, head in self.heads]

    @classmethod
    def parse(cls, names: Sequence[str], model: ForcedDecoder) -> HeadChoice:
        """The heads of these names, such as decoder.1.cross.3."""
        known = {name: head for head in model.heads for name in cls((head,)).names}
        for name in names:
            if name not in known:
                example = f"; an example of one is {next(iter(known))}" if known else ""
                raise SettingError(f"the model has no cross-attention head {name}{example}.")
        return cls(tuple(known[name] for name in names))


def cross_attention(model: ForcedDecoder, pairs: Sequence[Pair], choice: HeadChoice) -> list[Floats]:
    """-> (T, S) of each pair: attention of each label to each source token, the mean of the chosen heads."""
    means = [weights.mean(0) for weights in model.attention(pairs, choice.heads)]
    return [np.concatenate((mean[1:], mean[-1:])) for mean in means] if choice.shift else means


def choose_heads(model: ForcedDecoder, pairs: Sequence[Pair]) -> HeadChoice:
    """The heads whose attention agrees best with the occlusion effect.

    Deep decoders often attend to the source of a word one step later, when it is their input (Chen et al., 2020): both
    steps are tried.
    """
    if not model.heads:
        raise SettingError("this model has no attention over its source, so there is no alignment to read off.")
    agreement = np.zeros((2, len(model.heads)))  # of each step
    for pair, effect in zip(pairs, occlusion_effects(model, pairs), strict=True):
        (weights,) = model.attention([pair], model.heads)  # (heads, T, S)
        agreement[0] += (weights * effect).sum((1, 2))
        agreement[1] += (weights[:, 1:] * effect[:-1]).sum((1, 2))
    shift = bool(agreement[1].max() > agreement[0].max())
    by_head = agreement[int(shift)]
    chosen = np.flatnonzero(by_head >= AGREEMENT_RATIO * by_head.max())
    return HeadChoice(tuple(model.heads[index] for index in chosen), shift)


def occlusion_effects(model: ForcedDecoder, pairs: Sequence[Pair]) -> list[Floats]:
    """-> (T, S) of each pair: the log-probability that each label loses when one source token is hidden.

    In a long source only some tokens are hidden, evenly spaced; the others, and eos, have 0.
    """
    effects = [np.zeros((len(target) - 1, len(source)), np.float32) for source, target in pairs]
    hidden = [
        (row, place)
        for row, (source, _) in enumerate(pairs)
        for place in range(0, len(source) - 1, -(-len(source) // MAX_OCCLUSIONS))
    ]
    complete = model.log_probs(pairs)
    occluded = model.log_probs([pairs[row] for row, _ in hidden], [place for _, place in hidden])
    for (row, place), log_probs in zip(hidden, occluded, strict=True):
        effects[row][:, place] = np.maximum(complete[row] - log_probs, 0)
    return effects


def weights_by_word(weights: Floats, source_words: Sequence[int], target_words: Sequence[int]) -> Floats:
    """(T, S) weights of tokens -> weights of words: the sum over a source word's tokens, the mean over a target word's.

    The word number of each token is given, `NO_WORD` for tokens outside words.
    """
    columns = [place for place, word in enumerate(source_words) if word != NO_WORD]
    rows = [place for place, word in enumerate(target_words) if word != NO_WORD]
    source, target = np.array([source_words[i] for i in columns]), np.array([target_words[i] for i in rows])
    by_source = np.zeros((source.max() + 1, len(rows)), np.float32)
    np.add.at(by_source, source, weights[np.ix_(rows, columns)].T)
    by_word = np.zeros((target.max() + 1, len(by_source)), np.float32)
    np.add.at(by_word, target, by_source.T)
    return np.divide(by_word, np.maximum(np.bincount(target), 1)[:, None], dtype=np.float32)


def align_words(weights: Floats, source_words: Sequence[int], target_words: Sequence[int]) -> Alignment:
    """(T, S) weights of tokens -> links between words.

    Each target word is linked to the source word that its tokens attend to most; a source word without a link is linked
    to the target word that attends to it most, if the weight is at least MIN_WEIGHT.
    """
    sources, targets = (sorted(set(words) - {NO_WORD}) for words in (source_words, target_words))
    if not sources or not targets:
        return []
    words = weights_by_word(weights, source_words, target_words)[np.ix_(targets, sources)]  # words that have tokens
    links = {(sources[source], targets[target]) for target, source in enumerate(words.argmax(1))}
    linked = {source for source, _ in links}
    for source, most, target in zip(sources, words.max(0), words.argmax(0), strict=True):
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
