"""Vocabularies as lists of tokens, as CTranslate2 and Marian have them, and the tokenizers that people put beside them.

Marian's decoder starts from a zero vector that no token stands for; here it becomes the last token of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.errors import FolderError
from heedful.files import find
from heedful.interop.architecture import with_output_bias
from heedful.interop.vocabulary_files import MOST_TABLE
from heedful.storage import folder
from heedful.text import Tokenizer
from heedful.text.sentencepiece_models import SentencePieceTokenizer

START_LOGIT = -100.0  # of a token that is no word: its probability is zero
UNUSED = "<unused {}>"
EMBEDDINGS = {"embedding.weight", "output.weight", "source_embedding.weight"}


class Vocabularies(NamedTuple):
    """The tokens of the target and of the source by id; the same list if there is one vocabulary."""

    target: list[str]
    source: list[str]


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
            f"{path} has no tokenizer, only the tokens of a vocabulary; copy heedful's tokenizer.json, source.spm and "
            "target.spm, or sentencepiece.model into it."
        )
    ids = {"pad": config.pad_id, "bos": config.bos_id, "eos": config.eos_id}
    tables = [{token: number for number, token in enumerate(tokens)} for tokens in vocabularies]
    if config.source_vocab_size is not None:
        own = {"pad": tables[1].get("<pad>", 0), "bos": tables[1].get("<s>", 0), "eos": tables[1].get("</s>", 0)}
        source = SentencePieceTokenizer(models[1].read_bytes(), tables[1], own, str(models[1]))
    else:
        source = SentencePieceTokenizer(models[1].read_bytes(), tables[0], ids, str(models[1]))
    return SentencePieceTokenizer(models[0].read_bytes(), tables[0], ids, str(models[0])), source


def with_start_token(
    config: ModelConfig, state: dict[str, Tensor], vocabularies: Vocabularies
) -> tuple[ModelConfig, dict[str, Tensor], Vocabularies]:
    """The model with a last token from which decoding starts: its embedding is zero, and it is never an output.

    It is the padding too, so two vocabularies are made equally long: padding has one id, which is no word of either.
    """
    one, start, name = vocabularies.source is vocabularies.target, max(map(len, vocabularies)), "<pad>"
    while name in vocabularies.target or name in vocabularies.source:
        name = f"<{name}>"
    target = [*vocabularies.target, *map(UNUSED.format, range(len(vocabularies.target), start)), name]
    source = [*vocabularies.source, *map(UNUSED.format, range(len(vocabularies.source), start)), name]
    ids = {"vocab_size": start + 1, "bos_id": start, "pad_id": target.index("<pad>") if one else start}
    config = config.model_copy(update=ids | {"source_vocab_size": None if one else start + 1, "output_bias": True})
    state = with_output_bias(state)
    for tensor_name in EMBEDDINGS & state.keys():
        tensor = state[tensor_name]
        state[tensor_name] = torch.cat([tensor, tensor.new_zeros(start + 1 - len(tensor), tensor.size(1))])
    bias = state["output_bias"]
    state["output_bias"] = torch.cat([bias, bias.new_full((start + 1 - len(bias),), START_LOGIT)])
    return config, state, Vocabularies(target, target if one else source)


def without_start_token(tokens: Sequence[str]) -> list[str]:
    """The tokens before the ones that were added."""
    count = len(tokens) - 1
    while count and tokens[count - 1] == UNUSED.format(count - 1):
        count -= 1
    return list(tokens[:count])
