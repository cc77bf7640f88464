"""The model card (README.md) with author, data and license, which is copied along with a model."""

from __future__ import annotations

import re

from heedful.files import MOST_JSON, read_text
from heedful.storage.folder import CARD, ModelFolder
from heedful.storage.model_kind import model_kind

FRONT = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


def card(opened: ModelFolder, library: str) -> str:
    """The card of a folder, with `library_name` set to the library of the new folder."""
    text = (read_text(opened.path, CARD, MOST_JSON) if opened.path.is_dir() else None) or ""
    match = FRONT.match(text)
    front, body = (match[1], text[match.end() :]) if match else ("", text)
    lines = [line for line in front.splitlines() if not line.startswith("library_name:")]
    if not any(line.startswith("pipeline_tag:") for line in lines):
        lines.insert(0, f"pipeline_tag: {model_kind(opened.config, opened.task).tag}")
    return "\n".join(["---", f"library_name: {library}", *lines, "---", body])
