"""Tags stay with their words: placed by given alignments, and with a real model every tag comes once."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from heedful.errors import SettingError
from heedful.formats.html import parse_blocks, replace_blocks, write_block
from heedful.formats.segment import InlineTag, TaggedText
from heedful.formats.tag_placement import TagPlacer
from heedful.text.text_sentences import SentenceTranslations, split_sentences

PAYLOADS = [  # inert in the parts of HTML that they are in
    "<!-- a -- > <img src=x onerror=x()> -->",
    "<!-- a --\t> <script>x()</script> -->",
    "<!-- a - -> <img src=x onerror=x()> -->",
    "<!-- <!-- a --> b",
    "<!--> a <!-- <img src=x onerror=x()> -->",
    "<!---> a <!-- <img src=x onerror=x()> -->",
    "<!-- a --!> b <!-- -- ! > <img src=x onerror=x()> -->",
    "<!-- a </p> <![CDATA[ ]]> <img src=x onerror=x()> -->",
    "<textarea><img src=x onerror=x()></textarea >",
    "<title></style><img src=x onerror=x()></title\n>",
    "<style></style/x><!-- <img src=x onerror=x()> -->",
    "<xmp><img src=x onerror=x()></xmp>",
    "<iframe><img src=x onerror=x()></iframe>",
    "<script>'<!--<script></script><img src=x onerror=x()>'</script>",
    "<p title='<!--'><!-- '> <img src=x onerror=x()> -->",
    '<p title="</p --> <img src=x onerror=x()>">',
    "<svg><style><!-- </style><img src=x onerror=x()> --></style></svg>",
    "<math><mtext><!-- > <img src=x onerror=x()> --></mtext></math>",
    "<?php > ?><!-- <img src=x onerror=x()> -->",
    "</ a='> <!-- <img src=x onerror=x()> -->",
]


def translated(markup: str, words: dict[str, str] | None = None, turned: bool = False) -> str:
    """Translate word by word, in the same order or turned around, with the alignment that this has."""
    result = []
    for item in parse_blocks(markup):
        if isinstance(item, str):
            continue
        text = re.sub(r"\s", " ", item.text)
        parts, alternatives = split_sentences(text), []
        for part in parts:
            actual = [(words or {}).get(word, word.upper()) for word in part.text.split()]
            last = len(actual) - 1
            order = [(n, last - n if turned else n) for n in range(len(actual))]
            alternatives.append([{"text": " ".join(actual[::-1] if turned else actual), "alignment": order}])
        result.append(SentenceTranslations(text, parts, alternatives))
    return replace_blocks(markup, result)


@pytest.mark.parametrize(
    "before, after, turned",
    [
        ("<p>the dog</p>", "<p>THE DOG</p>", False),
        ("<p>the <b>old</b> dog</p>", "<p>THE <b>OLD</b> DOG</p>", False),
        ("<p>the <b>old</b> dog</p>", "<p>DOG <b>OLD</b> THE</p>", True),
        ("<p><b>the old</b> dog</p>", "<p>DOG <b>OLD THE</b></p>", True),
        ("<b>all of it</b>", "<b>IT OF ALL</b>", True),
        ('a <a href="?a&amp;b">link <i>here</i></a> end', 'A <a href="?a&amp;b">LINK <i>HERE</i></a> END', False),
        ("one <br> two", "ONE <br> TWO", False),
        ("a &lt; b &amp; c", "A &lt; B &amp; C", False),
        ("x <code>let y = 1</code> z", "X <code>let y = 1</code> Z", False),
        ("<script>if (a < b) x()</script>hi", "<script>if (a < b) x()</script>HI", False),
        ("<!doctype html><!-- a note --><p>hi", "<!doctype html><!-- a note --><p>HI", False),
        ("<svg><![CDATA[x]]></svg>hi<![if !ie]>", "<svg><![CDATA[x]]></svg>HI<![if !ie]>", False),
        ("hi<style>b { }</style x>there", "HI<style>b { }</style x>THERE", False),
        ("see (<a>this</a>).", "SEE (<a>THIS</a>).", False),
        ('<p translate="no">keep <b>me</b></p><p>not', '<p translate="no">keep <b>me</b></p><p>NOT', False),
        ('word <img src="a.png"> word2', 'WORD <img src="a.png">WORD2', False),
        ("a</b> b", "A</b> B", False),
        ("<b>a<p>b</b></p>", "<b>A<p>B</b></p>", False),
        ("", "", False),
        ("  \n ", "  \n ", False),
        ("<p>\n  the\n  <b>dog</b>\n</p>\n", "<p>\n  THE <b>DOG</b>\n</p>\n", False),
    ],
)  # fmt: skip
def test_tags_go_where_their_words_go(before, after, turned):
    assert translated(before, turned=turned) == after


def test_without_alignments_tags_stay_about_where_they_were():
    (block,) = parse_blocks("the <b>old</b> dog")
    way = {"text": "a b c d e f", "alignment": None}
    assert (
        write_block(block, SentenceTranslations("the old dog", split_sentences("the old dog"), [[way]]))
        == "a b <b>c d</b> e f"
    )


def test_sentences_that_white_space_does_not_separate_share_a_word():
    block = TaggedText("狗。貓 睡。x y", [InlineTag("<b>", "</b>", 8, 9)])
    parts = split_sentences(block.text)
    assert [part.text for part in parts] == ["狗。", "貓 睡。", "x y"]
    alternatives = [
        [{"text": " A.", "alignment": [(0, 0)]}],
        [{"text": "B\u00a0C.", "alignment": [(0, 0), (1, 1)]}],
        [{"text": "X Y", "alignment": [(0, 0), (1, 1)]}],
    ]
    assert write_block(block, SentenceTranslations(block.text, parts, alternatives)) == "A. B\u00a0C. X <b>Y</b>"


class Balance(HTMLParser):
    """Whether what opens closes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def nested(depth=0):
    word = st.sampled_from(["a", "dog,", "sees.", "the", "(x)"])
    if depth > 2:
        return word
    inner = st.lists(word if depth == 2 else nested(depth + 1), min_size=0, max_size=4)
    tag = st.sampled_from(["b", "i", "a", "span", "p", "div"])
    element = st.tuples(tag, inner).map(lambda both: f"<{both[0]}>{' '.join(both[1])}</{both[0]}>")
    return st.one_of(word, element)


@settings(max_examples=80, deadline=None)
@given(st.lists(nested(), max_size=5).map(" ".join), st.booleans())
def test_every_tag_comes_once_and_closes_in_order(markup, turned):
    before, after = Balance(), Balance()
    before.feed(markup)
    after.feed(translated(markup, turned=turned))
    assert sorted(before.seen) == sorted(after.seen)
    assert before.open == after.open == []
    plain = re.sub(r"<[^>]*>", " ", translated(markup, turned=turned))
    letters = re.findall(r"\w", re.sub(r"<[^>]*>", " ", markup).upper())
    assert sorted(re.findall(r"\w", plain)) == sorted(letters)


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet=st.sampled_from("<>/ab &;=\"'!-p[]"), max_size=40))
def test_no_markup_breaks_it(markup):
    translated(markup)


PIECES = [
    "word ", "a", "b. ", " ", "<", ">", "</", "/>", '"', "'", "=", "&", "&lt;", "\r\n", "\0", "-", "<b>", "</b>",
    "<i>", "</i>", "<a href=x>", "</a>", "<img src=x onerror=x()>", "<br>", "<p>", "</p>", "<pre>", "</pre>", "<!--",
    "-->", "-- >", "--!>", "<!-->", "<!--->", "<![CDATA[", "]]>", "<?", "<svg>", "</svg>", "<svg/>", "<desc>",
    "<math>", "<mi>", "</math>", "<style>", "</style>", "<script>", "</script>", "<textarea>", "</textarea>",
    "<title>", "</title>", "<xmp>", "</xmp>", "<iframe>", "</iframe>", "<noscript>", "</noscript>", "<table>", "<td>",
    "</table>", "<select>", "<option>", "</select>", "<template>", "</template>", "<plaintext>",
]  # fmt: skip


COPIED = {"a", "b", "i"}  # parsers copy formatting elements that are closed in another order than opened


def seen(markup: str) -> Counter[object]:
    """Elements with their attributes, and comments, as Lexbor's parser finds them; formatting elements count once."""
    result: Counter[tuple[object, ...]] = Counter()
    root = LexborHTMLParser(markup).root
    for node in root.traverse(include_text=False) if root else ():
        attributes = tuple(sorted((name, str(value)) for name, value in (node.attributes or {}).items()))
        result[(node.tag, attributes, node.html if node.is_comment_node else "")] += 1
    return Counter({key: 1 if key[0] in COPIED else count for key, count in result.items()})


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_another_parser_sees_the_same_elements_before_and_after(markup):
    try:
        after = translated(markup)
    except SettingError:  # it would not have
        return
    assert seen(after) == seen(markup)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_is_inert_stays_as_it_is(payload):
    before = f"<p>the dog</p>{payload}<p>the cat</p>"
    after = translated(before)
    assert "THE CAT" in after
    assert seen(after) == seen(before)


@pytest.mark.parametrize(
    "markup",
    [
        "<noscript><!-- </noscript> a --> <b>b</b>",
        '<noscript><p title="</noscript> a"><img src=x> b',
        "<svg><![CDATA[ > </svg> a ]]> <!-- ]]> <img src=x onerror=x()> -->",
    ],
)
def test_what_could_become_other_elements_is_refused(markup):
    with pytest.raises(SettingError, match="cannot be translated without changing its elements"):
        translated(markup)


def test_lines_end_with_a_line_feed():
    assert translated("<p\r\nid=x>a\r\nb</p>\r<!-- c\r\n -->") == "<p\nid=x>A B</p>\n<!-- c\n -->"


spans = st.lists(st.integers(1, 4), max_size=20)


@given(spans, st.integers(0, 40), st.integers(0, 12), st.booleans())
def test_a_tag_holds_the_words_that_it_covers_more_than_half_of(lengths, start, length, dense):
    words, at = [], 0
    for item in lengths:
        words.append((at, at + item))
        at += item + (not dense)
    tag = InlineTag("<b>", "</b>", start, start + length)
    held = [n for n, (a, b) in enumerate(words) if 2 * (min(b, tag.end) - max(a, tag.start)) > b - a]
    assert list(TagPlacer("", words, [], [])._held(tag)) == held


@pytest.mark.parametrize(
    "unit",
    [
        "<b>a</b> ",
        "<i>word</i>, ",
        "a <i>b</i> c. ",
        "x<br>",
        "<p>a <b>b</b>.</p>",
        "<!--",
        "<",
        "<a <a ",
        "<div>",
        "<b><p>",
    ],
)
@pytest.mark.timeout(10)
def test_no_markup_takes_the_square_of_its_length(unit):
    translated((unit * 20_000)[:20_000])


def test_elements_may_stand_deep_within_each_other_but_not_for_ever(client):
    assert translated("<b>" * 200 + "x" + "</b>" * 200) == "<b>" * 200 + "X" + "</b>" * 200
    with pytest.raises(SettingError, match="more than 200 elements"):
        parse_blocks("<b>" * 201)
    deep = client.post("/translate", json={"q": "<i>" * 5000, "source": "en", "target": "de", "format": "html"})
    assert deep.status_code == 422


def test_the_server_keeps_tags(client):
    markup = '<h1>The <em>old</em> man</h1><p>He reads a <a href="/x">good book</a>. He sleeps.</p>'
    answer = client.post("/translate", json={"q": markup, "source": "en", "target": "de", "format": "html"})
    assert answer.status_code == 200
    text = answer.json()["translatedText"]
    assert re.findall(r"<[^>]*>", text) == re.findall(r"<[^>]*>", markup)
    both = client.post(
        "/translate", json={"q": [markup, "x"], "source": "en", "target": "de", "format": "html", "alternatives": 1}
    )
    assert both.json()["translatedText"][0] == text
    assert isinstance(parse_blocks(markup)[1], TaggedText)


def test_the_model_s_process_reads_and_writes_html(running, client, monkeypatch):
    requested: list[str] = []
    model = running.state.models.by_name["en-de"]
    give = model._submit
    monkeypatch.setattr(model, "_submit", lambda what, *rest: requested.append(next(iter(what))) or give(what, *rest))
    body = {"q": ["<p>The <b>dog</b>.</p>", "<a <a"], "source": "en", "target": "de", "format": "html"}
    answer = client.post("/translate", json=body)
    assert answer.status_code == 200
    assert answer.json()["translatedText"][1] == "<a <a"
    assert requested[0] == "read_html" and requested[-1] == "write_html" and len(requested) == 3
    changed = client.post("/translate", json=body | {"q": "<noscript><!-- </noscript> a --> <b>b</b>"})
    assert changed.status_code == 422
    assert "cannot be translated without changing its elements" in changed.json()["error"]
