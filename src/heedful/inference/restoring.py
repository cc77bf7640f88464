"""Translations of parts -> translations of texts: placeholders are put back, numbers and terms are checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from heedful.errors import SettingError
from heedful.inference.confidence import ConfidenceModel, sentence_score, word_scores
from heedful.inference.forced_decoding import Floats
from heedful.inference.protected_text import SPACELESS_CHARACTER, PlaceholderPlacer, ProtectedText, spread_evenly
from heedful.inference.results import Alignment, SourcePart, Translation
from heedful.inference.term_matching import uses_form_of_term, uses_term
from heedful.text import Tokenizer
from heedful.text.placeholders import differing_numbers
from heedful.text.words import covered_words, word_spans

Attention = Callable[[SourcePart, Translation], Floats]  # -> (T, S)


def needs_attention(part: SourcePart) -> bool:
    """Whether the translation of a part needs the attention of the model to place its placeholders."""
    return part.protected is not None and part.protected.needs_alignment


class TranslationRestorer:
    """Restores the translations of one model; `attention` computes that of each target token to each source token.

    With a `confidence` model they get their confidence.
    """

    def __init__(
        self,
        source_tokenizer: Tokenizer,
        tokenizer: Tokenizer,
        attention: Attention,
        confidence: ConfidenceModel | None = None,
    ) -> None:
        self.source_tokenizer, self.tokenizer, self.attention = source_tokenizer, tokenizer, attention
        self.confidence = confidence

    def copy(self, part: SourcePart, aligned: bool) -> Translation:
        """A part without words is its own translation."""
        assert part.protected is not None
        text = part.protected.original()
        count = len(word_spans(text))
        links = [(part.first_word + word, word) for word in range(count)]
        copy = Translation(text, 0.0, 0.0, (), (), self.tokenizer, links if aligned else None)
        return copy if self.confidence is None else replace(copy, confidence=1.0, word_confidence=(1.0,) * count)

    def restore(self, part: SourcePart, translations: Sequence[Translation]) -> list[Translation]:
        """The translations of the part with its placeholders, alignments in words of the line, and warnings."""
        return [
            self._checked(part, self._restored(part, self._with_confidence(translation)))
            for translation in translations
        ]

    def _with_confidence(self, translation: Translation) -> Translation:
        if self.confidence is None:
            return translation
        scores = word_scores(self.tokenizer, translation.ids, translation.token_log_probs)
        words = tuple(map(self.confidence.words, scores))
        sentence = self.confidence.sentences(sentence_score(translation.token_log_probs))
        return replace(translation, confidence=sentence, word_confidence=words)

    def _restored(self, part: SourcePart, translation: Translation) -> Translation:
        protected = part.protected
        if protected is None:
            return translation
        positions = self._positions(part, protected, translation) if needs_attention(part) else None
        text, target_words = protected.restore(translation.text, positions)
        if translation.word_confidence is not None:  # a placeholder is certain
            words = [1.0] * len(word_spans(text))
            for word, value in zip(target_words, translation.word_confidence, strict=False):
                if word < len(words):
                    words[word] = min(words[word], value)
            translation = replace(translation, word_confidence=tuple(words))
        if translation.alignment is None:
            return replace(translation, text=text)
        moved = _moved(translation.alignment, protected.source_words(), target_words, part.first_word)
        return replace(translation, text=text, alignment=moved)

    def _positions(self, part: SourcePart, protected: ProtectedText, translation: Translation) -> list[int]:
        source_spans = part.spans(self.source_tokenizer)
        target, target_spans = self.tokenizer.decode_spans(translation.ids)
        try:
            weights = self.attention(part, translation)[
                : len(target_spans), part.added : part.added + len(source_spans)
            ]
            origin = weights.argmax(1).tolist() if weights.size else []
        except SettingError:  # a model without attention
            origin = spread_evenly(len(target_spans), len(source_spans))
        return PlaceholderPlacer(protected, target, source_spans, target_spans).positions(origin)

    def _checked(self, part: SourcePart, translation: Translation) -> Translation:
        source = part.text if part.protected is None else part.protected.original()
        numbers = differing_numbers(source, translation.text)
        warnings = [f"the number {number} is not in the translation" for number in numbers]
        uses = uses_term if part.annotated is None else uses_form_of_term
        warnings += [
            f"the term {match.source!r} is not translated as {' or '.join(map(repr, match.forms))}"
            for match in part.terms
            if not uses(translation.text, match)
        ]
        return replace(translation, warnings=tuple(warnings)) if warnings else translation


def spread_alignment(part: SourcePart, translation: Translation, source_tokenizer: Tokenizer) -> Translation:
    """In scripts without spaces a token may be several words: a link of one of them becomes a link of all."""
    if translation.alignment is None or not (SPACELESS_CHARACTER.search(part.text + translation.text)):
        return translation
    first = part.first_word
    sources = covered_words(part.text, part.spans(source_tokenizer))
    targets = covered_words(*translation.tokenizer.decode_spans(translation.ids))
    links = {
        (first + source, target)
        for link in translation.alignment
        for source in sources.get(link[0] - first, [link[0] - first])
        for target in targets.get(link[1], [link[1]])
    }
    return replace(translation, alignment=sorted(links))


def _moved(alignment: Alignment, sources: Sequence[int], targets: Sequence[int], first_word: int) -> Alignment:
    """Links between words that the model reads and writes -> links between words of the original texts."""
    return sorted(
        {
            (first_word + sources[source - first_word], targets[target])
            for source, target in alignment
            if source - first_word < len(sources) and target < len(targets)
        }
    )
