"""Vocabularies of CTranslate2 folders."""

from __future__ import annotations

import json
from pathlib import Path

from heedful.errors import FolderError
from heedful.files import read_text
from heedful.interop.token_lists import Vocabularies
from heedful.interop.vocabulary_files import MOST_TABLE


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
