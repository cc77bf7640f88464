"""Dependency trees for models with syntax positions, when they are used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.errors import SettingError

if TYPE_CHECKING:
    from heedful.data.token_trees import Parser, TokenTrees
    from heedful.storage.folder import ModelFolder


def use_trees(folder: ModelFolder, trees: Sequence[Path] | Parser) -> TokenTrees:
    """Give the model of a folder the dependency trees of sentences: CoNLL-U files, or a parser."""
    from heedful.data.token_trees import TokenTrees, TreeBank

    if folder.config.positions != "syntax":
        raise SettingError(
            f"trees are given, but {folder.path} has {folder.config.positions} positions; leave them out, or "
            "train a model with model.positions=syntax."
        )
    tokenizer, model = folder.source_tokenizer, folder.model
    given = TokenTrees(TreeBank(trees, tokenizer) if isinstance(trees, Sequence) else trees, tokenizer)
    model.trees = given
    return given
