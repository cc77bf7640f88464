"""`heedful translate` for a file in a format of its own: read, translate what is missing, write."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli.progress import progress
from heedful.cli.streams import DASH, check_inputs
from heedful.errors import SettingError
from heedful.formats.document import REVIEW_BELOW, DocumentOptions, unfinished
from heedful.formats.document_formats import open_document
from heedful.formats.encoded_text import read_document
from heedful.inference.confidence import CONFIDENCE_FILE
from heedful.serve.languages import UNKNOWN, guess_language_pair
from heedful.storage.atomic import atomic_write

if TYPE_CHECKING:
    from heedful.inference.translator import Translator


@dataclass(frozen=True)
class DocumentRequest:
    """A file to translate, and which of its segments."""

    input: Path
    output: Path
    format: str
    options: DocumentOptions
    which: str  # missing, unfinished or all
    review_below: float | None = None  # confidence; None: the usual one, if the model is calibrated

    def check(self) -> None:
        if self.output == DASH:
            raise SettingError(f"{self.input} is translated as a file; name the new file with --output.")
        check_inputs(self.output, self.input)


def model_language(folder: Path) -> str | None:
    """The target language of a model, if its name or its training files show it."""
    pair = guess_language_pair(folder.name, folder)
    return None if pair == UNKNOWN else pair.target.replace("_", "-")


def _uses_confidence(translator: Translator, review_below: float | None) -> bool:
    """Whether confidence decides what is marked for review; if that is asked for, the model must be calibrated."""
    if review_below is not None:
        return review_below > 0 and translator.calibration is not None  # which is an error without one
    return (translator.folders[0].path / CONFIDENCE_FILE).is_file()


def translate_file(translator: Translator, request: DocumentRequest, search: Mapping[str, Any]) -> None:
    """Translate a file; a summary goes to standard error."""
    from heedful.inference.file_translation import SavedTranslations, translate_document

    content = read_document(request.input)
    document = open_document(content, request.format, request.options)
    numbers = unfinished(document, request.which)
    search = {**search, "confidence": _uses_confidence(translator, request.review_below)}
    review_below = REVIEW_BELOW if request.review_below is None else request.review_below
    folders = [str(folder.path) for folder in translator.folders]
    key = {"options": asdict(request.options), "which": request.which, "search": dict(search), "models": folders}
    saved = SavedTranslations.open(request.output, content.utf8, key)
    resumed = len(saved.sentences)
    with progress(request.input, request.output, translator.engine, max(1, len(numbers))) as done:
        targets = translate_document(translator, document, request.which, saved, done, review_below, **search)
    atomic_write(request.output, document.write(targets))
    saved.remove()
    doubtful = sum(target.doubtful for target in targets.values())
    unsure = sum(target.unsure and not target.doubtful for target in targets.values())
    parts = [f"{len(targets):,} of {len(document.segments):,} segments translated"]
    parts += [f"{resumed:,} of them by an earlier command"] if resumed else []
    parts += [f"{doubtful:,} to be checked, with a confidence below {review_below:g}"] if doubtful else []
    parts += [f"{unsure:,} to be checked, because placeholders differ"] if unsure else []
    print(f"{request.output}: {', '.join(parts)}.", file=sys.stderr)
