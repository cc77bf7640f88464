"""Vocabularies of CTranslate2 folders, and the tokenizers that people put beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from heedful.config import ModelConfig
from heedful.errors import FolderError
from heedful.files import find, read_text
from heedful.interop.vocabulary_files import MOST_TABLE
from heedful.storage import folder
from heedful.text import Tokenizer
from heedful.text.sentencepiece_models import SentencePieceTokenizer


class Vocabularies(NamedTuple):
    """The tokens of the target and of the source by id; the same list if there is one vocabulary."""

    target: list[str]
    source: list[str]


def read_vocabularies(path: Path) -> Vocabularies:
    if shared := _tokens(path, "shared_vocabulary"):
        return Vocabularies(shared, shared)
    target, source = _tokens(path, "target_vocabulary"), _tokens(path, "source_vocabulary")
    if not target or not source:
        raise FolderError(f"{path} has neither shared_vocabulary.json nor source_ and target_vocabulary.json.")
    return Vocabularies(target, source)


def _tokens(path: Path, name: str) -> list[str] | None:
    """The tokens of a vocabulary, as JSON or, from earlier versions, one per line."""
    if (text := read_text(path, f"{name}.json", MOST_TABLE)) is not None:
        try:
            tokens = json.loads(text)
        except (ValueError, RecursionError):
            tokens = None
    elif (text := read_text(path, f"{name}.txt", MOST_TABLE)) is not None:
        tokens = text.removesuffix("\n").split("\n")
    else:
        return None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise FolderError(f"{path / name} is not a list of tokens; copy it again.")
    if len(set(tokens)) != len(tokens):
        raise FolderError(f"{path / name} lists the same token twice; copy it again.")
    return tokens


def read_tokenizers(path: Path, vocabularies: Vocabularies, config: ModelConfig) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of target and source."""
    if find(path, folder.TOKENIZER):
        target = source = folder.load_tokenizer(path / folder.TOKENIZER, config)
        if find(path, folder.SOURCE_TOKENIZER):
            source = folder.load_tokenizer(path / folder.SOURCE_TOKENIZER, config, source=True)
        return target, source
    models = [find(path, name, MOST_TABLE) for name in ("target.spm", "source.spm")]
    if not all(models):
        models = [find(path, "sentencepiece.model", MOST_TABLE)] * 2
    if not models[0] or not models[1]:
        raise FolderError(
            f"{path} has no tokenizer, which CTranslate2 leaves to its users; copy heedful's tokenizer.json, "
            "source.spm and target.spm, or sentencepiece.model into it."
        )
    ids = {"pad": config.pad_id, "bos": config.bos_id, "eos": config.eos_id}
    tables = [{token: number for number, token in enumerate(tokens)} for tokens in vocabularies]
    if config.source_vocab_size is not None:
        own = {"pad": tables[1].get("<pad>", 0), "bos": tables[1].get("<s>", 0), "eos": tables[1].get("</s>", 0)}
        source = SentencePieceTokenizer(models[1].read_bytes(), tables[1], own, str(models[1]))
    else:
        source = SentencePieceTokenizer(models[1].read_bytes(), tables[0], ids, str(models[1]))
    return SentencePieceTokenizer(models[0].read_bytes(), tables[0], ids, str(models[0])), source


def with_start_token(vocabularies: Vocabularies, shared: bool) -> Vocabularies:
    """The same with a token at the end from which decoding starts; CTranslate2 has no row for it."""
    name = "<pad>"
    while name in vocabularies.target:
        name = f"<{name}>"
    target = [*vocabularies.target, name]
    return Vocabularies(target, target if shared else vocabularies.source)
