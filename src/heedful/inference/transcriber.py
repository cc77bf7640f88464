"""Transcriber: recordings -> text with times, for validation, the command line, the server and the page.

A recording longer than the model's window is cut at silence; every window is searched by the same scheduler and beam
search as a translation. Memory is bounded: windows are decoded as others finish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import IOBase
from itertools import chain, islice
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from heedful.audio.audio_files import MAX_PEAK, AudioFile
from heedful.audio.log_mel import FRAMES_PER_SECOND, HOP, SAMPLE_RATE, FeatureFrames, log_mel
from heedful.audio.windows import AudioWindow, cut_windows
from heedful.errors import DataError, SettingError, quote
from heedful.inference.loaded_models import LoadedModels
from heedful.inference.native_choice import log_torch_notice
from heedful.inference.native_search import NativeSearchPool
from heedful.inference.scheduler import SearchBackend, search_in_order
from heedful.inference.timestamp_rules import SuppressTokens, TimestampRules
from heedful.inference.transcript_formats import SpeechSegment, join_texts
from heedful.inference.transcript_timer import TextPiece, TimeOptions, TranscriptTimer
from heedful.inference.whisper_tokens import WhisperTokens
from heedful.native.decoder_session import DecoderSession
from heedful.native.forced_decoder import EngineForcedDecoder
from heedful.search import Hypothesis, RowConstraint, SearchOptions, SearchRequest
from heedful.storage import folder as model_folder
from heedful.storage.folder import ModelFolder, wrong_family_error

AHEAD = 8  # windows that are read ahead
MAX_SEARCHES = 4  # at once in the native engine, which bounds the memory; they share the other threads
SERVED_LANES = 2  # batches of windows that PyTorch searches at once for a server

Recording = Path | str | AudioFile | NDArray[np.floating]  # a file, or samples at 16 kHz


@dataclass(frozen=True)
class WindowTranscript:
    """What was said in one window."""

    start: float
    end: float
    text: str = ""
    segments: tuple[SpeechSegment, ...] = ()
    ids: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Transcript:
    """What was said in a recording of `duration` seconds."""

    text: str
    segments: tuple[SpeechSegment, ...]
    duration: float

    @classmethod
    def of(cls, windows: Sequence[WindowTranscript]) -> Transcript:
        segments = tuple(segment for window in windows for segment in window.segments)
        return cls(join_texts(window.text for window in windows), segments, windows[-1].end if windows else 0.0)


class Transcriber(LoadedModels):
    """A speech recognizer, trained here or Whisper's, ready to transcribe."""

    def __init__(self, folder: ModelFolder, precision: str = "float32", device: str = "cpu") -> None:
        if not folder.config.features:
            raise wrong_family_error(folder, "does not transcribe")
        super().__init__([folder], precision, device)
        self.config = folder.config
        self.whisper = WhisperTokens.of(self.tokenizer, self.config.vocab_size)
        self.window_seconds = self.config.source_length * self.config.feature_stride / FRAMES_PER_SECOND
        self._constraints: dict[tuple[bool, int], tuple[Any, ...]] = {}

    @classmethod
    def load(cls, path: Path | str, precision: str = "auto", device: str = "cpu") -> Transcriber:
        """Open a model folder."""
        transcriber = cls(model_folder.load_folder(path), precision, device)
        log_torch_notice(transcriber.folders, device, precision)
        return transcriber

    @overload
    def transcribe(self, recordings: Recording, **options: Any) -> str: ...
    @overload
    def transcribe(self, recordings: Sequence[Recording], **options: Any) -> list[str]: ...
    def transcribe(self, recordings: Recording | Sequence[Recording], **options: Any) -> str | list[str]:
        """The text of a recording, or of each of several. Options are those of `transcripts`."""
        if isinstance(recordings, Path | str | AudioFile | np.ndarray):
            return self.transcripts([recordings], **options)[0].text
        return [transcript.text for transcript in self.transcripts(recordings, **options)]

    def transcripts(self, recordings: Sequence[Recording], **options: Any) -> list[Transcript]:
        """The segments of each recording, with times. Options are those of `stream`."""
        _check_several(recordings)
        return list(self.stream(recordings, **options))

    def stream(
        self,
        recordings: Iterable[Recording],
        *,
        unreadable: Callable[[int, DataError], None] | None = None,
        **options: Any,
    ) -> Iterator[Transcript]:
        """As `transcripts`, in order and in bounded memory; windows of all recordings are searched together.

        With `timestamps` a Whisper model writes times inside its windows, and those of other models are divided at
        pauses; otherwise a segment is a window. With `word_timestamps` segments have words with times. `language` is a
        code such as de for a multilingual Whisper model, which finds it out if it is not given. Other options are
        those of the search: beam, length_penalty, max_length.

        A recording that cannot be read ends the call; with `unreadable` that function is called with its number (from
        0) and the error, and its transcript has only what was read before.
        """
        ends: set[int] = set()  # number of windows up to the end of each recording that was read

        def windows() -> Iterator[AudioWindow]:
            count = 0
            for number, recording in enumerate(recordings):
                before = count
                try:
                    for window in self.windows(recording):
                        count += 1
                        yield window
                except DataError as error:
                    if unreadable is None:
                        raise
                    unreadable(number, error)
                    if count == before:  # every recording has a window
                        count += 1
                        yield AudioWindow(np.zeros(0, np.float32), 0.0)
                ends.add(count)

        transcripts: list[WindowTranscript] = []
        for number, transcript in enumerate(self.transcribe_windows(windows(), **options)):
            if transcripts and number in ends:  # only reading further showed that a recording had ended
                yield Transcript.of(transcripts)
                transcripts = []
            transcripts.append(transcript)
            if number + 1 in ends:
                yield Transcript.of(transcripts)
                transcripts = []
        if transcripts:
            yield Transcript.of(transcripts)

    def windows(self, recording: Recording, max_seconds: float | None = None) -> Iterator[AudioWindow]:
        """A recording as windows that the model can read."""
        if isinstance(recording, np.ndarray):
            if recording.ndim != 1 or recording.dtype.kind != "f":
                raise SettingError(
                    f"samples have shape {recording.shape} and type {recording.dtype}; give one channel at 16 kHz as"
                    " floats between -1 and 1."
                )
            if not (np.abs(recording) <= MAX_PEAK).all():
                raise SettingError(
                    f"samples are not numbers or above {MAX_PEAK:g}; give floats between -1 and 1 (16-bit integers"
                    " divided by 32768)."
                )
            return cut_windows([recording.astype(np.float32)], self.window_seconds)
        if not isinstance(recording, Path | str | AudioFile):
            raise _not_recordings(recording)
        file = recording if isinstance(recording, AudioFile) else AudioFile.of(recording)
        return cut_windows(file.blocks(max_seconds=max_seconds), self.window_seconds)

    def transcribe_windows(
        self,
        windows: Iterable[AudioWindow],
        *,
        timestamps: bool = False,
        word_timestamps: bool = False,
        language: str | None = None,
        **search: Any,
    ) -> Iterator[WindowTranscript]:
        """Each window as soon as it and all before it are finished; a silent one has no text."""
        options, times = self.options(search), self.time_options(timestamps, word_timestamps)
        waiting: deque[tuple[AudioWindow, SearchRequest]] = deque()

        def requests() -> Iterator[SearchRequest]:
            for window in windows:
                request = self.search_request(window, options, timestamps, language)
                waiting.append((window, request))
                yield request

        windows = iter(windows)
        first = list(islice(windows, 2))
        windows, few = chain(first, windows), len(first) < 2
        timer = self.timer(times, self.threads if few else self._threads_of_search())
        for hypotheses in search_in_order(self._backend(options, few), requests()):
            yield self.transcript(*waiting.popleft(), hypotheses, timer)

    def timer(self, times: TimeOptions, threads: int) -> TranscriptTimer | None:
        """What reads these times off the cross-attention with so many threads; None if no times are wanted."""
        if not times.wanted:
            return None
        engines = self.engines
        decoder = EngineForcedDecoder(engines[0], threads) if engines else self.forced_decoders[0]
        return TranscriptTimer(decoder, self.config, self.tokenizer, self.whisper, times)

    def _backend(self, options: SearchOptions, few: bool = False) -> SearchBackend:
        """What computes the searches of one call; all threads compute one search if there are `few`."""
        observer = self.observer or options.observer
        native = observer is None and all(isinstance(constraint, RowConstraint) for constraint in options.constraints)
        if native and (engines := self.engines):
            if few:
                return NativeSearchPool(engines[0], 1, self.threads, lookahead=AHEAD)
            searches = min(self.threads, MAX_SEARCHES)
            return NativeSearchPool(engines[0], searches, self._threads_of_search(), lookahead=AHEAD)
        return self.torch_lanes(lanes=1, observer=observer, lookahead=AHEAD)

    def _threads_of_search(self) -> int:
        """The threads of each of several searches in the engine."""
        return max(1, self.threads // MAX_SEARCHES)

    def shared_backend(self) -> SearchBackend:
        """What computes the searches of many clients: in the engine all threads compute one step for all of them."""
        if engines := self.engines:
            return NativeSearchPool(engines[0], 1, self.threads, lookahead=AHEAD)
        return self.torch_lanes(lanes=SERVED_LANES, lookahead=AHEAD)

    def transcribe_features(self, recordings: Iterable[FeatureFrames], **search: Any) -> Iterator[str]:
        """The text of each recording whose features are known."""
        options = self.options(search)
        prompt = self.prompt(None, False, None)
        constrained = self._constrained(options, False, len(prompt))
        requests = (SearchRequest(recording, constrained, prompt) for recording in recordings)
        for hypotheses in search_in_order(self._backend(options), requests):
            yield self.decode(hypotheses[0].ids)

    def options(self, changes: dict[str, Any]) -> SearchOptions:
        """The folder's search settings with the changes of a request."""
        return SearchOptions.of(self.search, **changes, limit=self.config.max_length - 1)

    def features(self, window: AudioWindow) -> FeatureFrames:
        """The frames of a window; those of a Whisper model always span its whole window."""
        samples = window.samples
        if self.config.full_window:
            samples = np.pad(samples, (0, max(0, int(self.window_seconds * SAMPLE_RATE) - len(samples))))
        elif len(samples) < HOP:
            samples = np.pad(samples, (0, HOP - len(samples)))
        frames = log_mel(samples, self.config.features)
        return FeatureFrames.of(
            frames[: self.config.source_length * self.config.feature_stride], self.config.feature_stride
        )

    def search_request(
        self, window: AudioWindow, options: SearchOptions, timestamps: bool = False, language: str | None = None
    ) -> SearchRequest:
        """The search of one window; that of a silent window has an empty source."""
        if window.silent:
            return SearchRequest([], options)
        features = self.features(window)
        prompt = self.prompt(language, timestamps, features)
        return SearchRequest(features, self._constrained(options, timestamps, len(prompt)), prompt)

    def prompt(self, language: str | None, timestamps: bool, features: FeatureFrames | None) -> tuple[int, ...]:
        """The ids that a transcript begins with; `features` show which language is spoken if none is given."""
        if self.whisper is None:
            if language is not None:
                raise SettingError(f"language is {language}, but this model has no choice of languages; leave it out.")
            return ()
        if language is None and self.whisper.languages and features is not None:
            language = self.detect_language(features)
        return self.whisper.prompt(language, timestamps)

    def detect_language(self, features: FeatureFrames) -> str:
        """The code of the most probable language of a multilingual Whisper model."""
        assert self.whisper is not None
        scores = self._first_step(features)
        return max(self.whisper.languages, key=lambda code: float(scores[self.whisper.languages[code]]))  # type: ignore[union-attr]

    def _first_step(self, features: FeatureFrames) -> Sequence[float]:
        """-> (V,): log-probabilities of the first token of a transcript."""
        if not (engines := self.engines):
            return self.torch.first_step(features).tolist()
        session = DecoderSession(engines[0], self.threads)
        scores: list[float] = session.step(session.add([features]), np.array([-1], np.int32), [self.config.bos_id])[0]
        return scores

    def decode(self, ids: Sequence[int]) -> str:
        """Ids as text, without special tokens."""
        return self.tokenizer.decode(self.text_ids(ids)).strip()

    def text_ids(self, ids: Sequence[int]) -> list[int]:
        """The ids without Whisper's special tokens."""
        return list(ids) if self.whisper is None else self.whisper.text_ids(ids)

    def _constrained(self, options: SearchOptions, timestamps: bool, prompt: int) -> SearchOptions:
        """The options with Whisper's constraints; the same objects for every window, so that they are batched."""
        if self.whisper is None:
            return options
        if (timestamps, prompt) not in self._constraints:
            rules: list[RowConstraint] = [SuppressTokens(self.whisper, prompt)]
            rules += [TimestampRules(self.whisper, prompt)] if timestamps else []
            self._constraints[timestamps, prompt] = tuple(rules)
        constraints = (*options.constraints, *self._constraints[timestamps, prompt])
        return options.model_copy(update={"constraints": constraints})

    def time_options(self, timestamps: bool, word_timestamps: bool) -> TimeOptions:
        """Whisper writes the times of its segments itself."""
        return TimeOptions(words=word_timestamps, divide=timestamps and self.whisper is None)

    def transcript(
        self,
        window: AudioWindow,
        request: SearchRequest,
        hypotheses: Sequence[Hypothesis],
        timer: TranscriptTimer | None = None,
    ) -> WindowTranscript:
        """The best hypothesis of a window, none if it is silent; without a `timer`, words have no times."""
        if not hypotheses:
            return WindowTranscript(window.start, window.end)
        best, seconds = hypotheses[0], window.end - window.start
        pieces = self._pieces(best.ids, seconds)
        if timer is not None:
            segments = timer.segments(request, best, pieces, seconds)
        else:
            segments = [
                SpeechSegment(piece.start, piece.end, self.decode(piece.ids), best.log_prob, ids=tuple(piece.ids))
                for piece in pieces
            ]
        in_recording = tuple(segment.later(window.start) for segment in segments if segment.text)
        return WindowTranscript(window.start, window.end, self.decode(best.ids), in_recording, best.ids)

    def _pieces(self, ids: Sequence[int], seconds: float) -> list[TextPiece]:
        """The text between two of Whisper's times, or all of it as one piece."""
        whisper = self.whisper
        if whisper is None:
            return [TextPiece(0.0, seconds, list(ids))]
        pieces: list[TextPiece] = []
        start, text = 0.0, list[int]()
        for number in ids:
            if number >= whisper.first_time:
                time = min(whisper.seconds(number), seconds)
                pieces.append(TextPiece(start, time, text))
                start, text = time, []
            else:
                text += whisper.text_ids([number])
        return [piece for piece in [*pieces, TextPiece(start, seconds, text)] if piece.ids]


def _check_several(recordings: object) -> None:
    if isinstance(recordings, np.ndarray):
        raise TypeError("recordings are an array of samples; give one or several arrays in a list.")
    if isinstance(recordings, str | bytes | IOBase) or not isinstance(recordings, Iterable):
        raise _not_recordings(recordings)


def _not_recordings(value: object) -> TypeError:
    return TypeError(
        f"{quote(value)} is of type {type(value).__name__}; give a recording as a path or an array of samples, or"
        " several in a list."
    )
