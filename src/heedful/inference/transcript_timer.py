"""Segments of a transcript with the times of its words, by one more pass of the transcript through its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heedful.audio.log_mel import FeatureFrames
from heedful.config import ModelConfig
from heedful.inference.forced_decoding import ForcedDecoder
from heedful.inference.transcript_formats import SpeechSegment, SpokenWord
from heedful.inference.whisper_tokens import WhisperTokens
from heedful.inference.word_times import Floats, SoundPath, TokenWord, segment_bounds, token_words, upper_heads
from heedful.search import Hypothesis, SearchRequest
from heedful.text import Tokenizer


@dataclass(frozen=True)
class TextPiece:
    """Ids of a transcript between two times, in seconds from the start of its window."""

    start: float
    end: float
    ids: list[int]


@dataclass(frozen=True)
class TimeOptions:
    """Which times are read off the cross-attention: those of words, and of segments divided at pauses."""

    words: bool = False
    divide: bool = False

    @property
    def wanted(self) -> bool:
        return self.words or self.divide


class TranscriptTimer:
    """Times the words of transcripts of one model, which `decoder` computes."""

    def __init__(
        self,
        decoder: ForcedDecoder,
        config: ModelConfig,
        tokenizer: Tokenizer,
        whisper: WhisperTokens | None,
        options: TimeOptions,
    ) -> None:
        self.decoder, self.config, self.tokenizer, self.whisper = decoder, config, tokenizer, whisper
        self.options = options

    def segments(
        self, request: SearchRequest, best: Hypothesis, pieces: Sequence[TextPiece], seconds: float
    ) -> list[SpeechSegment]:
        """The segments of a window, with the times of their words: its pieces, or what pauses divide."""
        words: list[TokenWord] = []
        ids: list[int] = []
        bounds: list[tuple[int, int]] = []  # first word of each segment and the one after its last
        for piece in pieces:
            of_piece = [word.shifted(len(ids)) for word in token_words(*self.tokenizer.decode_spans(piece.ids))]
            bounds.append((len(words), len(words) + len(of_piece)))
            words += of_piece
            ids += piece.ids
        if not words:
            return []
        spoken = self._spoken(request, best, words, ids, seconds)
        segments = []
        for first, last in segment_bounds(spoken) if self.options.divide else bounds:
            if last > first:
                text = "".join(word.text for word in words[first:last]).strip()
                tokens = tuple(ids[words[first].tokens[0] : words[last - 1].tokens[-1] + 1])
                timed = tuple(spoken[first:last]) if self.options.words else ()
                start, end = spoken[first].start, spoken[last - 1].end
                segments.append(SpeechSegment(start, end, text, best.log_prob, timed, tokens))
        return segments

    def attention(self, request: SearchRequest, ids: Sequence[int]) -> Floats:
        """-> (H, T + 1, S): attention of the tokens of a transcript, and of its end, in heads that follow the sound."""
        prompt = () if self.whisper is None else self.whisper.prompt(self.whisper.language(request.prefix), False)
        target = [self.config.bos_id, *prompt, *ids, self.config.eos_id]
        (weights,) = self.decoder.attention([(request.source, target)], upper_heads(self.decoder.heads))
        return weights[:, len(prompt) :]

    def _spoken(
        self, request: SearchRequest, best: Hypothesis, words: Sequence[TokenWord], ids: Sequence[int], seconds: float
    ) -> list[SpokenWord]:
        """The words with their times and probabilities."""
        assert isinstance(request.source, FeatureFrames)
        path = SoundPath(self.attention(request, ids), len(ids), request.source, seconds)
        is_text = [self.whisper is None or bool(self.whisper.text_ids([number])) for number in best.ids]
        log_probs = [p for p, text in zip(best.token_log_probs, is_text, strict=False) if text]
        spoken = []
        for word in words:
            start, end = path.times(word.tokens)
            probability = float(np.exp(np.mean([log_probs[token] for token in word.tokens])))
            spoken.append(SpokenWord(word.text.strip(), start, end, probability))
        return spoken
