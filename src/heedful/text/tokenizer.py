"""Text <-> ids, with a vocabulary in the JSON format of the `tokenizers` library.

The boundary between text and everything that works on ids. Does not know how a vocabulary is trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import tokenizers
from tokenizers import normalizers

from heedful.errors import FolderError, quote
from heedful.files import read_text
from heedful.text.normalization import replace_surrogates
from heedful.text.steps import USUAL_GROWTH, check_steps
from heedful.text.words import Span

# Names of special tokens: those of heedful's vocabularies first, then those of BERT, GPT-2 and Marian.
NAMES: dict[str, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]", "<|endoftext|>"),
    "unk": ("<unk>", "[UNK]", "<|endoftext|>"),
    "bos": ("<s>", "[CLS]", "<|endoftext|>", "<pad>"),  # Marian models start decoding from <pad>
    "eos": ("</s>", "[SEP]", "<|endoftext|>"),
    "mask": ("<mask>", "[MASK]"),
}
OPTIONAL = {"mask", "unk"}  # a byte-level vocabulary needs no unknown token
MOST_BYTES = 64 << 20  # maximum size of a vocabulary file
SENTENCEPIECE = '{"sentencepiece":'  # prefix of the JSON of a SentencePiece vocabulary
SHORT = 1000  # normalized texts up to this many characters are not limited
LINE_ENDS = str.maketrans("\n\r", "  ")


@dataclass(frozen=True)
class Specials:
    """The ids of padding, start and end tokens."""

    pad: int
    bos: int
    eos: int


class Tokenizer:
    """Turns text into subword ids and back.

    User text never becomes a special token: a literal `</s>` is encoded as four characters. With a vocabulary trained
    by heedful, `decode(encode(x)) == normalize(x)` for every text x. A damaged vocabulary may load and fail on some
    texts: then every method raises a FolderError, whatever the library raises.
    """

    where = "the vocabulary"  # for messages
    start: tuple[int, ...] = ()  # ids at the beginning of every text
    _steps: Sequence[normalizers.Normalizer] = ()  # of a normalizer whose results are measured

    def __init__(self, inner: tokenizers.Tokenizer, ids: Mapping[str, int] | None = None) -> None:
        """`ids` override which tokens are special (pad, unk, bos, eos, mask)."""
        inner.encode_special_tokens = True  # encode a literal "<s>" as text; not stored in the JSON
        inner.no_padding()
        inner.no_truncation()
        self._inner = inner
        self._assign_specials(inner.get_vocab(with_added_tokens=True), ids)

    def _assign_specials(self, vocabulary: Mapping[str, int], ids: Mapping[str, int] | None) -> None:
        """Find the special tokens in the vocabulary."""
        self._size = max(vocabulary.values(), default=-1) + 1
        known = {part: [name for name in names if name in vocabulary] for part, names in NAMES.items()}
        self._ids = {part: vocabulary[names[0]] if names else None for part, names in known.items()} | dict(ids or {})

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return self._size

    @property
    def pad_id(self) -> int:
        return self._id("pad")

    @property
    def unk_id(self) -> int:
        return self._id("unk")

    @property
    def bos_id(self) -> int:
        return self._id("bos")

    @property
    def eos_id(self) -> int:
        return self._id("eos")

    @property
    def mask_id(self) -> int | None:
        """The id of the mask token, if the vocabulary has one."""
        return self._ids["mask"]

    @property
    def extras(self) -> dict[str, int]:
        """The ids of unk and mask, if the vocabulary has them."""
        return {part: number for part in sorted(OPTIONAL) if (number := self._ids[part]) is not None}

    @property
    def specials(self) -> Specials:
        return Specials(pad=self.pad_id, bos=self.bos_id, eos=self.eos_id)

    def normalize(self, text: str) -> str:
        """The normalized text, which is also what decoding returns."""
        with explain_errors(self.where):
            return self._apply_normalizer(self._bounded(replace_surrogates(text)))

    def encode(self, text: str) -> list[int]:
        """Ids without special tokens."""
        with explain_errors(self.where):
            ids = self._inner.encode(self._bounded(replace_surrogates(text)), add_special_tokens=False).ids
            return [*self.start, *ids]

    def code(self, text: str) -> list[int]:
        """The ids of the language code at the start of a text, in multilingual vocabularies; BART's start token."""
        return list(self.start)

    def use_start(self) -> Self:
        """Begin every text with the token that the file's post-processor puts before it, such as BART's <s>."""
        with explain_errors(self.where):
            framed = self._inner.encode("", add_special_tokens=True).ids
        self.start = tuple(framed[:1]) if len(framed) == 2 and framed[1] == self.eos_id else ()
        return self

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text without special tokens, computed on all cores."""
        with explain_errors(self.where):
            bounded = [self._bounded(replace_surrogates(text)) for text in texts]
            encodings = self._inner.encode_batch_fast(bounded, add_special_tokens=False)
            return [[*self.start, *encoding.ids] if self.start else encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """One line of text; special tokens are skipped."""
        return _one_line(self.decode_text(ids))

    def spans(self, text: str) -> list[Span]:
        """The span of characters of each id of `encode(text)`."""
        with explain_errors(self.where):
            encoding = self._inner.encode(self._bounded(replace_surrogates(text)), add_special_tokens=False)
            return [(0, 0)] * len(self.start) + list(encoding.offsets)

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[Span]]:
        """The text of `decode(ids)`, and the span of characters of each id."""
        prefixes = self.decode_batch(ids[:count] for count in range(1, len(ids) + 1))
        ends = [len(text) for text in prefixes]
        for place in range(len(ends) - 2, -1, -1):  # the bytes of an incomplete character decode to several
            ends[place] = min(ends[place], ends[place + 1])
        return prefixes[-1] if prefixes else "", list(zip([0, *ends], ends, strict=False))

    def decode_text(self, ids: Iterable[int]) -> str:
        """Text with its line ends; special tokens are skipped."""
        with explain_errors(self.where):
            return str(self._inner.decode([int(i) for i in ids], skip_special_tokens=True))

    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]:
        with explain_errors(self.where):
            texts = self._inner.decode_batch([[int(i) for i in ids] for ids in batch], skip_special_tokens=True)
        return [_one_line(text) for text in texts]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece of each id: "▁" starts a word, <0xE6> is a byte of a character that is not in the vocabulary."""
        return [self._inner.id_to_token(int(i)) or f"<{int(i)}>" for i in ids]

    def find(self, piece: str) -> int | None:
        """The id of a piece, special tokens included, if the vocabulary has it."""
        return self._inner.token_to_id(piece)

    def to_json(self) -> str:
        return str(self._inner.to_str(pretty=False))

    @classmethod
    def from_json(cls, text: str, where: str = "tokenizer", ids: Mapping[str, int] | None = None) -> Tokenizer:
        """Inverse of `to_json`; `where` names the file in error messages."""
        if text.startswith(SENTENCEPIECE):
            from heedful.text.sentencepiece_models import SentencePieceTokenizer

            return SentencePieceTokenizer.read(text, where, ids)
        growth = check_steps(text, where)
        with explain_errors(where):
            inner = tokenizers.Tokenizer.from_str(text)
        tokenizer = cls(inner, ids)
        tokenizer.where = where
        if growth > USUAL_GROWTH:
            tokenizer._steps = list(_flatten(inner.normalizer))
        tokenizer._check_parts(where)
        return tokenizer

    def save(self, path: Path) -> None:
        try:
            path.write_text(self.to_json(), encoding="utf-8")
        except OSError as error:
            raise FolderError(f"{path} cannot be written: {error.strerror}.") from None

    @classmethod
    def load(cls, path: Path, ids: Mapping[str, int] | None = None) -> Tokenizer:
        text = read_text(path.parent, path.name, MOST_BYTES)
        if text is None:
            raise FolderError(f"{path} does not exist; a model folder holds its vocabulary there.")
        return cls.from_json(text, str(path), ids)

    def _apply_normalizer(self, text: str) -> str:
        return self._inner.normalizer.normalize_str(text) if self._inner.normalizer else text

    def _bounded(self, text: str) -> str:
        """Return the text; raise an error if the normalizer would make it much longer."""
        longer, most = text, SHORT + USUAL_GROWTH * len(text)
        for step in self._steps:
            longer = step.normalize_str(longer)
            if len(longer) > most:
                raise FolderError(
                    f"{self.where}: its normalizer makes {len(longer):,} characters or more of {len(text):,}; "
                    "the model cannot be used for this text."
                )
        return text

    def _check_parts(self, where: str) -> None:
        missing = [part for part in NAMES if self._ids[part] is None and part not in OPTIONAL]
        if missing:
            tried = ", ".join(NAMES[missing[0]])
            raise FolderError(f"{where} has no token for {missing[0]} (looked for {tried}); it needs one.")

    def _id(self, part: str) -> int:
        number = self._ids[part]
        if number is None:
            raise FolderError(f"the vocabulary has no token for {part} (looked for {', '.join(NAMES[part])}).")
        return number


@contextmanager
def explain_errors(where: str) -> Iterator[None]:
    """Turn exceptions of the tokenizer library into a FolderError.

    `tokenizers` raises a bare Exception, or a Rust panic, which does not derive from Exception and may quote user text.
    """
    try:
        yield
    except FolderError:
        raise
    except (RuntimeError, ValueError) as error:
        raise _damaged(where, type(error).__name__) from None
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise _damaged(where, "the tokenizers library panicked") from None
        if type(error) is not Exception:
            raise
        raise _damaged(where, quote(str(error))) from None


def _damaged(where: str, reason: str) -> FolderError:
    return FolderError(f"{where} is damaged ({reason}); copy it again from where it came from.")


def _flatten(normalizer: normalizers.Normalizer) -> Iterator[normalizers.Normalizer]:
    """The steps of a normalizer, nested sequences included."""
    if isinstance(normalizer, normalizers.Sequence):
        for index in range(len(normalizer)):
            yield from _flatten(normalizer[index])
    else:
        yield normalizer


def _one_line(text: str) -> str:
    # A model may generate the byte of a line end; one input line must yield one output line.
    return text.translate(LINE_ENDS) if "\n" in text or "\r" in text else text
