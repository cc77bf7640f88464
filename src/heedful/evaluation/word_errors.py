"""Word and character error rates by jiwer, after a normalization that is stated with the score."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import jiwer

from heedful.errors import DataError

NORMALIZATION = "NFKC, lower case, no punctuation, single spaces"
KEPT = "'’"  # apostrophes are parts of words


@dataclass(frozen=True)
class SpeechEvaluation:
    """Corpus scores in percent: errors of all recordings divided by the words or characters of all references."""

    wer: float
    cer: float
    substitutions: int
    deletions: int
    insertions: int
    words: int
    recordings: int
    normalization: str = NORMALIZATION

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def evaluate_speech(hypotheses: Sequence[str], references: Sequence[str], normalized: bool = True) -> SpeechEvaluation:
    """Compare transcripts with one reference each; without `normalized`, texts are compared as they are."""
    if len(hypotheses) != len(references) or not references:
        raise DataError(f"{len(hypotheses)} transcripts and {len(references)} references; give one or more, one each.")
    change = normalize_transcript if normalized else str.strip
    pairs = [
        (change(reference), change(hypothesis)) for reference, hypothesis in zip(references, hypotheses, strict=True)
    ]
    pairs = [(reference, hypothesis) for reference, hypothesis in pairs if reference]
    if not pairs:
        raise DataError("no reference has any words; give transcripts of what is said.")
    truth, written = [reference for reference, _ in pairs], [hypothesis for _, hypothesis in pairs]
    words = jiwer.process_words(truth, written)
    return SpeechEvaluation(
        wer=100 * words.wer,
        cer=100 * jiwer.process_characters(truth, written).cer,
        substitutions=words.substitutions,
        deletions=words.deletions,
        insertions=words.insertions,
        words=sum(map(len, words.references)),
        recordings=len(pairs),
        normalization=NORMALIZATION if normalized else "none",
    )


def normalize_transcript(text: str) -> str:
    """NFKC, lower case, punctuation replaced by spaces, single spaces."""
    folded = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    marks = [c if c in KEPT or not unicodedata.category(c).startswith(("P", "S")) else " " for c in folded]
    return " ".join("".join(marks).split())
