"""Translated HTML in Chromium: it has the elements that it had, and what did not run before does not run after."""

from __future__ import annotations

import json

import pytest

from tests.serve.test_html import PAYLOADS, translated

SHOW = """(async (markup) => {
  window.ran = 0;
  const frame = document.createElement("iframe");
  frame.srcdoc = markup.replaceAll("x()", "parent.ran++");
  await new Promise((done) => { frame.onload = done; document.body.append(frame); });
  await new Promise((done) => setTimeout(done, 20));
  const shown = frame.contentDocument, walk = shown.createTreeWalker(shown, NodeFilter.SHOW_ALL), nodes = [];
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (node.nodeType === Node.ELEMENT_NODE)
      nodes.push([node.tagName, ...[...node.attributes].map((each) => `${each.name}=${each.value}`)]);
    else if (node.nodeType !== Node.TEXT_NODE) nodes.push([node.nodeName, node.data ?? ""]);
  }
  frame.remove();
  return { ran: window.ran, nodes };
})"""


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("html") / "empty.html"
    path.write_text("<!doctype html><html data-ready=yes><title>x</title><body></body></html>")
    opened = browser.open(path)
    yield opened
    opened.close()


def show(page, markup: str) -> dict[str, object]:
    return page.run(f"{SHOW}({json.dumps(markup)})")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_is_inert_never_becomes_live(page, payload):
    before = f"<!doctype html><p>the <b>dog</b></p>{payload}<p>the cat</p>"
    was, became = show(page, before), show(page, translated(before))
    assert was["ran"] == became["ran"] == 0
    assert was["nodes"] == became["nodes"]


def test_the_page_sees_what_is_live(page):
    assert show(page, "<!-- a --> <script>x()</script>")["ran"] == 1
    assert show(page, "<!-- a --!> <img src=x onerror=x()>")["ran"] == 1
