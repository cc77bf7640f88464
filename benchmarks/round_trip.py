"""Read and write every file of a folder, and compare: `python benchmarks/round_trip.py FOLDER`.

Without translations a file must have the same bytes. With every translation replaced, the file is read again: sources,
and the targets that were not replaced, must be equal, and the new targets must be those that were written.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from heedful.errors import HeedfulError
from heedful.formats.document import DocumentOptions, TargetText, unfinished
from heedful.formats.document_formats import open_document
from heedful.formats.encoded_text import decode_document, read_document
from heedful.formats.format_names import LINES, document_format
from heedful.formats.segment import TaggedText

TABLES = {".tab", ".utf8", ".txt"}  # glossaries
BILINGUAL = ("po", "xliff", "tmx")


def round_trip(path: Path) -> str:
    """The format of a file, or why it is refused."""
    name = document_format(path)
    name = name if name != LINES else "tsv" if path.suffix in TABLES else "text"
    options = DocumentOptions(target_language="xx", column="1")
    try:
        document = open_document(read_document(path), name, options)
    except HeedfulError as error:
        print(f"refused: {error}")
        return "refused"
    assert document.write({}) == path.read_bytes(), f"{path} is not written back equal"
    chosen = unfinished(document, "all")
    targets = {number: replaced(document.segments[number].source) for number in chosen}
    again = open_document(decode_document(document.write(targets), str(path)), name, options)
    assert len(again.segments) == len(document.segments), f"{path} has another number of segments"
    for number, (old, new) in enumerate(zip(document.segments, again.segments, strict=True)):
        if name in BILINGUAL or number not in targets:
            assert new.source == old.source, f"line {old.line} of {path}: another source"
        if name in BILINGUAL:
            expected = targets[number].tagged if number in targets else old.target
            assert new.target == expected, f"line {old.line} of {path}: another target"
    return name


def replaced(source: TaggedText) -> TargetText:
    """Another text of the same length with the same tags."""
    return TargetText(TaggedText("".join("Ž" if letter.isalpha() else letter for letter in source.text), source.tags))


if __name__ == "__main__":
    print(Counter(round_trip(path) for path in sorted(Path(sys.argv[1]).rglob("*")) if path.is_file()))
