"""The audio corpus: what is kept, dropped and held out, the cache, SpecAugment, and batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from heedful.audio.audio_files import AudioFile
from heedful.audio.log_mel import log_mel
from heedful.config import ModelConfig, load_config
from heedful.data.audio_batch import SpecAugment, collate_audio, pad_with_silence
from heedful.data.audio_corpus import AudioCorpus, AudioForm, prepare_audio
from heedful.data.corpus import CorpusCache
from heedful.errors import DataError, SettingError
from tests.audio.sounds import WORDS, tone, word, write_corpus


def prepare(manifest: Path, *settings: str, **data: Any) -> AudioCorpus:
    config = load_config(None, settings, data={"audio": manifest, **data})
    return prepare_audio(config, *CorpusCache(manifest.parent / "cache"), AudioForm())


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("audio"), copies=3, words=WORDS[:4])


@pytest.fixture(scope="module")
def corpus(manifest: Path) -> AudioCorpus:
    return prepare(manifest)


def test_recordings_are_stored_at_every_speed(manifest: Path, corpus: AudioCorpus) -> None:
    recordings = corpus.report.kept
    assert len(corpus.train) == 3 * recordings and recordings + len(corpus.valid) == 12
    assert not corpus.reused and prepare(manifest).reused
    texts = [corpus.tokenizer.decode(corpus.train.targets[i]) for i in range(3)]
    assert texts[0] == texts[1] == texts[2] and texts[0] in WORDS
    lines = [line.split("\t")[0] for line in manifest.read_text().splitlines()]
    counts = [len(AudioFile.of(manifest.parent / name).samples()) // 160 for name in lines]
    assert sorted(corpus.train.frame_counts[::3].tolist() + corpus.valid.frame_counts.tolist()) == sorted(counts)
    slower, faster = corpus.train.frame_counts[1], corpus.train.frame_counts[2]
    assert faster < corpus.train.frame_counts[0] < slower


def test_frames_are_those_of_the_files(manifest: Path, corpus: AudioCorpus) -> None:
    stored = [corpus.train.source(i) for i in range(0, len(corpus.train), 3)]
    for name in (line.split("\t")[0] for line in manifest.read_text().splitlines()):
        frames = log_mel(AudioFile.of(manifest.parent / name).samples())
        stored += [] if any(s.shape == frames.shape and np.abs(s - frames).max() < 2e-3 for s in stored) else [frames]
    assert len(stored) == 12  # those of the validation set are new


def test_another_file_or_setting_is_another_corpus(manifest: Path, corpus: AudioCorpus) -> None:
    assert prepare(manifest, "data.speed_perturbation=[1.0]").path != corpus.path
    first = manifest.parent / manifest.read_text().split("\t")[0]
    before = first.read_bytes()
    soundfile.write(first, word("ma", 99), 16_000)
    try:
        assert prepare(manifest).path != corpus.path
    finally:
        first.write_bytes(before)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    manifest = write_corpus(tmp_path, copies=4, words=("ma", "ti"))
    (tmp_path / "broken.wav").write_bytes(b"not audio")
    soundfile.write(tmp_path / "long.wav", tone(300, 3.0), 16_000)
    soundfile.write(tmp_path / "short.wav", tone(300, 0.005), 16_000)
    lines = ["missing.wav\tma", "broken.wav\tma", "no tab", "long.wav\tma", "\tma", "short.wav\tma"]
    with manifest.open("a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
    return manifest


def test_nothing_is_dropped_silently(bad: Path) -> None:
    report = prepare(bad, "data.max_seconds=2", "data.valid_size=3").report
    assert {reason: dropped.line for reason, dropped in report.unreadable.items()} == {
        "no TAB": 11,
        "a recording that does not exist": 9,
        "audio that cannot be decoded": 10,
        "longer than data.max_seconds": 12,
        "no path or no text": 13,
        "under 10 ms": 14,
    }
    assert any("1 line dropped: audio that cannot be decoded (first: line 10 of" in line for line in report.lines())
    with pytest.raises(DataError, match=r"line 11 of .* has no TAB"):
        prepare(bad, "data.strict=true")


def test_the_validation_set_does_not_depend_on_the_folder(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        texts.append(prepare(write_corpus(tmp_path / name, copies=4), "data.valid_size=6").valid_text)
    assert texts[0] == texts[1] and len(texts[0]) == 6


def test_no_recording_exists(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x.wav\tma\ny.wav\tti\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"no recording of .*a\.tsv exists, such as .*x\.wav; paths are relative to"):
        prepare(tmp_path / "a.tsv")


def test_a_broken_recording_is_an_error_if_strict(tmp_path: Path) -> None:
    manifest = write_corpus(tmp_path, copies=4, words=("ma", "ti"))
    (tmp_path / "ma-0.wav").write_bytes(b"not audio")
    with pytest.raises(DataError, match=r"line 1 of .* cannot be used: .*ma-0\.wav cannot be decoded"):
        prepare(manifest, "data.strict=true")


def test_validation_files_and_held_out_recordings_exclude_each_other(manifest: Path) -> None:
    with pytest.raises(SettingError, match="remove one of the two"):
        prepare(manifest, "data.valid_size=2", valid_audio=manifest)
    assert len(prepare(manifest, valid_audio=manifest).valid) == 12


def test_a_batch_is_padded_with_zeros(corpus: AudioCorpus) -> None:
    config = ModelConfig(features=80, vocab_size=corpus.tokenizer.vocab_size, source_max_length=400)
    batch = collate_audio(corpus.train, [0, 1, 5], corpus.tokenizer.specials, config)
    counts = corpus.train.frame_counts[[0, 1, 5]]
    assert batch.source_lengths.tolist() == (-(-counts // 2)).tolist()
    assert batch.source.shape == (3, 2 * int(batch.source_lengths.max()), 80)
    for row, (index, count) in enumerate(zip([0, 1, 5], counts, strict=True)):
        assert torch.equal(batch.source[row, :count], torch.from_numpy(corpus.train.source(index)))
        assert not batch.source[row, count:].any()
    assert (batch.target[:, 0] == corpus.tokenizer.bos_id).all() and batch.tokens == int(batch.target_lengths.sum())


def test_padding_with_silence_is_nearly_what_silence_gives() -> None:
    samples = word("so")
    config = ModelConfig(features=80, full_window=True, source_max_length=100)
    padded = pad_with_silence(log_mel(samples), config)
    silent = log_mel(np.pad(samples, (0, 32_000 - len(samples))))
    assert padded.shape == silent.shape == (200, 80)
    edge = len(samples) // 160
    assert np.abs(np.delete(padded - silent, range(edge - 2, edge + 3), 0)).max() < 1e-4


def test_spec_augment_masks_bands_and_spans_only() -> None:
    frames = np.random.default_rng(0).normal(size=(40, 80)).astype(np.float32)
    augment = SpecAugment(freq_masks=2, freq_mask_width=10, time_masks=2, time_mask_share=0.2)
    share = []
    for seed in range(50):
        masked = augment.apply(frames, np.random.default_rng(seed))
        changed = masked != frames
        bins, times = changed.all(0), changed.all(1)
        assert (changed == (bins[None] | times[:, None])).all()
        assert bins.sum() <= 20 and times.sum() <= 16
        assert np.allclose(masked[changed], frames.mean())
        share.append(changed.mean())
    assert 0.1 < np.mean(share) < 0.5
    assert np.array_equal(
        augment.apply(frames, np.random.default_rng(1)), augment.apply(frames, np.random.default_rng(1))
    )
