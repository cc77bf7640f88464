"""Files of pairs: what lxml and polib write is read, what is wrong is dropped with its place, languages are chosen."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import polib
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from heedful.data.parallel_corpus import prepare_parallel
from heedful.errors import DataError
from heedful.formats.language_tags import WantedLanguages, best_match
from heedful.formats.line_files import DroppedLines
from heedful.formats.pair_files import open_pairs_of, training_corpus
from heedful.formats.xml_parser import MAX_DEPTH, MAX_UNIT

from ..data.files import config

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Cn"], exclude_characters="\ufffd\ufffe\uffff"), min_size=1
)
FAST = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def tmx(rows: Sequence[dict[str, str]], source: str = "en") -> bytes:
    """A translation memory as lxml writes it."""
    root = etree.Element("tmx", version="1.4")
    etree.SubElement(root, "header", srclang=source, datatype="plaintext", segtype="sentence")
    body = etree.SubElement(root, "body")
    for row in rows:
        unit = etree.SubElement(body, "tu")
        for language, text in row.items():
            variant = etree.SubElement(unit, "tuv", {XML_LANG: language})
            etree.SubElement(variant, "seg").text = text
    return etree.tostring(root, xml_declaration=True, encoding="UTF-8", pretty_print=True)


def read(
    path: Path, source: str | None = None, target: str | None = None, strict: bool = False
) -> tuple[list[tuple[str, str]], DroppedLines]:
    dropped = DroppedLines()
    corpus = open_pairs_of([path], WantedLanguages(source, target), strict)
    return [pair for pair in corpus.pairs(None, dropped) if pair != ("", "")], dropped


def plain(text: str) -> str:
    return " ".join(text.split())


@FAST
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4), st.sampled_from(["utf-8", "utf-16", "iso-8859-1"]))
def test_a_memory_that_lxml_writes_is_read(tmp_path: Path, pairs: list[tuple[str, str]], encoding: str) -> None:
    root = etree.fromstring(tmx([{"en": a, "de": b} for a, b in pairs]))
    path = tmp_path / "memory.tmx"
    path.write_bytes(etree.tostring(root, xml_declaration=True, encoding=encoding))
    expected = [(plain(a), plain(b)) for a, b in pairs]
    assert read(path)[0] == [pair for pair in expected if pair != ("", "")]


@FAST
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4, unique_by=lambda pair: pair[0]))
def test_a_catalog_that_polib_writes_is_read(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    catalog = polib.POFile()
    catalog.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Language": "de"}
    pairs = [(a, b) for a, b in pairs if len(f"{a}{b}".splitlines()) == 1]  # polib splits lines as str does
    catalog.extend(polib.POEntry(msgid=a, msgstr=b) for a, b in pairs)
    path = tmp_path / "app.po"
    catalog.save(str(path))
    assert read(path)[0] == [(plain(a), plain(b)) for a, b in pairs if (plain(a), plain(b)) != ("", "")]


def test_fuzzy_obsolete_and_missing_entries_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "app.po"
    path.write_text(
        'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
        '#, fuzzy\nmsgid "a dog"\nmsgstr "eine Katze"\n\nmsgid "none"\nmsgstr ""\n\n'
        'msgctxt "menu"\nmsgid "open"\nmsgstr "öffnen"\n\n'
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d Datei"\nmsgstr[1] "%d Dateien"\n\n'
        '#~ msgid "old"\n#~ msgstr "alt"\n',
        encoding="utf-8",
    )
    pairs, dropped = read(path)
    assert pairs == [("open", "öffnen"), ("%d file", "%d Datei"), ("%d files", "%d Dateien")]
    assert dropped.counts() == {"fuzzy": 1, "no translation": 1, "obsolete": 1}
    assert (dropped["fuzzy"].line, dropped["fuzzy"].example) == (7, "a dog")
    assert [str(counts) for counts in dropped.by_file] == [
        f"{path} (PO): 6 read, dropped: 1 fuzzy, 1 no translation, 1 obsolete"
    ]
    with pytest.raises(DataError, match=r"has no segments in 'fr'; it has de: change target_language"):
        read(path, target="fr")
    assert read(path, source="de", target="en")[0][0] == ("öffnen", "open")


def test_an_invalid_entry_does_not_stop_a_catalog(tmp_path: Path) -> None:
    path = tmp_path / "app.po"
    path.write_text('msgid "a"\nmsgstr "b"\n\nmsgid "c" d"\nmsgstr "e"\n\nmsgid "f"\nmsgstr "g"\n', encoding="utf-8")
    pairs, dropped = read(path)
    assert pairs == [("a", "b"), ("f", "g")]
    assert (dropped["not valid PO"].count, dropped["not valid PO"].line) == (1, 4)
    with pytest.raises(DataError, match=r"line 4 of .*app.po cannot be used: not valid PO"):
        read(path, strict=True)


def test_languages_fall_back_over_regions() -> None:
    present = ["en-US", "en-GB", "de", "pt-BR"]
    assert [best_match(wanted, present) for wanted in ("en_gb", "en", "de-AT", "pt-PT", "fr")] == [
        "en-GB", "en-US", "de", "pt-BR", None,
    ]  # fmt: skip


def test_languages_of_a_memory_are_chosen_and_listed(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    rows = [{"en-US": "a dog", "de-DE": "ein Hund", "fr": "un chien"}, {"en-US": "a cat", "fr": "un chat"}]
    path.write_bytes(tmx(rows, "en-US"))
    with pytest.raises(DataError, match=r"it has en-us \(2\), de-de \(1\), fr \(2\): choose with target_language"):
        read(path)
    with pytest.raises(DataError, match=r"no segments in 'es'; it has .*fr \(2\): change target_language"):
        read(path, target="es")
    assert read(path, target="de")[0] == [("a dog", "ein Hund")]
    assert read(path, target="de")[1].counts() == {"no segment in 'de-de'": 1}
    assert read(path, "fr", "en-GB")[0] == [("un chien", "a dog"), ("un chat", "a cat")]


def test_inline_codes_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    path.write_text(
        '<tmx version="1.1"><header srclang="en"/><body><tu><tuv lang="en"><seg>a <bpt i="1">&lt;b></bpt><hi>big</hi>'
        '<ept i="1">&lt;/b></ept><ph x="1"><sub>x</sub></ph> dog<ut>\\par</ut></seg></tuv>'
        '<tuv lang="de"><seg>ein gro\u00dfer <it pos="begin">&lt;i></it>Hund</seg></tuv>'
        '<tuv lang="de"><seg>ein Hund</seg></tuv></tu></body></tmx>',
        encoding="utf-8",
    )
    assert read(path)[0] == [("a big dog", "ein großer Hund"), ("a big dog", "ein Hund")]


XLIFF_1 = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en" target-language="de-DE" original="a" datatype="x"><body>
<trans-unit id="1"><source>a <g id="1">big</g> dog<x id="2"/></source><target state="final">ein Hund</target>
<alt-trans><source>no</source><target>nein</target></alt-trans></trans-unit>
<trans-unit id="2"><source>new</source><target state="needs-translation">neu</target></trans-unit>
<trans-unit id="3" translate="no"><source>x</source><target>x</target></trans-unit>
<trans-unit id="4"><source>empty</source><target/></trans-unit>
</body></file></xliff>"""
XLIFF_2 = """<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0"
 xmlns:mtc="urn:oasis:names:tc:xliff:matches:2.0"><file id="f"><unit id="1"><mtc:matches><mtc:match ref="#1">
<source>m</source><target>m</target></mtc:match></mtc:matches>
<segment state="translated"><source>a <pc id="1">big</pc><sc id="2"/> dog<ec startRef="2"/></source>
<target>ein Hund</target></segment><ignorable><source> </source></ignorable>
<segment state="initial"><source>new</source><target>neu</target></segment></unit></file></xliff>"""


@pytest.mark.parametrize(
    ("content", "dropped"),
    [
        (XLIFF_1, {"state needs-translation": 1, "marked as not translatable": 1, "no translation": 1}),
        (XLIFF_2, {"state initial": 1}),
    ],
)
def test_only_final_segments_of_xliff_are_read(tmp_path: Path, content: str, dropped: dict[str, int]) -> None:
    path = tmp_path / "a.xlf"
    path.write_text(content, encoding="utf-8")
    pairs, counts = read(path, "en", "de")
    assert pairs == [("a big dog", "ein Hund")]
    assert counts.counts() == dropped
    assert read(path, "de", "en")[0] == [("ein Hund", "a big dog")]
    with pytest.raises(DataError, match=r"no segments in 'en to fr'; it has en to de"):
        read(path, "en", "fr")


def test_tables_json_lines_and_parquet(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = [("a, b", "c\nd"), ('say "x"', "y")]
    files = {
        "a.csv": 'id,Target,Source\n1,"c\nd","a, b"\n2,y,"say ""x"""\n3\n',
        "b.csv": 'de;en\n"c d";a, b\ny;"say ""x"""\n',
        "c.jsonl": "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in rows) + "[]\n",
        "d.jsonl": "".join(json.dumps({"translation": {"en": a, "de": b}}) + "\n" for a, b in rows),
        "e.tsv": 'source\ttarget\na, b\tc d\nsay "x"\ty\n',
        "f.tsv": 'a, b\tc d\nsay "x"\ty\n',
    }
    table = pyarrow.table({"en": [a for a, _ in rows], "de": [b for _, b in rows]})
    parquet.write_table(table, tmp_path / "g.parquet")
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    for name in [*files, "g.parquet"]:
        assert read(tmp_path / name, "en", "de")[0] == [("a, b", "c d"), ('say "x"', "y")], name
    assert read(tmp_path / "a.csv")[1]["fewer columns than needed"].line == 5
    assert read(tmp_path / "c.jsonl")[1]["not a JSON object"].line == 3


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_are_read(tmp_path: Path, pack: object) -> None:
    path = tmp_path / "memory.tmx.packed"
    path.write_bytes(pack(tmx([{"en": "a", "de": "b"}])))  # type: ignore[operator]
    assert read(path)[0] == [("a", "b")]


def test_a_folder_of_files_is_one_corpus_with_a_report(tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    (folder / "deep").mkdir(parents=True)
    rows = [{"en": f"number {n} is here", "de": f"Nummer {n} ist hier"} for n in range(60)]
    (folder / "a.tmx").write_bytes(tmx([*rows, {"en": "alone"}]))
    (folder / "deep" / "b.po").write_text('msgid "a"\nmsgstr "b"\n', encoding="utf-8")
    (folder / "c.en").write_text("one line\n", encoding="utf-8")
    (folder / "c.de").write_text("eine Zeile\n", encoding="utf-8")
    (folder / "README").write_text("no pairs", encoding="utf-8")
    (folder / "fr.tmx").write_bytes(tmx([{"en": "a", "fr": "b"}]))
    run = config(pairs=folder, source_language="en", target_language="de")
    assert len([pair for pair in training_corpus(run.data).pairs() if pair != ("", "")]) == 62
    report = prepare_parallel(run, tmp_path / "cache").report
    again = prepare_parallel(run, tmp_path / "cache").report
    for lines in (report.lines(), again.lines()):
        text = "\n".join(lines)
        assert lines[0].startswith("63 pairs read from ")
        assert "1 dropped: no segment in 'de' (first: line 485 of" in text
        assert f"{folder / 'a.tmx'} (TMX, en to de): 61 read, dropped: 1 no segment in 'de'" in text
        assert f"file not read: {folder / 'README'}: not a format of pairs" in text
        assert f"file not read: {folder / 'fr.tmx'}: " in text


HOSTILE = {
    "billion laughs": (
        '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
        "<tmx><header/><body><tu><tuv><seg>&b;</seg></tuv></tu></body></tmx>",
        "declares the entity 'a'",
    ),
    "file in an entity": (
        '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]><tmx><header/><body/></tmx>',
        "declares the entity 'x'",
    ),
    "parameter entity": (
        '<!DOCTYPE tmx [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x.dtd"> %x;]><tmx><header/><body/></tmx>',
        "declares the entity 'x'",
    ),
    "depth": ("<tmx>" + "<a>" * MAX_DEPTH, "elements inside each other"),
}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "en,de,fr\na,b,c\n", "it has en, de, fr: choose with source_language and target_language"),
        (
            "a.jsonl",
            '{"translation": {"en": "a", "de": "b"}}\n',
            "no fields source and target, .*; it has en, de: choose",
        ),
        ("a.jsonl", '{"text": "a", "summary": null}\n', "that are not text .text: 'a', summary: None.; give strings"),
        ("a.json", '[{"source": "a", "target": "b"}]', "is one JSON array; write one object per line"),
        ("a.tmx", "", "a.tmx is empty; give another file"),
        (
            "folder/a.docx",
            "PK",
            "holds no file of pairs that can be read .*a.docx: not a format of pairs.*; give another",
        ),
    ],
)
def test_a_file_of_which_no_pair_is_known_is_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=words):
        open_pairs_of([path.parent if "/" in name else path], WantedLanguages(), strict=False)


@pytest.mark.parametrize(
    ("first", "wanted", "is_header"),
    [
        ("en,de", (), True),
        ("pt-BR,pt_PT", (), True),
        ("en,de", ("en",), True),
        ("he,er", (), False),  # words: er is no language
        ("an,an", (), False),
        ("to,zu", (), True),  # Tongan and Zulu, unless other languages are wanted
        ("to,zu", ("en", "de"), False),
    ],
)
def test_two_languages_are_a_header_and_two_short_words_a_pair(
    tmp_path: Path, first: str, wanted: tuple[str, ...], is_header: bool
) -> None:
    (tmp_path / "a.csv").write_text(f"{first}\na,b\n", encoding="utf-8")
    pairs, dropped = read(tmp_path / "a.csv", *wanted)
    assert pairs == [("a", "b")] if is_header else [tuple(first.split(",")), ("a", "b")]
    assert (f"(CSV, header: {first.replace(',', ', ')})" in str(dropped.by_file[0])) == is_header


def test_a_table_without_known_names_is_told_by_its_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("number,from,to\n1,a,b\n", encoding="utf-8")
    pairs, dropped = read(tmp_path / "a.csv")
    assert pairs == [("number", "from"), ("1", "a")]
    assert "no header with known names: the first two of 3 columns" in str(dropped.by_file[0])


@pytest.mark.parametrize("extension", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize(
    "names",
    [
        "document,summary", "article,highlights", "text,title", "text,summary", "abstract,title",
        "description,synopsis", "article,abstract", "source,summary",
    ],
)  # fmt: skip
def test_the_usual_names_of_documents_and_summaries(tmp_path: Path, names: str, extension: str) -> None:
    source, target = names.split(",")
    cells = {"id": "7", target: "b", source: "a long text"}
    path = tmp_path / f"a.{extension}"
    delimiter = {"csv": ",", "tsv": "\t"}.get(extension, "")
    table = [delimiter.join(cells), delimiter.join(cells.values())]
    path.write_text("\n".join(table if delimiter else [json.dumps(cells)]) + "\n", encoding="utf-8")
    assert read(path)[0] == [("a long text", "b")]


@pytest.mark.parametrize("first", ["text,Titel", "document,text", "summary,title", "abstract,abstract", "Title,Titel"])
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_first_row_without_both_names_is_a_pair(tmp_path: Path, first: str, delimiter: str) -> None:
    path = tmp_path / ("a.csv" if delimiter == "," else "a.tsv")
    path.write_text(f"{first}\na,b\n".replace(",", delimiter), encoding="utf-8")
    assert read(path)[0] == [tuple(first.split(",")), ("a", "b")]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_xml_is_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    content, sentence = HOSTILE[name]
    path = tmp_path / "memory.tmx"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=sentence):
        read(path)


def test_an_external_dtd_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "tmx14.dtd").write_text('<!ENTITY nbsp "LOADED">', encoding="utf-8")
    path = tmp_path / "memory.tmx"
    content = tmx([{"en": "a b", "de": "c"}]).decode().replace("<tmx", '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx', 1)
    path.write_text(content.replace("a b", "a &nbsp;b"), encoding="utf-8")
    assert read(path)[0] == [("a b", "c")]


@pytest.mark.parametrize("where", ["text", "attribute", "comment"])
def test_a_segment_without_end_is_refused_in_bounded_memory(tmp_path: Path, where: str) -> None:
    path = tmp_path / "memory.tmx.gz"
    start = {"text": "<tu><tuv><seg>", "attribute": '<tu id="', "comment": "<!--"}[where]
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(f"<tmx><header/><body>{start}".encode())
        for _ in range((MAX_UNIT >> 20) + 2):
            file.write(b"a" * (1 << 20))
    with pytest.raises(DataError, match=r"begins a segment or tag of more than 16 MB"):
        read(path)


def test_xml_that_breaks_off_keeps_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    path.write_bytes(tmx([{"en": "a", "de": "b"}, {"en": "c", "de": "d"}])[:-60])
    pairs, dropped = read(path)
    assert pairs == [("a", "b")]
    assert [reason.partition(" (")[0] for reason in dropped] == ["the rest of the file, which is not well-formed XML"]
    with pytest.raises(DataError, match=r"line \d+ of .*memory.tmx is not well-formed XML"):
        read(path, strict=True)
