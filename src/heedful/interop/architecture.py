"""The interface of a foreign architecture: its configuration, tensor names and limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar

from torch import Tensor

from heedful.config import ModelConfig
from heedful.errors import SettingError
from heedful.interop.setting_mapping import ACTIVATIONS, Settings, read_settings, write_settings
from heedful.interop.untrusted import ForeignConfig
from heedful.interop.weight_mapping import WeightLayout


class Architecture(ABC):
    """One model type of Hugging Face's transformers library."""

    model_type: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[str]
    audio: ClassVar[bool] = False  # whether its models read audio features
    fixed: ClassVar[dict[str, object]]  # settings with only one possible value
    settings: ClassVar[Settings]
    aliases: ClassVar[dict[str, str]] = {}  # alternative names of its settings
    most_positions: ClassVar[int] = 2**28  # numbers in a table of positions

    @abstractmethod
    def config(self, foreign: ForeignConfig, names: Collection[str]) -> ModelConfig:
        """config.json and the names of the tensors -> heedful's configuration."""

    def read_settings(self, foreign: ForeignConfig) -> dict[str, Any]:
        """The settings of config.json that the table maps, and those with only one possible value."""
        return {"family": self.family, **self.fixed, **read_settings(foreign, self.settings, self.most_positions)}

    @abstractmethod
    def layout(self, config: ModelConfig) -> WeightLayout:
        """The mapping of tensors."""

    @abstractmethod
    def description(self, config: ModelConfig) -> dict[str, Any]:
        """Heedful's configuration -> config.json."""

    def write_settings(self, config: ModelConfig, class_name: str) -> dict[str, Any]:
        """config.json for a class of transformers, with the settings that the table maps."""
        described = {"architectures": [class_name], "model_type": self.model_type, "vocab_size": config.vocab_size}
        return described | write_settings(config, self.settings)

    def canonical(self, name: str) -> str:
        """The canonical name of a tensor that occurs under several names."""
        return name

    def written(self, name: str, config: ModelConfig) -> str:
        """The name under which transformers saves a tensor."""
        return name

    def redundant(self, name: str) -> bool:
        """Whether one of heedful's tensors changes no output, so that the other format lacks it."""
        return False

    def inwards(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Transform the weights after renaming (foreign -> heedful)."""
        return state

    def outwards(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Transform the weights before renaming (heedful -> foreign)."""
        return state

    def completed(self, weights: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
        """Add redundant tensors that transformers expects in a file."""
        return weights

    def check(self, config: ModelConfig) -> None:
        """Refuse a setting that the architecture cannot express."""
        refuse_other_systems(config, self.title)
        for name, value in self.fixed.items():
            actual = getattr(config, name)
            if actual != value:
                raise refused(name, actual, f"in a {self.title} model it is always {value!r}")
        if config.key_width != config.d_head:
            raise refused("d_key", config.d_key, f"in a {self.title} model it is always d_model / n_heads")
        if config.activation not in ACTIVATIONS.values():
            raise refused("activation", config.activation, f"a {self.title} model has no such feed-forward layer")


def refuse_other_systems(config: ModelConfig, title: str) -> None:
    """Refuse all but the Transformer of the paper: full attention, and separate weights for each block."""
    usual: dict[str, object] = {"architecture": "transformer", "attention": "full", "decoder_attention": None}
    for name, value in (usual | {"universal": False, "norm": "layer", "experts": 0, "pointer": False}).items():
        actual = getattr(config, name)
        if actual not in (value, "full"):
            raise refused(name, actual, f"a {title} model does not support it")


def refused(name: str, value: object, reason: str) -> SettingError:
    """The error for a setting that prevents a conversion."""
    return SettingError(
        f"model.{name} is {value!r}, but {reason}; the model cannot be converted without changing what it computes."
    )


def with_output_bias(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights with a bias of the output projection, of zeros if there is none."""
    return {"output_bias": state["embedding.weight"].new_zeros(len(state["embedding.weight"]))} | state
