"""OpenAI's transcription API: the official client, formats, streaming, limits, and files that are broken or hostile."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import soundfile
from openai.types.audio import TranscriptionVerbose

import heedful
from heedful.inference.transcriber import Transcriber
from heedful.serve.messages import Event, WorkerTask
from heedful.serve.server_settings import Limits
from heedful.serve.speech_workload import SpeechWorkload
from tests.audio.sounds import word
from tests.inference.test_transcriber import folder, long_recording  # noqa: F401
from tests.serve.conftest import Running, serving

PATH = "/v1/audio/transcriptions"


def encode(samples: np.ndarray, form: str = "wav", rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form.upper(), subtype="FLOAT" if form == "wav" else None)
    return file.getvalue()


@pytest.fixture(scope="module")
def speech(folder: Path, folders: dict[str, Path]) -> Iterator[Running]:  # noqa: F811
    """A recognizer beside a GPT, with small limits."""
    limits = Limits(max_audio=2_000_000, max_seconds=60)
    with serving({"asr": folder, "gpt": folders["gpt"]}, limits) as server:
        yield server


@pytest.fixture
def client(speech: Running) -> Iterator[httpx.Client]:
    with speech.client() as made:
        yield made


@pytest.fixture(scope="module")
def expected(folder: Path) -> str:  # noqa: F811
    return heedful.load(folder, kind=Transcriber, precision="float32").transcribe(long_recording())


def upload(client: httpx.Client, content: bytes, name: str = "a.wav", **fields: str) -> httpx.Response:
    return client.post(PATH, files={"file": (name, content)}, data={"model": "asr"} | fields)


def test_the_official_client_works(speech: Running, expected: str) -> None:
    with openai.OpenAI(base_url=f"{speech.url}/v1", api_key="none") as made:
        audio = ("talk.flac", encode(long_recording(), "flac"))
        text = made.audio.transcriptions.create(model="asr", file=audio)
        assert len(text.text) > 0
        exact = made.audio.transcriptions.create(model="asr", file=("talk.wav", encode(long_recording())))
        assert exact.text == expected
        verbose = made.audio.transcriptions.create(model="asr", file=audio, response_format="verbose_json")
        assert verbose.duration == pytest.approx(len(long_recording()) / 16_000, abs=0.01)
        assert verbose.segments is not None and 0 <= verbose.segments[0].start < verbose.segments[0].end
        TranscriptionVerbose.model_validate(verbose.model_dump())  # the client itself does not check it
        for segment in verbose.segments:
            assert segment.tokens and segment.avg_logprob < 0 < segment.compression_ratio
            assert segment.seek / 100 <= segment.start
        timed = {"model": "asr", "file": audio, "response_format": "verbose_json"}
        assert made.audio.transcriptions.create(**timed, timestamp_granularities=["segment"]) == verbose
        assert verbose.words is None
        both = made.audio.transcriptions.create(**timed, timestamp_granularities=["word", "segment"])
        assert both.segments == verbose.segments and both.words is not None
        assert [word.word for word in both.words] == verbose.text.split()
        assert all(0 <= word.start < word.end <= verbose.duration for word in both.words)
        words = made.audio.transcriptions.create(**timed, timestamp_granularities=["word"])
        assert words.words == both.words and words.segments is None
        assert [model.id for model in made.models.list()] == ["asr", "gpt"]
        assert made.models.retrieve("asr").id == "asr"
        stream = made.audio.transcriptions.create(model="asr", file=("talk.wav", encode(long_recording())), stream=True)
        events = list(stream)
        assert len(events) > 2 and events[-1].type == "transcript.text.done" and events[-1].text == expected
        deltas = [event.delta for event in events if event.type == "transcript.text.delta"]
        assert "".join(deltas) == expected


def test_times_are_side_work(folder: Path) -> None:  # noqa: F811
    """A step of the searches reads no times; a stream, which sends text only, never does."""
    transcriber = heedful.load(folder, kind=Transcriber, precision="float32")
    workload = SpeechWorkload(transcriber, heedful.load(folder, kind=Transcriber, precision="float32"))
    payload = {"audio": encode(long_recording()), "name": "a.wav", "max_seconds": 60.0, "timestamps": True}
    workload.add(WorkerTask(1, payload))
    events: list[Event] = []
    while not workload.idle():
        events += workload.step()
    *deltas, done = events
    assert isinstance(done.value, Generator)
    steps = iter(done.value)
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as stop:
            result = stop.value
            break
    expected = transcriber.transcripts([long_recording()], timestamps=True)[0]
    assert count > 1 and result["text"] == expected.text == " ".join(delta.value for delta in deltas)
    assert [part["text"] for part in result["segments"]] == [segment.text for segment in expected.segments]


def test_formats(client: httpx.Client) -> None:
    audio = encode(word("ma"))
    text = upload(client, audio, response_format="text").text
    assert upload(client, audio).json() == {"text": text.strip()}
    assert upload(client, audio, response_format="srt").text.startswith("1\n00:00:00,")
    assert upload(client, audio, response_format="vtt").text.startswith("WEBVTT\n\n00:00:00.")
    assert "model" not in upload(client, audio, response_format="json").json()
    models = client.get("/models").json()
    assert {model["name"]: model["task"] for model in models} == {"asr": "transcribe", "gpt": "write"}


def header_of_another_length() -> bytes:
    whole = bytearray(encode(word("ma"), "flac"))
    return bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"not audio at all" * 20, "cannot be decoded"),
        (encode(np.zeros(0, np.float32)), "holds no samples"),
        (header_of_another_length(), "truncated|cannot be decoded"),
        (encode(np.full(4000, np.nan, np.float32)), "holds samples that are not numbers"),
        (encode(np.zeros(1000 * 700, np.float32), "flac", 1000), "is 700 seconds long, and at most 60 are allowed"),
    ],
    ids=["empty", "text", "no samples", "truncated", "not numbers", "too long"],
)
@pytest.mark.parametrize("stream", ["false", "true"])
def test_broken_and_hostile_files(client: httpx.Client, content: bytes, message: str, stream: str) -> None:
    answer = upload(client, content, "up.wav", stream=stream)
    assert answer.status_code == 422
    assert re.search(f"up.wav ({message})", answer.json()["error"]["message"])


def test_192_khz_and_silence(client: httpx.Client) -> None:
    assert upload(client, encode(np.zeros(192_000, np.float32), "wav", 192_000)).json() == {"text": ""}


def test_wrong_requests(client: httpx.Client) -> None:
    audio = encode(word("ma"))
    assert client.post(PATH, json={"model": "asr"}).status_code == 415
    assert "has no file" in client.post(PATH, data={"model": "asr"}, files={"other": ""}).text
    assert "response_format" in upload(client, audio, response_format="yaml").json()["error"]["message"]
    wrong = upload(client, audio, response_format="verbose_json", **{"timestamp_granularities[]": "letter"})
    refused = upload(client, audio, response_format="json", **{"timestamp_granularities[]": "word"})
    assert refused.status_code == 422 and "need response_format=verbose_json" in refused.text
    for form in ("srt", "vtt", "verbose_json"):
        refused = upload(client, audio, response_format=form, stream="true")
        assert refused.status_code == 422 and "a stream has text only" in refused.text
    assert "stream: " in upload(client, audio, stream="maybe").json()["error"]["message"]
    assert wrong.status_code == 422 and "must be 'word' or 'segment'" in wrong.json()["error"]["message"]
    assert upload(client, audio, model="gpt").status_code == 404
    assert upload(client, audio, model="nothing").status_code == 404
    assert "no choice of languages" in upload(client, audio, language="de").json()["error"]["message"]
    assert upload(client, b"x" * 2_100_000).status_code == 413
    assert client.post("/v1/translations", json={"text": "a", "model": "asr"}).status_code == 404
    assert json.loads(upload(client, audio).text)["text"] == upload(client, audio).json()["text"]
