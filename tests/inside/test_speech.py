"""The explanation of a transcript: the spectrogram, and where each word was heard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from heedful.errors import SettingError
from heedful.inference.transcriber import Transcriber
from heedful.inside import draw_attention, explain
from heedful.interop import open_folder
from tests.audio.sounds import word
from tests.inference.test_transcriber import folder  # noqa: F401


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "a.wav", np.concatenate([word("ma"), word("ti")]), 16_000)
    return tmp_path / "a.wav"


def test_what_the_page_shows(folder: Path, recording: Path) -> None:  # noqa: F811
    explanation = explain(open_folder(folder), str(recording))
    run, data = explanation.run, explanation.data()
    sound = data["sound"]
    assert run.text == "a.wav" and run.output == data["output"]
    assert sound["spectrogram"].shape[1] == 80 and len(sound["tokens"]) == len(run.labels)
    assert sound["weights"].shape == (len(run.labels), len(run.source.ids))
    assert data["sides"]["source"]["pieces"][:3] == ["0.00", "0.02", "0.04"]
    ends = [(token["start"], token["end"]) for token in sound["tokens"] if "start" in token]
    assert len(ends) == len(run.labels) - (run.labels[-1] == run.folder.tokenizer.eos_id)
    assert all(start <= end <= sound["seconds"] for start, end in ends)
    assert [word["text"] for word in sound["words"]] == run.output.split()
    assert [attention["kind"] for attention in data["attentions"]] == ["self", "cross"]
    assert explanation.numbers()["attention"]["decoder.0.cross.weights"]["keys"] == "source"
    assert "Where each word was heard" in explanation.html()


def test_words_are_where_transcribing_times_them(folder: Path, recording: Path) -> None:  # noqa: F811
    opened = open_folder(folder)
    segments = Transcriber(opened).transcripts([recording], word_timestamps=True)[0].segments
    expected = [(word.text, word.start, word.end) for segment in segments for word in segment.words]
    words = [tuple(word.values()) for word in explain(opened, str(recording)).data()["sound"]["words"]]
    assert [word for word, *_ in words] == [word for word, *_ in expected] != []
    assert np.array([times for _, *times in words]) == pytest.approx(np.array([times for _, *times in expected]))


@pytest.mark.parametrize("what", [None, "decoder.0.cross"])
def test_the_picture_of_a_recording(folder: Path, recording: Path, tmp_path: Path, what: str | None) -> None:  # noqa: F811
    draw_attention(explain(open_folder(folder), str(recording)).run, tmp_path / "x.svg", what)
    text = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert "attention" in text and ("seconds" in text) == (what is None)


def test_a_given_transcript_and_silence(folder: Path, recording: Path, tmp_path: Path) -> None:  # noqa: F811
    run = explain(open_folder(folder), str(recording), "mati").run
    assert run.output == "mati" and run.tree is None
    soundfile.write(tmp_path / "silent.wav", np.zeros(8000), 16_000)
    with pytest.raises(SettingError, match="no sound above -60 dB"):
        explain(open_folder(folder), str(tmp_path / "silent.wav"))
