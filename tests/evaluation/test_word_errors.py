"""Word and character error rates against edit distances by dynamic programming."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from heedful.errors import DataError
from heedful.evaluation.word_errors import evaluate_speech, normalize_transcript


def distance(one: Sequence[str], other: Sequence[str]) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


REFERENCES = ["the cat sat on the mat", "one two three", "Hello, World!"]
HYPOTHESES = ["the cat sit on mat", "one one two three four", "hello world"]


def test_rates_are_edit_distances() -> None:
    result = evaluate_speech(HYPOTHESES, REFERENCES)
    pairs = [(normalize_transcript(r), normalize_transcript(h)) for r, h in zip(REFERENCES, HYPOTHESES, strict=True)]
    words = sum(distance(r.split(), h.split()) for r, h in pairs)
    assert result.wer == pytest.approx(100 * words / sum(len(r.split()) for r, _ in pairs))
    characters = sum(distance(r, h) for r, h in pairs)
    assert result.cer == pytest.approx(100 * characters / sum(len(r) for r, _ in pairs))
    assert result.substitutions + result.deletions + result.insertions == words == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [("It’s 5 o'clock -- NOW!", "it's 5 o'clock now"), ("  ÄÖ\tß… ", "äö ß"), ("ﬁne", "fine"), ("?!", "")],
)
def test_normalization(text: str, expected: str) -> None:
    assert normalize_transcript(text) == expected


def test_empty_hypotheses_and_references() -> None:
    assert evaluate_speech(["", "a"], ["x y", "..."]).wer == 100.0
    with pytest.raises(DataError, match="no reference has any words"):
        evaluate_speech(["a"], ["…"])
    with pytest.raises(DataError, match="1 transcripts and 0 references"):
        evaluate_speech(["a"], [])
