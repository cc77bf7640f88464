"""`train.glossary_augmentation`: terms are annotated in training, and inflected in translation."""

from __future__ import annotations

import random
import re
from itertools import product
from pathlib import Path

import pytest

from heedful import demo
from heedful.data.term_augmentation import TermAugmentation
from heedful.formats.termbase import Term
from heedful.inference.term_matching import Glossary
from heedful.text.term_annotation import TERM_MARKS, are_forms

from .test_learns import learned

pytestmark = pytest.mark.slow

ADJECTIVES = {"old": "alt", "small": "klein", "green": "grün", "good": "gut", "cheap": "billig", "red": "rot",
              "new": "neu", "fast": "schnell", "black": "schwarz", "nice": "nett", "sad": "traurig",
              "rich": "reich"}  # fmt: skip
NOUNS = {"dog": "m Hund", "cat": "f Katze", "horse": "n Pferd", "man": "m Mann", "woman": "f Frau", "child": "n Kind"}
CLAUSES = {  # of article and adjective by gender, with the noun in between
    "The {} sleeps.": ("{} schläft.", {"m": "Der {}e", "f": "Die {}e", "n": "Das {}e"}),
    "A {} sleeps.": ("{} schläft.", {"m": "Ein {}er", "f": "Eine {}e", "n": "Ein {}es"}),
    "We see the {}.": ("Wir sehen {}.", {"m": "den {}en", "f": "die {}e", "n": "das {}e"}),
    "We see a {}.": ("Wir sehen {}.", {"m": "einen {}en", "f": "eine {}e", "n": "ein {}es"}),
    "We help the {}.": ("Wir helfen {}.", {"m": "dem {}en", "f": "der {}en", "n": "dem {}en"}),
}
TRAIN = {"learning_rate": 6e-3, "warmup": 30, "schedule": "linear", "max_updates": 200, "checkpoint_every": 200,
         "batch_tokens": 1000, "average_checkpoints": 1, "glossary_augmentation": 0.5}  # fmt: skip


def grammar() -> list[tuple[str, str, str]]:
    """Every sentence, its translation, and the form of its adjective there."""
    rows = []
    for (english, (german, phrases)), (adjective, stem), (noun, name) in product(
        CLAUSES.items(), ADJECTIVES.items(), NOUNS.items()
    ):
        gender, word = name.split()
        phrase = phrases[gender].format(stem)
        rows.append((english.format(f"{adjective} {noun}"), german.format(f"{phrase} {word}"), phrase.split()[-1]))
    random.Random(1).shuffle(rows)
    return rows


def test_annotations_depend_on_the_pair_alone() -> None:
    pairs = [(pair.source, pair.target) for pair in demo.generate(1000)]
    augmentation, again = TermAugmentation(pairs, 0.5), TermAugmentation(pairs, 0.5)
    annotated = [augmentation.annotate(*pair) for pair in pairs]
    assert annotated == [again.annotate(*pair) for pair in pairs]
    changed = [(pair, new) for pair, new in zip(pairs, annotated, strict=True) if new[0] != pair[0]]
    assert 0.3 * len(pairs) < len(changed) < 0.6 * len(pairs)
    pattern = re.compile(rf" ?{TERM_MARKS[0]} (.*?) {TERM_MARKS[1]} (.*?) {TERM_MARKS[2]}")
    for (source, target), (new_source, new_target) in changed:
        assert re.sub(r"\s+", "", pattern.sub(r"\1", new_source)) == re.sub(r"\s+", "", source)
        assert len(new_target.split()) == len(target.split())
        for _, form in pattern.findall(new_source):
            assert any(are_forms(form, word.strip(".,!?")) for word in new_target.split()), (form, new_target)
    assert all(new[1] == pair[1] for pair, new in zip(pairs, annotated, strict=True) if new[0] == pair[0])


def test_a_term_is_inflected(tmp_path: Path) -> None:
    rows = grammar()
    held_out, pairs = rows[:50], [(source, target) for source, target, _ in rows[50:]]
    translator = learned(tmp_path, [*pairs * 12, *[row[:2] for row in held_out]], {}, TRAIN)
    glossary = Glossary([Term(source, (target,)) for source, target in ADJECTIVES.items()])

    def right() -> int:
        texts = translator.translate([source for source, _, _ in held_out], glossary=glossary)
        stems = re.compile(rf"\b(?:{'|'.join(ADJECTIVES.values())})\w*")
        return sum(stems.findall(text) == [form] for text, (_, _, form) in zip(texts, held_out, strict=True))

    soft = right()
    translator._builder.reads_annotations = False
    hard = right()
    assert soft > 35 and soft > 2 * hard, (soft, hard)
    plain = ["We see the.", "Sleeps."]
    assert translator.translate(plain, glossary=glossary) == translator.translate(plain)
