"""Every route: what it answers, and how it says no."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from heedful.config import ModelConfig
from heedful.inference import native_choice
from heedful.inference.translator import Translator
from heedful.serve import logs
from heedful.serve.worker import task_of
from heedful.storage.folder import load_folder, save_folder
from tests.interop.makers import marian
from tests.serve.conftest import TEXT, serving

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def translator(folders) -> Translator:
    return Translator([load_folder(folders["en-de"])])


def ask(client, **changes):
    return client.post("/translate", json={"q": TEXT, "source": "en", "target": "de"} | changes)


def test_a_text_is_translated_sentence_by_sentence(client, translator):
    first, second = translator.translate(["The dog sleeps.", "The old man reads a book."])
    assert ask(client).json() == {"translatedText": f"{first} {second}"}
    spaced = "  The dog sleeps.\n\n\tThe old man reads a book.\n"
    assert ask(client, q=spaced).json() == {"translatedText": f"  {first}\n\n\t{second}\n"}
    assert ask(client, q=["The dog sleeps.", ""]).json() == {"translatedText": [first, ""]}
    assert ask(client, q=[]).json() == {"translatedText": []}


def test_a_sentence_that_is_only_a_placeholder_is_copied(client, translator):
    first = translator.translate("The dog sleeps.")
    answer = client.post("/v1/translations", json={"text": ["The dog sleeps. {name}", "%s"], "alignments": True})
    assert answer.status_code == 200
    assert [result["text"] for result in answer.json()["translations"]] == [f"{first} {{name}}", "%s"]
    assert ask(client, q="The dog sleeps. {name}", alternatives=1).json()["translatedText"] == f"{first} {{name}}"


def test_every_sentence_of_a_text_is_in_the_language_that_its_beginning_asks_for(tmp_path):
    marian(tmp_path)
    with serving({"en-fr": tmp_path}) as server, server.client() as client:

        def ways(text):
            requested = {
                "text": text,
                "alignments": True,
                "prefix": "A man plays",
            }  # as this model says nothing by itself
            (result,) = client.post("/v1/translations", json=requested).json()["translations"]
            return [item["translations"][0] if item["translations"] else None for item in result["sentences"]]

        alone = [ways(f">>fr<< {text}")[0] for text in ("A man plays.", "Two children ride.")]
        together, below = ways(">>fr<< A man plays. Two children ride."), ways(">>fr<<\nTwo children ride.")
        assert together[0] == alone[0] and below[0] is None
        links = alone[1].pop("alignment")  # where the code is a word of the text
        for result in (together[1], below[1]):
            assert result.pop("alignment") == [[source - 1, target] for source, target in links if source] != []
            assert result == alone[1]
        assert ways("Two children ride.")[0]["log_prob"] != alone[1]["log_prob"]


def test_a_form_is_as_good_as_json(client):
    fields = {"q": TEXT, "source": "en", "target": "de"}
    expected = ask(client).json()
    assert client.post("/translate", data=fields).json() == expected
    assert client.post("/translate", files={name: (None, value) for name, value in fields.items()}).json() == expected
    several = client.post("/translate", data={**fields, "q": [TEXT, "The dog."], "alternatives": "1"}).json()
    assert several["translatedText"][0] == expected["translatedText"]
    assert len(several["alternatives"]) == 2


def test_alternatives_are_other_translations(client, translator):
    ways = [translation.text for translation in translator.translations(["The dog sleeps."], n_best=3)[0]]
    answer = ask(client, q="The dog sleeps.", alternatives=2).json()
    assert [answer["translatedText"], *answer["alternatives"]] == list(dict.fromkeys(ways))


def test_languages_and_settings(client):
    assert client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 20_000
    assert settings["keyRequired"] is False
    assert settings["language"]["source"] == {"code": "en", "name": "English"}


def test_a_language_can_be_found(client):
    answer = ask(client, source="auto").json()
    assert answer["detectedLanguage"]["language"] == "en"  # the only one that is translated into German
    result = client.post("/detect", json={"q": TEXT}).json()
    assert sorted(item["language"] for item in result) == ["de", "en"]
    assert result[0]["confidence"] >= result[1]["confidence"] > 0


def test_the_native_route_gives_scores_alignments_and_attention(client, translator):
    body = {"text": TEXT, "source": "en", "target": "de", "n_best": 2, "attention": True, "prefix": "Der"}
    answer = client.post("/v1/translations", json=body).json()
    (result,) = answer["translations"]
    assert answer["model"] == "en-de"
    for part, line in zip(result["sentences"], ["The dog sleeps.", "The old man reads a book."], strict=True):
        assert part["source"] == line == TEXT[part["start"] : part["end"]]
        expected = translator.translations([line], n_best=2, alignments=True, prefix="Der")[0]
        for actual, theirs in zip(part["translations"], expected, strict=True):
            assert actual["text"] == theirs.text
            assert actual["score"] == pytest.approx(theirs.score, abs=1e-5)
            assert actual["token_log_probs"] == pytest.approx(list(theirs.token_log_probs), abs=1e-5)
            assert [tuple(link) for link in actual["alignment"]] == theirs.alignment
            (attention,) = actual["attention"]
            assert attention["target_tokens"] == list(theirs.tokens)
            assert len(attention["weights"]) == len(theirs.tokens)
            assert all(len(row) == len(attention["source_tokens"]) for row in attention["weights"])


def test_models_are_asked_by_name_or_by_pair(client):
    by_pair = client.post("/v1/translations", json={"text": TEXT, "source": "de"}).json()
    by_name = client.post("/v1/translations", json={"text": TEXT, "model": "de-en"}).json()
    assert by_pair == by_name
    assert by_pair["target"] == "en"
    tasks = {item["name"]: item["task"] for item in client.get("/models").json()}
    assert tasks == {"en-de": "translate", "de-en": "translate", "gpt": "write", "bert": "fill"}


def test_blanks_are_filled(client):
    answer = client.post("/v1/fill", json={"text": "The [MASK] reads a <mask>.", "top": 3}).json()
    assert answer["model"] == "bert"
    assert [len(item) for item in answer["blanks"]] == [3, 3]
    assert answer["blanks"][0][0]["probability"] >= answer["blanks"][0][1]["probability"]
    assert "[MASK]" not in answer["blanks"][0][0]["text"]


@pytest.mark.parametrize("model", ["en-de", "gpt", "bert"])
def test_a_look_inside_every_kind_of_model(client, model):
    answer = client.post("/inside", data={"text": "The dog sleeps.", "model": model})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "look inside" in answer.text
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


WRONG = {
    "not JSON": ("/translate", JSON, b"{", 400, "not JSON"),
    "not a number": ("/translate", JSON, b'{"q": NaN}', 400, "not JSON"),
    "deep": ("/translate", JSON, b"[" * 100_000, 400, "not JSON"),
    "no object": ("/translate", JSON, b"[]", 422, "not an object"),
    "not UTF-8": ("/translate", JSON, b'{"q": "\xff"}', 400, "not UTF-8"),
    "half a character": ("/translate", JSON, b'{"q": "\\ud800", "source": "en", "target": "de"}', 400, "surrogate"),
    "a form that is not UTF-8": (
        "/translate", {"content-type": "application/x-www-form-urlencoded"}, b"q=%ff", 400, "not UTF-8",
    ),
    "a broken form": ("/translate", {"content-type": "multipart/form-data"}, b"x", 400, "cannot be read"),
    "no type": ("/translate", {"content-type": "text/plain"}, b"hello", 415, "content type is text/plain"),
    "nothing": ("/translate", JSON, b"{}", 422, "q: field required"),
    "wrong type": ("/translate", JSON, b'{"q": 7, "source": "en", "target": "de"}', 422, "q: "),
    "wrong type of a flag": ("/v1/translations", JSON, b'{"text": "a", "alignments": "yes"}', 422, "alignments"),
    "unknown language": ("/translate", JSON, b'{"q": "a", "source": "en", "target": "xx"}', 422, "translates en-xx"),
    "unknown format": ("/translate", JSON, b'{"q": "a", "source": "en", "target": "de", "format": "x"}', 422, "format"),
    "many ways": ("/translate", JSON, b'{"q": "", "source": "en", "target": "de", "alternatives": 99}', 422, "al"),
    "too long": ("/translate", JSON, b'{"q": "' + b"a" * 20_001 + b'", "source": "en", "target": "de"}', 413, "20,001"),
    "too many": ("/translate", JSON, b'{"q": [' + b'"a",' * 128 + b'"a"], "source": "en", "target": "de"}', 413, "129"),
    "too large": ("/translate", JSON, b" " * (1 << 20) + b"{}", 413, "1,048,576 bytes"),
    "unknown model": ("/v1/translations", JSON, b'{"text": "a", "model": "x"}', 404, "no model 'x'"),
    "wrong model": ("/v1/translations", JSON, b'{"text": "a", "model": "gpt"}', 404, "cannot translate"),
    "unknown GPT": ("/v1/completions", JSON, b'{"model": "x", "prompt": "a"}', 404, "no model 'x'"),
    "no mask": ("/v1/fill", JSON, b'{"text": "nothing is missing"}', 422, "no mask"),
    "narrow beam": ("/v1/translations", JSON, b'{"text": "a", "beam": 1, "n_best": 2}', 422, "n_best"),
    "long prefix": ("/v1/translations", JSON, b'{"text": "a", "prefix": "' + b"der Hund " * 99 + b'"}', 422, "prefix"),
    "long stop": ("/v1/completions", JSON, b'{"model": "gpt", "stop": "' + b"a" * 1001 + b'"}', 422, "1,000 char"),
    "many blanks": ("/v1/fill", JSON, b'{"text": "' + b"[MASK]" * 400 + b'", "top": 50}', 413, "400 masks"),
    "empty stop": ("/v1/completions", JSON, b'{"model": "gpt", "stop": [""]}', 422, "stop"),
    "logit bias": ("/v1/completions", JSON, b'{"model": "gpt", "logit_bias": {"5": 1}}', 422, "logit_bias"),
    "no text to look at": ("/inside", JSON, b'{"text": ""}', 422, "empty"),
    "unknown path": ("/v1/nothing", JSON, b"{}", 404, "path does not exist"),
}  # fmt: skip


@pytest.mark.parametrize("path, headers, body, status, says", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_the_form_of_the_api(client, path, headers, body, status, says):
    answer = client.post(path, headers=headers, content=body)
    error = answer.json()["error"]
    assert answer.status_code == status, error
    message = error["message"] if path.startswith("/v1/") else error
    assert says in message
    assert "Traceback" not in answer.text
    if path.startswith("/v1/"):
        assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", ["/page/%7Bname%7D", "/v1/models/%7Bname%7D", "/v1/models/x"])
def test_what_is_not_there_is_404(client, path):
    assert client.get(path).status_code == 404


def test_markup_that_no_browser_knows_is_kept(client):
    answer = client.post("/translate", json={"q": "a <![x[ b", "source": "en", "target": "de", "format": "html"})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/translate", "/v1/completions", "/v1/translations", "/inside"])
def test_another_method_is_refused_with_those_that_are_taken(client, path):
    answer = client.get(path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert "error" in answer.json()
    assert client.delete("/health").status_code == 405


def test_the_description_is_complete_and_readable(client):
    document = client.get("/openapi.json").json()
    assert {"/translate", "/languages", "/v1/completions", "/v1/translations", "/health"} <= set(document["paths"])
    references = set(json.dumps(document).split('"#/components/schemas/')[1:])
    assert {reference.split('"')[0] for reference in references} <= set(document["components"]["schemas"])
    page = client.get("/docs").text
    for path in document["paths"]:
        assert path in page
    assert "<script" not in page


def test_headers_protect_the_page(client):
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in client.get("/languages", headers={"origin": "https://x.org"}).headers
    for part in ("main.js", "style.css", "icon.svg", "translate.js"):
        assert client.get(f"/page/{part}").status_code == 200
    assert client.get("/page/../settings.py").status_code == 404
    assert client.get("/page/index.html").status_code == 404


def test_numbers_for_prometheus(client):
    ask(client)
    client.get("/nowhere")
    text = client.get("/metrics").text
    assert 'heedful_requests_total{method="POST",route="/translate",status="200"}' in text
    assert 'route="other",status="404"' in text
    for name in ("queue_sentences", "batch_sentences_count", "tokens_total", "request_seconds_bucket", "model_ready"):
        assert f"heedful_{name}" in text


def test_the_log_names_the_setting_that_leaves_a_model_to_torch(make_folder, monkeypatch):
    monkeypatch.setattr(native_choice, "library", object)  # so that the machine has an engine
    save_folder(folder := make_folder("decoder", attention="window"))
    events: list[tuple[object, ...]] = []
    monkeypatch.setattr(logs, "log_event", lambda event, level="info", **fields: events.append((event, fields)))
    with serving({"gpt": folder.path}):
        pass
    sentence = f"PyTorch computes {folder.path}: the native engine does not know model.attention=window."
    assert ("model is computed by PyTorch", {"model": "gpt", "reason": sentence}) in events


def test_the_log_says_that_a_model_with_syntax_positions_gets_no_trees(make_folder, monkeypatch):
    save_folder(folder := make_folder("encoder-decoder", positions="syntax"))
    events: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(logs, "log_event", lambda event, level="info", **fields: events.append((event, fields)))
    with serving({"syntax": folder.path}):
        pass
    [reason] = [fields["reason"] for event, fields in events if event == "model gets no dependency trees"]
    assert str(folder.path) in reason and "--trees" in reason


def test_an_encoder_that_fills_no_masks_is_not_offered_for_them():
    def folder(head, mask_id):
        config = ModelConfig(family="encoder", vocab_size=8, head=head)
        return SimpleNamespace(config=config, task="", tokenizer=SimpleNamespace(mask_id=mask_id))

    assert task_of(folder("transform", 4)) == "fill"
    assert task_of(folder("none", 4)) == task_of(folder("linear", None)) == "inspect"


def test_the_page_of_the_api_shows_code_as_code(client):
    page = client.get("/docs").text
    assert "Its language, or <code>auto</code>." in page and "`" not in page


def test_the_examples_of_the_page_call_this_server(client):
    assert f"  {str(client.base_url).rstrip('/')}/translate</pre>" in client.get("/docs").text
    named = client.get("/docs", headers={"host": "translate.example.org"}).text
    assert "  http://translate.example.org/translate</pre>" in named
    assert "<script" not in client.get("/docs", headers={"host": "x.org<script>"}).text


@pytest.mark.parametrize("route", ["/v1/translations", "/v1/summaries", "/v1/fill"])
def test_routes_of_heedful_refuse_unknown_fields(client, route):
    answer = client.post(route, json={"text": "The dog sleeps.", "modle": "en-de"})
    assert answer.status_code == 422
    assert "'modle' is not a field of this request; it has text, model," in answer.json()["error"]["message"]


def test_routes_of_others_ignore_unknown_fields(client):
    assert ask(client, secret="x").status_code == 200
