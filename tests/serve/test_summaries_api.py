"""A summarizer in the server: its route, its task, and what it is not."""

from __future__ import annotations

from pathlib import Path

import heedful
from heedful.config import SearchSettings
from heedful.inference.summarizer import Summarizer
from heedful.storage.folder import save_folder
from tests.serve.conftest import TEXT, serving


def test_documents_are_summarized_as_in_python(make_folder, tmp_path: Path, folders) -> None:
    folder = make_folder("encoder-decoder")
    folder.path, folder.search, folder.task = tmp_path / "s", SearchSettings(beam=2, max_length=8), "summarization"
    save_folder(folder)
    summarizer = heedful.load(tmp_path / "s", kind=Summarizer, precision="float32")
    with serving({"s": tmp_path / "s"}) as server, server.client() as client:
        (served,) = client.get("/models").json()
        assert served["task"] == "summarize"
        assert client.get("/languages").json() == []
        body = {"text": [TEXT, "", f"{TEXT} See https://example.org/{{x}}."], "max_length": 6, "no_repeat_ngram": 2}
        answer = client.post("/v1/summaries", json=body).json()
        assert answer["model"] == "s"
        assert answer["summaries"] == summarizer.summarize(body["text"], max_length=6, no_repeat_ngram=2)
        assert answer["summaries"][0] and answer["summaries"][1] == ""
        assert answer["warnings"] == [[], [], []]  # a summary may leave out numbers, a translation may not
        longest = summarizer.max_length - 1
        tokens = len(summarizer.source_tokenizer.encode(long := f"{TEXT} " * 40))
        answer = client.post("/v1/summaries", json={"text": ["In 1984.", long]}).json()
        assert answer["warnings"] == [
            [], [f"the document has {tokens:,} tokens, and this model reads {longest:,}"]
        ]  # fmt: skip
        assert client.post("/v1/summaries", json={"text": TEXT, "min_length": -1}).status_code == 422
        refused = client.post("/v1/summaries", json={"text": TEXT, "min_length": 20})  # max_length is the folder's
        assert refused.status_code == 422
        assert "min_length (20) is above max_length (8)" in refused.json()["error"]["message"]
        assert client.post("/v1/fill", json={"text": "a [MASK]"}).status_code == 404
        page = client.get("/page/summarize.js")
        assert page.status_code == 200 and "/v1/summaries" in page.text


def test_a_translator_does_not_summarize(client) -> None:
    answer = client.post("/v1/summaries", json={"text": TEXT})
    assert answer.status_code == 404
    assert "summarize" in answer.json()["error"]["message"]
