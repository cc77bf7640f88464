"""Placeholders come out as often as they went in, from every kind of model and however it translates.

The models have random weights: no output makes sense, so that nothing but the mechanism can save a placeholder.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from heedful import demo
from heedful.config import ModelConfig, SearchSettings
from heedful.inference.protected_text import PlaceholderPlacer, ProtectedText
from heedful.inference.translator import Translator
from heedful.model.transformer import build_model
from heedful.storage.folder import ModelFolder
from heedful.text import train_vocabulary
from heedful.text.placeholders import VOCABULARY_SLOTS, Template
from heedful.text.words import words

PAIRS = demo.generate(60, seed=8)
CODES = ["{name}", "{{ count }}", "%s", "%(n)d", "$var", "&amp;", "https://example.org/a.html?b=1", "me@example.org"]
CODE = re.compile("|".join(map(re.escape, [*CODES, "<b>", "</b>", "<i>", "</i>"])))


def folder(slots: bool, **changes: object) -> ModelFolder:
    lines = [text for pair in PAIRS for text in (pair.source, pair.target)]
    tokenizer = train_vocabulary([*lines, *VOCABULARY_SLOTS], slots=slots)
    shape = {"d_model": 32, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "max_length": 128}
    torch.manual_seed(4)
    model = build_model(ModelConfig(**shape | {"vocab_size": tokenizer.vocab_size, "output_bias": True} | changes))
    model.output_bias.data[tokenizer.eos_id] = 3.0
    return ModelFolder(model.eval(), tokenizer, tokenizer, SearchSettings(beam=3, max_extra=5), Path("model"))


def strings(count: int, seed: int = 1) -> list[str]:
    """Sentences with placeholders between their words, attached to them, and around them."""
    random_numbers = random.Random(seed)
    made = []
    for _ in range(count):
        text = random_numbers.choice(PAIRS).source.split()
        for _ in range(random_numbers.randint(1, 3)):
            code, place = random_numbers.choice(CODES), random_numbers.randint(0, len(text))
            text.insert(place, random_numbers.choice(["{}", "({})", '"{}",', "{}."]).replace("{}", code))
        if random_numbers.random() < 0.5:
            first, last = sorted(random_numbers.choices(range(len(text)), k=2))
            tag = random_numbers.choice("bi")
            text[first] = f"<{tag}>{text[first]}"
            text[last] = f"{text[last]}</{tag}>"
        made.append(" ".join(text))
    return made


class OpenTags(HTMLParser):
    """The tags that are open, as Python's own parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_kept(sources: Sequence[str], outputs: Sequence[str]) -> None:
    for source, output in zip(sources, outputs, strict=True):
        assert Counter(CODE.findall(output)) == Counter(CODE.findall(source)), (source, output)
        assert not OpenTags(output).open


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"sampling": True, "seed": 3}, {"n_best": 2, "beam": 2}, {"max_length": 3}], ids=str
)
def test_every_placeholder_occurs_as_often_as_in_the_source(slots: bool, options: dict[str, object]) -> None:
    translator = Translator([folder(slots)])
    assert (translator._builder.slots is not None) == slots
    sources = strings(14)
    for rank in range(int(str(options.get("n_best", 1)))):
        assert_kept(sources, [n_best[rank].text for n_best in translator.translations(sources, **options)])


@pytest.mark.parametrize(
    "changes", [{"architecture": "rnn", "source_attention": "none"}, {"attention": "linear"}], ids=str
)
def test_models_without_source_attention_and_of_other_kinds_keep_placeholders(changes: dict[str, object]) -> None:
    sources = strings(6, seed=2)
    assert_kept(sources, Translator([folder(False, **changes)]).translate(sources))


@pytest.mark.parametrize("slots", [False, True])
def test_a_text_that_is_translated_in_parts_keeps_placeholders(slots: bool) -> None:
    translator, texts = Translator([folder(slots)]), [" ".join(strings(9, seed=3)), "{{ a. b }} " * 60]
    translator.notice = lambda text: None
    outputs = translator.translate(texts)
    assert_kept(texts, outputs)
    assert outputs[1].count("{{ a. b }}") == 60


@pytest.mark.parametrize("slots", [False, True])
def test_a_text_of_placeholders_alone_is_copied(slots: bool) -> None:
    translator = Translator([folder(slots)])
    assert translator.translate(["%s", "<br/> {x}: {y}!", ""]) == ["%s", "<br/> {x}: {y}!", ""]
    (n_best,) = translator.translations(["%s: {x}"], alignments=True, n_best=2)
    assert [translation.alignment for translation in n_best] == [[(0, 0), (1, 1)]] * 2


@pytest.mark.parametrize("slots", [False, True])
def test_alignments_count_the_words_of_the_original_texts(slots: bool) -> None:
    translator = Translator([folder(slots)])
    sources = [*strings(8, seed=5), "<a href='x y'>the dog</a> reads {{ two words }}"]
    for source, (translation, *_) in zip(sources, translator.translations(sources, alignments=True), strict=True):
        assert translation.alignment is not None
        for source_word, target_word in translation.alignment:
            assert source_word < len(words(source)) and target_word < len(words(translation.text))


def test_a_forced_prefix_with_a_placeholder_does_not_double_it() -> None:
    for slots in (False, True):
        translator = Translator([folder(slots)])
        for source in ("the dog {name} reads", "{name} reads the <b>book</b>"):
            assert_kept([source], [translator.translate(source, prefix="der {name}")])


def test_lines_without_placeholders_are_what_they_were() -> None:
    translator = Translator([folder(True)])
    lines = [pair.source for pair in PAIRS[:10]]
    alone = translator.translations(lines, n_best=2)
    among = translator.translations([*lines, *strings(10)], n_best=2)[:10]
    assert among == alone


def test_numbers_that_the_translation_lacks_are_reported() -> None:
    translator = Translator([folder(False)])
    (n_best,) = translator.translations(["the dog reads 7351 books"])
    assert n_best[0].warnings == ("the number 7351 is not in the translation",)
    assert translator.translations(["the dog reads"])[0][0].warnings == ()


def placed(source: str, target: str, links: Sequence[int]) -> str:
    """Where placeholders go if the words of the target come from these words of the source without placeholders."""
    protected = ProtectedText.of(Template.of(source), slots=False)
    spans = [[match.span() for match in re.finditer(r"\w+|[^\w\s]", text)] for text in (protected.text, target)]
    return protected.restore(target, PlaceholderPlacer(protected, target, *spans).positions(links))[0]


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("Delete %d files?", "Dateien löschen?", [1, 0, 2], "%d Dateien löschen?"),
        ("Hello {name}!", "Hallo!", [0, 1], "Hallo {name}!"),
        ("{name} is here.", "Ist hier.", [0, 1, 2], "{name} Ist hier."),
        ("Open %s and %s now", "Jetzt öffnen und", [2, 0, 1], "%s Jetzt öffnen %s und"),
        ("Click <b>here</b> now.", "Jetzt hier klicken.", [2, 1, 0, 3], "Jetzt <b>hier</b> klicken."),
        ("<b>All of it</b>", "Alles davon", [0, 1], "<b>Alles davon</b>"),
        ("<b>One</b> <i>two</i>", "zwei Eins", [1, 0], "<i>zwei</i> <b>Eins</b>"),
        ("Fish &amp; chips", "Fisch Pommes", [0, 1], "Fisch &amp; Pommes"),
        ("Error: %s", "Fehler:", [0, 1], "Fehler: %s"),
        ("file%s (%d)", "Datei", [0], "Datei%s (%d)"),
        ("Mail (me@x.org) now.", "Jetzt mailen.", [1, 0, 2], "(me@x.org) Jetzt mailen."),
        ("End. (me@x.org)", "Ende.", [0, 1], "Ende. (me@x.org)"),
    ],
)
def test_where_placeholders_go(source: str, target: str, links: Sequence[int], expected: str) -> None:
    assert placed(source, target, links) == expected


def test_slots_that_are_missing_repeated_or_crossing_are_rescued() -> None:
    protected = ProtectedText.of(Template.of("<b>a</b> <i>b</i> {x}"), slots=True)
    b, end_b, i, end_i, x = VOCABULARY_SLOTS[:5]
    assert protected.restore(f"{b}A{end_b} {x} {i}B{end_i}")[0] == "<b>A</b> {x} <i>B</i>"
    for text in ("A B", f"{b}A {i}B{end_b}{end_i}", f"{x}{x} A {x}", f"{end_b}A{b}"):
        restored = protected.restore(text)[0]
        assert Counter(re.findall(r"</?[bi]>|\{x\}", restored)) == Counter(["<b>", "</b>", "<i>", "</i>", "{x}"])
        assert not OpenTags(restored).open
