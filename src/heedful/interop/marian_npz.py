"""Opens folders with a translator of the Marian toolkit, as OPUS-MT publishes them.

decoder.yml names the model, an .npz archive with its configuration inside, and the vocabularies, tables in YAML;
source.spm and target.spm beside them are the tokenizers. Marian computes the positions of tokens with other frequencies
than the paper and than MarianMT of transformers: its values become a table of positions, so no number changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError

from heedful.config import ModelConfig, SearchSettings
from heedful.errors import FolderError, quote
from heedful.files import find, read_text
from heedful.interop import MARIAN_DECODER as DECODER
from heedful.interop import flat_yaml
from heedful.interop.npz_files import open_archive
from heedful.interop.setting_mapping import LIMITS
from heedful.interop.token_lists import Vocabularies, read_tokenizers, with_start_token
from heedful.interop.untrusted import ForeignConfig
from heedful.interop.vocabulary_files import MOST_TABLE
from heedful.interop.weight_files import ForeignWeights
from heedful.interop.weight_mapping import WeightLayout, WeightMapping
from heedful.model.spec import tensor_spec
from heedful.storage.folder import ModelFolder
from heedful.storage.module_weights import fill_model
from heedful.text.sentencepiece_models import checked_table

MODEL = "special:model.yml"  # the configuration in the archive
MOST_YAML = 1 << 20
MAX_LENGTH = 1024  # positions that the table gets; Marian has no limit
NORM_EPS = 1e-6
ACTIVATIONS = {"swish": "silu", "relu": "relu"}  # its gelu is an approximation that heedful lacks
NORM_SETTINGS = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
NORMS = {("", "dan", ""): False, ("n", "da", "n"): True}  # -> pre_norm; a: add, d: dropout, n: norm
EMBEDDING_NORMS = {"": False, "d": False, "n": True, "nd": True}
ONLY: dict[str, object] = {
    "type": "transformer",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-ffn-depth": 2,
    "transformer-decoder-ffn-depth": 0,
    "transformer-decoder-dim-ffn": 0,
    "transformer-train-positions": False,
    "transformer-train-position-embeddings": False,
    "transformer-disable-position-embeddings": False,
    "transformer-attention-mask": "default",
    "transformer-pool": False,
    "transformer-tied-layers": [],
    "input-types": [],
    "lemma-dim-emb": 0,
    "right-left": False,
    "ulr": False,
}
SETTINGS = {
    "d_model": "dim-emb",
    "d_ff": "transformer-dim-ffn",
    "n_heads": "transformer-heads",
    "encoder_layers": "enc-depth",
    "decoder_layers": "dec-depth",
}
SIDES = ("encoder", "decoder")


def read(path: Path) -> ModelFolder:
    """Open the folder of a decoder.yml."""
    decoder = ForeignConfig(flat_yaml.parse(read_text(path, DECODER, MOST_YAML) or "", path / DECODER), path / DECODER)
    model_name, *others = _names(decoder, "models")
    if others:
        raise FolderError(f"{decoder.where} lists {len(others) + 1} models; keep the first, or give each a folder.")
    tables = [_tokens(path, name) for name in dict.fromkeys(_names(decoder, "vocabs"))]
    vocabularies = Vocabularies(tables[-1], tables[-1] if tables[0] == tables[-1] else tables[0])
    archive = open_archive(_present(path, model_name), MOST_YAML)
    where = path / model_name
    if MODEL not in archive.texts:
        raise FolderError(f"{where} has no {MODEL}, in which Marian describes a model; heedful needs it.")
    text = archive.texts[MODEL].decode("utf-8", errors="replace")
    config = _config(ForeignConfig(flat_yaml.parse(text, where), where), archive.weights, vocabularies)
    spec = tensor_spec(config)
    state = layout(config).inwards(archive.weights, {name: spec[name] for name in spec if "position" not in name})
    table = torch.from_numpy(positions(config.max_length, config.d_model))
    state |= {f"{side}.position.table": table.clone() for side in SIDES}
    config, state, vocabularies = with_start_token(config, state, vocabularies)
    target, source = read_tokenizers(path, vocabularies, config)
    search = SearchSettings(beam=decoder.integer("beam-size", SearchSettings().beam, most=1000))
    return ModelFolder(fill_model(config, state.items(), where), target, source, search, path)


def _names(decoder: ForeignConfig, key: str) -> list[str]:
    names = decoder.values.get(key)
    if not isinstance(names, list) or not 1 <= len(names) <= 100 or not all(isinstance(name, str) for name in names):
        raise decoder.wrong(key, "a list of files")
    return names


def _present(path: Path, name: str) -> Path:
    file = find(path, name)
    if file is None:
        raise FolderError(f"{path} has no {quote(name)}, which {DECODER} names; copy the folder again.")
    return file


def _tokens(path: Path, name: str) -> list[str]:
    """The tokens of a vocabulary by id."""
    file = _present(path, name)
    if file.suffix not in (".yml", ".yaml"):
        raise FolderError(
            f"{file} is no .yml file; heedful reads the vocabularies of OPUS-MT, which are tables in YAML."
        )
    table = checked_table(flat_yaml.parse(read_text(path, name, MOST_TABLE) or "", file), str(file))
    if max(table.values()) != len(table) - 1 or "</s>" not in table:
        raise FolderError(f"{file} must have </s>, and number its {len(table):,} tokens from 0 without gaps.")
    return sorted(table, key=table.__getitem__)


def _config(foreign: ForeignConfig, weights: ForeignWeights, vocabularies: Vocabularies) -> ModelConfig:
    foreign.only(**ONLY)
    norms = tuple(foreign.values.get(name, "") for name in NORM_SETTINGS)
    if norms not in NORMS:
        raise FolderError(
            f"{foreign.where}: {', '.join(NORM_SETTINGS)} are {quote(norms)}; heedful computes "
            f"{' or '.join(map(str, NORMS))}."
        )
    embedding_norm = foreign.values.get("transformer-postprocess-emb", "d")
    if embedding_norm not in EMBEDDING_NORMS:
        raise foreign.wrong("transformer-postprocess-emb", f"one of {', '.join(map(repr, EMBEDDING_NORMS))}")
    tie = _tie(foreign)
    output = "Wemb" if tie == "all" else "decoder_Wemb"
    rows = (weights.shapes.get(output) or (0,))[0]
    if rows != len(vocabularies.target):
        raise FolderError(
            f"{foreign.where} has embeddings for {rows:,} tokens, and its vocabulary has {len(vocabularies.target):,}."
        )
    settings: dict[str, Any] = {name: foreign.integer(key, None, *LIMITS[name]) for name, key in SETTINGS.items()}
    try:
        return ModelConfig(
            **settings,
            family="encoder-decoder",
            vocab_size=rows,
            source_vocab_size=None if vocabularies.source is vocabularies.target else len(vocabularies.source),
            activation=foreign.choice("transformer-ffn-activation", "swish", ACTIVATIONS),
            pre_norm=NORMS[norms],
            embedding_norm=EMBEDDING_NORMS[embedding_norm],
            positions="learned",
            max_length=MAX_LENGTH,
            scale_embedding=True,
            norm_eps=NORM_EPS,
            tie=tie,
            bias=True,
            output_bias="decoder_ff_logit_out_b" in weights.shapes,
            pad_id=0,
            bos_id=0,
            eos_id=vocabularies.target.index("</s>"),
        )
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise FolderError(f"{foreign.where} contradicts itself: {reason}.") from None


def _tie(foreign: ForeignConfig) -> Literal["all", "target", "none"]:
    sides = foreign.flag("tied-embeddings-src", False)  # source and target share embeddings
    output = foreign.flag("tied-embeddings", False)
    if foreign.flag("tied-embeddings-all", False) or (sides and output):
        return "all"
    if sides:
        raise FolderError(f"{foreign.where}: tied-embeddings-src without tied-embeddings is unknown to heedful.")
    return "target" if output else "none"


def layout(config: ModelConfig) -> WeightLayout:
    """Heedful's tensors in each array: matrices are transposed, vectors are rows."""
    output = "decoder_ff_logit_out"
    if config.tie == "all":
        places = {"Wemb": WeightMapping(("embedding.weight",))}
    else:
        places = {"encoder_Wemb": WeightMapping(("source_embedding.weight",))}
        places["decoder_Wemb"] = WeightMapping(("embedding.weight",))
    if config.tie == "none":
        places[f"{output}_W"] = WeightMapping(("output.weight",), "transposed")
    if config.output_bias:
        places[f"{output}_b"] = WeightMapping(("output_bias",), "row")
    norm_suffix = "_pre" if config.pre_norm else ""
    for side, layers in zip(SIDES, (config.encoder_layers, config.decoder_layers), strict=True):
        if config.embedding_norm:
            places |= _norm(f"{side}_emb", f"{side}.first_norm", "_pre")
        if config.pre_norm:
            places |= _norm(f"{side}_top", f"{side}.norm", "")
        for index in range(layers):
            block, ours = f"{side}_l{index + 1}", f"{side}.{index}"
            parts = {"self": "self"} | ({"context": "cross"} if side == "decoder" else {})
            for theirs, part in parts.items():
                for letter, name in {"q": "query", "k": "key", "v": "value", "o": "output"}.items():
                    places |= _linear(f"{block}_{theirs}", letter, f"{ours}.{part}.{name}")
                places |= _norm(f"{block}_{theirs}_Wo", f"{ours}.{part}_residual.norm", norm_suffix)
            places |= _linear(f"{block}_ffn", "1", f"{ours}.feed.up") | _linear(
                f"{block}_ffn", "2", f"{ours}.feed.down"
            )
            places |= _norm(f"{block}_ffn_ffn", f"{ours}.feed_residual.norm", norm_suffix)
    return WeightLayout(places)


def _linear(block: str, letter: str, name: str) -> dict[str, WeightMapping]:
    weight = WeightMapping((f"{name}.weight",), "transposed")
    return {f"{block}_W{letter}": weight, f"{block}_b{letter}": WeightMapping((f"{name}.bias",), "row")}


def _norm(block: str, name: str, suffix: str) -> dict[str, WeightMapping]:
    kinds = {"scale": "weight", "bias": "bias"}
    return {f"{block}_ln_{kind}{suffix}": WeightMapping((f"{name}.{ours}",), "row") for kind, ours in kinds.items()}


def positions(length: int, width: int) -> npt.NDArray[np.float32]:
    """(T, D): sines, then cosines; the slowest frequency is exactly 1/10000, where the paper's ends just above."""
    half = width // 2
    step = np.log(np.float32(10_000)) / np.float32(max(1, half - 1))
    frequencies = np.exp(-np.arange(half, dtype=np.float32) * step)
    angles = np.arange(length, dtype=np.float32)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)
