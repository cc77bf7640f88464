"""The page in a real browser: typing, pointing, swapping, files, a phone; silent, and asking nobody else."""

from __future__ import annotations

import json
import time
from urllib.parse import urlparse

import pytest

from heedful.inference.translator import Translator
from heedful.storage.folder import load_folder
from tests.browser.chromium import Browser, Page
from tests.browser.conftest import browser

__all__ = ["browser"]
ANSWERED = "!!document.querySelector('.output:not(.old) .sentence')"
ALIGNED = "!!document.querySelector('.output').dataset.aligned"


def visit(browser: Browser, url: str, width: int = 1280, height: int = 900, **media: str) -> Page:
    """Open an address in a new tab and wait until it is drawn."""
    target = browser.send("Target.createTarget", url="about:blank")["targetId"]
    session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    page = browser.pages[session] = Page(browser, session, target)
    for domain in ("Page", "Runtime", "Log", "Network"):
        page.send(f"{domain}.enable")
    page.resize(width, height)
    features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
    page.send("Emulation.setEmulatedMedia", features=features)
    page.send("Page.navigate", url=url)
    page.wait("document.documentElement?.dataset.ready === 'yes'")
    return page


@pytest.fixture
def opened(browser, running):
    """Open the page; at the end it must have been silent and have asked this server alone."""
    pages = []

    def open_it(hash: str = "", **options) -> Page:
        pages.append(visit(browser, f"{running.url}/#{hash}", **options))
        return pages[-1]

    yield open_it
    for page in pages:
        assert page.run("true")
        assert page.complaints == []
        hosts = {urlparse(url).netloc for url in page.requests if url.startswith("http")}
        assert hosts == {urlparse(running.url).netloc}
        page.close()


@pytest.fixture(scope="module")
def translator(folders) -> Translator:
    return Translator([load_folder(folders["en-de"])])


def write(page: Page, text: str, selector: str = "#source") -> None:
    page.run(f"document.querySelector({json.dumps(selector)}).focus()")
    page.send("Input.insertText", text=text)


def test_the_translation_appears_while_typing_sentence_by_sentence(opened, translator):
    page = opened()
    write(page, "The dog sleeps. The man reads.")
    page.wait(ANSWERED)
    expected = translator.translate(["The dog sleeps.", "The man reads."])
    assert page.run("[...document.querySelectorAll('.output .sentence')].map((each) => each.textContent)") == expected
    assert page.text("#target").split() == " ".join(expected).split()
    assert page.count(".ways li") > 1
    page.click(".ways li:nth-child(2) button")
    second = translator.translations(["The dog sleeps."], n_best=4)[0][1].text
    assert page.run("document.querySelector('.output .sentence').textContent") == second


def test_an_older_answer_never_replaces_a_newer_one(opened, translator):
    page = opened()
    page.run(
        """(() => { const real = window.fetch; let first = true;
        window.fetch = async (path, options) => {
            const late = first && path === '/v1/translations';
            if (late) { first = false; options = { ...options, signal: undefined }; }
            const answer = await real(path, options);
            if (late) await new Promise((done) => setTimeout(() => { window.lateCame = true; done(); }, 700));
            return answer; }; })()"""
    )
    write(page, "The old man")
    page.send("Input.dispatchKeyEvent", type="keyDown", key="Enter", modifiers=2)
    page.run("document.querySelector('#source').value = ''")
    write(page, "The dog sleeps.")
    page.send("Input.dispatchKeyEvent", type="keyDown", key="Enter", modifiers=2)
    page.wait(ANSWERED)
    page.wait("window.lateCame")
    time.sleep(0.05)
    assert page.run("document.querySelector('#target').textContent") == translator.translate("The dog sleeps.")


def test_words_light_up_on_both_sides(opened, translator):
    page = opened()
    write(page, "The dog sleeps.")
    page.wait(ALIGNED)
    links = translator.translations(["The dog sleeps."], n_best=4, alignments=True)[0][0].alignment

    def lit(side: str) -> list[int]:
        return page.run(f"[...document.querySelectorAll('.lit[data-side={side}]')].map((w) => Number(w.dataset.word))")

    source = links[0][0]
    page.point(f".mirror .word[data-word='{source}']")
    assert lit("source") == [source]
    assert lit("target") == [t for s, t in links if s == source]
    target = links[-1][1]
    page.point(f".output .word[data-word='{target}']")
    assert lit("target") == [target]
    assert lit("source") == [s for s, t in links if t == target]


def test_swapping_takes_the_translation_along(opened, translator):
    page = opened()
    write(page, "The dog sleeps.")
    page.wait(ANSWERED)
    german = page.run("document.querySelector('#target').textContent")
    page.click("#swap")
    assert page.run("document.querySelector('#model').value") == "de-en"
    assert page.run("document.querySelector('#source').value") == german
    page.wait(ANSWERED)
    assert page.run("location.hash") == "#de-en"


def test_a_click_looks_inside_that_sentence(opened, browser, running):
    page = opened()
    write(page, "The dog sleeps.")
    page.wait(ANSWERED)
    before = {item["targetId"] for item in browser.send("Target.getTargets")["targetInfos"]}
    x, y = page._middle(".output .sentence")
    for kind in ("mousePressed", "mouseReleased"):  # a tab in the background draws nothing that could be waited for
        page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    result = None
    for _ in range(200):
        new = [e for e in browser.send("Target.getTargets")["targetInfos"] if e["targetId"] not in before]
        result = next((value for value in new if "dog sleeps" in value["title"]), None)
        if result:
            break
        time.sleep(0.05)
    assert result is not None
    assert result["url"].partition("#")[0] == f"{running.url}/inside"  # the page adds what it shows, once it is there
    session = browser.send("Target.attachToTarget", targetId=result["targetId"], flatten=True)["sessionId"]
    inside = browser.pages[session] = Page(browser, session, result["targetId"])
    inside.send("Log.enable")
    inside.wait("document.documentElement?.dataset.ready === 'yes'")
    assert inside.count(".map canvas") > 0
    assert inside.complaints == []
    inside.close()


def test_files_go_in_and_out(opened, translator, tmp_path):
    page = opened()
    catch_saved(page)
    short = tmp_path / "short.txt"
    short.write_text("The dog sleeps.\nThe man reads.\n", encoding="utf-8")
    put(page, short)
    page.wait(ANSWERED)
    expected = "\n".join([*translator.translate(["The dog sleeps.", "The man reads."]), ""])
    page.click("#save")
    page.wait("window.saved.length === 1")
    assert page.run("window.saved[0]") == expected
    assert page.run("window.savedName") == "translation.de.txt"
    markup = tmp_path / "page.html"
    markup.write_text("<p>The <b>dog</b> sleeps.</p>", encoding="utf-8")
    put(page, markup)
    page.wait("window.saved.length === 2")
    assert page.run("window.saved[1]").startswith("<p>")
    assert page.run("window.savedName") == "page.de.html"


def test_a_file_in_its_own_format_is_translated_by_the_server(opened, tmp_path):
    page = opened()
    catch_saved(page)
    subtitles = tmp_path / "film.srt"
    subtitles.write_text("1\n00:00:01,000 --> 00:00:02,000\nThe dog sleeps.\n", encoding="utf-8")
    put(page, subtitles)
    page.wait("window.saved.length === 1")
    assert page.run("window.saved[0]").startswith("1\n00:00:01,000 --> 00:00:02,000\n")
    assert page.run("window.savedName") == "film.de.srt"


def test_a_file_is_translated_with_the_glossary_of_the_page(opened, tmp_path):
    page = opened()
    catch_saved(page)
    page.run("document.querySelector('#glossary').value = 'dog = Xylophon'")
    for name, text in (("film.srt", "1\n00:00:01,000 --> 00:00:02,000\nThe dog\n"), ("a.html", "<p>The dog</p>")):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        put(page, path)
        page.wait(f"window.savedName === '{path.stem}.de{path.suffix}'")
        page.wait("window.saved.length && window.saved.at(-1).includes('Xylophon')")


def catch_saved(page: Page) -> None:
    """Keep what the page saves as a file."""
    page.run(
        """(() => { window.saved = []; const make = URL.createObjectURL;
        URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text)); return make(blob); };
        HTMLAnchorElement.prototype.click = function () { window.savedName = this.download; }; })()"""
    )


def put(page: Page, path) -> None:
    document = page.send("DOM.getDocument")["root"]["nodeId"]
    node = page.send("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
    page.send("DOM.setFileInputFiles", nodeId=node, files=[str(path)])


@pytest.mark.parametrize("hash", ["en-de", "gpt", "bert"])
def test_it_fits_a_phone_and_the_dark(opened, hash):
    page = opened(hash, width=390, height=800, prefers_color_scheme="dark")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.run("document.documentElement.dataset.theme") == "dark"
    light = page.run("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.run("document.documentElement.dataset.theme") == "light"
    assert page.run("getComputedStyle(document.body).backgroundColor") != light
    page.run("localStorage.clear()")


def test_both_arrows_stand_beside_the_number_of_the_sentence_on_a_phone(opened):
    page = opened(width=390, height=800)
    write(page, "The dog sleeps. The cat sleeps. The man sleeps.")
    page.wait(f"{ANSWERED} && document.querySelectorAll('.ways .row button').length === 2")
    middles = page.run(
        """[...document.querySelectorAll('.ways .row button, .ways .row .small')].map((each) => {
        const box = each.getBoundingClientRect(); return (box.top + box.bottom) / 2; })"""
    )
    assert len(middles) == 3
    assert max(middles) - min(middles) < 5
    assert page.run("document.documentElement.scrollWidth <= innerWidth")


def test_a_gpt_writes_on_while_one_looks(opened):
    page = opened("gpt")
    write(page, "The dog", "#text")
    page.run("for (const [id, value] of [['max_tokens', 30], ['seed', 3]]) document.getElementById(id).value = value")
    page.click("#go")
    page.wait(
        "document.querySelector('#go').textContent === 'Write' && document.querySelector('#text').value.length > 9"
    )
    text = page.run("document.querySelector('#text').value")
    assert text.startswith("The dog")
    page.click("#again")
    page.wait("document.querySelector('#go').textContent === 'Write'")
    assert page.run("document.querySelector('#text').value") == text


def test_an_encoder_fills_in_the_blank(opened):
    page = opened("bert")
    write(page, "The  sleeps.", "#text")
    page.run("document.querySelector('#text').setSelectionRange(4, 4)")
    page.click("#blank")
    page.wait("document.querySelectorAll('.blank button').length === 8")
    word = page.run("document.querySelector('.blank bdi').textContent")
    page.click(".blank button")
    assert page.run("document.querySelector('#text').value") == f"The {word} sleeps."


def test_errors_and_keys_are_shown(opened, running):
    page = opened()
    page.run("document.querySelector('#source').value = 'word '.repeat(5000)")
    write(page, "x")
    page.wait("document.querySelector('.status').classList.contains('bad')")
    assert "20,000 at most" in page.text("#status")
    page.complaints.clear()  # Chromium reports every status of 400 and above
    page.send("Input.dispatchKeyEvent", type="keyDown", key="k", code="KeyK", modifiers=1)
    assert page.run("document.querySelector('dialog').open")
    assert "Ctrl+Enter" in page.text("dialog")
