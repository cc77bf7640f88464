"""A speech recognizer must learn ten made-up words of formants and noise, spoken at different speeds and pitches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

import heedful
from heedful.evaluation.word_errors import evaluate_speech
from heedful.formats.audio_manifest import read_manifest
from tests.audio.sounds import WORDS, utterance, write_corpus

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


@pytest.mark.long
def test_words_are_found_where_they_were_spoken(tmp_path: Path) -> None:
    random, vocabulary = np.random.default_rng(3), ("ma", "si", "to")
    spoken = [random.choice(vocabulary, random.integers(1, 5)).tolist() for _ in range(110)]
    made = [utterance(words, seed) for seed, words in enumerate(spoken)]
    for number, (samples, _) in enumerate(made):
        soundfile.write(tmp_path / f"{number}.wav", samples, 16_000)
    lines = [f"{number}.wav\t{' '.join(words)}\n" for number, words in enumerate(spoken)]
    for name, part in (("train", lines[:80]), ("test", lines[80:])):
        (tmp_path / f"{name}.tsv").write_text("".join(part), encoding="utf-8")
    model = heedful.train(
        audio=tmp_path / "train.tsv", valid_audio=tmp_path / "test.tsv", out=tmp_path / "run",
        model={"d_model": 64, "d_ff": 128, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0},
        train={"max_updates": 600, "batch_tokens": 2048, "checkpoint_every": 600, "warmup": 20, "threads": 1},
        **{"text.kind": "characters", "data.speed_perturbation": [1.0], "search.beam": 1},
    )  # fmt: skip
    recordings = [tmp_path / f"{number}.wav" for number in range(80, 110)]
    transcripts = model.transcripts(recordings, timestamps=True, word_timestamps=True)
    errors = []
    for transcript, words, (_, spans) in zip(transcripts, spoken[80:], made[80:], strict=True):
        timed = [word for segment in transcript.segments for word in segment.words]
        if [word.text for word in timed] == words:
            errors += [
                np.abs([word.start - start, word.end - end]).max()
                for word, (start, end) in zip(timed, spans, strict=True)
            ]
    assert len(errors) > 30
    assert np.median(errors) < 0.03 and np.mean(np.array(errors) < 0.1) > 0.8
