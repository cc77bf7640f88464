"""Speech in a real browser: the look-inside page of a transcript, and a file that the served page transcribes."""

from __future__ import annotations

import base64
from pathlib import Path

import soundfile

import heedful
from heedful.inference.transcriber import Transcriber
from heedful.inside import explain
from heedful.inside.html_page import render
from heedful.interop import open_folder
from tests.audio.sounds import word
from tests.browser.chromium import Browser
from tests.inference.test_transcriber import folder  # noqa: F401
from tests.serve.conftest import serving
from tests.serve.test_page import visit

DROP = """
(async () => {
  const bytes = Uint8Array.from(atob("%s"), (letter) => letter.charCodeAt(0));
  const moved = new DataTransfer();
  moved.items.add(new File([bytes], "a.wav", { type: "audio/wav" }));
  const input = document.getElementById("audio");
  input.files = moved.files;
  input.dispatchEvent(new Event("change"));
})(); true
"""

STOP_AT_ONCE = """
new Promise((done) => {
  const button = document.getElementById("microphone");
  new MutationObserver((_, observer) => {
    observer.disconnect();
    button.click();
    done(true);
  }).observe(button, { childList: true });
  button.click();
})
"""

LABELS = """
(() => {
  const canvas = document.querySelector(".heat canvas"), labels = [];
  const fill = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const wide = this.measureText(text).width, start = x - { left: 0, center: wide / 2, right: wide }[this.textAlign];
    labels.push([text, start, start + wide]);
    fill.call(this, text, x, y);
  };
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown" }));
  CanvasRenderingContext2D.prototype.fillText = fill;
  return { labels, width: canvas.getBoundingClientRect().width };
})()
"""


def test_the_sound_view(browser: Browser, folder: Path, tmp_path: Path) -> None:  # noqa: F811
    soundfile.write(tmp_path / "a.wav", word("ma"), 16_000)
    explain(open_folder(folder), str(tmp_path / "a.wav")).save(tmp_path / "page.html")
    page = browser.open(tmp_path / "page.html", "", 1280)
    assert page.run("document.querySelector('[aria-selected=true]').dataset.view") == "sound"
    assert page.drawn(".heat canvas")
    for key in "2345":
        page.key(key)
        assert page.count("main h2") == 1
    assert page.complaints == []
    page.close()


def test_no_label_of_the_sound_view_is_cut_off(browser: Browser, folder: Path, tmp_path: Path) -> None:  # noqa: F811
    soundfile.write(tmp_path / "a.wav", word("ma"), 16_000)
    data = explain(open_folder(folder), str(tmp_path / "a.wav")).data()
    sound = data["sound"]
    sound["seconds"] = 0.5  # the last label of the time axis is at the right edge, and so is the last word
    sound["words"] = [{"text": "one", "start": 0.1, "end": 0.3}, {"text": "two-hundred", "start": 0.49, "end": 0.5}]
    (tmp_path / "page.html").write_text(render(data), encoding="utf-8")
    page = browser.open(tmp_path / "page.html", "", 1280)
    assert page.drawn(".heat canvas")
    drawn = page.run(LABELS)
    texts = [text for text, *_ in drawn["labels"]]
    assert "two-hundred" in texts and "0.5 s" in texts
    for text, start, end in drawn["labels"]:
        assert start >= -0.5 and end <= drawn["width"] + 0.5, text
    page.close()


def test_a_file_is_transcribed(browser: Browser, folder: Path, tmp_path: Path) -> None:  # noqa: F811
    soundfile.write(tmp_path / "a.wav", word("ma"), 16_000)
    expected = heedful.load(folder, kind=Transcriber, precision="float32").transcribe(tmp_path / "a.wav")
    with serving({"asr": folder}) as running:
        page = visit(browser, running.url)
        content = base64.b64encode((tmp_path / "a.wav").read_bytes()).decode()
        page.run(DROP % content)
        page.wait(f"document.getElementById('transcript').value === {expected!r}")
        assert page.complaints == []
        page.close()


def test_the_microphone(browser: Browser, folder: Path) -> None:  # noqa: F811
    with serving({"asr": folder}) as running:
        page = visit(browser, running.url)
        assert page.run(STOP_AT_ONCE)
        page.wait("document.getElementById('status').textContent.startsWith('Nothing was recorded')")
        page.click("#microphone")
        page.wait("document.getElementById('microphone').textContent === 'Stop'")
        assert page.text("#status") == "Recording…"
        page.run("new Promise((done) => setTimeout(done, 700))")
        page.click("#microphone")
        page.wait("!document.querySelector('audio').hidden")
        page.wait("['', 'No speech was found.'].includes(document.getElementById('status').textContent)")
        assert page.text("#microphone") == "Record"
        page.wait("document.querySelector('audio').duration > 0.3")  # unknown until the browser has read it
        assert page.complaints == []
        page.close()
