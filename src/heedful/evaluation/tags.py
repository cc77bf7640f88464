"""Scores of tagged sentences: accuracy of the words, and F1 of the entities as CoNLL and seqeval count them.

An entity is right if its type, its first and its last word are right. Tags are in the IOB, IOB2, IOE or IOBES scheme
(B-PER, I-PER, E-PER, S-PER, O); tags without such a prefix, such as parts of speech, are compared word by word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from heedful.errors import DataError
from heedful.evaluation.metrics import label_scores

Entity = tuple[str, int, int]  # type, first and last word
PREFIXED = re.compile(r"([BIES])-(.+)")
OUTSIDE = ("O", "")


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, in order."""
    spans: list[Entity] = []
    previous, begin = OUTSIDE, 0
    for place, (prefix, kind) in enumerate([*map(_parts, tags), OUTSIDE]):
        inside = previous[0] != "O"
        if inside and (prefix in "BSO" or previous[0] in "ES" or kind != previous[1]):
            spans.append((previous[1], begin, place - 1))
            inside = False
        if prefix != "O" and not inside:
            begin = place
        previous = prefix, kind
    return spans


def tag_scores(predicted: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]) -> dict[str, float]:
    """Accuracy of the words, and F1 of the entities, or of the words by tag where tags have no prefixes; in percent."""
    if [len(tags) for tags in predicted] != [len(tags) for tags in expected]:
        raise DataError("predicted and expected tags differ in number; give one tag for each word.")
    words = [tag for tags in expected for tag in tags]
    flat = label_scores([tag for tags in predicted for tag in tags], words)
    f1 = flat["valid_macro_f1"]
    if any(PREFIXED.fullmatch(tag) for tag in words):
        ours, theirs = ({(n, *e) for n, tags in enumerate(s) for e in entities(tags)} for s in (predicted, expected))
        f1 = 200 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 0.0
    return {"valid_accuracy": flat["valid_accuracy"], "valid_f1": f1}


def _parts(tag: str) -> tuple[str, str]:
    match = PREFIXED.fullmatch(tag)
    return (match[1], match[2]) if match else OUTSIDE
