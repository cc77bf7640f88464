"""HTML files to translate, block by block; only the text of translated blocks changes."""

from __future__ import annotations

from collections.abc import Mapping

from heedful.errors import SettingError
from heedful.formats.document import Document, DocumentOptions, TargetText
from heedful.formats.encoded_text import EncodedText, Splice
from heedful.formats.html import check_elements, escape, read_blocks, unify_line_ends
from heedful.formats.segment import Segment, TaggedText


class HtmlDocument(Document):
    """An HTML file; its line ends stay as they are."""

    encoding_errors = "xmlcharrefreplace"

    def __init__(self, content: EncodedText, options: DocumentOptions) -> None:
        super().__init__(content, options)
        self.text = unify_line_ends(content.text)
        reader = read_blocks(self.text)
        blocks = [item for item in reader.items if isinstance(item, TaggedText)]
        text_blocks = [(block, span) for block, span in zip(blocks, reader.spans, strict=True) if block.text.strip()]
        self.spans = [span for _, span in text_blocks]
        self.segments = [Segment(block, None, self.text.count("\n", 0, span[0]) + 1) for block, span in text_blocks]

    def splices(self, targets: Mapping[int, TargetText]) -> list[Splice]:
        """One replacement: characters of the text with unified line ends are not bytes of the file."""
        parts, position = [], 0
        for number, target in sorted(targets.items()):
            start, end = self.spans[number]
            parts += [self.text[position:start], target.tagged.markup(escape)]
            position = end
        written = "".join([*parts, self.text[position:]])
        try:
            check_elements(self.text, written)
        except SettingError as error:
            raise SettingError(f"{self.content.name}: {error}") from None
        if "\r" in (original := self.content.text):
            written = written.replace("\n", "\r\n" if "\r\n" in original else "\r")
        return [Splice(0, len(self.content.utf8), written)]
