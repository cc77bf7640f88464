"""Terms of a glossary in a sentence -> phrases that its translation must contain.

Terms are found by word, longest first. A term in lower case also matches with capitals ("dog" finds "Dog"); a term with
a capital matches exactly ("IT" does not find "it"). In scripts without spaces every character is a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.search import RequiredPhrase
from heedful.text import Tokenizer
from heedful.text.term_annotation import are_forms
from heedful.text.words import SPACELESS

if TYPE_CHECKING:
    from heedful.formats.termbase import Term

MAX_TERMS = 24  # of one sentence; placeholders need phrases too
PIECE = re.compile(rf"[{SPACELESS}]|(?:(?![{SPACELESS}])\w)+|[^\w\s]")
SPACELESS_START = re.compile(f"[{SPACELESS}]")
WORD_CHARACTER = re.compile(rf"[^\W{SPACELESS}]")


class TermMatch(NamedTuple):
    """A term in a sentence, and the forms that its translation may have there."""

    source: str  # as it is written in the sentence
    forms: tuple[str, ...]
    start: int = 0  # in the text


@dataclass
class _TermNode:
    """A beginning of terms, word by word."""

    children: dict[str, _TermNode] = field(default_factory=dict)
    terms: list[Term] = field(default_factory=list)


class Glossary:
    """Terms, in a trie of their words."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = list(terms)
        self._root = _TermNode()
        for term in self.terms:
            node = self._root
            for piece in PIECE.findall(unicodedata.normalize("NFC", term.source)):
                node = node.children.setdefault(piece.casefold(), _TermNode())
            if node is not self._root:
                node.terms.append(term)

    @classmethod
    def read(cls, path: Path | str, source_language: str | None = None, target_language: str | None = None) -> Glossary:
        """The glossary in a CSV, tab-separated or TBX file; a TBX file of more than two languages needs both codes."""
        from heedful.formats.language_tags import WantedLanguages
        from heedful.formats.termbase import read_terms

        return cls(read_terms(Path(path), WantedLanguages(source_language, target_language)))

    def __len__(self) -> int:
        return len(self.terms)

    def find(self, text: str) -> list[TermMatch]:
        """The terms of a text from left to right, the longest at each place; they do not overlap."""
        pieces = [(match[0], match.span()) for match in PIECE.finditer(text)]
        matches: list[TermMatch] = []
        at = 0
        while at < len(pieces) and len(matches) < MAX_TERMS:
            length, match = self._longest(text, pieces, at)
            if match is not None:
                matches.append(match)
            at += length
        return matches

    def _longest(
        self, text: str, pieces: Sequence[tuple[str, tuple[int, int]]], first: int
    ) -> tuple[int, TermMatch | None]:
        """The longest term that starts with a word, and its number of words; 1 if there is none."""
        node, length, best = self._root, 1, None
        for place in range(first, len(pieces)):
            following = node.children.get(pieces[place][0].casefold())
            if following is None:
                break
            node = following
            surface = text[pieces[first][1][0] : pieces[place][1][1]]
            if (term := next((term for term in node.terms if _matches(term.source, surface)), None)) is not None:
                length, best = (
                    place - first + 1,
                    TermMatch(surface, _with_capitals(term.forms) or (surface,), pieces[first][1][0]),
                )
        return length, best


def _matches(term: str, surface: str) -> bool:
    """A term with a capital matches exactly; another one in any case."""
    words = unicodedata.normalize("NFC", surface).split()
    if term == term.lower():
        return [word.lower() for word in words] == unicodedata.normalize("NFC", term).lower().split()
    return words == unicodedata.normalize("NFC", term).split()


def _with_capitals(forms: Sequence[str]) -> tuple[str, ...]:
    """The forms, and each with a capital at its start, as at the start of a sentence."""
    return tuple(dict.fromkeys(form for base in forms for form in (base, base[:1].upper() + base[1:])))


def uses_term(text: str, match: TermMatch) -> bool:
    """Whether a translation contains one of the forms, between word boundaries."""
    text = " ".join(text.split())
    return any(_occurs(" ".join(form.split()), text) for form in match.forms)


def uses_form_of_term(text: str, match: TermMatch) -> bool:
    """Whether a translation contains, for each word of a form, a word that may be another form of it."""
    written = PIECE.findall(text)
    return any(all(any(are_forms(w, v) for v in written) for w in PIECE.findall(form)) for form in match.forms)


def _occurs(form: str, text: str) -> bool:
    """Whether a text contains a form that no letter of the same word precedes or follows."""
    start = text.find(form)
    while start >= 0:
        end = start + len(form)
        if not (_in_one_word(text[start - 1 : start], form[:1]) or _in_one_word(form[-1:], text[end : end + 1])):
            return True
        start = text.find(form, start + 1)
    return False


def _in_one_word(left: str, right: str) -> bool:
    """Whether two characters that follow each other are parts of one word."""
    return bool(WORD_CHARACTER.match(left) and WORD_CHARACTER.match(right))


class TermEncoder:
    """Forms of terms as token sequences of the target vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.phrase = lru_cache(4096)(self._phrase)

    def _phrase(self, texts: tuple[str, ...]) -> RequiredPhrase | None:
        """One of several forms; None if none can be written with this vocabulary."""
        forms = [form for text in texts for form in self._encodings(text)]
        return RequiredPhrase(tuple(dict.fromkeys(forms)), whole_words=True) if forms else None

    def _encodings(self, form: str) -> list[tuple[int, ...]]:
        """The tokens of a form after a space; in scripts without spaces also those without it."""
        tokenizer, encodings = self.tokenizer, []
        ids = tokenizer.encode(form)
        if not ids or tokenizer.decode(ids) != tokenizer.normalize(form):
            return []
        encodings.append(tuple(ids))
        mark = tokenizer.encode("(")
        attached = tokenizer.encode(f"({form}")
        if SPACELESS_START.match(form) and attached[: len(mark)] == mark:
            encodings.append(tuple(attached[len(mark) :]))
        return encodings

    @cached_property
    def continues(self) -> npt.NDArray[np.uint8]:
        """1 for every token that continues the word before it."""
        tokenizer = self.tokenizer
        word = tokenizer.encode("a")
        before = tokenizer.decode(word)
        texts = tokenizer.decode_batch([*word, token] for token in range(tokenizer.vocab_size))
        added = [text.removeprefix(before)[:1] for text in texts]
        flags = [
            bool(character) and character.isalnum() and not SPACELESS_START.match(character) for character in added
        ]
        return np.array(flags, dtype=np.uint8)
