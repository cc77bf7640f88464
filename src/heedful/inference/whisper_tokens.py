"""The special tokens of Whisper's vocabularies: prompts, timestamps, and tokens that a transcript never has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heedful.errors import SettingError, quote
from heedful.text import Tokenizer

NO_TIMESTAMPS, TRANSCRIBE, FIRST_TIME = "<|notimestamps|>", "<|transcribe|>", "<|0.00|>"
TIME_STEP = 0.02  # seconds between two timestamp tokens
# Symbols that subtitles contain and speech does not: marks of music and of speakers, brackets, quotation marks.
SYMBOLS = [
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *[
        "<<",
        ">>",
        "<<<",
        ">>>",
        "--",
        "---",
        "-(",
        "-[",
        "('",
        '("',
        "((",
        "))",
        "(((",
        ")))",
        "[[",
        "]]",
        "{{",
        "}}",
        "♪♪",
        "♪♪♪",
    ],
]
MUSIC = [*"♩♪♫♬♭♮♯"]  # several tokens each, of which the first is suppressed
HYPHENS = [" -", " '"]  # allowed inside a word, not in front of it


@dataclass(frozen=True)
class WhisperTokens:
    """Ids of special tokens; every id from `first_time` on is a time, in steps of 20 ms."""

    eos: int
    no_timestamps: int
    first_time: int
    languages: dict[str, int]  # by code; empty in the vocabulary of an English model
    transcribe: int
    suppressed: tuple[int, ...]  # never written
    blank: tuple[int, ...]  # never the first token of a transcript

    @classmethod
    def of(cls, tokenizer: Tokenizer, vocab_size: int) -> WhisperTokens | None:
        """None for a vocabulary without Whisper's special tokens."""
        ids = [tokenizer.find(piece) for piece in (NO_TIMESTAMPS, TRANSCRIBE, FIRST_TIME)]
        none, transcribe, first_time = ids
        if none is None or transcribe is None or first_time is None:
            return None
        special = list(range(tokenizer.eos_id + 1, first_time))
        return cls(
            eos=tokenizer.eos_id,
            no_timestamps=none,
            first_time=first_time,
            languages=_languages(tokenizer, special) if is_multilingual(vocab_size) else {},
            transcribe=transcribe,
            suppressed=tuple(sorted({*special, *_non_speech(tokenizer)})),
            blank=(*tokenizer.encode(" "), tokenizer.eos_id),
        )

    def prompt(self, language: str | None, timestamps: bool) -> tuple[int, ...]:
        """The ids after the start of a transcript; `language` is a code such as de."""
        ids: list[int] = []
        if self.languages:
            if language not in self.languages:
                known = ", ".join(list(self.languages)[:8])
                raise SettingError(f"the language is {quote(language)}; this model knows {known} and others.")
            ids += [self.languages[language], self.transcribe]
        elif language not in (None, "en"):
            raise SettingError(f"the language is {quote(language)}, but this model knows English only; leave it out.")
        return (*ids, *(() if timestamps else (self.no_timestamps,)))

    def language(self, prompt: Sequence[int]) -> str:
        """The code of the language of a transcript that begins with this prompt."""
        return next((code for code, number in self.languages.items() if number in prompt), "en")

    def text_ids(self, ids: Iterable[int]) -> list[int]:
        """The ids without special tokens."""
        return [number for number in ids if number < self.eos]

    def seconds(self, number: int) -> float:
        """The time that a token stands for."""
        return round((number - self.first_time) * TIME_STEP, 2)


def is_multilingual(vocab_size: int) -> bool:
    """Whether a vocabulary of this size is one of the multilingual models."""
    return vocab_size >= 51_865


def _languages(tokenizer: Tokenizer, special: list[int]) -> dict[str, int]:
    names = zip(tokenizer.pieces(special), special, strict=True)
    codes = {name[2:-2]: number for name, number in names if name.startswith("<|") and name.endswith("|>")}
    return {code: number for code, number in codes.items() if len(code) in (2, 3)}


def _non_speech(tokenizer: Tokenizer) -> set[int]:
    """Tokens of symbols, alone or after a space; of music signs the first byte, which they share."""
    token_ids = {tokenizer.encode(hyphen)[0] for hyphen in HYPHENS}
    for symbol in [*SYMBOLS, *MUSIC]:
        for ids in (tokenizer.encode(symbol), tokenizer.encode(f" {symbol}")):
            if len(ids) == 1 or symbol in MUSIC:
                token_ids.add(ids[0])
    return token_ids
