"""The explanation of a transcript: the spectrogram, and where each word was heard."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from heedful.config import ModelConfig, SearchSettings
from heedful.errors import SettingError
from heedful.inference.word_times import token_words
from heedful.inside import draw_attention, explain
from heedful.inside.page_data import sound
from heedful.interop import open_folder
from heedful.model.transformer import build_model
from heedful.storage.folder import ModelFolder
from heedful.text import train_plain_vocabulary
from tests.audio.sounds import utterance, word
from tests.inference.test_transcriber import folder  # noqa: F401


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "a.wav", np.concatenate([word("ma"), word("ti")]), 16_000)
    return tmp_path / "a.wav"


def test_what_the_page_shows(folder: Path, recording: Path) -> None:  # noqa: F811
    explanation = explain(open_folder(folder), str(recording))
    run, data = explanation.run, explanation.data()
    shown = data["sound"]
    assert run.text == "a.wav" and run.output == data["output"]
    assert shown["spectrogram"].shape[1] == 80 and len(shown["tokens"]) == len(run.labels)
    assert shown["weights"].shape == (len(run.labels), len(run.source.ids))
    assert data["sides"]["source"]["pieces"][:3] == ["0.00", "0.02", "0.04"]
    ends = [(token["start"], token["end"]) for token in shown["tokens"] if "start" in token]
    assert len(ends) == len(run.labels) - (run.labels[-1] == run.folder.tokenizer.eos_id)
    assert all(start <= end <= shown["seconds"] for start, end in ends)
    assert [word["text"] for word in shown["words"]] == run.output.split()
    assert [attention["kind"] for attention in data["attentions"]] == ["self", "cross"]
    assert explanation.numbers()["attention"]["decoder.0.cross.weights"]["keys"] == "source"
    assert "Where each word was heard" in explanation.html()


def test_words_stand_under_their_sound(tmp_path: Path) -> None:
    """The upper of two decoder layers attends to the words one after the other, the lower one in reverse."""
    torch.manual_seed(1)
    tokenizer = train_plain_vocabulary(["ma ti so"], "characters")
    config = ModelConfig(
        features=80, vocab_size=tokenizer.vocab_size, d_model=16, d_ff=32, n_heads=2, encoder_layers=1,
        decoder_layers=2, source_max_length=150, max_length=20, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )  # fmt: skip
    model = ModelFolder(build_model(config), tokenizer, tokenizer, SearchSettings(), tmp_path)
    samples, spans = utterance(["ma", "ti", "so"], 1)
    soundfile.write(tmp_path / "a.wav", samples, 16_000)
    run = explain(model, str(tmp_path / "a.wav"), "ma ti so").run
    assert run.sound is not None and run.source is not None
    positions = len(run.source.ids)
    weights = torch.full((2, len(run.labels), positions), 0.001)

    def attend(row: int, start: float, end: float) -> None:
        first, last = round(start / step), round(end / step)
        weights[:, row, first:last] += 1 / (last - first)

    step = run.sound.step
    for spoken, (start, end) in zip(token_words(*tokenizer.decode_spans(run.labels[:-1])), spans, strict=True):
        bounds = np.linspace(start, end, len(spoken.tokens) + 1)
        for row, (first, last) in zip(spoken.tokens, pairwise(bounds), strict=True):
            attend(row, first, last)
    attend(-1, spans[-1][1], positions * step)
    run.trace["decoder.1.cross.weights"], run.trace["decoder.0.cross.weights"] = weights, weights.flip(1)
    data = sound(run)
    assert data is not None and data["heads"] == ["decoder.1.cross.0", "decoder.1.cross.1"]
    assert [word["text"] for word in data["words"]] == ["ma", "ti", "so"]
    assert [(word["start"], word["end"]) for word in data["words"]] == [pytest.approx(span, abs=0.05) for span in spans]
    starts = [token["start"] for token in data["tokens"] if "start" in token]
    assert starts == sorted(starts) and len(starts) == len(run.labels) - 1


@pytest.mark.parametrize("what", [None, "decoder.0.cross", "decoder.0.cross.1", "decoder.0.self"])
def test_the_picture_of_a_recording(folder: Path, recording: Path, tmp_path: Path, what: str | None) -> None:  # noqa: F811
    draw_attention(explain(open_folder(folder), str(recording)).run, tmp_path / "x.svg", what)
    text = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert "attention" in text and ("seconds" in text) == (what != "decoder.0.self")


def test_a_given_transcript_and_silence(folder: Path, recording: Path, tmp_path: Path) -> None:  # noqa: F811
    run = explain(open_folder(folder), str(recording), "mati").run
    assert run.output == "mati" and run.tree is None
    soundfile.write(tmp_path / "silent.wav", np.zeros(8000), 16_000)
    with pytest.raises(SettingError, match="no sound above -60 dB"):
        explain(open_folder(folder), str(tmp_path / "silent.wav"))
