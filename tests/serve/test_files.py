"""Files through the server: as LibreTranslate's clients send them, and hostile ones."""

from __future__ import annotations

import polib
import pytest

from heedful.formats.document import DocumentOptions
from heedful.formats.document_formats import open_document
from heedful.formats.encoded_text import decode_document
from heedful.serve import file_store
from heedful.serve.api.translate_file import SUPPORTED
from tests.formats.test_documents import PO, SAMPLES


def send(client, name: str, data: bytes, **fields: str):
    return client.post("/translate_file", data={"source": "en", "target": "de"} | fields, files={"file": (name, data)})


def test_a_file_is_translated_and_downloaded(client):
    answer = send(client, "app.po", PO.encode())
    assert answer.status_code == 200, answer.text
    url = answer.json()["translatedFileUrl"]
    assert url.startswith(str(client.base_url))
    got = client.get(url)
    assert got.status_code == 200
    assert got.headers["content-disposition"] == 'attachment; filename="app.de.po"'
    before, after = polib.pofile(PO), polib.pofile(got.text)
    assert [entry.msgid for entry in after] == [entry.msgid for entry in before]
    assert after[2].msgstr == "fertig"
    html = send(client, "../../a page.HTML", b"<p>a <b>dog</b></p>", source="auto").json()["translatedFileUrl"]
    assert html.endswith(".a_page.de.html")
    assert client.get(html).text.count("<b>") == 1


@pytest.mark.parametrize("extension", [".xlf", ".tmx", ".md", ".srt", ".vtt", ".csv", ".tsv", ".json", ".txt"])
def test_every_format_is_translated(client, extension):
    format = SUPPORTED[extension]
    answer = send(client, f"a{extension}", SAMPLES[format])
    assert answer.status_code == 200, answer.text
    got = client.get(answer.json()["translatedFileUrl"]).content
    options = DocumentOptions("en", "de", None)
    assert open_document(decode_document(got, "a"), format, options).segments
    assert got != SAMPLES[format]


@pytest.mark.parametrize(
    ("name", "data", "fields", "status", "words"),
    [
        ("a.exe", b"x", {}, 400, "files of this kind are not translated; send .po, "),
        ("a.po", b'msgid "a" b"\n', {}, 422, "line 1 of a.po is not valid PO"),
        ("a.xlf", b'<!DOCTYPE x [<!ENTITY a "b">]><xliff/>', {}, 422, "declares the entity"),
        ("a.txt", b"\xff\xfe\xff", {}, 422, "a.txt"),
        ("a.txt", b"word " * 5000, {}, 413, "characters to translate"),
        ("a.txt", b"x", {"target": "xx"}, 422, "no model translates en-xx"),
        ("", b"", {}, 422, "file: the form has no file"),
    ],
)
def test_wrong_files_get_one_sentence(client, name, data, fields, status, words):
    answer = send(client, name, data, **fields)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


def test_a_glossary_is_a_field_of_the_form(client):
    answer = send(client, "a.txt", b"the dog", glossary='{"dog": ["Xylophon"]}')
    assert "Xylophon" in client.get(answer.json()["translatedFileUrl"]).text
    assert "Xylophon" not in client.get(send(client, "a.txt", b"the dog").json()["translatedFileUrl"]).text
    wrong = send(client, "a.txt", b"the dog", glossary="dog = Hund")
    assert wrong.status_code == 422 and "glossary" in wrong.json()["error"]


def test_other_requests(client):
    assert client.post("/translate_file", json={"target": "de"}).status_code == 415
    assert client.get("/download_file/none.po").status_code == 404
    settings = client.get("/frontend/settings").json()
    assert settings["filesTranslation"] and ".po" in settings["supportedFilesFormat"]


def test_files_are_kept_for_a_while_and_not_without_limit(monkeypatch):
    now = [0.0]
    store = file_store.FileStore(lambda: now[0])
    first = store.add('a\r\n"b/ü.po', b"1")
    assert first.endswith(".a_b_.po") and store.get(first) == b"1"
    now[0] = file_store.KEPT_SECONDS + 1
    assert store.get(first) is None
    monkeypatch.setattr(file_store, "KEPT_BYTES", 10)
    old, new = store.add("old", b"x" * 8), store.add("new", b"y" * 8)
    assert store.get(old) is None and store.get(new) == b"y" * 8
