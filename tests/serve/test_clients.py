"""Clients that others wrote, unchanged."""

from __future__ import annotations

import openai
import pytest
from libretranslatepy import LibreTranslateAPI

from heedful.inference.generator import Generator
from heedful.inference.translator import Translator
from heedful.storage.folder import load_folder
from tests.serve.conftest import TEXT, serving


def test_libretranslates_client(running, folders):
    client = LibreTranslateAPI(running.url)
    expected = Translator([load_folder(folders["en-de"])]).translate(["The dog sleeps.", "The old man reads a book."])
    assert client.translate(TEXT, "en", "de") == " ".join(expected)
    assert {language["code"] for language in client.languages()} == {"en", "de"}
    assert client.detect(TEXT)[0]["language"] in ("en", "de")


@pytest.fixture(scope="module")
def gpt(running) -> openai.OpenAI:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def generator(folders) -> Generator:
    return Generator(load_folder(folders["gpt"]))


ASKED = {"model": "gpt", "prompt": "The dog", "max_tokens": 12, "seed": 4, "temperature": 0.9}


def test_openais_client_completes(gpt, generator):
    answer = gpt.completions.create(**ASKED, n=2)
    expected = generator.samples("The dog", 2, max_tokens=12, seed=4, temperature=0.9)
    assert [choice.text for choice in answer.choices] == expected
    assert {choice.finish_reason for choice in answer.choices} <= {"stop", "length"}
    assert answer.object == "text_completion"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens == len(generator.tokenizer.encode("The dog"))
    assert answer.usage.completion_tokens <= 24


def test_openais_client_streams(gpt, generator):
    pieces = list(gpt.completions.create(**ASKED, stream=True, stream_options={"include_usage": True}))
    text = "".join(piece.choices[0].text for piece in pieces if piece.choices)
    assert text == generator.generate("The dog", max_tokens=12, seed=4, temperature=0.9)
    assert len(pieces) > 3
    assert pieces[-2].choices[0].finish_reason in ("stop", "length")
    assert pieces[-1].usage.completion_tokens <= 12


def test_log_probabilities_echo_stop_and_several_prompts(gpt, generator):
    answer = gpt.completions.create(**ASKED, logprobs=3)
    logprobs, text = answer.choices[0].logprobs, answer.choices[0].text
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset)
    assert all(len(best) <= 3 and max(best.values()) <= 0 for best in logprobs.top_logprobs)
    assert logprobs.text_offset[0] == 0
    echoed = gpt.completions.create(**ASKED, echo=True)
    assert echoed.choices[0].text == "The dog" + text
    stopped = gpt.completions.create(**ASKED, stop=[text[3:5]])
    assert text[3:5] not in stopped.choices[0].text
    assert stopped.choices[0].finish_reason == "stop"
    several = gpt.completions.create(**ASKED | {"prompt": ["The dog", "A man"]}, n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.choices[0].text == text


def test_without_a_seed_texts_differ(gpt):
    requested = {"model": "gpt", "prompt": "The", "max_tokens": 20, "temperature": 2.0}
    assert len({gpt.completions.create(**requested).choices[0].text for _ in range(4)}) > 1


def test_models_and_errors_are_openais(gpt):
    assert [model.id for model in gpt.models.list()] == ["gpt"]
    assert gpt.models.retrieve("gpt").id == "gpt"
    with pytest.raises(openai.NotFoundError, match="there is no model"):
        gpt.completions.create(**ASKED | {"model": "davinci"})
    with pytest.raises(openai.UnprocessableEntityError) as wrong:
        gpt.completions.create(**ASKED, frequency_penalty=1.0)
    assert wrong.value.body["param"] == "frequency_penalty"


def test_both_send_their_keys(folders):
    with serving({name: folders[name] for name in ("en-de", "gpt")}, keys=frozenset({"a-good-key"})) as running:
        assert LibreTranslateAPI(running.url, api_key="a-good-key").translate("The dog.", "en", "de")
        with pytest.raises(Exception, match="401"):
            LibreTranslateAPI(running.url).translate("The dog.", "en", "de")
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="a-good-key", max_retries=0) as client:
            assert client.completions.create(**ASKED).choices
            assert client.models.list().data
        with (
            openai.OpenAI(base_url=f"{running.url}/v1", api_key="a-bad-key!", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError, match="not known"),
        ):
            client.completions.create(**ASKED)
