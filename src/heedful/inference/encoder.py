"""Encoder: texts -> embeddings, fill-mask candidates or labels, with a BERT.

Texts are encoded with special tokens, sorted by length, computed in batches and returned in their order.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.config.schema import LabelKind
from heedful.data.batch import collate_text_pairs
from heedful.data.labeled_corpus import encode_text_pair
from heedful.data.token_labels import encode_passage, encode_words, windows
from heedful.errors import SettingError
from heedful.inference.token_predictions import Answer, TaggedWord, best_answer, softmax, tag_words
from heedful.model.transformer import EncoderModel
from heedful.ops.precision import autocast
from heedful.storage import folder as model_folder
from heedful.storage.folder import ModelFolder, wrong_family_error

BATCH_TOKENS = 4096  # computed at once, padding included
BLANK = re.compile(r"\[MASK\]|<mask>")
CONTEXT_CHARACTER = "0"  # put before text that follows a blank without a space, so that it does not start a new word
POOLING = ("mean", "first")
EncodedPairs = Sequence[tuple[list[int], list[int]]]

log = logging.getLogger("heedful")


@dataclass(frozen=True)
class Encoding:
    """The output of an encoder: (B, S, D) hidden states, and (B, D) pooled states if the model has a pooler."""

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None


@dataclass(frozen=True)
class MaskCandidate:
    """A token that may fill a blank."""

    token: str
    probability: float
    text: str  # the whole text with it in place


@dataclass(frozen=True)
class Label:
    """The most probable label of a text, and the probabilities of all."""

    label: str
    probability: float
    probabilities: dict[str, float]


class Encoder:
    """A trained encoder-only model."""

    def __init__(self, folder: ModelFolder, precision: str = "float32", device: str = "cpu") -> None:
        if folder.config.family != "encoder":
            raise wrong_family_error(folder, "is not an encoder")
        assert isinstance(folder.model, EncoderModel)
        self.device, self.precision = torch.device(device), precision
        self.model = folder.model.to(self.device).eval()
        self.tokenizer, self.config = folder.tokenizer, folder.model.config
        self.folder, self.path = folder, folder.path
        self.notice: Callable[[str], None] = log.warning  # called with warnings about a text

    @classmethod
    def load(cls, path: Path | str, precision: str = "float32", device: str = "cpu") -> Encoder:
        return cls(model_folder.load_folder(path), precision, device)

    def tokenize(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> dict[str, Tensor]:
        """Texts, or pairs of them, as the arguments of a call: input_ids, attention_mask, token_type_ids, (B, S)."""
        ids, types = self._collate(self._rows(texts, seconds))
        return {"input_ids": ids, "attention_mask": (ids != self.config.pad_id).long(), "token_type_ids": types}

    @torch.inference_mode()
    def __call__(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Encoding:
        """(B, S) three times -> (B, S, D); without a mask, padding is found by its id."""
        keep = None if attention_mask is None else attention_mask.bool()[:, None, None, :].to(self.device)
        types = None if token_type_ids is None else token_type_ids.to(self.device)
        with autocast(self.precision, self.device):
            hidden: Tensor = self.model(input_ids.to(self.device), keep, types)
            pooled = self.model.pool(hidden) if self.model.pooler is not None else None
        return Encoding(hidden.float(), None if pooled is None else pooled.float())

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], pooling: str = "mean", normalize: bool = True) -> NDArray[np.float32]:
        """-> (N, D): a vector for each text, the mean of its tokens or its first one, of length 1 if `normalize`."""
        if pooling not in POOLING:
            raise SettingError(f"pooling is {pooling!r}; it must be mean or first.")
        vectors = torch.zeros(len(texts), self.config.d_model)
        for chosen, ids, types in self._batches(self._rows(texts)):
            hidden = self(ids, token_type_ids=types).last_hidden_state
            real = (ids != self.config.pad_id).float().unsqueeze(2).to(self.device)  # (B, S, 1)
            pooled = (hidden * real).sum(1) / real.sum(1) if pooling == "mean" else hidden[:, 0]
            vectors[chosen] = pooled.cpu()
        if normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=1)
        return np.asarray(vectors.numpy(), np.float32)

    @torch.inference_mode()
    def fill_mask(self, text: str, top: int = 5) -> list[list[MaskCandidate]]:
        """The most probable tokens for each [MASK] or <mask>; each is predicted with all others masked."""
        if self.config.head == "none":
            raise wrong_family_error(self.folder, "has no head for masked-language modeling")
        if top < 1:
            raise SettingError(f"top is {top}; ask for one candidate or more.")
        ids, places = self._encode_masks(text)
        with autocast(self.precision, self.device):
            hidden = self.model(torch.tensor([ids], device=self.device))[0, places]  # (M, D)
            logits = self.model.project(hidden).float().cpu()
        special = {self.config.pad_id, self.tokenizer.bos_id, self.tokenizer.eos_id, *self.tokenizer.extras.values()}
        logits[:, sorted(special)] = -torch.inf
        probabilities, best = logits.softmax(1).topk(min(top, logits.size(1)))
        blanks = list(BLANK.finditer(text))
        return [
            [self._candidate(text, *blank.span(), token, p) for p, token in zip(ps, tokens, strict=True)]
            for blank, ps, tokens in zip(blanks, probabilities.tolist(), best.tolist(), strict=True)
        ]

    def classify(self, texts: Sequence[str], seconds: Sequence[str] | None = None, first: int = 1) -> list[Label]:
        """The label of each text, or pair of texts; messages count them from `first`."""
        self._require("classification")
        labels: list[Label] = []
        for logits in self._label_logits(self._rows(texts, seconds, first)):
            row = softmax(logits).tolist()
            best = max(range(len(row)), key=row.__getitem__)
            labels.append(Label(self.config.labels[best], row[best], dict(zip(self.config.labels, row, strict=True))))
        return labels

    def score(self, texts: Sequence[str], seconds: Sequence[str] | None = None, first: int = 1) -> list[float]:
        """The number that a regression model predicts for each text, or pair of texts."""
        self._require("regression")
        return [float(logits[0]) for logits in self._label_logits(self._rows(texts, seconds, first))]

    def tag(self, sentences: Sequence[str | Sequence[str]]) -> list[list[TaggedWord]]:
        """The tag of each word; a sentence is a text, divided at white space, or a sequence of words."""
        self._require("tagging")
        words = [tuple(each.split() if isinstance(each, str) else each) for each in sentences]
        encoded = [encode_words(each, self.tokenizer) for each in words]
        parts = [windows(ids, self.config.max_length - 2) for ids, _ in encoded]
        logits = iter(self._label_logits([(part.ids, []) for windowed in parts for part in windowed]))
        return [
            tag_words(each, first, windowed, [next(logits)[1:-1] for _ in windowed], self.config.labels)
            for each, (_, first), windowed in zip(words, encoded, parts, strict=True)
        ]

    def answer(self, question: str, context: str, allow_empty: bool = True) -> Answer:
        """The span of the context that answers the question; empty if none does, unless that is not allowed."""
        return self.answer_batch([(question, context)], allow_empty)[0]

    def answer_batch(self, questions: Sequence[tuple[str, str]], allow_empty: bool = True) -> list[Answer]:
        """The answers to questions, each with its context."""
        self._require("question-answering")
        passages = [
            encode_passage(question, context, self.tokenizer, self.config.max_length) for question, context in questions
        ]
        rows = [(passage.question, part.ids) for passage in passages for part in passage.parts]
        logits = iter(self._label_logits(rows))
        return [
            best_answer(context, passage, [next(logits) for _ in passage.parts], allow_empty)
            for (_, context), passage in zip(questions, passages, strict=True)
        ]

    def _require(self, kind: LabelKind) -> None:
        if not self.config.labels or self.config.label_kind != kind:
            why = f"was not trained for {kind}; train such a model (task {kind}) on labeled data with it as init"
            raise wrong_family_error(self.folder, why)

    @torch.inference_mode()
    def _label_logits(self, rows: EncodedPairs) -> list[NDArray[np.float32]]:
        """-> for each row (C) logits of its text, or (T, C) of its tokens, special tokens included."""
        results: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(rows)
        for chosen, ids, types in self._batches(rows):
            real = (ids != self.config.pad_id).to(self.device)
            with autocast(self.precision, self.device):
                hidden = self.model(ids.to(self.device), types=types.to(self.device))
                logits = self.model.classify(hidden, real).float().cpu()
            for index, row, length in zip(chosen, logits, real.sum(1).tolist(), strict=True):
                results[index] = np.asarray(row[:length] if row.dim() == 2 else row)
        return results

    def _rows(self, texts: Sequence[str], seconds: Sequence[str] | None = None, start: int = 1) -> EncodedPairs:
        if seconds is not None and len(seconds) != len(texts):
            raise SettingError(f"{len(texts)} first texts and {len(seconds)} second texts were given; give pairs.")
        rows = []
        for number, (text, second) in enumerate(zip(texts, seconds or [""] * len(texts), strict=True), start):
            first, other, cut = encode_text_pair(self.tokenizer, text, second, self.config.max_length)
            if cut:
                self.notice(
                    f"text {number} is longer than the {self.config.max_length} tokens of this model, and is truncated."
                )
            rows.append((first, other))
        return rows

    def _batches(self, rows: EncodedPairs) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Indices, tokens and types of every batch, the longest texts first."""
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i][0]) - len(rows[i][1]))
        while order:
            longest = sum(map(len, rows[order[0]])) + 3
            size = max(1, BATCH_TOKENS // longest)
            chosen, order = order[:size], order[size:]
            yield chosen, *self._collate([rows[index] for index in chosen])

    def _collate(self, rows: EncodedPairs) -> tuple[Tensor, Tensor]:
        return collate_text_pairs(rows, self.tokenizer.specials, self.config.token_types)

    def _encode_masks(self, text: str) -> tuple[list[int], list[int]]:
        """The ids of a text with special tokens and masks, and the positions of the masks."""
        mask = self.tokenizer.mask_id
        if mask is None:
            raise SettingError(f"the vocabulary of {self.path} has no mask token.")
        parts = BLANK.split(text)
        if len(parts) == 1:
            raise SettingError(f"there is no blank in {text[:60]!r}; write [MASK] where a word is missing.")
        ids, places = [self.tokenizer.bos_id], []
        for number, part in enumerate(parts):
            if number:
                places.append(len(ids))
                ids.append(mask)
            ids += self._encode_after_mask(part) if number else self.tokenizer.encode(part)
        ids.append(self.tokenizer.eos_id)
        if len(ids) > self.config.max_length:
            raise SettingError(
                f"the text has {len(ids)} tokens, and this model takes {self.config.max_length} at most."
            )
        return ids, places

    def _encode_after_mask(self, part: str) -> list[int]:
        """Ids of the text after a mask; without a space between them it does not start a new word."""
        if not part or part[0].isspace():
            return self.tokenizer.encode(part)
        carrier, both = self.tokenizer.encode(CONTEXT_CHARACTER), self.tokenizer.encode(CONTEXT_CHARACTER + part)
        return both[len(carrier) :] if both[: len(carrier)] == carrier else self.tokenizer.encode(part)

    def _candidate(self, text: str, start: int, end: int, token: int, probability: float) -> MaskCandidate:
        word = self.tokenizer.decode_text([token]) or self.tokenizer.pieces([token])[0]
        word = word.removeprefix("##")
        return MaskCandidate(word, probability, text[:start] + word + text[end:])
