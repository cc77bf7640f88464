"""The model card (README.md) with author, data and license, which is copied along with a model."""

from __future__ import annotations

import re

from heedful.files import MOST_JSON, read_text
from heedful.storage.folder import CARD, ModelFolder

FRONT = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
TASKS = {"encoder-decoder": "translation", "decoder": "text-generation", "encoder": "fill-mask"}
LABEL_TASKS = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
    "question-answering": "question-answering",
}


def card(opened: ModelFolder, library: str) -> str:
    """The card of a folder, with `library_name` set to the library of the new folder."""
    text = (read_text(opened.path, CARD, MOST_JSON) if opened.path.is_dir() else None) or ""
    match = FRONT.match(text)
    front, body = (match[1], text[match.end() :]) if match else ("", text)
    lines = [line for line in front.splitlines() if not line.startswith("library_name:")]
    if not any(line.startswith("pipeline_tag:") for line in lines):
        config = opened.model.config
        task = "automatic-speech-recognition" if config.features else TASKS[config.family]
        lines.insert(0, f"pipeline_tag: {LABEL_TASKS[config.label_kind] if config.labels else task}")
    return "\n".join(["---", f"library_name: {library}", *lines, "---", body])
