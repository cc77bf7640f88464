"""Sentence pairs -> word alignments, from the cross-attention of a translator that reads both sides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from heedful.inference.alignment import HeadChoice, align_words, choose_heads, cross_attention, symmetrize
from heedful.inference.forced_decoding import frame_pair
from heedful.inference.loaded_models import LoadedModels
from heedful.inference.results import Alignment
from heedful.storage.folder import ModelFolder, wrong_family_error
from heedful.text import words_of_spans
from heedful.text.normalization import replace_surrogates
from heedful.text.words import WORD

SAMPLE = 64  # pairs on which the heads are chosen
CHUNK = 512  # pairs of a stream that are computed together
MARKS = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # words, and every mark by itself

Text = tuple[str, str]
Ids = tuple[list[int], list[int]]


class Aligner:
    """Aligns sentence pairs with a translator; its alignment heads are chosen once, on the first pairs.

    Computed in float32, by the native engine where it knows the model.
    """

    def __init__(self, folder: ModelFolder, choice: HeadChoice | None = None, marks: bool = False) -> None:
        """`marks` treats punctuation marks as words; otherwise white space separates words."""
        if folder.config.family != "encoder-decoder":
            raise wrong_family_error(folder, "has no cross-attention")
        self.folder, self.model, self.choice = folder, LoadedModels([folder]).forced_decoders[0], choice
        self.words = MARKS if marks else WORD
        self.notice: Callable[[str], None] = lambda text: None  # told what a user should know of a pair

    def align(self, pairs: Iterable[Text]) -> Iterator[Alignment]:
        """An alignment for each pair, in order; empty for a pair with an empty side or one that is too long."""
        rest, done = iter(pairs), 0
        while chunk := list(islice(rest, CHUNK)):
            yield from self._chunk(chunk, done)
            done += len(chunk)

    def _chunk(self, texts: Sequence[Text], done: int) -> list[Alignment]:
        ids = self._encoded(texts)
        alignments: list[Alignment] = [[] for _ in texts]
        good = [index for index, pair in enumerate(ids) if self._fits(pair, done + index + 1)]
        if not good:
            return alignments
        specials = self.folder.source_tokenizer.specials, self.folder.tokenizer.specials
        pairs = [frame_pair(*ids[index], *specials) for index in good]
        self.choice = self.choice or choose_heads(self.model, pairs[:SAMPLE])
        for index, weights in zip(good, cross_attention(self.model, pairs, self.choice), strict=True):
            alignments[index] = align_words(weights, *self._words(texts[index]))
        return alignments

    def _words(self, texts: Text) -> tuple[list[int], list[int]]:
        """The word index of each token, on both sides."""
        source, target = map(replace_surrogates, texts)
        return (
            words_of_spans(source, self.folder.source_tokenizer.spans(source), self.words),
            words_of_spans(target, self.folder.tokenizer.spans(target), self.words),
        )

    def _encoded(self, texts: Sequence[Text]) -> list[Ids]:
        sources = self.folder.source_tokenizer.encode_batch([source for source, _ in texts])
        targets = self.folder.tokenizer.encode_batch([target for _, target in texts])
        return list(zip(sources, targets, strict=True))

    def _fits(self, pair: Ids, line: int) -> bool:
        longest = self.folder.config.max_length - 1
        if not all(pair):
            return False
        if max(map(len, pair)) > longest:
            self.notice(
                f"pair {line} has a side of {max(map(len, pair))} tokens, and this model takes {longest}: no links."
            )
            return False
        return True


def align_both(forward: Aligner, backward: Aligner, pairs: Iterable[Text]) -> Iterator[Alignment]:
    """Symmetrized alignments of two models for opposite directions: the intersection, grown towards the union."""
    rest = iter(pairs)
    while chunk := list(islice(rest, CHUNK)):
        turned = backward.align([(target, source) for source, target in chunk])
        for links, reverse_links in zip(forward.align(chunk), turned, strict=True):
            yield symmetrize(links, [(source, target) for target, source in reverse_links])
