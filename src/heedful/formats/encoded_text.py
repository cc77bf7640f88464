"""Bytes <-> text of files in any encoding: by byte order mark, by what the file declares, otherwise UTF-8.

Text is spliced as UTF-8 and written back in the encoding of the file, so that everything else keeps its bytes.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from heedful.errors import DataError, quote
from heedful.formats.line_files import open_unpacked

BOMS = [
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
]  # the mark of UTF-32 begins with that of UTF-16
DECLARED = [
    re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]+)"""),
    re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE),
    re.compile(rb"""^"Content-Type:[^"\n]*?charset=([\w.:-]+)""", re.MULTILINE),  # PO
]
HEAD = 4096  # bytes in which an encoding is declared
CHUNK = 1 << 18
MAX_DOCUMENT = 1 << 28  # bytes of a file that is read as a whole


@dataclass(frozen=True)
class Splice:
    """Replaces the bytes from `start` to `end` of the text in UTF-8."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class TextEncoding:
    """The encoding of a file, and its byte order mark."""

    name: str
    bom: bytes = b""


@dataclass(frozen=True)
class EncodedText:
    """The text of a file as UTF-8 without a byte order mark, and the encoding that the file has."""

    utf8: bytes
    encoding: TextEncoding
    name: str

    @property
    def text(self) -> str:
        return self.utf8.decode("utf-8")

    def spliced(self, splices: Iterable[Splice], errors: str = "strict") -> bytes:
        """The file with these replacements; `errors` is the codec's error handler for other characters."""
        parts, position = [], 0
        for splice in sorted(splices, key=lambda splice: (splice.start, splice.end)):
            if splice.start < position:
                raise ValueError(f"replacements overlap at byte {splice.start} of {self.name}")
            parts += [self.utf8[position : splice.start], splice.text.encode("utf-8")]
            position = splice.end
        joined = b"".join([*parts, self.utf8[position:]])
        if self.encoding.name == "utf-8":
            return self.encoding.bom + joined
        try:
            return self.encoding.bom + joined.decode("utf-8").encode(self.encoding.name, errors)
        except UnicodeEncodeError as error:
            raise DataError(
                f"the translation of {self.name} has the character {error.object[error.start]!r}, and the file's"
                f" encoding {self.encoding.name} has not; convert the file to UTF-8 first."
            ) from None


def detect_encoding(head: bytes, name: object) -> TextEncoding:
    """The encoding of a file that begins with `head`."""
    for bom, encoding in BOMS:
        if head.startswith(bom):
            return TextEncoding(encoding, bom)
    if head[:4] in (b"<\0?\0", b"<\0!\0") or (head[:4:2] == b"<?" and head[1:4:2] == b"\0\0"):
        return TextEncoding("utf-16-le")
    if head[:4] in (b"\0<\0?", b"\0<\0!"):
        return TextEncoding("utf-16-be")
    declared = next((match[1].decode() for pattern in DECLARED if (match := pattern.search(head[:HEAD]))), "utf-8")
    return TextEncoding(_codec(declared, name))


def _codec(declared: str, name: object) -> str:
    """The codec of a declared encoding; text that is ASCII-compatible cannot be UTF-16, whatever it declares."""
    if declared == "CHARSET":  # of a PO template
        return "utf-8"
    try:
        codec = codecs.lookup(declared)
        text = b"<".decode(codec.name)
    except (LookupError, UnicodeError):
        text = ""
    if text == "<":
        return codec.name
    if declared.lower().startswith(("utf", "ucs")):
        return "utf-8"
    raise DataError(f"{name} declares the encoding {quote(declared)}, which is not known; convert the file to UTF-8.")


def read_document(path: Path) -> EncodedText:
    """A file as a whole, unpacked and decoded; an error if it is too large or is not in its encoding."""
    with open_unpacked(path) as file:
        return decode_document(file.read(MAX_DOCUMENT + 1), str(path))


def read_leniently(path: Path) -> EncodedText:
    """The same, with U+FFFD for bytes that cannot be decoded."""
    with open_unpacked(path) as file:
        data = file.read(MAX_DOCUMENT + 1)
    _check_size(data, str(path))
    encoding = detect_encoding(data[:HEAD], path)
    return EncodedText(data[len(encoding.bom) :].decode(encoding.name, "replace").encode("utf-8"), encoding, str(path))


def _check_size(data: bytes, name: str) -> None:
    if len(data) > MAX_DOCUMENT:
        raise DataError(f"{name} has more than {MAX_DOCUMENT >> 20} MB; split it into smaller files.")


def decode_document(data: bytes, name: str) -> EncodedText:
    """The same for bytes in memory."""
    _check_size(data, name)
    encoding = detect_encoding(data[:HEAD], name)
    try:
        text = data[len(encoding.bom) :].decode(encoding.name)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"line {line} of {name} is not {encoding.name} (byte 0x{data[error.start + len(encoding.bom)]:02x});"
            " save the file as UTF-8."
        ) from None
    if text.encode(encoding.name) != data[len(encoding.bom) :]:
        raise DataError(f"{name} has several spellings of one character in {encoding.name}; save the file as UTF-8.")
    return EncodedText(text.encode("utf-8"), encoding, name)


def utf8_chunks(file: BinaryIO, name: object) -> Iterator[bytes]:
    """The text of an open file in UTF-8, chunk by chunk; bytes that cannot be decoded become U+FFFD."""
    chunk = file.read(CHUNK)
    encoding = detect_encoding(chunk[:HEAD], name)
    chunk = chunk[len(encoding.bom) :]
    decoder = codecs.getincrementaldecoder(encoding.name)(errors="replace")
    while chunk:
        yield decoder.decode(chunk).encode("utf-8")
        chunk = file.read(CHUNK)
    yield decoder.decode(b"", True).encode("utf-8")


def line_offsets(lines: Sequence[str]) -> list[int]:
    """The byte offset in UTF-8 at which each line starts, and that of the end."""
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line.encode("utf-8")))
    return offsets
