"""Files are written back equal but for their translations: lxml, polib, gettext, csv and json judge."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import polib
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lxml import etree
from markdown_it import MarkdownIt

from heedful.errors import DataError
from heedful.formats.document import DocumentOptions, TargetText, target_of, text_to_translate, unfinished
from heedful.formats.document_formats import open_document
from heedful.formats.encoded_text import decode_document
from heedful.formats.format_names import FORMATS
from heedful.formats.segment import Segment, TaggedText
from heedful.text.text_sentences import SentenceTranslations, split_sentences

from .judges import check_with_msgfmt, masked, opened, translated, without_targets
from .test_pair_files import TEXT, XLIFF_1, XLIFF_2, tmx

FAST = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PO = """# A comment
msgid ""
msgstr ""
"Project-Id-Version: x 1\\n"
"PO-Revision-Date: 2024-01-01 00:00+0000\\n"
"Last-Translator: A <a@example.org>\\n"
"Language-Team: German\\n"
"Language: de\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: a.c:1
#, c-format
msgid "%d file\\n"
msgid_plural "%d files\\n"
msgstr[0] ""
msgstr[1] ""

#, fuzzy, no-wrap
#| msgid "old"
msgctxt "menu"
msgid ""
"first line\\n"
"second \\"line\\"\\n"
msgstr "alt"

msgid "done"
msgstr "fertig"

#~ msgid "gone"
#~ msgstr "weg"
"""
SRT = "1\r\n00:00:01,000 --> 00:00:02,500\r\nhello <i>dear\r\nworld</i> today\r\n\r\n"
SRT += "2\r\n00:01:00,0 --> 00:01:01,0\r\n- yes\r\n- no\r\n"
VTT = "WEBVTT - title\n\nNOTE a remark\n\nintro\n00:01.000 --> 00:02.000 align:start\n<v Ann>good <b>day</b>\n"
MARKDOWN = """---
title: not text
---
# A *big* title

Some `code`, a [link **here**](http://a.org/x_y "t"), an ![image](a.png) and
<b>more</b> \\* of it  &amp; so on.

> - quoted item
>   goes on

| a | b \\| c |
|---|---|
| one | **two** |

    indented code

```python
print("code")
```

1. first~~gone~~
<div>html block</div>
"""
HTML = "<!doctype html>\r\n<html><head><title>a b</title></head>\r\n"
HTML += "<body><p>one <b>two</b>&nbsp;three<p>x<script>a<b</script></body>"
JSON = '{"title": "a \\"dog\\"",\n "n": 3, "deep": [{"text": "caf\u00e9", "url": "https://a.org/b"}, true, "…"]}'
SAMPLES = {
    "po": PO.encode(), "xliff": XLIFF_1.encode(),
    "tmx": tmx([{"en": "a & b"}, {"en": "c", "de": "d"}]), "html": HTML.encode(),
    "markdown": MARKDOWN.encode(), "srt": SRT.encode(), "vtt": VTT.encode(),
    "csv": b"Source,Target\r\n\"a, b\",\r\nc,d\r\n",
    "tsv": b"source\ttarget\na b\t\nc\td\n", "json": JSON.encode(), "text": b"one line\n\n  two\r\n",
}  # fmt: skip


def test_every_format_has_a_sample() -> None:
    assert {*SAMPLES, "lines"} == set(FORMATS)


@pytest.mark.parametrize("format", SAMPLES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_without_translations_the_bytes_are_the_same(format: str, encoding: str) -> None:
    if format in ("po", "tmx") and encoding == "utf-16":
        pytest.skip("the file declares UTF-8")
    data = SAMPLES[format].decode().encode(encoding)
    document = opened(data, format)
    assert document.write({}) == data
    assert document.segments


@pytest.mark.parametrize("format", SAMPLES)
def test_only_translations_change(format: str) -> None:
    document = opened(SAMPLES[format], format)
    before, after = SAMPLES[format].decode(), translated(document).decode()
    assert "ž" in after
    again = opened(after.encode(), format)
    same = [
        (old, new) for old, new in zip(document.segments, again.segments, strict=True) if "ž" not in new.source.text
    ]
    assert all(old.source == new.source for old, new in same)
    marks = re.sub(r"\w", "", re.sub(r"ž+", "", after))
    assert len(marks) > 0.5 * len(re.sub(r"\w", "", before))


def test_a_catalog_for_gettext(tmp_path: Path) -> None:
    document = opened(PO.encode(), "po")
    targets = {number: masked(document.segments[number]) for number in unfinished(document, "unfinished")}
    texts = {number: target.tagged.text.replace("%ž", "%d") for number, target in targets.items()}
    written = document.write({number: TargetText(TaggedText(text)) for number, text in texts.items()})
    before, after = polib.pofile(PO), polib.pofile(written.decode())
    assert [entry.msgid for entry in after] == [entry.msgid for entry in before]
    assert after[0].msgstr_plural == {0: "%d žžžž\n", 1: "%d žžžžž\n"}
    assert after[1].msgstr == 'žžžžž žžžž\nžžžžžž "žžžž"\n'
    assert (after[1].flags, after[1].previous_msgid) == (["no-wrap"], None)
    assert after[2].msgstr == "fertig"
    assert after.obsolete_entries()[0].msgstr == "weg"
    assert written.decode().split("\n\n")[0] == PO.split("\n\n", maxsplit=1)[0]
    path = tmp_path / "a.po"
    path.write_bytes(written)
    check_with_msgfmt(path)


def test_which_entries_are_translated() -> None:
    document = opened(PO.encode(), "po")
    assert [len(unfinished(document, which)) for which in ("missing", "unfinished", "all")] == [2, 3, 4]


def test_a_lost_placeholder_makes_an_entry_fuzzy(tmp_path: Path) -> None:
    document = opened(PO.encode(), "po")
    segment = document.segments[0]
    text = text_to_translate(segment)
    bad = [[{"text": "eine Datei", "alignment": None}]]
    target = target_of(segment, SentenceTranslations(text, split_sentences(text), bad))
    assert target == TargetText(TaggedText("eine Datei\n"), unsure=True)
    written = document.write({0: target, 1: target})
    assert polib.pofile(written.decode())[0].flags == ["fuzzy", "c-format"]
    path = tmp_path / "a.po"
    path.write_bytes(written)
    check_with_msgfmt(path)


@pytest.mark.parametrize(
    ("confidence", "review_below", "unsure"), [(0.4, 0.5, True), (0.4, 0.3, False), (None, 1, False)]
)
def test_low_confidence_is_marked_for_review(
    tmp_path: Path, confidence: float | None, review_below: float, unsure: bool
) -> None:
    for content, format, mark in (
        (PO, "po", "fuzzy"),
        (XLIFF_1, "xliff", 'state="needs-review-translation"'),
        (XLIFF_2, "xliff", 'state="initial"'),
    ):
        document = opened(content.encode(), format)
        targets = {}
        for number in unfinished(document, "all"):
            text = text_to_translate(document.segments[number])
            spans = split_sentences(text)
            n_best = [[{"text": span.text, "alignment": None, "confidence": confidence}] for span in spans]
            translations = SentenceTranslations(text, spans, n_best)
            targets[number] = target_of(document.segments[number], translations, review_below)
        assert all(target.unsure == unsure for target in targets.values())
        written = document.write(targets)
        assert (written.decode().count(mark) >= len(set(targets)) - 1) == unsure
        if format == "po":
            (tmp_path / "a.po").write_bytes(written)
            check_with_msgfmt(tmp_path / "a.po")
            assert all(entry.fuzzy == unsure for entry in polib.pofile(written.decode()) if not entry.obsolete)


@pytest.mark.parametrize(("language", "forms"), [("de", 2), ("ja", 1), ("cs", 3), ("ar", 6)])
def test_a_template_becomes_a_catalog(tmp_path: Path, language: str, forms: int) -> None:
    template = re.sub(r'"Language: de.*\n|"Plural.*\n', "", PO)
    template = template.replace("charset=UTF-8", "charset=CHARSET").replace(
        "2024-01-01 00:00+0000", "YEAR-MO-DA HO:MI+ZONE"
    )
    template = f"#, fuzzy\n{template}".replace('"MIME', '"Language: \\n"\n"MIME')
    document = opened(template.encode(), "po", language)
    texts = {n: TargetText(TaggedText(document.segments[n].source.text)) for n in unfinished(document, "all")}
    written = document.write(texts)
    catalog = polib.pofile(written.decode())
    assert catalog.metadata["Language"] == language
    assert catalog.metadata["Content-Type"].endswith("UTF-8")
    assert len(catalog[0].msgstr_plural) == forms
    assert not catalog.metadata_is_fuzzy
    path = tmp_path / "a.po"
    path.write_bytes(written)
    check_with_msgfmt(path)


@pytest.mark.parametrize("content", [XLIFF_1, XLIFF_2])
def test_xliff_gets_targets_with_states(content: str) -> None:
    document = opened(content.encode(), "xliff")
    written = translated(document, "all")
    assert without_targets(written) == without_targets(content.encode())
    again = opened(written, "xliff")
    for old, new in zip(document.segments, again.segments, strict=True):
        assert new.target == (masked(old).tagged if not old.problem.startswith("marked") else old.target)
    states = re.findall(r'state="([\w-]+)"', written.decode())
    assert set(states) == {"translated"}
    assert translated(document, "missing").count("ž".encode()) == (5 if content is XLIFF_1 else 0)


def test_xliff_2_needs_a_target_language() -> None:
    content = XLIFF_2.replace(' trgLang="de"', "")
    assert 'trgLang="pt-BR"' in translated(opened(content.encode(), "xliff", "pt-BR"), "all").decode()
    with pytest.raises(DataError, match="give the target language"):
        translated(opened(content.encode(), "xliff", None), "all")


@FAST
@given(st.lists(TEXT, min_size=1, max_size=4), st.sampled_from(["utf-8", "iso-8859-1"]), TEXT)
def test_a_memory_gets_new_variants(texts: list[str], encoding: str, target: str) -> None:
    root = etree.fromstring(tmx([{"en": text} for text in texts]))
    data = etree.tostring(root, xml_declaration=True, encoding=encoding)
    document = opened(data, "tmx")
    written = document.write({0: TargetText(TaggedText(target))} if document.segments else {})
    assert without_targets(written) == without_targets(data)
    variants = [seg.text for seg in etree.fromstring(written).iterfind(".//tu[1]/tuv/seg")]
    assert variants == [texts[0], target]


def test_units_without_the_source_language_are_left_out() -> None:
    memory = tmx([{"en": "a dog", "fr": "un chien"}, {"fr": "un chat"}])
    document = open_document(decode_document(memory, "a.tmx"), "tmx", DocumentOptions("en", "de"))
    assert [segment.source.text for segment in document.segments] == ["a dog"]
    with pytest.raises(DataError, match="has no segment in 'it'; its languages are en, fr"):
        open_document(decode_document(memory, "a.tmx"), "tmx", DocumentOptions("it", "de"))


def test_a_memory_keeps_its_variants() -> None:
    data = tmx([{"en": "a", "de": "b"}])
    assert translated(opened(data, "tmx")) == data
    assert b"<seg>\xc5\xbe</seg>" in translated(opened(data, "tmx"), "all")
    with pytest.raises(DataError, match="give the target language to write"):
        opened(data, "tmx", None)


@FAST
@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=2, max_size=3),
        min_size=1,
    )
)
def test_a_table_is_equal_for_csv(tmp_path: Path, rows: list[list[str]]) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["x", "source", "target"], *rows])
    document = opened(path.read_bytes(), "csv")
    assert document.write({}) == path.read_bytes()
    path.write_bytes(translated(document, "all"))
    with path.open(newline="", encoding="utf-8") as file:
        after = list(csv.reader(file))[1:]
    assert [row[:2] for row in after] == [row[:2] for row in rows]


def test_a_column_is_translated_in_place() -> None:
    assert translated(opened(b"a;b\r\n1;dog\r\n2;cat\r\n", "csv", column="b")).decode() == "a;b\r\n1;žžž\r\n2;žžž\r\n"
    assert translated(opened(b"1\tdog\n", "tsv", column="2")).decode() == "1\tžžž\n"
    with pytest.raises(DataError, match=r"its first row is a, b; give the column"):
        opened(b"a,b\n1,2\n", "csv")
    with pytest.raises(DataError, match="which column"):  # a translation does not replace the title
        opened(b"title,description\n1,2\n", "csv")


@FAST
@given(
    st.recursive(
        st.none() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=6
    ),
    st.booleans(),
)
def test_json_changes_in_its_strings_only(value: object, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only, indent=1).encode()
    document = opened(data, "json")
    targets = {
        number: TargetText(TaggedText(f"<{segment.source.text}>")) for number, segment in enumerate(document.segments)
    }
    texts = {segment.source.text for segment in document.segments}

    def expected(part: object) -> object:
        if isinstance(part, dict):
            return {key: expected(inner) for key, inner in part.items()}
        if isinstance(part, list):
            return [expected(inner) for inner in part]
        return f"<{part}>" if part in texts else part

    assert json.loads(document.write(targets)) == expected(value)


def test_subtitles() -> None:
    assert translated(opened(SRT.encode(), "srt")).decode() == (
        "1\r\n00:00:01,000 --> 00:00:02,500\r\nžžžžž <i>žžžž\r\nžžžžž</i> žžžžž\r\n\r\n"
        "2\r\n00:01:00,0 --> 00:01:01,0\r\n- žžž\r\n- žž\r\n"
    )  # fmt: skip
    assert translated(opened(VTT.encode(), "vtt")).decode() == VTT.replace("good <b>day", "žžžž <b>žžž")


def test_markdown_keeps_its_markup() -> None:
    written = translated(opened(MARKDOWN.encode(), "markdown")).decode()
    assert written == (
        "---\ntitle: not text\n---\n# ž *žžž* žžžžž\n\n"
        "žžžž `code`, ž [žžžž **žžžž**](http://a.org/x_y \"t\"), "
        "žž ![image](a.png) žžž <b>žžžž</b> \\* žž žž  & žž žž.\n\n"
        "> - žžžžžž žžžž žžžž žž\n\n| ž | b \\| c |\n|---|---|\n| žžž | **žžž** |\n\n    indented code\n\n"
        "```python\nprint(\"code\")\n```\n\n1. žžžžž~~žžžž~~\n<div>html block</div>\n"
    )  # fmt: skip


@FAST
@given(
    st.text(st.sampled_from("ab *_`[]()<>#-+1.&;\\!|~\n>"), max_size=40),
    st.text(st.sampled_from("xy *_`[]<>#-1.&;\\|~"), max_size=12),
)
@example("  1", "  1")
def test_any_markdown_keeps_its_structure(text: str, translation: str) -> None:
    document = opened(text.encode(), "markdown")
    assert document.write({}) == text.encode()
    targets = {
        n: TargetText(TaggedText(translation or "x", []))
        for n in range(len(document.segments))
        if not document.segments[n].source.tags
    }
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    before, after = parser.parse(text), parser.parse(document.write(targets).decode())
    assert [token.type for token in before] == [token.type for token in after]


def test_a_segment_without_text_is_not_translated() -> None:
    document = opened(b"<p>  </p><p>a</p>", "html")
    assert [segment.source.text for segment in document.segments] == ["a"]
    assert unfinished(opened(b'msgid " "\nmsgstr ""\n', "po"), "all") == []
    assert Segment(TaggedText("x"), None, 1).problem == ""
