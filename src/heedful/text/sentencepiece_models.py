"""The tokenizer of converted Marian and OPUS-MT models: a SentencePiece model and a table from pieces to ids.

The `sentencepiece` package is an optional extra and imported only here.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from heedful.errors import FolderError
from heedful.text.normalization import WORD_START, replace_surrogates
from heedful.text.tokenizer import Tokenizer, explain_errors
from heedful.text.words import Span


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model and a table of ids.

    In multilingual models, a text may start with the code of the target language, such as `>>fr<<`.
    """

    def __init__(
        self, model: bytes, table: Mapping[str, int], ids: Mapping[str, int] | None = None, where: str = "vocabulary"
    ) -> None:
        self.model, self.table, self.where = model, dict(table), where
        self._processor = _processor(model, where)
        self._assign_specials(self.table, ids)
        self._check_parts(where)
        self._unknown = self.unk_id
        self._piece_of = {number: piece for piece, number in self.table.items()}
        self._spoken = {number: self._piece_of[number] for number in self._piece_of.keys() - set(self._ids.values())}

    def normalize(self, text: str) -> str:
        with explain_errors(self.where):
            pieces: str = self._processor.normalize(replace_surrogates(text))
        return pieces.replace(WORD_START, " ").strip()

    def encode(self, text: str) -> list[int]:
        code, rest = self._language(replace_surrogates(text))
        with explain_errors(self.where):
            pieces: list[str] = self._processor.encode(rest, out_type=str)
        return code + [self.table.get(piece, self._unknown) for piece in pieces]

    def use_start(self) -> Self:
        """A text has no start token."""
        return self

    def code(self, text: str) -> list[int]:
        return self._language(replace_surrogates(text))[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        pieces = [self._spoken[number] for number in map(int, ids) if number in self._spoken]
        with explain_errors(self.where):
            text: str = self._processor.decode_pieces(pieces)
        return " ".join(text.replace(WORD_START, " ").splitlines()).strip()

    def spans(self, text: str) -> list[Span]:
        text = replace_surrogates(text)
        code, rest = self._language(text)
        spans = [(0, len(text) - len(rest)) for _ in code]
        at = len(text) - len(rest.lstrip())
        with explain_errors(self.where):
            pieces = self._processor.encode(rest, out_type="proto").pieces
        for piece in pieces:
            start = text.find(piece.surface, at)  # leading white space is not part of any piece
            at = start + len(piece.surface)
            spans.append((start, at))
        return spans

    def decode_text(self, ids: Iterable[int]) -> str:
        return self.decode(ids)

    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]:
        return [self.decode(ids) for ids in batch]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self._piece_of.get(int(number), f"<{int(number)}>") for number in ids]

    def find(self, piece: str) -> int | None:
        return self.table.get(piece)

    def to_json(self) -> str:
        model = base64.b64encode(self.model).decode("ascii")
        return json.dumps({"sentencepiece": model, "vocab": self.table}, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def read(cls, text: str, where: str, ids: Mapping[str, int] | None = None) -> SentencePieceTokenizer:
        """Inverse of `to_json`."""
        try:
            content: dict[str, Any] = json.loads(text)
            model = base64.b64decode(content["sentencepiece"], validate=True)
            table = content["vocab"]
        except (ValueError, RecursionError, KeyError, TypeError, binascii.Error) as error:
            raise FolderError(f"{where} is damaged ({error!r:.200}); copy it again from where it came from.") from None
        return cls(model, checked_table(table, where), ids, where)

    def _language(self, text: str) -> tuple[list[int], str]:
        """'>>fr<< Hello' -> the id of >>fr<<, if there is one, and the rest."""
        code, end, rest = text.partition("<<")
        number = self.table.get(code + end) if text.startswith(">>") and end else None
        return ([], text) if number is None else ([number], rest)


def checked_table(table: object, where: str) -> dict[str, int]:
    """Validate a table from pieces to ids, as in vocab.json."""
    if not isinstance(table, dict) or not table:
        raise FolderError(f"{where} holds no table of pieces and ids.")
    for piece, number in table.items():
        if type(number) is not int or not 0 <= number < 10_000_000:
            raise FolderError(f"{where}: {piece[:40]!r} has the id {number!r:.40}, which is not a token id.")
    if len(set(table.values())) != len(table):
        raise FolderError(f"{where} gives the same id to several pieces.")
    return table


def _processor(model: bytes, where: str) -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise FolderError(
            f"{where} is a SentencePiece vocabulary; run pip install 'heedful[sentencepiece]' to read it."
        ) from None
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        processor.encode("A first word, 1st of many: ｆｕｌｌ.")  # some damage appears only in use
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise FolderError(f"{where} is damaged ({reason}); copy it again from where it came from.") from None
    return processor
