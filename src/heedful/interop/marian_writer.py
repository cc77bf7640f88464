"""Writes translators as folders of the Marian toolkit, in the form in which OPUS-MT publishes them.

Marian's decoder starts from a zero vector and computes positions with its own frequencies, so only models that came
from Marian can be written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.errors import SettingError
from heedful.interop import MARIAN_DECODER, flat_yaml, marian_npz
from heedful.interop.architecture import refuse_other_systems, refused
from heedful.interop.marian_npz import ACTIVATIONS, MODEL, NORM_EPS, NORM_SETTINGS, NORMS, ONLY, SETTINGS, SIDES
from heedful.interop.model_card import card
from heedful.interop.token_lists import EMBEDDINGS, Vocabularies, without_start_token
from heedful.storage.atomic import atomic_write
from heedful.storage.folder import CARD, SOURCE_TOKENIZER, TOKENIZER, ModelFolder
from heedful.text import Tokenizer
from heedful.text.sentencepiece_models import SentencePieceTokenizer

ARCHIVE = "model.npz"
FIXED = {"scale_embedding": True, "norm_eps": NORM_EPS, "bias": True, "family": "encoder-decoder", "features": 0}
POSITION_TOLERANCE = 1e-4


def write(opened: ModelFolder, path: Path) -> None:
    """Write a folder that Marian decodes with (`-c decoder.yml`)."""
    config = opened.model.config
    state = {name: tensor.detach().cpu().float() for name, tensor in opened.model.state_dict().items()}
    _check(config, state)
    vocabularies = Vocabularies(*map(_tokens, (opened.tokenizer, opened.source_tokenizer), _sizes(config)))
    for name in (EMBEDDINGS | {"output_bias"}) & state.keys():
        state[name] = state[name][: len(vocabularies.source if name.startswith("source") else vocabularies.target)]
    save_archive(path / ARCHIVE, config, state)
    _write_vocabularies(opened, vocabularies, path)
    atomic_write(path / CARD, card(opened, "marian"))


def save_archive(file: Path, config: ModelConfig, state: dict[str, Tensor]) -> None:
    """The weights, and the configuration that describes them; all tokens of `state` are written."""
    arrays: dict[str, Any] = {
        name: tensor.numpy() for name, tensor in marian_npz.layout(config).outwards(state).items()
    }
    target = state["embedding.weight"]
    sizes = [len(state.get("source_embedding.weight", target)), len(target)]
    text = flat_yaml.dump(_description(config) | {"dim-vocabs": sizes})
    arrays[MODEL] = np.frombuffer(text.encode() + b"\0", np.int8)
    np.savez(file, **arrays)


def _description(config: ModelConfig) -> dict[str, Any]:
    norms = next(norms for norms, pre_norm in NORMS.items() if pre_norm == config.pre_norm)
    return {
        **ONLY,
        **{key: getattr(config, name) for name, key in SETTINGS.items()},
        **dict(zip(NORM_SETTINGS, norms, strict=True)),
        "transformer-postprocess-emb": "nd" if config.embedding_norm else "d",
        "transformer-ffn-activation": next(key for key, name in ACTIVATIONS.items() if name == config.activation),
        "transformer-guided-alignment-layer": "last",
        "tied-embeddings-all": config.tie == "all",
        "tied-embeddings": config.tie == "target",
        "tied-embeddings-src": False,
    }


def _check(config: ModelConfig, state: dict[str, Tensor]) -> None:
    """Refuse what Marian computes otherwise."""
    refuse_other_systems(config, "Marian")
    for name, value in FIXED.items():
        if (actual := getattr(config, name)) != value:
            raise refused(name, actual, f"in Marian it is always {value!r}")
    if config.activation not in ACTIVATIONS.values():
        raise refused(
            "activation", config.activation, f"heedful writes {' and '.join(ACTIVATIONS.values())} for Marian"
        )
    if config.key_width != config.d_head:
        raise refused("d_key", config.d_key, "in Marian it is always d_model / n_heads")
    expected = torch.from_numpy(marian_npz.positions(config.max_length, config.d_model))
    tables = [state.get(f"{side}.position.table") for side in SIDES]
    if config.positions != "learned" or any(
        table is None or not torch.allclose(table, expected, rtol=0, atol=POSITION_TOLERANCE) for table in tables
    ):
        raise refused("positions", config.positions, "Marian computes them with frequencies of its own")
    if config.bos_id != config.vocab_size - 1 or state["embedding.weight"][config.bos_id].any():
        raise SettingError(
            "decoding starts from the embedding of a token, but in Marian from a zero vector; only a model that was "
            "read from Marian can be written for it."
        )


def _sizes(config: ModelConfig) -> tuple[int, int]:
    return config.vocab_size, config.source_vocab_size or config.vocab_size


def _tokens(tokenizer: Tokenizer, size: int) -> list[str]:
    return without_start_token(tokenizer.pieces(range(size)))


def _write_vocabularies(opened: ModelFolder, vocabularies: Vocabularies, path: Path) -> None:
    target, source = opened.tokenizer, opened.source_tokenizer
    separate = opened.model.config.source_vocab_size is not None
    names = ["source.vocab.yml", "target.vocab.yml"] if separate else ["vocab.yml"] * 2
    for name, tokens in zip(names, (vocabularies.source, vocabularies.target), strict=True):
        atomic_write(path / name, flat_yaml.dump({token: number for number, token in enumerate(tokens)}))
    if isinstance(target, SentencePieceTokenizer) and isinstance(source, SentencePieceTokenizer):
        atomic_write(path / "source.spm", source.model)
        atomic_write(path / "target.spm", target.model)
    else:
        atomic_write(path / TOKENIZER, target.to_json())
        if source is not target:
            atomic_write(path / SOURCE_TOKENIZER, source.to_json())
    settings: dict[str, Any] = {
        "models": [ARCHIVE],
        "vocabs": names,
        "beam-size": opened.search.beam,
        "relative-paths": True,
    }
    atomic_write(path / MARIAN_DECODER, flat_yaml.dump(settings))
