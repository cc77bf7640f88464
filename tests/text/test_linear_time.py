"""No text takes more than linear time, in any expression or function that sees what users send.

Each is run on 20,000 characters of every unit of one or two of the characters that it tells apart. Linear time is a
few milliseconds a unit; quadratic time is seconds a unit, and the time limit of the test ends it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from heedful.config import train_settings
from heedful.data import scan
from heedful.demo import structure
from heedful.inference import aligner
from heedful.inference.encoder import MASK
from heedful.inference.results import Translation, join_parts
from heedful.inside import tokens
from heedful.interop import model_card
from heedful.serve import languages
from heedful.text import sentence_separator, split_long
from heedful.text.normalization import normalize_function
from heedful.text.placeholders import Template
from heedful.text.sentence_splitting import BORDERS
from heedful.text.text_sentences import ABBREVIATION, replace_sentences, split_sentences
from heedful.text.words import word_spans

LENGTH = 20_000


def refused(function: Callable[[str], object]) -> Callable[[str], object]:
    """The same, for one that refuses most texts."""

    def call(text: str) -> None:
        with pytest.raises(ValueError, match="a duration looks like"):
            function(text + "?")

    return call


def again(text: str) -> str:
    parts = split_sentences(text)
    return replace_sentences(text, parts, ["x"] * len(parts))


def in_parts(text: str) -> list[Translation]:
    made: Any = [[Translation(text[at : at + 9], 0.0, 0.0, (), (), None, [(0, 0)])] for at in range(0, len(text), 9)]  # type: ignore[arg-type]
    return join_parts(made)


FUNCTIONS: dict[str, tuple[str, Callable[[str], object]]] = {
    "text.split, ends of sentences": ('.!。") ', BORDERS[0].findall),
    "text.split, ends of clauses": (",、 x", BORDERS[1].findall),
    "text.split, white space": (" \nx", BORDERS[2].findall),
    "text.split_long": ('.。" x', lambda text: split_long(text, lambda part: len(part) <= 100)),
    "text.sentence_separator": ("字 ", lambda text: sentence_separator(text, text)),
    "text.normalize": (" \té\u0301", normalize_function(lowercase=True)),
    "serve.sentences, abbreviations": (" (.e", ABBREVIATION.search),
    "serve.sentences, apart and together": (".。\n", again),
    "serve.languages": ("-_.ab", languages._pair_from_name),
    "translation.joined": ("a", in_parts),
    "text.placeholders": ('{}%<a="@.&;-/!1 ', Template.of),
    "text.words": ("a我 ", word_spans),
    "inference.aligner": ("a'. ", aligner.MARKS.findall),
    "inside.pieces": ("<0xF", tokens.BYTE.findall),
    "interop.card": ("- \n\r", lambda text: model_card.FRONT.match("---\n" + text)),
    "demo.words": ("a'. ", structure.words),
    "encode.masks": ("[<M", MASK.split),
    "data.scan": ("a\u200b\r", scan.ANY_UNUSUAL.findall),
    "sections.seconds": ("1.s", refused(train_settings.parse_duration)),
}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_time_is_linear_in_the_length(name: str) -> None:
    characters, function = FUNCTIONS[name]
    for unit in [*characters, *map("".join, permutations(characters, 2))]:
        function((unit * LENGTH)[:LENGTH])


@pytest.mark.parametrize("text, cuts", [("a... b", [5]), ("a.\"' b", [5]), ("..b. ", [5]), ("。。」a", [3]), (".", [])])
def test_a_run_of_marks_ends_a_sentence_once(text: str, cuts: list[int]) -> None:
    assert [match.end() for match in BORDERS[0].finditer(text)] == cuts


@pytest.mark.parametrize("text, value", [("90s", 90), ("1.5h", 5400), ("1h30m", 5400), ("1.s", None), ("1h 2m", None)])
def test_durations(text: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(ValueError, match=re.escape("a duration looks like 90s, 30m or 1h30m")):
            train_settings.parse_duration(text)
    else:
        assert train_settings.parse_duration(text) == value
