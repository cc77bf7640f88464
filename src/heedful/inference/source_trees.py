"""Dependency trees for models with syntax positions, when they are used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.errors import SettingError

if TYPE_CHECKING:
    from heedful.data.token_trees import Parser, TokenTrees
    from heedful.storage.folder import ModelFolder


def missing_trees_notice(folder: ModelFolder) -> str:
    """What is lost without dependency trees, as a sentence; empty if the model needs none."""
    if folder.config.positions != "syntax":
        return ""
    return (
        f"{folder.path} was trained with dependency trees and gets none here: it uses the order of the words alone. "
        "translate, evaluate, score and explain take them (`--trees`)."
    )


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
