"""The tasks of a speech recognizer: a recording becomes windows, whose searches share one scheduler."""

from __future__ import annotations

import io
from typing import Any

from heedful.audio.audio_files import AudioFile
from heedful.inference.transcriber import Transcriber, Transcript, WindowTranscript
from heedful.inference.transcript_formats import as_object, join_texts
from heedful.search import Hypothesis
from heedful.serve.messages import Counts
from heedful.serve.workload import Job, Workload


class SpeechJob(Job):
    """The windows of one recording. A finished one is sent at once; the result is text, seconds, segments, and the
    language of the first window with speech, if the model tells.
    """

    def __init__(self, transcriber: Transcriber, file: AudioFile, max_seconds: float, **options: Any) -> None:
        timestamps, language = options.pop("timestamps", False), options.pop("language", None)
        self.times = transcriber.times(timestamps, options.pop("word_timestamps", False))
        search = transcriber.options(options)
        self.transcriber = transcriber
        self.windows = list(transcriber.windows(file, max_seconds))
        self.speaking = [place for place, window in enumerate(self.windows) if not window.silent]  # those to search
        self.requests = [
            transcriber.search_request(self.windows[place], search, timestamps, language) for place in self.speaking
        ]
        self.tokens_in = sum(len(request.source) for request in self.requests)
        self.finished: dict[int, WindowTranscript] = {
            place: WindowTranscript(window.start, window.end, ())
            for place, window in enumerate(self.windows)
            if window.silent
        }
        self.sent = 0

    def take(self, place: int, result: list[Hypothesis], counts: Counts) -> str | None:
        number = self.speaking[place]
        transcript = self.transcriber.transcript(self.windows[number], self.requests[place], result, self.times)
        self.finished[number] = transcript
        counts.tokens_out += len(transcript.ids)
        texts = []
        while self.sent in self.finished:  # windows are sent in order
            texts.append(self.finished[self.sent].text)
            self.sent += 1
        return join_texts(texts) or None

    def result(self) -> dict[str, Any]:
        transcript = Transcript.of([self.finished[place] for place in range(len(self.windows))])
        return as_object(transcript) | {"language": self._language()}

    def _language(self) -> str | None:
        whisper = self.transcriber.whisper
        if whisper is None or (whisper.languages and not self.requests):
            return None
        return whisper.language(self.requests[0].prefix if self.requests else ())


class SpeechWorkload(Workload):
    """A speech recognizer."""

    def __init__(self, transcriber: Transcriber) -> None:
        super().__init__(transcriber.shared_backend())
        self.transcriber = transcriber

    def job(self, payload: dict[str, Any]) -> SpeechJob:
        audio, name = payload.pop("audio"), payload.pop("name")
        return SpeechJob(self.transcriber, AudioFile(io.BytesIO(audio), name), **payload)
