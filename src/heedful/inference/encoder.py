"""Encoder: texts -> embeddings, fill-mask candidates or labels, with a BERT.

Texts are encoded with special tokens and computed by the native engine, or by PyTorch where that does not know the
model.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from heedful.config import Family
from heedful.config.model_config import LabelKind
from heedful.data.labeled_corpus import frame_text_pair, truncate_text_pair
from heedful.data.token_labels import encode_passage, encode_words, windows
from heedful.errors import HeedfulError, SettingError
from heedful.inference.native_choice import LoadedModel
from heedful.inference.token_predictions import Answer, TaggedWord, best_answer, softmax, tag_words
from heedful.native.engine_encoder import EngineEncoder
from heedful.ops.threads import num_threads
from heedful.search.token_sampler import best_tokens
from heedful.storage.folder import ModelFolder, wrong_family_error
from heedful.text.normalization import check_texts

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.model.transformer import EncoderModel  # noqa: F401  the base class names it in quotes

CHUNK_TEXTS = 256  # whose hidden states are in memory at once
MASK = re.compile(r"\[MASK\]|<mask>")  # as it is written in a text, whatever the vocabulary calls it
CONTEXT_CHARACTER = "0"  # put before text that follows a mask without a space, so that it does not start a new word
POOLING = ("mean", "first")
EncodedPairs = Sequence[tuple[list[int], list[int]]]  # of each text, or pair of texts, without special tokens
Floats = NDArray[np.float32]

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


class EncoderBackend(Protocol):
    """What computes: hidden states of texts of any length, and the heads over rows of hidden states."""

    def hidden_states(self, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> Sequence[Floats]: ...

    def token_logits(self, hidden: Floats) -> Floats: ...

    def label_logits(self, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> Sequence[Floats]: ...


def check_finite(outputs: Iterable[Floats]) -> Iterator[Floats]:
    """The outputs of the model for each text; an error if one is not finite."""
    for output in outputs:
        if not np.isfinite(output).all():
            raise HeedfulError("the model's outputs are not finite numbers; its weights are damaged or overflow.")
        yield output


class Encoder(LoadedModel["EncoderModel"]):
    """A trained encoder-only model."""

    family: ClassVar[Family] = "encoder"
    lacks: ClassVar[str] = "is not an encoder"

    def __init__(self, folder: ModelFolder, precision: str = "float32", device: str = "cpu") -> None:
        super().__init__(folder, precision, device)
        self.notice: Callable[[str], None] = log.warning  # called with warnings about a text

    @property
    def _backend(self) -> EncoderBackend:
        if (engine := self.engine) is not None:
            return EngineEncoder(engine, num_threads())
        from heedful.inference.torch_encoder import TorchEncoder

        return TorchEncoder(self.module, self.precision)

    def tokenize(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> dict[str, Tensor]:
        """Texts, or pairs of them, as the arguments of a call: input_ids, attention_mask, token_type_ids, (B, S)."""
        from heedful.data.batch import collate_text_pairs

        ids, types = collate_text_pairs(self._rows(texts, seconds), self.tokenizer.specials, self.config.token_types)
        return {"input_ids": ids, "attention_mask": (ids != self.config.pad_id).long(), "token_type_ids": types}

    def __call__(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Encoding:
        """(B, S) three times -> (B, S, D), by PyTorch; without a mask, padding is found by its id."""
        from heedful.inference.torch_encoder import TorchEncoder

        return Encoding(*TorchEncoder(self.module, self.precision)(input_ids, attention_mask, token_type_ids))

    def embed(self, texts: Sequence[str], pooling: str = "mean", normalize: bool = True) -> Floats:
        """-> (N, D): a vector for each text, the mean of its tokens or its first one, of length 1 if `normalize`."""
        if pooling not in POOLING:
            raise SettingError(f"pooling is {pooling!r}; it must be mean or first.")
        rows = self._rows(texts)
        vectors = np.zeros((len(rows), self.config.d_model), np.float32)
        for place, states in enumerate(self._hidden_states(rows)):
            vectors[place] = states.mean(0) if pooling == "mean" else states[0]
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def similarity(self, texts: Sequence[str], seconds: Sequence[str], pooling: str = "mean") -> list[float]:
        """The cosine similarity of the two texts of each pair."""
        first, second = self.embed(texts, pooling), self.embed(seconds, pooling)
        return [float(cosine) for cosine in (first * second).sum(1)]

    def fill_mask(self, text: str, top: int = 5) -> list[list[MaskCandidate]]:
        """The most probable tokens for each [MASK] or <mask>; each is predicted with all others masked."""
        if self.config.head == "none":
            raise wrong_family_error(self.folder, "has no head for masked-language modeling")
        if top < 1:
            raise SettingError(f"top is {top}; ask for one candidate or more.")
        ids, places = self._encode_masks(text)
        backend = self._backend
        [hidden] = check_finite(backend.hidden_states([ids], [[0] * len(ids)]))
        [logits] = check_finite([backend.token_logits(hidden[places])])  # (M, V)
        special = {self.config.pad_id, self.tokenizer.bos_id, self.tokenizer.eos_id, *self.tokenizer.extras.values()}
        logits[:, sorted(special)] = -np.inf
        return [
            [
                self._candidate(text, *blank.span(), int(token), float(probabilities[token]))
                for token in best_tokens(probabilities, min(top, len(probabilities)))
            ]
            for blank, probabilities in zip(MASK.finditer(text), softmax(logits), strict=True)
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
        words = [tuple(sentence.split() if isinstance(sentence, str) else sentence) for sentence in sentences]
        encoded = [encode_words(sentence_words, self.tokenizer) for sentence_words in words]
        parts = [windows(ids, self.config.max_length - 2) for ids, _ in encoded]
        logits = iter(self._label_logits([(part.ids, []) for windowed in parts for part in windowed]))
        return [
            tag_words(sentence_words, first, windowed, [next(logits)[1:-1] for _ in windowed], self.config.labels)
            for sentence_words, (_, first), windowed in zip(words, encoded, parts, strict=True)
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
            instead = f"or train a model on labeled data with task {kind} and init {self.folder.path}"
            raise wrong_family_error(self.folder, f"was not trained for {kind}", instead)

    def _label_logits(self, rows: EncodedPairs) -> Iterator[Floats]:
        """-> for each row (C) logits of its text, or (T, C) of its tokens, special tokens included."""
        backend = self._backend
        for texts, types in self._chunks(rows):
            yield from check_finite(backend.label_logits(texts, types))

    def _hidden_states(self, rows: EncodedPairs) -> Iterator[Floats]:
        """(S, D) hidden states of each row, in order."""
        backend = self._backend
        for texts, types in self._chunks(rows):
            yield from check_finite(backend.hidden_states(texts, types))

    def _chunks(self, rows: EncodedPairs) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
        """Ids and token types of some rows at a time, with special tokens."""
        for start in range(0, len(rows), CHUNK_TEXTS):
            framed = [
                frame_text_pair(*pair, self.tokenizer.specials, self.config.token_types)
                for pair in rows[start : start + CHUNK_TEXTS]
            ]
            yield [ids for ids, _ in framed], [types for _, types in framed]

    def _rows(self, texts: Sequence[str], seconds: Sequence[str] | None = None, start: int = 1) -> EncodedPairs:
        check_texts(texts)
        if seconds is not None:
            check_texts(seconds)
        if seconds is not None and len(seconds) != len(texts):
            raise SettingError(f"{len(texts)} first texts and {len(seconds)} second texts were given; give pairs.")
        encoded = self.tokenizer.encode_batch(texts)
        others = [[] for _ in texts] if seconds is None else self.tokenizer.encode_batch(seconds)
        rows, truncated = [], []
        for number, (text, second) in enumerate(zip(encoded, others, strict=True), start):
            first, other, cut = truncate_text_pair(text, second, self.config.max_length)
            truncated += [number] * cut
            rows.append((first, other))
        if truncated:
            which = f"text {truncated[0]} is" if len(truncated) == 1 else f"{len(truncated):,} texts are"
            first_one = f"; the first is text {truncated[0]}" if len(truncated) > 1 else ""
            self.notice(
                f"{which} longer than the {self.config.max_length} tokens of this model, and truncated{first_one}."
            )
        return rows

    def _encode_masks(self, text: str) -> tuple[list[int], list[int]]:
        """The ids of a text with special tokens and masks, and the positions of the masks."""
        mask = self.tokenizer.mask_id
        if mask is None:
            raise SettingError(f"the vocabulary of {self.folder.path} has no mask token.")
        parts = MASK.split(text)
        if len(parts) == 1:
            raise SettingError(f"there is no mask in {text[:60]!r}; write [MASK] where a word is missing.")
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
