"""Models that are no plain Transformers, served like any other: recurrent, convolutional, recurrent in depth."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from heedful.config import SearchSettings
from heedful.inference.generator import Generator
from heedful.inference.translator import Translator
from heedful.storage.folder import load_folder, save_folder
from tests.serve.conftest import TEXT, serving

SENTENCES = ["The dog sleeps.", "The old man reads a book."]
TRANSLATORS = {
    "en-ls": {"architecture": "rnn", "cell": "lstm", "source_attention": "additive"},
    "en-gr": {"architecture": "rnn", "cell": "gru", "source_attention": "dot"},
    "en-bl": {"architecture": "rnn", "cell": "gru", "source_attention": "none", "bidirectional": False},
    "en-co": {"architecture": "conv"},
    "en-un": {"universal": True, "act_halting": True},
    "en-wi": {"attention": "window", "attention_window": 3, "positions": "relative"},
}
BLIND = "en-bl"  # it has no attention
OTHERS = {
    "gpt-gru": ("decoder", {"architecture": "rnn", "cell": "gru"}),
    "gpt-conv": ("decoder", {"architecture": "conv"}),
    "bert-lstm": ("encoder", {"architecture": "rnn", "cell": "lstm"}),
    "bert-conv": ("encoder", {"architecture": "conv"}),
}


@pytest.fixture(scope="module")
def systems(make_folder, tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("systems")
    every = {name: ("encoder-decoder", shape) for name, shape in TRANSLATORS.items()} | OTHERS
    for name, (family, shape) in every.items():
        folder = make_folder(family, **shape)
        folder.path, folder.search = root / name, SearchSettings(beam=3, max_extra=3)
        save_folder(folder)
    return {name: root / name for name in every}


@pytest.fixture(scope="module")
def client(systems) -> Iterator[httpx.Client]:
    with serving(systems) as running, running.client() as client:
        yield client


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translations_are_the_same_alone_and_beside_others(client, systems, name):
    translator = Translator([load_folder(systems[name])])
    expected = " ".join(translator.translate(SENTENCES))
    with ThreadPoolExecutor(4) as pool:
        requested = {"q": TEXT, "source": "en", "target": name[3:]}
        answers = list(pool.map(lambda _: client.post("/translate", json=requested).json(), range(4)))
    assert answers == [{"translatedText": expected}] * 4
    body = {"text": SENTENCES[0], "model": name, "n_best": 2, "beam": 2, "alignments": True}
    answer = client.post("/v1/translations", json=body)
    if name == BLIND:
        assert answer.status_code == 422, answer.text
        assert "no alignment to read off" in answer.json()["error"]["message"]
        return
    alternatives = answer.json()["translations"][0]["sentences"][0]["translations"]
    alone = translator.translations(SENTENCES[:1], n_best=2, beam=2, alignments=True)[0]
    assert [(way["text"], [tuple(link) for link in way["alignment"]]) for way in alternatives] == [
        (item.text, item.alignment) for item in alone
    ]


@pytest.mark.parametrize("name", [name for name in OTHERS if name.startswith("gpt")])
def test_texts_are_the_same_alone_and_beside_others(client, systems, name):
    generator = Generator(load_folder(systems[name]))
    body = {"model": name, "prompt": "The dog", "max_tokens": 8, "n": 2, "seed": 3}
    choices = client.post("/v1/completions", json=body).json()["choices"]
    assert [choice["text"] for choice in choices] == generator.samples("The dog", 2, max_tokens=8, seed=3)


@pytest.mark.parametrize("name", [name for name in OTHERS if name.startswith("bert")])
def test_encoders_fill_blanks(client, name):
    blanks = client.post("/v1/fill", json={"text": "The [MASK] reads.", "model": name, "top": 2}).json()["blanks"]
    assert [len(blank) for blank in blanks] == [2]


@pytest.mark.parametrize("name", [*TRANSLATORS, *OTHERS])
def test_inside_shows_the_model_or_says_why_not(client, name, systems):
    answer = client.post("/inside", data={"text": "The dog sleeps.", "model": name})
    if name in (BLIND, *OTHERS):
        assert answer.status_code == 422, answer.text
        assert answer.json()["error"].startswith(f"{name} holds a model without any attention")
        assert str(systems[name].parent) not in answer.text  # where it stands is nobody's business
    else:
        assert answer.status_code == 200, answer.text
        assert "look inside" in answer.text


@pytest.mark.parametrize("name", ["en-co", "en-ls", BLIND])
def test_tags_stay(client, name):
    requested = {"q": "<p>The <b>old</b> man.</p>", "source": "en", "target": name[3:], "format": "html"}
    text = client.post("/translate", json=requested).json()["translatedText"]
    assert text.startswith("<p>") and text.count("<b>") == text.count("</b>") == 1
