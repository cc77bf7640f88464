"""What every file to translate offers: its segments, and its bytes with some segments translated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heedful.formats.encoded_text import EncodedText, Splice
from heedful.formats.segment import Segment, TaggedText


@dataclass(frozen=True)
class DocumentOptions:
    """What a user says about a file to translate."""

    source_language: str | None = None
    target_language: str | None = None
    column: str | None = None  # of a table: a header or a number from 1


@dataclass(frozen=True)
class TargetText:
    """A translation to write; `unsure` marks it for review where the format can."""

    tagged: TaggedText
    unsure: bool = False


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
