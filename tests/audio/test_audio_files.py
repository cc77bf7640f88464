"""Decoding, resampling and mixing of audio files, and files that are broken or hostile."""

from __future__ import annotations

import io
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile

from heedful.audio.audio_files import AudioFile, TooLongError
from heedful.errors import DataError
from tests.audio.sounds import tone


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """The most bytes that NumPy and Python had allocated at once since the start."""
    tracemalloc.start()
    peaks: list[int] = []
    try:
        yield peaks.pop
        peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def peak_frequency(samples: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * 16_000 / len(samples))


@pytest.mark.parametrize("form", ["wav", "flac", "ogg", "mp3"])
def test_every_format_at_another_rate_in_stereo(tmp_path: Path, form: str) -> None:
    rate = 44_100
    left, right = tone(440, 1.0, rate), np.zeros(rate, np.float32)
    soundfile.write(tmp_path / f"a.{form}", np.stack([left, right], 1), rate)
    samples = AudioFile.of(tmp_path / f"a.{form}").samples()
    assert abs(len(samples) - 16_000) < 1300  # mp3 adds silence at both ends
    middle = samples[4000:12000]
    assert abs(peak_frequency(middle) - 440) < 5
    assert abs(np.abs(middle).max() - 0.25) < 0.02  # the mean of both channels


@pytest.mark.parametrize("rate", [8_000, 11_025, 48_000, 192_000])
def test_every_rate_becomes_16_khz(tmp_path: Path, rate: int) -> None:
    soundfile.write(tmp_path / "a.wav", tone(1000, 0.5, rate), rate)
    samples = AudioFile.of(tmp_path / "a.wav").samples()
    assert abs(len(samples) - 8000) <= 2
    assert abs(peak_frequency(samples) - 1000) < 5


def test_speed_shortens_a_recording_and_raises_its_pitch(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(1000, 1.0), 16_000)
    faster = AudioFile.of(tmp_path / "a.wav").samples(speed=1.25)
    assert abs(len(faster) - 12_800) <= 2
    assert abs(peak_frequency(faster) - 1250) < 5


def test_blocks_are_the_whole_recording(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).normal(0, 0.1, 16_000 * 25).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", samples, 16_000, subtype="FLOAT")
    blocks = list(AudioFile.of(tmp_path / "a.wav").blocks())
    assert len(blocks) > 2
    assert np.allclose(np.concatenate(blocks), samples, atol=1e-6)


def broken(name: str) -> bytes:
    file_bytes = io.BytesIO()
    soundfile.write(file_bytes, tone(440, 1.0), 16_000, format="WAV", subtype="PCM_16")
    content = file_bytes.getvalue()
    match name:
        case "text":
            return b"This is not audio at all.\n" * 40
        case "empty":
            return b""
        case "header alone":
            return content[:44]
        case "wrong header":
            return b"RIFF" + struct.pack("<I", 2**31) + content[8:20] + b"\xff" * 16 + content[36:]
        case _:
            raise AssertionError(name)


@pytest.mark.parametrize("name", ["text", "empty", "header alone", "wrong header"])
def test_broken_files_are_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / "broken.wav"
    path.write_bytes(broken(name))
    with pytest.raises(DataError, match=r"broken\.wav (cannot be decoded|is empty|says that it has|is truncated)"):
        AudioFile.of(path).samples()


@pytest.mark.parametrize("form", ["wav", "flac", "ogg", "mp3"])
def test_a_truncated_file_is_not_shortened_silently(tmp_path: Path, form: str) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 64_000)
    soundfile.write(tmp_path / f"a.{form}", noise, 16_000)
    content = (tmp_path / f"a.{form}").read_bytes()
    for share in (0.2, 0.4, 0.5, 0.6, 0.8, 0.95):
        (tmp_path / f"b.{form}").write_bytes(content[: int(share * len(content))])
        with pytest.raises(DataError, match=r"truncated|cannot be decoded"):
            AudioFile.of(tmp_path / f"b.{form}").samples()


def test_a_wav_file_that_was_written_as_a_stream(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(440, 0.5), 16_000)
    content = bytearray((tmp_path / "a.wav").read_bytes())
    content[4:8] = b"\xff" * 4
    (tmp_path / "a.wav").write_bytes(content)
    assert len(AudioFile.of(tmp_path / "a.wav").samples()) == 8000


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.wav does not exist"):
        AudioFile.of(tmp_path / "no.wav").samples()
    with pytest.raises(DataError, match="is a folder"):
        AudioFile.of(tmp_path).samples()


def test_samples_that_are_not_numbers(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.full(1000, np.nan, np.float32), 16_000, subtype="FLOAT")
    with pytest.raises(DataError, match="not numbers"):
        AudioFile.of(tmp_path / "a.wav").samples()


def test_integers_that_were_written_as_floats(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", 32_767 * tone(440, 0.5), 16_000, subtype="FLOAT")
    with pytest.raises(DataError, match="above 64; write floats between -1 and 1"):
        AudioFile.of(tmp_path / "a.wav").samples()


@pytest.mark.parametrize(("rate", "channels"), [(1, 1), (655_350, 8), (192_000, 9)])
def test_a_header_cannot_make_a_small_file_take_hours(tmp_path: Path, rate: int, channels: int) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros((1000, channels)), rate)
    with pytest.raises(DataError, match=rf"{rate:,} samples a second in {channels} channels; give 1,000 or more"):
        AudioFile.of(tmp_path / "a.wav").samples()


def test_eight_channels_at_192_khz_are_decoded_in_small_blocks(tmp_path: Path) -> None:
    with soundfile.SoundFile(tmp_path / "a.flac", "w", 192_000, 8) as file:
        for _ in range(5):
            file.write(np.full((192_000, 8), 3_000, np.int16))
    with peak_memory() as peak:
        samples = AudioFile.of(tmp_path / "a.flac").samples()
    assert peak() < 15e6  # all at once are 31e6
    assert abs(len(samples) - 80_000) <= 2
    assert abs(samples[40_000] - 3_000 / 32_768) < 1e-3


def test_ten_hours_of_silence_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "silence.flac"
    with soundfile.SoundFile(path, "w", 1_000, 1) as file:
        block = np.zeros(1_000 * 600, np.int16)
        for _ in range(60):
            file.write(block)
    assert path.stat().st_size < 2_000_000
    with pytest.raises(TooLongError, match=r"is 36,000 seconds long, and at most 60 are allowed"):
        AudioFile.of(path).samples(max_seconds=60)
    with peak_memory() as peak:
        seconds = sum(len(block) for _, block in zip(range(150), AudioFile.of(path).blocks(), strict=False)) / 16_000
    assert seconds > 1000
    assert peak() < 15e6  # all at once are 64e6


def test_an_open_file_has_a_name_for_messages() -> None:
    with pytest.raises(DataError, match=r"upload\.mp3 cannot be decoded"):
        AudioFile(io.BytesIO(b"nothing"), "upload.mp3").samples()
