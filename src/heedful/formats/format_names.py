"""Names of the formats that are translated as files, and how a path shows its format. Imports nothing that is slow."""

from __future__ import annotations

from pathlib import Path

from heedful.errors import SettingError, quote

PACKED = (".gz", ".bz2", ".xz")
LINES = "lines"  # text that is translated line by line
DOCUMENT_EXTENSIONS = {
    ".po": "po", ".pot": "po", ".xlf": "xliff", ".xliff": "xliff", ".sdlxliff": "xliff", ".mqxliff": "xliff",
    ".mxliff": "xliff", ".tmx": "tmx", ".html": "html", ".htm": "html", ".xhtml": "html", ".md": "markdown",
    ".markdown": "markdown", ".srt": "srt", ".vtt": "vtt", ".csv": "csv", ".tsv": "tsv", ".json": "json",
}  # fmt: skip
FORMATS = (*dict.fromkeys(DOCUMENT_EXTENSIONS.values()), "text", LINES)


def packed_stem(path: Path) -> Path:
    """The path without the extension of a compressed file."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


def document_format(path: Path, requested: str = "auto") -> str:
    """The format to translate a file in: the requested one, or that of its extension; otherwise lines of text."""
    if requested == "auto":
        return DOCUMENT_EXTENSIONS.get(packed_stem(path).suffix.lower(), LINES)
    if requested not in FORMATS:
        raise SettingError(f"the format is {quote(requested)}; it must be auto, {', '.join(FORMATS[:-1])} or {LINES}.")
    return requested
