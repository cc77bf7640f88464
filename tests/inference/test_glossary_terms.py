"""Terms of a glossary: found by word and case, required by the search, reported where they are missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heedful.errors import DataError, SettingError
from heedful.formats.language_tags import WantedLanguages
from heedful.formats.termbase import Term, read_terms, terms_of_mapping
from heedful.inference.confidence import CONFIDENCE_FILE
from heedful.inference.term_matching import Glossary, TermMatch, uses_term
from heedful.inference.translator import Translator
from heedful.storage.folder import load_folder, save_folder

from .test_protected_text import PAIRS, folder

TBX = """<?xml version="1.0"?><tbx xmlns="urn:iso:std:iso:30042:ed-2"><text><body><conceptEntry>
<langSec xml:lang="en"><termSec><term>dog</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Hund</term></termSec><termSec><term>Hündin</term></termSec></langSec>
</conceptEntry></body></text></tbx>"""


def found(text: str, **terms: str) -> list[str]:
    glossary = Glossary(terms_of_mapping({source.replace("_", " "): target for source, target in terms.items()}))
    return [match.source for match in glossary.find(text)]


def test_terms_are_found_by_word_and_case() -> None:
    assert found("The Dog and the doghouse, DOG!", dog="Hund") == ["Dog", "DOG"]
    assert found("it uses IT", IT="EDV") == ["IT"]
    assert found("a hot dog and a dog", hot_dog="Würstchen", dog="Hund") == ["hot dog", "dog"]
    assert found("我爱术语库", 术语="term") == ["术语"]


def test_a_form_counts_between_word_boundaries() -> None:
    match = TermMatch("dog", ("Hund", "Hunde"))
    assert uses_term("Der Hund, ja", match) and uses_term("(Hunde)", match)
    assert not uses_term("Hundert Hunden", match)
    assert uses_term("我的术语库", TermMatch("term", ("术语",)))


@pytest.mark.parametrize(
    ("name", "text"),
    [("t.csv", "dog,Hund|Hündin\n"), ("t.tsv", "# a comment\ndog\tHund|Hündin\tnote\n"), ("t.tbx", TBX)],
)
def test_termbases_are_read(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-16" if name == "t.tsv" else "utf-8")
    assert read_terms(tmp_path / name) == [Term("dog", ("Hund", "Hündin"))]


def test_a_header_names_the_columns_and_an_empty_translation_is_do_not_translate(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("target,source\n,heedful\nHund,dog\n", encoding="utf-8")
    assert read_terms(tmp_path / "t.csv") == [Term("heedful"), Term("dog", ("Hund",))]


def test_what_is_wrong_with_a_termbase_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("dog\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"row 1 of .* has 1 column; give a source term"):
        read_terms(tmp_path / "one.csv")
    (tmp_path / "t.tbx").write_text(TBX, encoding="utf-8")
    with pytest.raises(DataError, match="has the languages en, de; give the codes"):
        read_terms(tmp_path / "t.tbx", WantedLanguages("fr", "de"))


@pytest.mark.parametrize("device_search", [False, True])
def test_the_translation_uses_the_term_and_other_lines_stay_the_same(device_search: bool) -> None:
    translator = Translator([folder(False)])
    glossary = Glossary(terms_of_mapping({"the": "Xylophon", "notinthere": "Wort"}))
    options = {"constraints": (lambda log_probs, prefix, sentence: log_probs,)} if device_search else {}
    lines = ["the dog reads", "a cat sleeps"]
    plain, termed = (translator.translations(lines, glossary=terms, **options) for terms in (None, glossary))
    assert "Xylophon" in termed[0][0].text and not termed[0][0].warnings
    assert "Xylophon" not in plain[0][0].text and termed[1][0].ids == plain[1][0].ids
    assert termed[1][0].score == pytest.approx(plain[1][0].score, abs=1e-5)  # PyTorch's batches round differently
    (cut,) = translator.translations(["the dog reads"], glossary=glossary, max_length=1)
    assert cut[0].warnings == ("the term 'the' is not translated as 'Xylophon'",)


def test_confidence_needs_a_calibration_and_has_a_number_for_every_word(tmp_path: Path) -> None:
    save_folder(replace(folder(False), path=tmp_path))
    translator, lines = Translator([load_folder(tmp_path)]), [PAIRS[0].source, "", "see {name}", "%s"]
    with pytest.raises(SettingError, match="has no calibration of confidence; make it with `heedful evaluate"):
        translator.translations(lines, confidence=True)
    curve = '{"inputs": [-9, 0], "outputs": [0.1, 0.9]}'
    (tmp_path / CONFIDENCE_FILE).write_text(f'{{"words": {curve}, "sentences": {curve}}}', encoding="utf-8")
    for (best,) in translator.translations(lines, confidence=True):
        assert best.confidence is not None and 0 <= best.confidence <= 1
        assert best.word_confidence is not None and len(best.word_confidence) == len(best.text.split())
    assert best.word_confidence == (1.0,)
