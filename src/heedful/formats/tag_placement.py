"""Inline tags in a translation: word alignments place every tag around the translation of its words.

A tag occurs exactly once, and nesting is kept. Knows no file format: `segment` holds text and tags, and a format writes
them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from heedful.formats.segment import InlineTag, TaggedText
from heedful.text import words_at
from heedful.text.text_sentences import SentenceTranslations
from heedful.text.words import Span, word_spans


def place_tags(source: TaggedText, translation: SentenceTranslations, rank: int = 0) -> TaggedText:
    """The translation of this rank, with the tags of the source around the words that they belong to."""
    target = _restore_margins(source.text, translation.translation(rank))
    words = word_spans(target)
    placer = TagPlacer(
        target, word_spans(line_breaks_to_spaces(source.text)), words, source_of_words(translation, rank, len(words))
    )
    return TaggedText(target, placer.place_all(source.tags, (0, len(target)), (0, len(words))))


def _restore_margins(text: str, target: str) -> str:
    """The translation with the leading and trailing white space of the text."""
    if not text.strip():
        return text
    return text[: len(text) - len(text.lstrip())] + target.strip() + text[len(text.rstrip()) :]


def line_breaks_to_spaces(text: str) -> str:
    """HTML renders line breaks in text as spaces."""
    return re.sub(r"[\n\r\t\f]", " ", text)


def source_of_words(translation: SentenceTranslations, rank: int, words: int) -> list[int | None]:
    """For every word of the translation the index of its aligned source word, or that of the word before it.

    Without alignments, source and translation are taken to have the same word order.
    """
    origin: list[int | None] = [None] * words
    whole, starts = translation.translation_with_starts(rank)
    at_sources = words_at(translation.text, [sentence.start for sentence in translation.sentences])
    at_targets = words_at(whole, starts)
    sentences = zip(translation.sentences, translation.n_best, at_sources, at_targets, strict=True)
    for sentence, n_best, at_source, at_target in sentences:
        best: dict[str, Any] = n_best[min(rank, len(n_best) - 1)] if n_best else {"text": "", "alignment": []}
        source_length, target_length = len(word_spans(sentence.text)), len(word_spans(best["text"]))
        links = best["alignment"]
        for source, target in (
            ((n * source_length // target_length, n) for n in range(target_length)) if links is None else links
        ):
            if at_target + target < words and origin[at_target + target] is None:
                origin[at_target + target] = at_source + source
    for index in range(1, words):
        if origin[index] is None:
            origin[index] = origin[index - 1]
    return origin


class TagPlacer:
    """Places inline tags in the translation of a block, by the word spans of both sides and their alignment."""

    def __init__(
        self, target: str, source_words: list[Span], target_words: list[Span], origin: Sequence[int | None]
    ) -> None:
        self.target, self.source_words, self.target_words = target, source_words, target_words
        self.starts, self.ends = [start for start, _ in source_words], [end for _, end in source_words]
        self.aligned: list[list[int]] = [[] for _ in source_words]  # source word -> words of the translation
        for word, source in enumerate(origin):
            if source is not None and source < len(source_words):
                self.aligned[source].append(word)

    def place_all(self, tags: Sequence[InlineTag], characters: Span, words: Span) -> list[InlineTag]:
        """These elements within a character span of the translation, in order."""
        placed = [(self.place(tag, characters, words), tag) for tag in tags]
        tags_in_order, at = [], characters[0]
        for ((start, end), inner), tag in sorted(placed, key=lambda place: place[0]):
            begin = min(max(start, at), characters[1])
            finish = max(begin, min(end, characters[1]))
            nested = self.place_all(tag.inner, (begin, finish), inner)
            tags_in_order.append(InlineTag(tag.opening, tag.closing, begin, finish, nested))
            at = finish
        return tags_in_order

    def place(self, tag: InlineTag, characters: Span, words: Span) -> tuple[Span, Span]:
        """Character and word span of an element in the translation: the longest run of words aligned with its own."""
        held = self._held(tag)
        if not held:
            return self._before(tag, characters, words)
        if len(held) == len(self.source_words):
            return characters, words
        first, last = _longest_run(self._aligned_words(held, words))
        if first == last:
            return (characters[1],) * 2, (words[1],) * 2
        start, end = self.target_words[first][0], self.target_words[last - 1][1]
        inside = self.target[start:end]
        if tag.start > self.starts[held[0]]:  # a quotation mark or bracket before the element stays outside
            start += _count_leading_marks(inside)
        if tag.end < self.ends[held[-1]]:  # and so does a full stop after it
            end -= _count_leading_marks(inside[::-1])
        return (max(start, characters[0]), min(max(start, end), characters[1])), (first, last)

    def _held(self, tag: InlineTag) -> range:
        """The source words of which an element contains more than half."""
        first, last = bisect_right(self.ends, tag.start), bisect_left(self.starts, tag.end)
        while first < last and not _holds_most(tag, self.source_words[first]):
            first += 1
        while first < last and not _holds_most(tag, self.source_words[last - 1]):
            last -= 1
        return range(first, last)

    def _aligned_words(self, held: range, words: Span) -> list[int]:
        """Words of the translation within a span that are aligned with these source words, in order."""
        return sorted(word for source in held for word in self.aligned[source] if words[0] <= word < words[1])

    def _before(self, tag: InlineTag, characters: Span, words: Span) -> tuple[Span, Span]:
        """Place an element without words before the translation of the word that follows it."""
        following = bisect_left(self.starts, tag.start)
        aligned = self._aligned_words(range(following, min(following + 1, len(self.starts))), words)
        at = max(self.target_words[aligned[0]][0], characters[0]) if aligned else characters[1]
        return (at, at), (words[1], words[1])


def _holds_most(tag: InlineTag, word: Span) -> bool:
    return min(word[1], tag.end) - max(word[0], tag.start) > (word[1] - word[0]) / 2


def _count_leading_marks(text: str) -> int:
    """Number of characters before the first word character."""
    match = re.search(r"\w", text)
    return match.start() if match else len(text)


def _longest_run(words: list[int]) -> tuple[int, int]:
    """[2, 3, 4, 7] -> (2, 5)."""
    best = (0, 0)
    start = None
    for index, word in enumerate(words):
        if start is None or word != words[index - 1] + 1:
            start = word
        if word + 1 - start > best[1] - best[0]:
            best = (start, word + 1)
    return best
