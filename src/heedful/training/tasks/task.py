"""What a run learns: the part of training that differs between a translator, a GPT, a BERT and a classifier.

The loop asks its task for the batches of an epoch, for one batch in pieces, for the loss of a piece and for the numbers
of a validation, and knows nothing else of it. A task knows no optimiser, rank or file of a run.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.config import Family, RunConfig
from heedful.data.corpus import Accept, Corpus, accept_any
from heedful.errors import SettingError, quote
from heedful.ops.cross_entropy import Loss
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer
from heedful.training.run_report import Column

Indices = NDArray[np.int64]
Scores = dict[str, float]
Progress = Callable[[str], None]


class MicroBatch(Protocol):
    """A part of a batch as tensors."""

    def to(self, device: torch.device | str) -> Self: ...


@dataclass(frozen=True)
class MicroBatches:
    """A batch in pieces, made when they are asked for; None is an empty one.

    `tokens` counts what the loss of the whole batch is divided by, wherever its pieces are computed.
    """

    tokens: int
    pieces: Sequence[Callable[[], MicroBatch] | None]


class Task(ABC):
    """What is learned from an encoded corpus."""

    family: ClassVar[Family]  # of the models that it trains
    guesses_tokens: ClassVar[bool] = False  # whether it is an encoder's head that learns
    columns: ClassVar[tuple[Column, ...]]  # the scores of a validation, as they are shown
    suits_its_size_to_time: ClassVar[bool] = False  # whether a short time leads to a smaller preset

    corpus: Corpus[Any]

    @classmethod
    @abstractmethod
    def open(
        cls, config: RunConfig, folder: Path, progress: Progress, init: ModelFolder | None, accept: Accept = accept_any
    ) -> Self:
        """Read and encode the corpus of a run, or find it encoded in `folder`.

        `accept` is told the name of the encoded corpus before anything is encoded, and may refuse it.
        """

    @classmethod
    def known(cls, asked: RunConfig) -> dict[str, Any]:
        """Settings of a new model that follow from other settings, before the corpus is read."""
        return {}

    @abstractmethod
    def resolve(self, asked: RunConfig, init: ModelFolder | None) -> RunConfig:
        """Settle what the user left open: the preset, and what follows from the corpus and its vocabulary."""

    @abstractmethod
    def prepare(self, config: RunConfig) -> None:
        """Take over the settled settings."""

    def begin(self, model: Any, config: RunConfig) -> str:
        """Give a fresh model what the corpus tells before anything is learned; what that was, in a line."""
        return ""

    @property
    @abstractmethod
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Of target and source; one object where there is one vocabulary."""

    @abstractmethod
    def plan(self, epoch: int) -> list[Indices]:
        """The global batches of an epoch: a pure function of the corpus, the seed and the epoch."""

    @abstractmethod
    def cut(self, batch: Indices, update: int, count: int) -> MicroBatches:
        """A global batch in `count` pieces; what is random about it follows from the seed and the update."""

    @abstractmethod
    def loss(self, model: Any, piece: Any, smoothing: float = 0.0, negatives: int = 0) -> Loss:
        """Sums over what is learned of a piece."""

    @abstractmethod
    def validation(self) -> Iterator[MicroBatch]:
        """The held-out part, always the same."""

    def scores(self, likelihood: float, tokens: int) -> Scores:
        """The numbers that follow from the loss over the held-out part."""
        loss = likelihood / tokens
        return {"valid_loss": loss, "valid_perplexity": math.exp(min(loss, 50.0))}

    def rank(self, scores: Scores) -> list[float]:
        """What decides which of two models is better; more is better, the first difference counts."""
        return [-scores["valid_loss"]]

    @abstractmethod
    def card(self, config: RunConfig, done: str, scores: Scores) -> str:
        """README.md of the model folder; `done` says how long it was trained."""


def resolved_model(asked: RunConfig, init: ModelFolder | None, family: str, found: dict[str, Any]) -> dict[str, Any]:
    """Settings of the model that are not the user's to choose: `found` in the corpus, or those of `init`.

    Of a model that is trained further, only dropout may change.
    """
    if "family" in asked.model.model_fields_set and asked.model.family != family:
        raise SettingError(
            f"model.family is {asked.model.family}, and follows from what is trained, which is the {family} family; "
            "leave it out, or set task."
        )
    if init is None:
        for key in asked.model.model_fields_set & found.keys():
            if getattr(asked.model, key) != found[key]:
                instead = "set text.vocab_size instead" if key == "vocab_size" else "leave it out"
                raise SettingError(
                    f"model.{key} is {quote(getattr(asked.model, key))}, and follows from the corpus, where it is "
                    f"{quote(found[key])}; {instead}."
                )
        return {"family": family} | found
    ours = init.config
    if ours.family != family:
        raise SettingError(
            f"{init.path} holds a model of the {ours.family} family, and this run trains the {family} one; "
            f"start from a folder of the {family} family, or give what the {ours.family} family learns from."
        )
    free = {"dropout", "attention_dropout", "activation_dropout", "labels"}
    for key in asked.model.model_fields_set - free:
        if getattr(asked.model, key) != getattr(ours, key):
            raise SettingError(
                f"model.{key} is {quote(getattr(asked.model, key))}, and {init.path} has {quote(getattr(ours, key))}; "
                "leave it out to train that model further."
            )
    return ours.model_dump(exclude=free & asked.model.model_fields_set) | {
        key: value for key, value in found.items() if key in free
    }


def layers(config: RunConfig) -> str:
    """'4+4 layers, d_model 128' for a card or a line of the report, and what is not the paper's."""
    model = config.model
    depth = {
        "encoder-decoder": f"{model.encoder_layers}+{model.decoder_layers}",
        "decoder": str(model.decoder_layers),
        "encoder": str(model.encoder_layers),
    }[model.family]
    kind = {
        "transformer": f"{model.attention} attention, " if model.attention != "full" else "",
        "rnn": f"{model.cell}, " + (f"{model.source_attention} attention, " if "+" in depth else ""),
        "conv": "dilated convolutions, " if model.dilated else "convolutions, ",
    }[model.architecture]
    return f"{kind}{depth} {'steps' if model.universal else 'layers'}, d_model {model.d_model}"
