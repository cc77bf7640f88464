"""The card of a model, README.md, which goes where the model goes: who made it, from what, and under which licence."""

from __future__ import annotations

import re

from heedful.files import MOST_JSON, read_text
from heedful.storage.folder import CARD, ModelFolder

FRONT = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
TASKS = {"encoder-decoder": "translation", "decoder": "text-generation", "encoder": "fill-mask"}


def card(opened: ModelFolder, library: str) -> str:
    """The card of an opened folder as it was, but for the library that is to open the new one."""
    text = read_text(opened.path, CARD, MOST_JSON) or ""
    found = FRONT.match(text)
    front, body = (found[1], text[found.end() :]) if found else ("", text)
    kept = [line for line in front.splitlines() if not line.startswith("library_name:")]
    if not any(line.startswith("pipeline_tag:") for line in kept):
        config = opened.model.config
        kept.insert(0, f"pipeline_tag: {'text-classification' if config.labels else TASKS[config.family]}")
    return "\n".join(["---", f"library_name: {library}", *kept, "---", body])
