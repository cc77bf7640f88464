"""A speech recognizer must learn ten made-up words of formants and noise, spoken at different speeds and pitches."""

from __future__ import annotations

from pathlib import Path

import pytest

import heedful
from heedful.evaluation.word_errors import evaluate_speech
from heedful.formats.audio_manifest import read_manifest
from tests.audio.sounds import WORDS, write_corpus

pytestmark = pytest.mark.slow


def learned(folder: Path, words: tuple[str, ...], copies: int, updates: int) -> float:
    """WER on recordings that were not trained on."""
    train = write_corpus(folder, copies, words)
    test = write_corpus(folder, 3, words, first=1000)
    model = heedful.train(
        audio=train, valid_audio=test, out=folder / "run",
        model={"d_model": 64, "d_ff": 128, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 1, "dropout": 0.0},
        train={"max_updates": updates, "batch_tokens": 1024, "checkpoint_every": updates, "warmup": 20, "threads": 1},
        **{"text.kind": "characters", "data.speed_perturbation": [1.0], "search.beam": 1},
    )  # fmt: skip
    utterances = read_manifest(test)
    written = model.transcribe([utterance.path for utterance in utterances])
    return evaluate_speech(written, [utterance.text for utterance in utterances]).wer


def test_two_words_are_told_apart(tmp_path: Path) -> None:
    assert learned(tmp_path, ("ma", "si"), copies=8, updates=80) == 0.0


@pytest.mark.long
def test_ten_words_are_recognized(tmp_path: Path) -> None:
    assert learned(tmp_path, WORDS, copies=20, updates=300) == 0.0
