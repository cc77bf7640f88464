"""Sentence pairs -> word alignments, from the cross-attention of a translator that reads both sides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from heedful.data.batch import Batch, collate
from heedful.data.bucketing import plan_batches
from heedful.data.pairs import Pairs
from heedful.inference.alignment import (
    HeadChoice,
    align_words,
    choose_heads,
    cross_attention,
    symmetrize,
    weights_by_word,
)
from heedful.inference.results import Alignment
from heedful.inside.page_packing import half
from heedful.inside.recorded_run import RecordedRun
from heedful.model.transformer import EncoderDecoder
from heedful.storage.folder import ModelFolder, wrong_family_error
from heedful.text import NO_WORD, words_of_spans
from heedful.text.normalization import replace_surrogates
from heedful.text.words import WORD
from heedful.text.words import words as words_in

SAMPLE = 64  # pairs on which the heads are chosen
TOKENS = 2048  # of either side that are run at once
CHUNK = 2000  # pairs of a stream that are sorted by length together
MARKS = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # words, and every mark by itself

Text = tuple[str, str]
Ids = tuple[list[int], list[int]]


class Aligner:
    """Aligns sentence pairs with a translator; its alignment heads are chosen once, on the first pairs."""

    def __init__(self, folder: ModelFolder, choice: HeadChoice | None = None, marks: bool = False) -> None:
        """`marks` treats punctuation marks as words; otherwise white space separates words."""
        if folder.config.family != "encoder-decoder":
            raise wrong_family_error(folder, "has no cross-attention")
        assert isinstance(folder.model, EncoderDecoder)
        self.folder, self.model, self.choice = folder, folder.model.eval(), choice
        self.words = MARKS if marks else WORD
        self.notice: Callable[[str], None] = lambda text: None  # told what a user should know of a pair

    def align(self, pairs: Iterable[Text]) -> Iterator[Alignment]:
        """An alignment for each pair, in order; empty for a pair with an empty side or one that is too long."""
        rest, done = iter(pairs), 0
        while chunk := list(islice(rest, CHUNK)):
            yield from self._chunk(chunk, done)
            done += len(chunk)

    @torch.inference_mode()
    def _chunk(self, texts: Sequence[Text], done: int) -> list[Alignment]:
        ids = self._encoded(texts)
        alignments: list[Alignment] = [[] for _ in texts]
        good = [index for index, pair in enumerate(ids) if self._fits(pair, done + index + 1)]
        if not good:
            return alignments
        pairs = Pairs.of([ids[index] for index in good])
        self.choice = self.choice or choose_heads(self.model, self._collate(pairs, range(min(SAMPLE, len(good)))))
        for rows in plan_batches(pairs.source_lengths, pairs.target_lengths, TOKENS, 0, 0):
            weights = cross_attention(self.model, self._collate(pairs, rows.tolist()), self.choice)  # (B, T, S)
            for row, row_weights in zip(rows.tolist(), weights, strict=True):
                alignments[good[row]] = align_words(row_weights, *self._words(texts[good[row]]))
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
        longest = self.model.config.max_length - 1
        if not all(pair):
            return False
        if max(map(len, pair)) > longest:
            self.notice(
                f"pair {line} has a side of {max(map(len, pair))} tokens, and this model takes {longest}: no links."
            )
            return False
        return True

    def _collate(self, pairs: Pairs, rows: Sequence[int]) -> Batch:
        return collate(pairs, rows, self.folder.source_tokenizer.specials, self.folder.tokenizer.specials)


def align_both(forward: Aligner, backward: Aligner, pairs: Iterable[Text]) -> Iterator[Alignment]:
    """Symmetrized alignments of two models for opposite directions: the intersection, grown towards the union."""
    rest = iter(pairs)
    while chunk := list(islice(rest, CHUNK)):
        turned = backward.align([(target, source) for source, target in chunk])
        for links, reverse_links in zip(forward.align(chunk), turned, strict=True):
            yield symmetrize(links, [(source, target) for target, source in reverse_links])


def alignment(run: RecordedRun) -> dict[str, Any] | None:
    """The word alignment of a recorded translation, with the attention weights behind it."""
    model, source, target = run.folder.model, run.source, run.target
    if not isinstance(model, EncoderDecoder) or source is None or target is None or model.config.features:
        return None
    labels = [token for token in run.labels if token != run.folder.tokenizer.eos_id]
    if not labels:
        return None
    ids = (source.ids[:-1], labels)
    batch = collate(Pairs.of([ids]), [0], run.folder.source_tokenizer.specials, run.folder.tokenizer.specials)
    choice = choose_heads(model, batch)
    weights = cross_attention(model, batch, choice)[0]  # (T, S)
    written, spans = run.folder.tokenizer.decode_spans(labels)
    source_spans = run.folder.source_tokenizer.spans(run.text)[: len(ids[0])]
    words = words_of_spans(run.text, source_spans), words_of_spans(written, spans)
    if any(set(side) <= {NO_WORD} for side in words):
        return None
    return {
        "sourceWords": words_in(run.text)[: max(words[0]) + 1],
        "targetWords": words_in(written)[: max(words[1]) + 1],
        "links": [list(link) for link in align_words(weights, *words)],
        "matrix": half(weights_by_word(weights, *words)),
        "choice": {"heads": choice.names, "shift": choice.shift},
    }
