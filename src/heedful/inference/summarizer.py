"""Summarizer: documents -> summaries, by the search and the engine of a translator.

A document longer than the model's limit is truncated at its end, with a notice: what it is about usually stands first.
Placeholders and tags are plain text: a summary need not contain them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, overload

from heedful.inference.results import SourcePart, Translation
from heedful.inference.shortlist import Shortlist
from heedful.inference.source_parts import SourcePartBuilder
from heedful.inference.translator import Translator
from heedful.text import Tokenizer
from heedful.text.normalization import replace_surrogates
from heedful.text.placeholders import Template


class DocumentBuilder(SourcePartBuilder):
    """A document is one part, truncated where it is too long."""

    def __init__(
        self, tokenizers: tuple[Tokenizer, Tokenizer], max_length: int, vocab_size: int, shortlist: Shortlist | None
    ) -> None:
        super().__init__(tokenizers, max_length, vocab_size, shortlist)
        self.longest = max(1, max_length - 1)  # all positions but that of the end token

    def _protect(self, template: Template) -> None:
        return None

    def _split(self, line: int, template: Template, opening: list[int]) -> list[SourcePart]:
        text = replace_surrogates(template.restore(template.text))
        ids = opening + self.source_tokenizer.encode(text)
        read = ids[: self.longest]
        return [SourcePart(line, read, (), text, len(opening), unread=len(ids) - len(read))]


class Summarizer(Translator):
    """A trained model, or several as an ensemble, ready to summarize."""

    builder_type: ClassVar[type[SourcePartBuilder]] = DocumentBuilder
    lacks: ClassVar[str] = "does not summarize"

    @overload
    def summarize(self, texts: str, **options: Any) -> str: ...
    @overload
    def summarize(self, texts: Sequence[str], **options: Any) -> list[str]: ...
    def summarize(self, texts: str | Sequence[str], **options: Any) -> str | list[str]:
        """The summary of a document, or of each of several. Options are those of `Translator.translations`."""
        return self.translate(texts, **options)

    def describe_split(self, pieces: int) -> str:
        return "the rest is not read"

    def restore(
        self,
        parts: Sequence[SourcePart],
        hypotheses: Sequence[list[Translation]],
        n_best: int,
        aligned: bool,
        confidence: bool = False,
    ) -> list[list[Translation]]:
        """As of a translator, but a summary may leave out numbers: the one warning is of a truncated document."""
        restored = super().restore(parts, hypotheses, n_best, aligned, confidence)
        return [
            [replace(summary, warnings=self._warnings(part)) for summary in summaries]
            for part, summaries in zip(parts, restored, strict=True)
        ]

    def _warnings(self, part: SourcePart) -> tuple[str, ...]:
        if not part.unread:
            return ()
        read = len(part.ids)
        return (f"the document has {read + part.unread:,} tokens, and this model reads {read:,}",)
