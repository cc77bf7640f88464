"""What every file to translate offers: its segments, and its bytes with some segments translated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heedful.formats.encoded_text import EncodedText, Splice
from heedful.formats.segment import Segment, TaggedText, separate_words
from heedful.formats.tag_placement import line_breaks_to_spaces, place_tags
from heedful.text.placeholders import PLACEHOLDER
from heedful.text.text_sentences import SentenceTranslations

REVIEW_BELOW = 0.5  # confidence: translations with less are marked for review
NOT_TRANSLATABLE = "marked as not translatable"


@dataclass(frozen=True)
class DocumentOptions:
    """What a user says about a file to translate."""

    source_language: str | None = None
    target_language: str | None = None
    column: str | None = None  # of a table: a header or a number from 1


@dataclass(frozen=True)
class TargetText:
    """A translation to write; `unsure` marks it for review where the format can, `doubtful` is low confidence."""

    tagged: TaggedText
    unsure: bool = False
    doubtful: bool = False


@dataclass
class Document(ABC):
    """The segments of a file, and how translations are written into it."""

    content: EncodedText
    options: DocumentOptions = field(default_factory=DocumentOptions)
    segments: Sequence[Segment] = ()
    encoding_errors = "strict"  # the codec's error handler for characters that the file's encoding lacks

    @abstractmethod
    def splices(self, targets: Mapping[int, TargetText]) -> list[Splice]:
        """The replacements that write these translations, by the number of the segment."""

    def write(self, targets: Mapping[int, TargetText]) -> bytes:
        """The file with these translations; the same bytes without any."""
        return self.content.spliced(self.splices(targets) if targets else [], self.encoding_errors)


def unfinished(document: Document, which: str) -> list[int]:
    """The numbers of the segments to translate: `missing` ones, also `unfinished` ones (fuzzy, not final), or `all`."""
    return [
        number
        for number, segment in enumerate(document.segments)
        if segment.source.text.strip()
        and segment.problem != NOT_TRANSLATABLE
        and (which == "all" or segment.target is None or (which == "unfinished" and segment.problem))
    ]


def text_to_translate(segment: Segment) -> str:
    """The text of a segment; line breaks that only wrap lines become spaces."""
    text = separate_words(segment.source).text
    return text if segment.preserve_space else line_breaks_to_spaces(text)


def target_of(segment: Segment, translation: SentenceTranslations, review_below: float = REVIEW_BELOW) -> TargetText:
    """What is written for a segment.

    It is unsure if the placeholders of both sides differ, or if the confidence of a sentence is known and too low.
    """
    tagged = place_tags(separate_words(segment.source), translation)
    confidences = [best[0].get("confidence") for best in translation.n_best if best]
    doubtful = any(value is not None and value < review_below for value in confidences)
    return TargetText(tagged, doubtful or not same_placeholders(segment.source.text, tagged.text), doubtful)


def same_placeholders(source: str, target: str) -> bool:
    """Whether variables (%s, {name}), tags, entities and addresses occur equally often in both texts."""
    a, b = (Counter(match[0] for match in PLACEHOLDER.finditer(text)) for text in (source, target))
    return a == b
