"""Readable forms of token ids: subwords, words and special tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from heedful.config import ModelConfig
from heedful.model.sentences import sentence_numbers
from heedful.text import Tokenizer

BYTE = re.compile(r"<0x[0-9A-F]{2}>")
INSIDE = "##"  # WordPiece marks what goes on; SentencePiece (▁), vocabularies of bytes (Ġ) and ours mark what begins
BROKEN = "\N{REPLACEMENT CHARACTER}"
BLANKS = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})  # a piece of nothing but these would not be seen


@dataclass(frozen=True)
class TokenSide:
    """One sequence of tokens: its subwords and the words that they belong to."""

    ids: list[int]
    pieces: list[str]  # as text, without marks of word starts
    special: list[bool]  # whether a token frames the text instead of being part of it
    word_of: list[int]  # the word of each piece; a special token is a word of its own
    words: list[str]

    def as_json(self) -> dict[str, object]:
        return {
            "ids": self.ids,
            "pieces": self.pieces,
            "special": [int(flag) for flag in self.special],
            "wordOf": self.word_of,
            "words": self.words,
        }


class TokenReader:
    """Formats the ids of one vocabulary, whatever its word-boundary marker."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.framing = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.mask_id}
        some = tokenizer.pieces(range(0, tokenizer.vocab_size, 7))
        self.marks_inside = any(piece.startswith(INSIDE) for piece in some)

    def side(self, ids: Sequence[int]) -> TokenSide:
        """Ids, including special ones, as subwords and words."""
        shown = [self._show(token) for token in ids]
        special = [token in self.framing for token in ids]
        word_of: list[int] = []
        for index, (_, starts) in enumerate(shown):
            new = starts or index == 0 or special[index - 1]
            word_of.append(word_of[-1] + new if word_of else 0)
        members: list[list[int]] = [[] for _ in range(word_of[-1] + 1 if word_of else 0)]
        for index, word in enumerate(word_of):
            members[word].append(index)
        pieces = [text for text, _ in shown]
        words = [self._word([ids[index] for index in group], pieces[group[0]]) for group in members]
        return TokenSide(list(ids), pieces, special, word_of, words)

    def sentences(self, ids: Sequence[int], config: ModelConfig) -> TokenSide:
        """The sentences of a text as an encoder with `sentence_input` reads them, the last first, each as one piece."""
        tokens = torch.tensor([ids])
        numbers = sentence_numbers(tokens, tokens != config.pad_id, config)[0]
        members = [tokens[0, numbers == number].tolist() for number in range(int(numbers.max()), 0, -1)]
        pieces = [self.tokenizer.decode(sentence) for sentence in members]
        count = range(len(pieces))
        return TokenSide([sentence[0] for sentence in members], pieces, [False for _ in count], list(count), pieces)

    def label(self, token: int) -> str:
        """One id in a list of candidates; a dot precedes a subword that continues a word."""
        text, starts = self._show(token)
        return text if starts else f"·{text}"

    def _show(self, token: int) -> tuple[str, bool]:
        """The text of a token, and whether it starts a word."""
        raw = self.tokenizer.pieces([token])[0]
        if token in self.framing:
            return raw, True
        if raw and not raw.strip():  # a vocabulary of characters has the space by itself, in front of a word
            return raw.translate(BLANKS), True
        if BYTE.fullmatch(raw) or raw.startswith(INSIDE):
            return raw.removeprefix(INSIDE), False
        if raw.startswith("▁"):
            return raw[1:] or "␣", True
        text = self.tokenizer.decode([token])
        whole = bool(text) and BROKEN not in text  # a vocabulary of bytes may cut a character in two
        if raw.startswith("Ġ"):
            return (text.strip() or "␣") if whole else raw[1:], True
        return text if whole else raw, self.marks_inside

    def _word(self, ids: list[int], first: str) -> str:
        if len(ids) == 1:
            return first
        return self.tokenizer.decode(ids).strip() or first
