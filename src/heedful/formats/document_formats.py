"""Files to translate, by their format."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from heedful.formats.document import Document, DocumentOptions
from heedful.formats.encoded_text import EncodedText
from heedful.formats.html_document import HtmlDocument
from heedful.formats.json_files import JsonDocument
from heedful.formats.markdown import MarkdownDocument
from heedful.formats.plain_text import PlainTextDocument
from heedful.formats.po import PoDocument
from heedful.formats.subtitles import SubtitleDocument
from heedful.formats.tables import TableDocument
from heedful.formats.tmx import TmxDocument
from heedful.formats.xliff import XliffDocument

OPENERS: dict[str, Callable[[EncodedText, DocumentOptions], Document]] = {
    "po": PoDocument,
    "xliff": XliffDocument,
    "tmx": TmxDocument,
    "html": HtmlDocument,
    "markdown": MarkdownDocument,
    "srt": SubtitleDocument,
    "vtt": SubtitleDocument,
    "csv": partial(TableDocument, tabs=False),
    "tsv": partial(TableDocument, tabs=True),
    "json": JsonDocument,
    "text": PlainTextDocument,
}


def open_document(content: EncodedText, format: str, options: DocumentOptions) -> Document:
    """The segments of a file in a format of `format_names`."""
    return OPENERS[format](content, options)
