"""What has to be known of another project's architecture to open its models and to write ours as its."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar

from torch import Tensor

from heedful.config import ModelConfig
from heedful.errors import SettingError
from heedful.interop.untrusted import ForeignConfig
from heedful.interop.weight_mapping import WeightLayout

# Their names of nonlinearities -> ours; of those with the same meaning, the first is the one that we write.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python": "gelu",
}


class Architecture(ABC):
    """One kind of model, in the form of Hugging Face's transformers library."""

    model_type: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[str]
    fixed: ClassVar[dict[str, object]]  # settings that it has one value for
    aliases: ClassVar[dict[str, str]] = {}  # other names that its settings may go by

    @abstractmethod
    def config(self, given: ForeignConfig, names: Collection[str]) -> ModelConfig:
        """Their config.json, and which tensors there are -> ours."""

    @abstractmethod
    def layout(self, config: ModelConfig) -> WeightLayout:
        """Which tensor of theirs is which of ours."""

    @abstractmethod
    def description(self, config: ModelConfig) -> dict[str, Any]:
        """Ours -> their config.json."""

    def canonical(self, name: str) -> str:
        """One name for tensors that come under several."""
        return name

    def written(self, name: str, config: ModelConfig) -> str:
        """The name under which their library itself would save a tensor."""
        return name

    def inwards(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """What is to be done to weights beyond renaming them."""
        return state

    def outwards(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The opposite."""
        return state

    def completed(self, theirs: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
        """With what their library looks for in a file although it follows from the rest."""
        return theirs

    def check(self, config: ModelConfig) -> None:
        """Refuse, by its name, a setting that the architecture cannot express."""
        refuse_other_systems(config, self.title)
        for name, value in self.fixed.items():
            given = getattr(config, name)
            if given != value:
                raise refused(name, given, f"in a {self.title} model it is always {value!r}")
        if config.key_width != config.d_head:
            raise refused("d_key", config.d_key, f"in a {self.title} model it is always d_model / n_heads")
        if config.activation not in ACTIVATIONS.values():
            raise refused("activation", config.activation, f"a {self.title} model has no such feed-forward layer")


def activation_name(config: ModelConfig) -> str:
    """Their name of our nonlinearity."""
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)


def refuse_other_systems(config: ModelConfig, title: str) -> None:
    """Others know only the Transformer of the paper: blocks of their own weights, with full attention."""
    usual: dict[str, object] = {"architecture": "transformer", "attention": "full", "decoder_attention": None}
    for name, value in (usual | {"universal": False}).items():
        given = getattr(config, name)
        if given not in (value, "full"):
            raise refused(name, given, f"a {title} model has nothing of the kind")


def refused(name: str, value: object, reason: str) -> SettingError:
    """The error for a setting that stands in the way of a conversion."""
    return SettingError(
        f"model.{name} is {value!r}, and {reason}; the model cannot be converted without changing what it computes."
    )
