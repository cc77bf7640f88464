"""Reads and writes model folders of Hugging Face transformers: MarianMT, PEGASUS, BART, GPT-2, BERT and Whisper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from heedful.audio.log_mel import FRAMES_PER_SECOND, HOP, N_FFT, SAMPLE_RATE
from heedful.config import ModelConfig
from heedful.errors import FolderError, SettingError, quote
from heedful.interop import vocabulary_files
from heedful.interop.architecture import Architecture
from heedful.interop.bert import Bert
from heedful.interop.generation_settings import read_search, write_search
from heedful.interop.gpt2 import Gpt2
from heedful.interop.marian import Bart, Marian, Pegasus
from heedful.interop.model_card import card
from heedful.interop.untrusted import ForeignConfig
from heedful.interop.weight_files import SAFE, ForeignWeights, open_weights
from heedful.interop.whisper import Whisper
from heedful.model.spec import tensor_spec
from heedful.model.transformer import DecoderModel, EncoderDecoder, EncoderModel
from heedful.storage import folder
from heedful.storage.atomic import atomic_write
from heedful.storage.folder import ModelFolder
from heedful.storage.module_weights import fill_model, save_weights

ARCHITECTURES: dict[str, Architecture] = {
    architecture.model_type: architecture for architecture in (Marian(), Pegasus(), Bart(), Gpt2(), Bert(), Whisper())
}

SUMMARIZERS = (Pegasus.model_type, Bart.model_type)


def read(path: Path, description: dict[str, Any]) -> ModelFolder:
    """Open a Hugging Face folder; `description` is its config.json."""
    model = read_model(path, description)
    if model.config.source_vocab_size == model.config.vocab_size and not vocabulary_files.has_two(path):
        model.config = model.config.model_copy(update={"source_vocab_size": None})
    target, source = vocabulary_files.read(path, model.config)
    if isinstance(model, EncoderModel):  # its config.json seldom has the ids of the special tokens
        ids = {"pad_id": target.pad_id, "bos_id": target.bos_id, "eos_id": target.eos_id}
        model.config = model.config.model_copy(update=ids)
    if model.config.family == "encoder-decoder" and not model.config.features:
        target, source = target.use_start(), source.use_start()
    task = "summarization" if description.get("model_type") in SUMMARIZERS else ""
    return ModelFolder(model, target, source, read_search(path, description, model.config), path, task)


def read_model(path: Path, description: dict[str, Any]) -> EncoderDecoder | DecoderModel | EncoderModel:
    """The model without its tokenizers; shapes are compared before memory is allocated."""
    foreign = ForeignConfig(description, path / folder.CONFIG)
    kind = description.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise FolderError(
            f"{foreign.where} describes a model of type {quote(kind)}; heedful opens its own and {known}."
        )
    return model_of(ARCHITECTURES[kind], foreign, open_weights(path))


def model_of(
    architecture: Architecture, foreign: ForeignConfig, weights: ForeignWeights
) -> EncoderDecoder | DecoderModel | EncoderModel:
    """The model that a configuration describes, filled with foreign weights."""
    weights = weights.renamed({name: architecture.canonical(name) for name in weights.shapes})
    try:
        config = architecture.config(foreign.with_aliases(architecture.aliases), weights.shapes)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise FolderError(f"{foreign.where} contradicts itself: {reason}.") from None
    layout = architecture.layout(config)
    layout.names(weights)
    state = architecture.inwards(layout.inwards(weights, tensor_spec(config)))
    if config.output_bias and not state["output_bias"].any():  # transformers always writes one; zeros mean none
        del state["output_bias"]
        config = config.model_copy(update={"output_bias": False})
    return fill_model(config, state.items(), weights.where)


def write(opened: ModelFolder, path: Path) -> None:
    """Write a folder that `from_pretrained` loads; refuses settings that transformers cannot express."""
    config = opened.model.config
    architecture = architecture_for(config)
    architecture.check(config)
    always_biased = architecture.fixed.get("output_bias") is None and config.head != "none"
    layout = architecture.layout(config.model_copy(update={"output_bias": always_biased}))
    state = {name: tensor.detach().cpu() for name, tensor in opened.model.state_dict().items()}
    mapped = {name for place in layout.places.values() for name in place.targets}
    unmapped = sorted(name for name in state.keys() - mapped if not architecture.redundant(name))
    if unmapped:
        raise SettingError(f"the model has the tensor {unmapped[0]}, which a {architecture.title} model lacks.")
    foreign_weights = architecture.completed(layout.outwards(architecture.outwards(state)), config)
    save_weights({architecture.written(name, config): tensor for name, tensor in foreign_weights.items()}, path / SAFE)
    vocabulary_files.write(opened, path)
    if config.features:
        _write_json(path / "preprocessor_config.json", feature_settings(config))
    _write_json(path / folder.SEARCH, write_search(opened))
    atomic_write(path / folder.CARD, card(opened, "transformers"))
    _write_json(path / folder.CONFIG, architecture.description(config) | {"dtype": "float32"})


def architecture_for(config: ModelConfig) -> Architecture:
    """The architecture that matches a model, or else the first of its family, whose `check` then explains why not."""
    related = [
        architecture
        for architecture in ARCHITECTURES.values()
        if architecture.family == config.family and architecture.audio == bool(config.features)
    ]
    norms = ("pre_norm", "embedding_norm")
    return next(
        (
            architecture
            for architecture in related
            if all(architecture.fixed.get(name, getattr(config, name)) == getattr(config, name) for name in norms)
        ),
        related[0],
    )


def feature_settings(config: ModelConfig) -> dict[str, Any]:
    """preprocessor_config.json: how transformers computes the features of a Whisper model."""
    frames = config.source_length * config.feature_stride
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": config.features,
        "sampling_rate": SAMPLE_RATE,
        "hop_length": HOP,
        "n_fft": N_FFT,
        "chunk_length": frames // FRAMES_PER_SECOND,
        "return_attention_mask": False,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    atomic_write(path, json.dumps(content, indent=2) + "\n")
