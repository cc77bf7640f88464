"""`train.glossary_augmentation`: training sources in which words are annotated with their translations.

Which words translate each other is learned on the corpus (IBM Model 1). The annotation is any form of the word in the
target (Hund, Hunde, Hundes), so the model learns to inflect what it is given, as with lemmas (Bergmanis and Pinnis,
2021). Half of the annotated words get an invented stem, in the annotation and in the target, so the model learns to use
the annotation rather than its own translation.
"""

from __future__ import annotations

import itertools
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property

from heedful.data.lexical_table import WORD, LexicalTable, learn_table, words_of
from heedful.text.term_annotation import AnnotatedText, TermAnnotation, are_forms, common_prefix

SAMPLE = 50_000  # pairs that the lexical table is learned from
MIN_LETTERS = 3  # of a term, on both sides: shorter words are mostly function words
COMMON = 0.1  # share of the pairs: source words that occur in more are no terms, most are function words
MIN_PROBABILITY = 0.3  # that a word of the source becomes a form of the word of the target
MIN_SHARE = 0.01  # of this probability, for one form
MAX_TERMS = 3  # of a sentence
INVENTED = 0.5  # share of the annotated words that get another stem


class TermAugmentation:
    """Annotates the sources of a share of all pairs; which ones and how depends on the pair alone."""

    def __init__(self, pairs: Iterable[tuple[str, str]], rate: float) -> None:
        sample = list(itertools.islice(pairs, SAMPLE))
        self.rate = rate
        self.table: LexicalTable = learn_table(sample)
        written = Counter(word for _, target in sample for word in WORD.findall(target)[1:])
        counts = Counter(word for source, _ in sample for word in set(words_of(source)))
        self.common = {word for word, count in counts.items() if count > COMMON * len(sample)}
        self.written = {word.lower(): word for word, _ in reversed(written.most_common())}
        self._forms: dict[str, dict[str, tuple[str, ...]]] = {}

    def annotate(self, source: str, target: str) -> tuple[str, str]:
        """The pair with annotations in its source, or as it is."""
        draw = random.Random(zlib.crc32(f"{source}\t{target}".encode("utf-8", "replace")))
        if draw.random() >= self.rate:
            return source, target
        terms = list(self._terms(source, target))
        annotations = []
        for start, end, word, forms in sorted(draw.sample(terms, min(len(terms), draw.randint(1, MAX_TERMS)))):
            form = draw.choice(forms)
            if draw.random() < INVENTED:
                old, new = common_prefix(word.lower(), form.lower()), self._invented_stem(draw)
                form, changed = _with_stem(form, old, new), _with_stem(word, old, new)
                target = re.sub(rf"\b{re.escape(word)}\b", changed, target)
            annotations.append(TermAnnotation(start, end, form))
        return AnnotatedText.of(source, annotations).text, target

    def _terms(self, source: str, target: str) -> Iterator[tuple[int, int, str, tuple[str, ...]]]:
        """The spans of source words with a translation in the target, the translation, and the forms that it has.

        Words that occur more than once are left out.
        """
        sources, targets = ([(match[0], match.span()) for match in WORD.finditer(text)] for text in (source, target))
        counts = Counter(word.lower() for word, _ in (*sources, *targets))
        written = {word.lower(): word for word, _ in targets if counts[word.lower()] == 1}
        for word, (start, end) in sources:
            if counts[word.lower()] > 1:
                continue
            forms = self._translations(word.lower())
            if translation := next(iter(sorted(written.keys() & forms.keys())), None):
                yield start, end, written.pop(translation), forms[translation]

    def _invented_stem(self, draw: random.Random) -> str:
        """The beginning of a word and the end of another one."""
        first, second = draw.choice(self._targets), draw.choice(self._targets)
        return first[: len(first) // 2 + 1] + second[len(second) // 2 :]

    def _translations(self, source: str) -> dict[str, tuple[str, ...]]:
        """Translations of a source word, each with all its forms."""
        if source not in self._forms:
            self._forms[source] = dict(self._families(source))
        return self._forms[source]

    def _families(self, source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        number = self.table.source_ids.get(source)
        if number is None or source in self.common or len(source) < MIN_LETTERS:
            return
        first = number * len(self._targets)
        low, high = self.table.keys.searchsorted((first, first + len(self._targets)))
        likely = {
            self._targets[key - first]: probability
            for key, probability in zip(
                self.table.keys[low:high].tolist(), self.table.probabilities[low:high].tolist(), strict=True
            )
            if probability >= MIN_SHARE
        }
        for word in likely:
            family = [other for other in likely if are_forms(word, other)]
            if len(word) >= MIN_LETTERS and sum(map(likely.__getitem__, family)) >= MIN_PROBABILITY:
                yield word, tuple(self.written.get(form, form) for form in sorted(family))

    @cached_property
    def _targets(self) -> list[str]:
        return list(self.table.target_ids)


def _with_stem(word: str, old: str, new: str) -> str:
    """The word with its beginning `old` replaced; it keeps its ending, and its capital."""
    changed = new + word[len(old) :]
    return changed.capitalize() if word[:1].isupper() else changed
