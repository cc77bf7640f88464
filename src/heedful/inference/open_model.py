"""Which class uses a folder of the encoder-decoder family."""

from __future__ import annotations

from heedful.inference.summarizer import Summarizer
from heedful.inference.translator import Translator
from heedful.storage.folder import ModelFolder


def translator_type(folder: ModelFolder) -> type[Translator]:
    """`Summarizer` for a model that was trained to summarize, else `Translator`."""
    return Summarizer if folder.task == "summarization" else Translator
