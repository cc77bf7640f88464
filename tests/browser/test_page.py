"""The page in a real browser: every view shows the numbers of the model, by pointer and by key; it asks for nothing."""

from __future__ import annotations

import json
import os

import pytest
import torch

from heedful.inference.results import pharaoh
from heedful.inside.run_alignment import alignment

VIEWS = {
    "encoder-decoder": ["overview", "heads", "steps", "decoding", "alignment", "positions"],
    "decoder": ["overview", "heads", "steps", "decoding", "positions"],
    "encoder": ["overview", "heads", "steps", "decoding", "positions"],
}


@pytest.fixture
def opened(browser, make_page):
    """Open a page; at the end of the test it must have been silent, and have asked for nothing but itself."""
    pages = []

    def open_it(family="encoder-decoder", hash="", width=1280, media=None, **changes):
        result, path = make_page(family, **changes)
        page = browser.open(path, hash, width, **media or {})
        pages.append((page, path))
        return result, page

    yield open_it
    for page, path in pages:
        assert page.run("true")  # every complaint before this answer has come
        assert page.complaints == []
        assert {url for url in page.requests if not url.startswith("blob:")} == {path.as_uri()}
        page.close()


@pytest.mark.parametrize("family", VIEWS)
def test_every_view_of_every_family_shows_data(opened, family):
    _, page = opened(family)
    assert page.run("[...document.querySelectorAll('.tabs button')].map((tab) => tab.dataset.view)") == VIEWS[family]
    maps = {"encoder-decoder": 24, "decoder": 8, "encoder": 8}[family]
    assert page.count(".map canvas") == maps
    assert page.drawn(".map canvas")
    for number, view in enumerate(VIEWS[family], 1):
        page.key(str(number))
        assert page.run("document.querySelector('[aria-selected=true]').dataset.view") == view
        assert page.run("location.hash").startswith(f"#{view}/")
        assert page.count("main h2") == 1
        if view in ("heads", "alignment", "positions"):
            assert page.drawn(".heat canvas")
        if view == "heads":
            assert page.drawn(".lines canvas")
        if view == "steps":
            assert page.count(".stop") >= 9
            assert page.drawn(".strip canvas")
            assert page.count("math") >= 6
        if view == "decoding":
            assert page.count(".candidate") > 5
            assert (page.count(".node") > 10) == (family != "encoder")
    assert "What attention does not show" in page.text("footer")


@pytest.mark.parametrize("family", VIEWS)
def test_the_header_says_what_became_of_the_text(opened, family):
    result, page = opened(family)
    message = page.text("#sentence")
    assert result.run.text in message
    assert result.run.output is None or result.run.output.strip() in " ".join(message.split())
    assert f"family\n{family}" in page.text("#card").replace("\n\n", "\n")


def test_the_pointer_and_the_keys_choose_words(opened):
    result, page = opened(hash="heads/2/1/0/0")
    weights = result.run.trace["decoder.1.cross.weights"]
    pieces = result.run.source.pieces

    def strongest(head, query):
        return pieces[int(weights[head, query].argmax())]

    assert f"“{strongest(0, 0)}”" in page.text(".readout")
    page.point(".from .token[data-place='3']")
    assert page.text(".readout").startswith(f"“{result.run.target.pieces[3]}” looks at “{strongest(0, 3)}”")
    assert page.run("[...document.querySelectorAll('.to .shade i')].some((i) => +i.style.opacity > 0.2)")
    page.point(".to .token[data-place='1']")
    assert page.text(".readout").find(f"“{pieces[1]}”") >= 0
    page.run("document.querySelector('.from .token[tabindex=\"0\"]').focus()")
    page.key("ArrowDown")
    page.key("ArrowDown")
    focused = page.run("document.activeElement.dataset.place")
    assert page.text(".readout").startswith(f"“{result.run.target.pieces[int(focused)]}” looks at")
    page.key("n")
    assert page.run("location.hash").startswith("#heads/2/1/1/")
    page.key("[")
    assert page.run("location.hash").startswith("#heads/2/0/1/")
    page.key("a")
    assert page.run("location.hash").startswith("#heads/0/0/1/")
    page.point(".heat canvas")
    assert "looks at" in page.text(".readout")


def test_several_heads_have_colours_of_their_own_and_words_are_joined(opened):
    result, page = opened(hash="heads/0/0/0/1")
    page.click("#several")
    page.click("[aria-label=Heads] button:nth-of-type(3)")
    assert page.run("document.querySelectorAll('[aria-label=Heads] [aria-pressed=true]').length") == 2
    assert page.run("document.querySelector('.to .shade').children.length") == 2
    assert page.count(".from .token") == len(result.run.source.pieces)
    page.click("#join")
    assert page.count(".from .token") == len(result.run.source.words)
    assert (
        page.run("[...document.querySelectorAll('.from .token bdi')].map((b) => b.textContent)")
        == result.run.source.words
    )
    weights = result.run.trace["encoder.0.self.weights"][[0, 2]].mean(0)
    groups = torch.tensor(result.run.source.word_of)
    by_key = torch.zeros(len(weights), int(groups[-1]) + 1).index_add_(1, groups, weights)
    word = by_key[groups == 2].mean(0)
    page.point(".from .token[data-place='2']")
    assert f"“{result.run.source.words[int(word.argmax())]}” {float(word.max()):.2f}" in page.text(".readout")


SCHEMES = ["sinusoidal", "rotary", "alibi", "relative"]
STEPS = [("encoder-decoder", "decoder.cross", 2, "sinusoidal")]
STEPS += [(family, f"{family}.self", 0, positions) for family in ("decoder", "encoder") for positions in SCHEMES]


@pytest.mark.parametrize(("family", "kind", "index", "positions"), STEPS)
def test_the_steps_come_to_the_recorded_weights(opened, family, kind, index, positions):
    result, page = opened(family, f"steps/{index}/1/2/4", text="The man sleeps.", positions=positions)
    stack, part = kind.split(".")
    rows = "[...document.querySelectorAll('.scores tr')].slice(1)"
    cells = page.run(f"{rows}.map((row) => [...row.cells].map((cell) => cell.textContent))")
    weights = result.run.trace[f"{stack}.1.{part}.weights"][2, 4]
    queries, keys = (result.run.trace[f"{stack}.1.{part}.{name}"][2] for name in ("queries", "keys"))
    assert len(cells) == len(weights)
    for row, weight, key in zip(cells, weights, keys, strict=True):
        assert float(row[-2].replace("−", "-")) == pytest.approx(float(weight), abs=0.006)
        assert float(row[1].replace("−", "-")) == pytest.approx(float(queries[4] @ key), abs=0.03, rel=0.01)
    if family == "decoder":
        assert [row[-3] for row in cells] == ["0"] * 5 + ["−∞"] * (len(cells) - 5)


@pytest.mark.parametrize("family", VIEWS)
def test_temperature_and_top_k_move_the_probabilities(opened, family):
    result, page = opened(family, hash=f"steps/{2 if family == 'encoder-decoder' else 0}/1/0/2")
    with torch.inference_mode():
        logits = result.run.folder.model.project(result.run.hidden[2]).float()

    def shown():
        script = "[...document.querySelectorAll('.chances tr')].slice(1, 13).map((row) => row.cells[2].textContent)"
        return [float(text.rstrip(" %")) / 100 if "<" not in text else 0.0005 for text in page.run(script)]

    def move(id, value):
        page.run(f"""(() => {{ const s = document.getElementById('{id}'); s.value = {value};
            s.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()""")

    assert shown() == pytest.approx(logits.softmax(-1).topk(12).values.tolist(), abs=0.006)
    move("Temperature", 8)  # 0.5
    assert shown() == pytest.approx((logits / 0.5).softmax(-1).topk(12).values.tolist(), abs=0.006)
    move("Topk", 3)
    best = (logits / 0.5).topk(3).values.softmax(-1).tolist()
    assert shown()[:4] == pytest.approx([*best, 0.0], abs=0.006)


def test_the_tree_is_the_beam(opened):
    result, page = opened(hash="decoding")
    steps = result.run.tree.steps
    assert page.count(".node[data-node]") == sum(map(len, steps))
    assert page.count(".node.best[data-node]") == len(result.run.labels)
    page.click("#losers")
    over = [node for node in steps[-1] if node.fate == "live"]  # the search ended before they could go on
    remaining = sum(node.fate != "lost" for step in steps for node in step) - len(over)
    remaining += any(result.run.tree.hypotheses[0].ids == (*node.prefix, node.token) for node in over)
    assert page.count(".node[data-node]") == remaining
    page.run("document.querySelector('.node[tabindex=\"0\"]').focus()")
    page.key("ArrowRight")
    assert "sum of logarithms" in page.text("#node-readout")
    scores = page.run(
        "[...document.querySelectorAll('section table tr')].slice(1).map((row) => row.cells[4].textContent)"
    )
    finals = [float(text.split()[0].replace("−", "-")) for text in scores]
    assert finals[0] == pytest.approx(result.run.tree.hypotheses[0].score, abs=0.001)


def test_an_alignment_can_be_taken_away(opened, browser, tmp_path):
    result, page = opened(hash="alignment")
    browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    expected = alignment(result.run)
    text = pharaoh([tuple(link) for link in expected["links"]])
    assert page.text(".pharaoh") == text
    for button, name in (
        ("#save-pharaoh", "alignment.txt"),
        ("#save-json", "alignment.json"),
        ("#save-table", "alignment.tsv"),
    ):
        page.click(button)
        browser.until((tmp_path / name).exists, name, 20)
    assert (tmp_path / "alignment.txt").read_text() == text + "\n"
    saved = json.loads((tmp_path / "alignment.json").read_text())
    assert [link["places"] for link in saved["links"]] == expected["links"]
    assert len((tmp_path / "alignment.tsv").read_text().splitlines()) == len(expected["links"]) + 1


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi", "relative", "syntax"])
def test_positions_of_every_scheme_are_drawn(opened, positions):
    _, page = opened(hash="positions", positions=positions)
    assert page.drawn(".two section:first-child canvas")
    assert page.drawn(".two section:last-child canvas")
    page.point(".heat canvas")
    assert ":" in page.text(".two .readout")
    if page.count("[aria-label=Of] button") > 1:
        page.click("[aria-label=Of] button:nth-of-type(2)")
        assert (
            page.run("document.querySelector('[aria-label=Of] button:nth-of-type(2)').getAttribute('aria-pressed')")
            == "true"
        )


def test_experts_are_listed_for_every_token(opened):
    result, page = opened(hash="experts", experts=3)
    rows = sum(len(side.pieces) for side in (result.run.source, result.run.target))
    assert page.count("table.experts tr") == rows + 2 * 2  # a header and a sum for each stack
    assert page.count("table.experts .expert") == rows * 2 * 2  # two layers, two experts
    page.key("3")
    assert "by experts" in page.text("main")


@pytest.mark.parametrize(
    ("settings", "name", "words"),
    [
        ({"norm": "rms", "pre_norm": True}, "RMSNorm", "divided by its root mean square"),
        ({"norm": "batch", "pre_norm": False}, "BatchNorm", "normalized by running means"),
        ({"norm": "instance", "pre_norm": False}, "InstanceNorm", "over the sequence"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_steps_name_the_norm_of_the_model(opened, settings, name, words):
    _, page = opened(hash="steps", **settings)
    text = page.text("main")
    assert name in text and words in text and "LayerNorm" not in text


def test_hops_are_listed_for_every_sentence(opened, tokenizer):
    memory = {"architecture": "memory-network", "sentence_ends": tuple(tokenizer.encode("x."))[-1:]}
    _, page = opened("encoder", hash="hops", text="The man sleeps. The boy reads. The man reads.", **memory)
    assert page.count("table.hops tr") == 1 + 2  # a header and the sentences before the last


def test_light_and_dark_follow_the_reader(opened):
    _, page = opened(media={"prefers_color_scheme": "dark"})
    assert page.run("document.documentElement.dataset.theme") == "dark"
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    page.key("d")
    assert page.run("document.documentElement.dataset.theme") == "light"
    assert page.run("getComputedStyle(document.body).backgroundColor") != ground
    page.key("?")
    assert page.run("document.getElementById('help').open")


@pytest.mark.parametrize("family", VIEWS)
def test_a_phone_shows_it_without_scrolling_sideways(opened, family):
    _, page = opened(family, width=390)
    for number in range(1, len(VIEWS[family]) + 1):
        page.key(str(number))
        assert page.run("document.documentElement.scrollWidth") <= 390


def test_everything_that_can_be_pressed_has_a_name_and_every_picture_a_word(opened):
    _, page = opened()
    for number in range(1, 7):
        page.key(str(number))
        assert page.run("""[...document.querySelectorAll('button, input')].every((e) =>
            (e.getAttribute('aria-label') || e.textContent || e.labels?.[0]?.textContent || '').trim())""")
        assert page.run("""[...document.querySelectorAll('canvas')].every((e) =>
            e.getAttribute('aria-hidden') || e.getAttribute('aria-label'))""")


def test_nothing_can_be_sent_anywhere(browser, make_page):
    _, path = make_page()
    page = browser.open(path)
    script = "fetch('https://example.com/').then(() => 'sent', (error) => String(error))"
    assert "Failed to fetch" in page.run(script)
    page.run("new Promise((done) => { const i = new Image(); i.onerror = done; i.src = 'https://example.com/x.png'; })")
    assert any("Content Security Policy" in text for text in page.complaints)
    page.close()


HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'> <!-- --> {data} "
    "שלום עולם \u202eevil\u202c مرحبا 👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 \u2028\u2029 ¯\\_(ツ)_/¯ 𝔘𝔫𝔦 "
    "\"'`${window.hacked = 3}` \\u003cscript\\u003e &lt;b&gt; &amp; \x00 \x1b[31m $\\frac{1}{2}$"
)


@pytest.mark.parametrize("family", VIEWS)
def test_hostile_text_stays_text(opened, family):
    target = HOSTILE if family == "encoder-decoder" else None
    result, page = opened(family, text=HOSTILE, target=target, max_length=800)
    assert result.run.text in page.run("document.getElementById('sentence').textContent")
    for number in range(1, len(VIEWS[family]) + 1):
        page.key(str(number))
    assert page.run("window.hacked") is None
    assert page.count("script") == 2
    assert page.count("img") == 0


def test_two_thousand_tokens_open_and_turn_pages(opened, tokenizer):
    text = "The old man sleeps. " * 400
    result, page = opened("decoder", text=text, target="", max_length=2048, n_heads=2, decoder_layers=1)
    assert len(result.run.target.ids) >= 1990
    for number in range(1, 6):
        page.key(str(number))
    page.key("2")
    assert page.count(".from .token") == 120
    page.click(".pager button:last-of-type")
    assert page.run("document.querySelector('.from .token').dataset.place") == "120"
    page.key("1")
    assert "largest weights are kept" in page.text("main")


@pytest.fixture
def large(make_page):
    """More than a hundred tokens on each side, six layers, eight heads."""
    sizes = {"d_model": 128, "n_heads": 8, "encoder_layers": 6, "decoder_layers": 6, "max_length": 256}
    text = ("The old man sleeps while the children read. " * 20)[:235].rsplit(" ", 1)[0]
    result, path = make_page(text=text, target=text, **sizes)
    assert 100 <= len(result.run.source.ids) <= 140
    return path


# Milliseconds since the browser was told to open the page, once every map in sight is drawn.
SEEN = """new Promise((done) => { const look = () => {
    const maps = [...document.querySelectorAll('.map canvas')]
        .filter((map) => map.getBoundingClientRect().top < innerHeight);
    if (maps.length && maps.every((map) => map.width !== 300)) done(performance.now());
    else requestAnimationFrame(look); }; look(); })"""


def test_a_hundred_tokens_in_six_layers_of_eight_heads_open_in_two_seconds(browser, large):
    milliseconds, work = [], []
    while len(milliseconds) < 4 and min(milliseconds, default=2000) >= 2000:
        page = browser.open(large)
        milliseconds.append(page.run(SEEN))
        work.append(page.processor_seconds())
        assert page.count(".map") == 3 * 6 * 8
        assert page.complaints == []
        page.close()
    assert 0 < min(work) < 1
    if os.getloadavg()[0] <= 1.5 * (os.cpu_count() or 1):  # else the clock says more about others than about the page
        assert min(milliseconds) < 2000


# Milliseconds from an event to a page that has its new layout: once for each of some tokens, by pointer and by key.
HOVER = """[...document.querySelectorAll('.from .token')].slice(0, 60).map((token) => { const began = performance.now();
    token.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
    document.body.getBoundingClientRect(); return performance.now() - began; })"""
WALK = """(() => { document.querySelector('.from .token[tabindex="0"]').focus();
    return Array.from({ length: 60 }, () => { const began = performance.now();
        document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown', bubbles: true }));
        document.body.getBoundingClientRect(); return performance.now() - began; }); })()"""


@pytest.mark.parametrize("script", [HOVER, WALK], ids=["pointer", "keys"])
def test_a_hundred_tokens_with_all_heads_stay_smooth(browser, large, script):
    page = browser.open(large, "heads/2/0/0+1+2+3+4+5+6+7/0")
    times = sorted(page.run(script))
    assert len(times) == 60
    assert times[30] < 100  # what is felt as immediate
    assert page.run("document.activeElement.dataset.place") == ("60" if script is WALK else None)
    assert page.complaints == []
    page.close()
