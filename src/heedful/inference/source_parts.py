"""Texts -> the parts that are searched: placeholders replaced, terms found, long texts split, tokens encoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from heedful.inference.protected_text import ProtectedText
from heedful.inference.results import SourcePart
from heedful.inference.shortlist import Shortlist
from heedful.inference.term_matching import Glossary, TermEncoder, TermMatch
from heedful.search import LexicalConstraint
from heedful.search.lexical_constraints import MAX_PHRASES
from heedful.text import Tokenizer, split_long, words_at
from heedful.text.normalization import replace_surrogates
from heedful.text.placeholders import Template
from heedful.text.term_annotation import AnnotatedText, TermAnnotation, has_term_marks
from heedful.text.vocabulary import slot_ids


class SourcePartBuilder:
    """Builds the parts of texts for one model, or for an ensemble with the same vocabularies."""

    def __init__(
        self, tokenizers: tuple[Tokenizer, Tokenizer], max_length: int, vocab_size: int, shortlist: Shortlist | None
    ) -> None:
        self.source_tokenizer, self.tokenizer = tokenizers
        self.longest = max(1, max_length // 2 - 1)  # so that a translation may be twice as long as its source
        self.vocab_size, self.shortlist = vocab_size, shortlist
        self.term_encoder = TermEncoder(self.tokenizer)

    @cached_property
    def slots(self) -> tuple[int, ...] | None:
        """The ids of slots in the target vocabulary, if both vocabularies have them."""
        return slot_ids(self.tokenizer) if slot_ids(self.source_tokenizer) else None

    @cached_property
    def reads_annotations(self) -> bool:
        """Whether the model was trained with annotated terms (`train.glossary_augmentation`)."""
        return has_term_marks(self.source_tokenizer)

    def parts(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str],
        openings: Sequence[str] = (),
        glossary: Glossary | None = None,
        on_split: Callable[[int, int, int], None] = lambda line, tokens, pieces: None,
    ) -> list[SourcePart]:
        """A text is one part, or several if it is too long, or none if it is empty.

        For sentences of a longer text `openings` holds the beginning of that text: its language code is added.
        `on_split` receives the index, the number of tokens and the number of parts of a text that is too long.
        """
        templates = [Template.of(text) for text in texts]
        protected = [self._protect(template) for template in templates]
        read = [
            text if protected_text is None else protected_text.text
            for text, protected_text in zip(texts, protected, strict=True)
        ]
        parts = []
        for line, (text, ids) in enumerate(zip(read, self.source_tokenizer.encode_batch(read), strict=True)):
            protected_text, code = protected[line], self.source_tokenizer.code(text)
            if protected_text is not None and not protected_text.template.has_words:
                parts.append(SourcePart(line, [], (), text, protected=protected_text))
                continue
            if ids == code:
                continue
            opening = self.source_tokenizer.code(openings[line]) if openings and not code else []
            if len(opening) + len(ids) <= self.longest:
                pieces = [
                    SourcePart(
                        line, opening + ids, (), replace_surrogates(text), len(opening), protected=protected_text
                    )
                ]
            else:
                pieces = self._split(line, templates[line], opening)
                on_split(line, len(ids), len(pieces))
            pieces[0] = self._with_prefix(pieces[0], prefixes[line])
            parts += [self._with_phrases(piece, glossary) for piece in pieces]
        return parts

    def _protect(self, template: Template) -> ProtectedText | None:
        return ProtectedText.of(template, self.slots is not None) if template.originals else None

    def _split(self, line: int, template: Template, opening: list[int]) -> list[SourcePart]:
        """Split a text that is too long; every part has its language code, or that of its opening."""
        tokenizer, text = self.source_tokenizer, replace_surrogates(template.text)
        code = opening or tokenizer.code(text)
        most = max(1, self.longest - len(code))

        def read(piece: str) -> tuple[str, ProtectedText | None]:
            protected = self._protect(template.part(piece)) if template.originals else None
            return (piece, None) if protected is None else (protected.text, protected)

        split = split_long(text, lambda piece: len(tokenizer.encode(read(piece)[0])) <= most)
        starts = [0, *accumulate(len(template.restore(piece)) for piece in split[:-1])]
        pieces: list[SourcePart] = []
        for piece, word in zip(split, words_at(template.restore(text), starts), strict=True):
            piece_text, protected = read(piece)
            ids = tokenizer.encode(piece_text)
            if protected is not None and not protected.template.has_words:
                pieces.append(SourcePart(line, [], (), piece_text, first_word=word, protected=protected))
                continue
            for at in range(0, len(ids), most):  # a letter with many combining marks may still be too long
                added = code if pieces else opening
                pieces.append(
                    SourcePart(
                        line, added + ids[at : at + most], (), piece_text, len(added), at, word, protected=protected
                    )
                )
        return pieces

    def _with_prefix(self, part: SourcePart, prefix: str) -> SourcePart:
        if not prefix:
            return part
        masked = prefix if part.protected is None else part.protected.mask_prefix(prefix)
        return replace(part, prefix=tuple(self.tokenizer.encode(masked)))

    def _with_phrases(self, part: SourcePart, glossary: Glossary | None) -> SourcePart:
        """The part with the phrases that its translation must contain, or with annotated terms; with its shortlist."""
        if not part.ids:
            return part
        slots = self.slots or ()
        required = [] if part.protected is None else part.protected.constraint(slots)
        reserved = slots if required else ()
        terms = glossary.find(part.text) if glossary is not None else []
        part = self._annotated(part, terms)
        if part.annotated is None:
            phrases = [self.term_encoder.phrase(match.forms) for match in terms]
            required += [phrase for phrase in phrases if phrase is not None]
        if required:
            constraint = LexicalConstraint(tuple(required[:MAX_PHRASES]), reserved, self._continues(terms))
            part = replace(part, terms=tuple(terms), phrases=constraint)
        if self.shortlist is None:
            return part
        needed = set() if part.phrases is None else part.phrases.tokens
        if part.annotated is not None:
            needed |= {token for match in terms for token in self.tokenizer.encode(match.forms[0])}
        return replace(part, shortlist=self.shortlist.tokens(part.ids, (*part.prefix, *sorted(needed))))

    def _annotated(self, part: SourcePart, terms: Sequence[TermMatch]) -> SourcePart:
        """The part with its terms annotated, if the model has learned to read them and it is not too long."""
        if not terms or not self.reads_annotations:
            return part
        annotated = AnnotatedText.of(
            part.text, [TermAnnotation(term.start, term.start + len(term.source), term.forms[0]) for term in terms]
        )
        ids = part.ids[: part.added] + self.source_tokenizer.encode(annotated.text)
        if len(ids) > self.longest:
            return part
        return replace(part, ids=ids, terms=tuple(terms), annotated=annotated)

    def _continues(self, terms: Sequence[TermMatch]) -> np.ndarray | None:
        if not terms:
            return None
        flags = self.term_encoder.continues
        return np.pad(flags, (0, max(0, self.vocab_size - len(flags))))
