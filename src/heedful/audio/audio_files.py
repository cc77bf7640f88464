"""Audio files -> samples: one channel at 16 kHz, in blocks, so that memory does not grow with a recording.

`soundfile` decodes wav, flac, ogg and mp3, `soxr` resamples. A file that cannot be decoded to its end is an error: a
recording is never shortened silently.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
import soxr

from heedful.audio.log_mel import SAMPLE_RATE, Samples
from heedful.errors import DataError, quote

BLOCK_SECONDS, BLOCK_SAMPLES = 10, 1 << 20  # that are decoded at once; samples of all channels
UNKNOWN_SIZE = 0x7FFFFFF0  # in headers of wav files that were written as a stream, or more
OGG_PAGE, OGG_HEADER, OGG_LAST = 1 << 16, 27, 4  # bytes of a page at most and of its header, flag of the last page
MAX_SAMPLES_PER_SECOND = 8 * 192_000  # of all channels: a small file can state so many that decoding takes hours
MIN_RATE = 1_000
MAX_PEAK = 64.0  # full scale is 1: samples above this are integers that were written as floats, or damaged
MISSING_SECONDS = 0.1  # the header of an mp3 file may count a frame more than there is
READABLE = "wav, flac, ogg and mp3"


class TooLongError(DataError):
    """A recording of more seconds than are allowed."""


@dataclass(frozen=True)
class AudioFile:
    """A recording: a path, or an open file with a name for messages."""

    source: Path | BinaryIO
    name: str

    @classmethod
    def of(cls, path: Path | str) -> AudioFile:
        return cls(Path(path), str(path))

    def blocks(self, speed: float = 1.0, max_seconds: float | None = None) -> Iterator[Samples]:
        """Blocks of samples at 16 kHz; `speed` above 1 shortens the recording and raises its pitch.

        A recording of more than `max_seconds` is an error as soon as that is known.
        """
        with self._open() as file:
            self._check(file, max_seconds)
            rate, read = int(file.samplerate), 0
            frames = min(BLOCK_SECONDS * rate, BLOCK_SAMPLES // file.channels)
            resampler = soxr.ResampleStream(rate * speed, SAMPLE_RATE, 1, dtype="float32")
            try:
                # not `file.blocks`, which repeats old samples where a truncated file has none
                while len(block := file.read(frames, dtype="float32", always_2d=True)):
                    read += len(block)
                    if max_seconds is not None and read > max_seconds * rate:
                        raise self._too_long(read / rate, max_seconds)
                    mono = block.mean(axis=1)
                    if not (np.abs(mono) <= MAX_PEAK).all():
                        raise DataError(
                            f"{self.name} holds samples that are not numbers or above {MAX_PEAK:g}; write floats"
                            " between -1 and 1."
                        )
                    yield resampler.resample_chunk(mono)
            except (soundfile.SoundFileError, RuntimeError) as error:
                raise self._damaged(error) from None
            if read < file.frames - MISSING_SECONDS * rate:
                raise DataError(
                    f"{self.name} ends after {read / rate:.1f} of its {file.frames / rate:.1f} seconds; it is"
                    " truncated: copy or record it again."
                )
            if read == 0:
                raise DataError(f"{self.name} holds no samples; record it again.")
            yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)

    def samples(self, speed: float = 1.0, max_seconds: float | None = None) -> Samples:
        """All samples at once."""
        return np.concatenate(list(self.blocks(speed, max_seconds)))

    def _open(self) -> soundfile.SoundFile:
        source = self.source
        if isinstance(source, Path):
            if source.is_dir():
                raise DataError(f"{self.name} is a folder; give an audio file ({READABLE}).")
            if not source.exists():
                raise DataError(f"{self.name} does not exist; check the path.")
            if not source.is_file():
                raise DataError(f"{self.name} is a pipe or device; write the recording to a file.")
        try:
            self._check_complete(source)
            return soundfile.SoundFile(source)
        except (soundfile.SoundFileError, RuntimeError, OSError, TypeError) as error:
            raise self._damaged(error) from None

    def _check_complete(self, source: Path | BinaryIO) -> None:
        """Refuse a wav or ogg file without its end; the decoder would read what is there."""
        with source.open("rb") if isinstance(source, Path) else nullcontext(source) as file:
            header = file.read(12)
            size = file.seek(0, io.SEEK_END)
            file.seek(max(0, size - OGG_PAGE))
            end = file.read()
            file.seek(0)
        if size == 0:
            raise DataError(f"{self.name} is empty; give a recording.")
        stated = int.from_bytes(header[4:8], "little")
        wav = header[:4] + header[8:] == b"RIFFWAVE" and 0 < stated < UNKNOWN_SIZE and stated + 8 > size
        if wav or (header.startswith(b"OggS") and not _ends_ogg(end[end.rfind(b"OggS") :])):
            raise DataError(f"{self.name} is truncated at {size:,} bytes; copy or record it again.")

    def _check(self, file: soundfile.SoundFile, max_seconds: float | None) -> None:
        if file.samplerate < MIN_RATE or file.samplerate * file.channels > MAX_SAMPLES_PER_SECOND:
            raise DataError(
                f"{self.name} says that it has {file.samplerate:,} samples a second in {file.channels} channels; give"
                f" {MIN_RATE:,} or more, and at most {MAX_SAMPLES_PER_SECOND:,} in all channels together."
            )
        if max_seconds is not None and file.frames < 1 << 62 and file.frames > max_seconds * file.samplerate:
            raise self._too_long(file.frames / file.samplerate, max_seconds)

    def _too_long(self, seconds: float, most: float) -> TooLongError:
        return TooLongError(f"{self.name} is {seconds:,.0f} seconds long, and at most {most:,.0f} are allowed; cut it.")

    def _damaged(self, error: Exception) -> DataError:
        reason = quote(getattr(error, "error_string", str(error)).strip(". "))
        return DataError(f"{self.name} cannot be decoded ({reason}); give a complete file: {READABLE} are read.")


def _ends_ogg(page: bytes) -> bool:
    """Whether this is the whole last page of an ogg file: it has that flag, and as many bytes as its segments."""
    segments = page[OGG_HEADER : OGG_HEADER + page[OGG_HEADER - 1]] if len(page) > OGG_HEADER else b""
    return bool(segments) and bool(page[5] & OGG_LAST) and len(page) >= OGG_HEADER + len(segments) + sum(segments)
