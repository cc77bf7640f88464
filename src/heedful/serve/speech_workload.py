"""The tasks of a speech recognizer: a recording becomes windows, whose searches share one scheduler."""

from __future__ import annotations

import io
import zlib
from collections.abc import Generator
from typing import Any

from heedful.audio.audio_files import AudioFile
from heedful.audio.log_mel import FRAMES_PER_SECOND
from heedful.inference.transcriber import Transcriber, Transcript, WindowTranscript
from heedful.inference.transcript_formats import SpeechSegment, as_object, join_texts
from heedful.ops.threads import compute_with_one_thread
from heedful.search import Hypothesis
from heedful.serve.messages import Counts
from heedful.serve.workload import Job, Workload


class SpeechJob(Job):
    """The windows of one recording. A finished one is sent at once; the result is text, seconds, segments, and the
    language of the first window with speech, if the model tells. Times of words are side work of `side_transcriber`.
    """

    def __init__(
        self,
        transcriber: Transcriber,
        side_transcriber: Transcriber,
        file: AudioFile,
        max_seconds: float,
        **options: Any,
    ) -> None:
        timestamps, language = options.pop("timestamps", False), options.pop("language", None)
        self.times = transcriber.time_options(timestamps, options.pop("word_timestamps", False))
        search = transcriber.options(options)
        self.transcriber, self.side_transcriber = transcriber, side_transcriber
        self.windows = list(transcriber.windows(file, max_seconds))
        self.speaking = [place for place, window in enumerate(self.windows) if not window.silent]  # those to search
        self.requests = [
            transcriber.search_request(self.windows[place], search, timestamps, language) for place in self.speaking
        ]
        self.tokens_in = sum(len(request.source) for request in self.requests)
        self.hypotheses: dict[int, list[Hypothesis]] = {}
        self.finished: dict[int, WindowTranscript] = {
            place: WindowTranscript(window.start, window.end)
            for place, window in enumerate(self.windows)
            if window.silent
        }
        self.sent = 0

    def take(self, place: int, result: list[Hypothesis], counts: Counts) -> str | None:
        number = self.speaking[place]
        transcript = self.transcriber.transcript(self.windows[number], self.requests[place], result)
        self.finished[number], self.hypotheses[place] = transcript, result
        counts.tokens_out += len(transcript.ids)
        texts = []
        while self.sent in self.finished:  # windows are sent in order
            texts.append(self.finished[self.sent].text)
            self.sent += 1
        return join_texts(texts) or None

    def result(self) -> dict[str, Any] | Generator[None, None, dict[str, Any]]:
        return self._time() if self.times.wanted else self._object()

    def _time(self) -> Generator[None, None, dict[str, Any]]:
        """Read the times of one window after the other, then the result."""
        if not self.side_transcriber.engines:
            compute_with_one_thread()
        timer = self.side_transcriber.timer(self.times, max(1, self.side_transcriber.threads // 2))
        for place, number in enumerate(self.speaking):
            window, request = self.windows[number], self.requests[place]
            self.finished[number] = self.side_transcriber.transcript(window, request, self.hypotheses[place], timer)
            yield
        return self._object()

    def _object(self) -> dict[str, Any]:
        windows = [self.finished[place] for place in range(len(self.windows))]
        value = as_object(Transcript.of(windows)) | {"language": self._language()}
        found = [(window, segment) for window in windows for segment in window.segments]
        for of_segment, (window, segment) in zip(value["segments"], found, strict=True):
            of_segment.update(_search_figures(window, segment))
        return value

    def _language(self) -> str | None:
        whisper = self.transcriber.whisper
        if whisper is None or (whisper.languages and not self.requests):
            return None
        return whisper.language(self.requests[0].prefix if self.requests else ())


def _search_figures(window: WindowTranscript, segment: SpeechSegment) -> dict[str, Any]:
    """What OpenAI's API tells of the search that found a segment."""
    text = segment.text.encode()
    return {
        "seek": round(window.start * FRAMES_PER_SECOND),
        "tokens": list(segment.ids),
        "avg_logprob": segment.log_prob / (len(window.ids) + 1),
        "compression_ratio": len(text) / len(zlib.compress(text)),
    }


class SpeechWorkload(Workload):
    """A speech recognizer, and the same one for side work."""

    def __init__(self, transcriber: Transcriber, side_transcriber: Transcriber) -> None:
        super().__init__(transcriber.shared_backend())
        self.transcriber, self.side_transcriber = transcriber, side_transcriber

    def job(self, payload: dict[str, Any]) -> SpeechJob:
        audio, name = payload.pop("audio"), payload.pop("name")
        file = AudioFile(io.BytesIO(audio), name)
        return SpeechJob(self.transcriber, self.side_transcriber, file, **payload)
