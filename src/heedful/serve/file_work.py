"""What a model process does for a file to translate: find its texts, and write their translations into it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from heedful.text.text_sentences import SentenceTranslations


def read_file(data: bytes, name: str, format: str, languages: tuple[str, str]) -> Generator[None, None, Any]:
    """The texts of a file that are to be translated, and whether any of them has inline tags."""
    from heedful.formats.document import text_to_translate, unfinished

    yield
    document = _open(data, name, format, languages)
    segments = [document.segments[number] for number in unfinished(document, "unfinished")]
    return [text_to_translate(segment) for segment in segments], any(segment.source.tags for segment in segments)


def write_file(
    data: bytes, name: str, format: str, languages: tuple[str, str], translations: Sequence[SentenceTranslations]
) -> Generator[None, None, bytes]:
    """The file with the translations of these texts."""
    from heedful.formats.document import target_of, unfinished

    yield
    document = _open(data, name, format, languages)
    numbers = unfinished(document, "unfinished")
    pairs = zip(numbers, translations, strict=True)
    written: bytes = document.write(
        {number: target_of(document.segments[number], translation) for number, translation in pairs}
    )
    return written


def _open(data: bytes, name: str, format: str, languages: tuple[str, str]) -> Any:
    from heedful.formats.document import DocumentOptions
    from heedful.formats.document_formats import open_document
    from heedful.formats.encoded_text import decode_document

    return open_document(decode_document(data, name), format, DocumentOptions(*languages))
