"""What judges written files: canonical XML without targets (lxml), and `msgfmt -c` of gettext."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from lxml import etree

from heedful.formats.document import Document, DocumentOptions, TargetText, unfinished
from heedful.formats.document_formats import open_document
from heedful.formats.encoded_text import decode_document
from heedful.formats.segment import Segment, TaggedText


def opened(data: bytes, format: str, target: str | None = "de", **options: str) -> Document:
    return open_document(
        decode_document(data, f"a.{format}"), format, DocumentOptions(target_language=target, **options)
    )


def masked(segment: Segment) -> TargetText:
    """A translation that is easily seen, of the same length and with the same tags."""
    text = "".join("ž" if character.isalpha() else character for character in segment.source.text)
    return TargetText(TaggedText(text, segment.source.tags))


def translated(document: Document, which: str = "unfinished") -> bytes:
    return document.write({number: masked(document.segments[number]) for number in unfinished(document, which)})


def without_targets(data: bytes) -> bytes:
    """Canonical XML without what a translation changes: targets, variants, states, the target language."""
    root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True, strip_cdata=False))
    for element in root.iter():
        for name in ("state", "trgLang", "target-language"):
            element.attrib.pop(name, None)
    for element in list(root.iter("{*}target", "{*}tuv")):
        parent = element.getparent()
        if parent is not None and not (etree.QName(element).localname == "tuv" and parent.find("{*}tuv") is element):
            parent.remove(element)
    for element in root.iter():
        element.tail = (element.tail or "").strip()
    return etree.tostring(root, method="c14n")


def check_with_msgfmt(path: Path) -> None:
    if shutil.which("msgfmt") is None:
        pytest.skip("gettext is not installed, so msgfmt cannot judge the file")
    done = subprocess.run(["msgfmt", "-c", "-o", "/dev/null", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
