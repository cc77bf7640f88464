"""Translation of a file: segment by segment, saved as they finish, so that a long file can be resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.formats.document import REVIEW_BELOW, Document, TargetText, target_of, text_to_translate, unfinished
from heedful.formats.segment import Segment
from heedful.inference.translator import Translator
from heedful.storage.atomic import atomic_write
from heedful.text.text_sentences import SentenceTranslations, split_sentences

PARTIAL = ".partial"  # appended to the name of the output


@dataclass
class SavedTranslations:
    """Translations of segments in a file beside the output, one JSON line each; removed when the output is written."""

    path: Path
    key: str  # what the translations depend on
    sentences: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def open(cls, output: Path, content: bytes, options: object) -> SavedTranslations:
        """What an earlier, interrupted command has saved for the same file and options."""
        digest = hashlib.blake2b(content, digest_size=16)
        digest.update(json.dumps(options, sort_keys=True, default=str).encode())
        saved = cls(output.with_name(output.name + PARTIAL), digest.hexdigest())
        with suppress(OSError, ValueError):  # nothing is saved, or its last line is cut off
            lines = saved.path.read_text(encoding="utf-8").split("\n")
            for line in lines[1:] if json.loads(lines[0]) == saved.key else []:
                number, sentences = json.loads(line)
                saved.sentences[number] = sentences
        return saved

    def start(self) -> None:
        """Write the file anew with what it holds."""
        lines = [json.dumps(self.key), *(json.dumps(item) for item in self.sentences.items())]
        atomic_write(self.path, "".join(f"{line}\n" for line in lines))

    def add(self, number: int, sentences: list[dict[str, Any]]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps((number, sentences)) + "\n")
        self.sentences[number] = sentences

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def translate_document(
    translator: Translator,
    document: Document,
    which: str,
    saved: SavedTranslations,
    done: Callable[[], None] = lambda: None,
    review_below: float = REVIEW_BELOW,
    **options: Any,
) -> dict[int, TargetText]:
    """The translations of the segments to translate, by number; `saved` gets each as soon as it is finished.

    With the option `confidence`, those with a confidence of less than `review_below` are unsure.
    """
    numbers = unfinished(document, which)
    saved.start()
    missing = [number for number in numbers if number not in saved.sentences]
    for _ in range(len(numbers) - len(missing)):
        done()
    for tagged in (False, True):  # only segments with tags need word alignments, which cost time
        chosen = [number for number in missing if bool(document.segments[number].source.tags) == tagged]
        segments = [document.segments[number] for number in chosen]
        results = _translate(translator, segments, tagged and translator.aligns, options)
        for number, best in zip(chosen, results, strict=True):
            saved.add(number, best)
            done()
    return {number: _target(document.segments[number], saved.sentences[number], review_below) for number in numbers}


def _translate(
    translator: Translator, segments: Sequence[Segment], alignments: bool, options: dict[str, Any]
) -> Iterator[list[dict[str, Any]]]:
    """The best translation of each sentence of each segment."""
    spans = [split_sentences(text_to_translate(segment)) for segment in segments]
    lines = [span.text for of_segment in spans for span in of_segment]
    if not lines:
        yield from ([] for _ in segments)
        return
    with closing(translator.stream(lines, alignments=alignments, **options)) as results:
        for of_segment in spans:
            best = [next(results)[0] for _ in of_segment]
            yield [
                {name: getattr(translation, name) for name in ("text", "alignment", "confidence")}
                for translation in best
            ]


def _target(segment: Segment, sentences: list[dict[str, Any]], review_below: float) -> TargetText:
    text = text_to_translate(segment)
    translations = SentenceTranslations(text, split_sentences(text), [[best] for best in sentences])
    return target_of(segment, translations, review_below)
