"""A task: the part of training that differs between a translator, a GPT, a BERT and a classifier.

The loop takes from its task the batches of an epoch, the micro-batches of a batch, their losses, and the scores of a
validation. A task knows no optimizer, no rank and no file of a run.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from heedful.config import DataSettings, Family, Preset, RunConfig
from heedful.config.presets import SELECTABLE, Sections, preset, weight_decay_for
from heedful.data.batch import MicroBatch
from heedful.data.bucketing import micro_batches
from heedful.data.corpus import Corpus, CorpusCache
from heedful.errors import SettingError, quote
from heedful.ops.cross_entropy import Loss
from heedful.storage.folder import ModelFolder
from heedful.storage.model_kind import model_kind
from heedful.text import Tokenizer
from heedful.training.run_report import Column
from heedful.training.schedule import peak_rate
from heedful.training.time_budget import TimeBudget

Indices = NDArray[np.int64]
Scores = dict[str, float]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class MicroBatches:
    """A batch, split for gradient accumulation; each micro-batch is built when it is needed, None is an empty one.

    `tokens` is the divisor of the loss of the whole batch, on whichever ranks its micro-batches are computed.
    """

    tokens: int
    builders: Sequence[Callable[[], MicroBatch] | None]

    @classmethod
    def of(cls, tokens: int, batch: Indices, count: int, build: Callable[[Indices], MicroBatch]) -> MicroBatches:
        """A batch as `count` micro-batches that `build` makes of its indices."""
        parts = micro_batches(batch, count)
        return cls(tokens, [partial(build, part) if len(part) else None for part in parts])


class Task(ABC):
    """What a model learns from an encoded corpus, and how it is measured."""

    family: ClassVar[Family]  # of the models that it trains
    folder_task: ClassVar[str] = ""  # name in the model folder, where the family alone does not tell the task
    reads_audio: ClassVar[bool] = False
    guesses_tokens: ClassVar[bool] = False  # whether it trains the output head of an encoder
    counted: ClassVar[str] = "tokens"  # what a batch has so many of that the loss is divided by; shown with the speed
    columns: tuple[Column, ...]  # validation scores as they are displayed
    loss_function: ClassVar[Callable[..., Loss]]
    suits_its_size_to_time: ClassVar[bool] = False  # whether a short time budget selects a smaller preset
    native_loss: ClassVar[bool] = False  # whether the native engine computes its `loss`; never inherited with another

    corpus: Corpus[Any]

    def __init_subclass__(cls) -> None:
        if {"loss", "loss_function"} & cls.__dict__.keys() and "native_loss" not in cls.__dict__:
            cls.native_loss = False

    @classmethod
    @abstractmethod
    def open(cls, config: RunConfig, init: ModelFolder | None, cache: CorpusCache) -> Self:
        """Read and encode the corpus of a run, or open it from the cache."""

    @classmethod
    def preset(cls, name: Preset, user_config: RunConfig) -> Sections:
        """The settings of a preset for this task."""
        return preset(cls.family, name, user_config.model.architecture)

    @classmethod
    def known(cls, user_config: RunConfig) -> dict[str, Any]:
        """Settings of a new model that follow from other settings, before the corpus is read."""
        return {}

    @classmethod
    def possible_presets(cls, data: DataSettings) -> Sequence[Preset]:
        """The presets that may be selected by the size of the corpus, as far as it is known before it is encoded."""
        return SELECTABLE

    @abstractmethod
    def preset_for_corpus(self) -> Preset:
        """The preset for a corpus of this size."""

    @abstractmethod
    def resolve(self, user_config: RunConfig, init: ModelFolder | None) -> RunConfig:
        """Fill in what the user left open: the preset, and what follows from the corpus and its vocabulary."""

    @abstractmethod
    def prepare(self, config: RunConfig) -> None:
        """Read the resolved settings; called before any batch is planned."""

    def initialize(self, model: Any, config: RunConfig) -> str:
        """Initialize a new model from the corpus; a line for the log, empty if nothing was done."""
        return ""

    def adopted(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights of the model from which training starts, adapted to the corpus."""
        return weights

    def published(self, folder: ModelFolder) -> ModelFolder:
        """The model as users load it."""
        return folder

    @property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Of target and source; one object where there is one vocabulary."""
        source, target = self.corpus.tokenizers
        return target, source

    @abstractmethod
    def plan(self, epoch: int) -> list[Indices]:
        """The global batches of an epoch: a pure function of the corpus, the seed and the epoch."""

    @abstractmethod
    def split_batch(self, batch: Indices, update: int, count: int) -> MicroBatches:
        """A global batch as `count` micro-batches; its random numbers follow from the seed and the update."""

    def loss(self, model: Any, micro_batch: Any, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
        """Loss of a micro-batch, summed over its tokens."""
        return type(self).loss_function(model, micro_batch, smoothing, sampled_softmax)

    @abstractmethod
    def validation(self) -> Iterator[MicroBatch]:
        """The validation set as micro-batches, always the same."""

    def scores(self, likelihood: float, tokens: int) -> Scores:
        """Scores that follow from the loss on the validation set."""
        loss = likelihood / tokens
        return {"valid_loss": loss, "valid_perplexity": math.exp(min(loss, 50.0))}

    def measure(self, folder: ModelFolder, budget: TimeBudget, log: Progress) -> Scores:
        """Scores that need more than the loss, such as BLEU of translations of the validation set."""
        return {}

    def show(self, folder: ModelFolder) -> list[str]:
        """Sample output of a model, as lines for the log."""
        return []

    def count_final_searches(self) -> int:
        """How often `tune_search` translates the validation set at least."""
        return 0

    def tune_search(self, folder: ModelFolder, best_score: float, budget: TimeBudget, log: Progress) -> None:
        """Choose search settings on the validation set at the end of a run, and save them with the model."""
        return

    def rank(self, scores: Scores) -> list[float]:
        """Sort key of a model by its scores; higher is better."""
        return [-scores["valid_loss"]]

    def card(self, config: RunConfig, done: str, scores: Scores) -> str:
        """README.md of the model folder; `done` tells how long the model was trained."""
        model, kind = config.model, model_kind(config.model, self.folder_task)
        front = ["library_name: heedful", f"pipeline_tag: {kind.tag}"]
        front += ["metrics:", *(f"- {metric}" for metric in kind.metrics)] if kind.metrics else []
        preset = f"Preset {config.preset}: " if config.preset else ""
        measured = ", ".join(f"{column.title} {column.show(scores)}" for column in self.columns)
        size = f"vocabulary of {model.vocab_size:,}, up to {model.max_length:,} tokens"
        return "\n".join([
            "---", *front, "---", "", f"# {kind.title[0].upper()}{kind.title[1:]} trained with heedful", "",
            f"{preset}{describe_layers(config)}, {size}.", "",
            f"{done} On the validation set: {measured}.", "", f"Use it: {kind.use}", "",
        ])  # fmt: skip


def device_of(folder: ModelFolder) -> str:
    """The device of a model that is being trained."""
    return str(next(folder.model.parameters()).device)


def vocabulary_settings(tokenizer: Tokenizer) -> dict[str, Any]:
    """Model settings that follow from the vocabulary."""
    return {name: getattr(tokenizer, name) for name in ("vocab_size", "pad_id", "bos_id", "eos_id")}


def with_weight_decay(config: RunConfig, user_config: RunConfig, tokens: int) -> RunConfig:
    """Muon's weight decay by the size of the corpus, unless the user set it."""
    if config.train.optimizer != "muon" or "weight_decay" in user_config.train.model_fields_set:
        return config
    decay = weight_decay_for(tokens / config.train.batch_tokens, peak_rate(config.train, config.model.d_model))
    return config.replace(train={"weight_decay": decay})


def resolved_model(
    user_config: RunConfig, init: ModelFolder | None, family: str, derived: dict[str, Any]
) -> dict[str, Any]:
    """Model settings that the user cannot choose: `derived` from the corpus, or those of the `init` folder.

    Only dropout, labels, the window and the CTC layer may change when a model is trained further.
    """
    model = user_config.model
    if "family" in model.model_fields_set and model.family != family:
        raise SettingError(
            f"model.family is {model.family}, but this task trains the {family} family; leave it out, or set task."
        )
    if init is None:
        for key in model.model_fields_set & derived.keys():
            if getattr(model, key) != derived[key]:
                instead = "set text.vocab_size instead" if key == "vocab_size" else "leave it out"
                raise SettingError(
                    f"model.{key} is {quote(getattr(model, key))}, and follows from the corpus, where it is "
                    f"{quote(derived[key])}; {instead}."
                )
        return {"family": family} | derived
    loaded = init.config
    if loaded.family != family:
        raise SettingError(
            f"{init.path} holds {model_kind(loaded, init.task).title} ({loaded.family} family), and this task trains "
            f"the {family} family; start from a model of that family, or leave out train.init."
        )
    free = {
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "labels",
        "label_kind",
        "full_window",
        "ctc",
        "pointer",
    }
    for key in model.model_fields_set - free:
        if getattr(model, key) != getattr(loaded, key):
            raise SettingError(
                f"model.{key} is {quote(getattr(model, key))}, and {init.path} has {quote(getattr(loaded, key))}; "
                "leave it out to train that model further."
            )
    return loaded.model_dump(exclude=free & model.model_fields_set) | {
        key: value for key, value in derived.items() if key in free
    }


def describe_layers(config: RunConfig) -> str:
    """'4+4 layers, d_model 128' for a model card or a log line, and how the model differs from the paper's."""
    model = config.model
    depth = {
        "encoder-decoder": f"{model.encoder_layers}+{model.decoder_layers}",
        "decoder": str(model.decoder_layers),
        "encoder": str(model.encoder_layers),
    }[model.family]
    kind = {
        "transformer": f"{model.attention} attention, " if model.attention != "full" else "",
        "rnn": f"{model.cell}, " + (f"{model.source_attention} attention, " if "+" in depth else ""),
        "conv": "dilated " * model.dilated + "separable " * model.separable + "convolutions, ",
        "bytenet": "ByteNet, ",
        "memory-network": "memory network with hops as layers, ",
        "neural-gpu": "Extended Neural GPU, " if model.autoregressive else "Neural GPU, ",
    }[model.architecture]
    layers = ("step" if model.universal else "layer") + "s" * (depth != "1")
    return f"{kind}{depth} {layers}, d_model {model.d_model}"
