"""Whether the native engine or PyTorch computes a model, and in which precision. Imports no torch on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from heedful.config import Family, ModelConfig
from heedful.errors import SettingError
from heedful.native import Engine, library
from heedful.native.support import unsupported_setting
from heedful.ops.precision import PRECISION_NAMES, PRECISIONS, choose_precision
from heedful.storage.folder import ModelFolder, load_folder, wrong_family_error
from heedful.storage.model_kind import model_kind
from heedful.storage.weight_file import WeightFile

M = TypeVar("M")  # the class of a model as a PyTorch module


def why_not_native(configs: Sequence[ModelConfig], device: str) -> str:
    """Why the engine does not compute these models, as the end of a sentence about it; empty if it does."""
    if device != "cpu":
        return "needs a CPU"
    for config in configs:
        if setting := unsupported_setting(config):
            return f"does not know {setting}"
    return "" if library() is not None else "is not available"


def describe_loaded(
    loaded: object, folders: Sequence[ModelFolder], precision: str, device: str, why_not_native: str
) -> str:
    """The repr of a loaded model: what it is, where, what computes it, and its method; reads no weights."""
    kind = model_kind(folders[0].config, folders[0].task)
    places = " and ".join(str(folder.path) for folder in folders)
    backend = f"PyTorch on {device}" if why_not_native or precision == "bfloat16" else "the native engine"
    return f"<heedful.{type(loaded).__name__}: {kind.title} in {places}, {backend}, {precision}; use {kind.method}(…)>"


class LoadedModel(Generic[M]):
    """A GPT or a BERT, in the native engine or as a PyTorch module, read on first use."""

    family: ClassVar[Family]
    lacks: ClassVar[str]  # what a model of another family does not do, as a clause
    _engine: Engine | None = None

    def __init__(self, folder: ModelFolder, precision: str = "float32", device: str = "cpu") -> None:
        """With precision "auto" the engine computes in float32."""
        if folder.config.family != self.family:
            raise wrong_family_error(folder, self.lacks)
        self.folder, self.config, self.tokenizer, self.device = folder, folder.config, folder.tokenizer, device
        self.precision = resolve_precision(precision, device, self._why_not_native(), "float32")

    @classmethod
    def load(cls, path: Path | str, precision: str = "float32", device: str = "cpu") -> Self:
        return cls(load_folder(path), precision, device)

    @property
    def model(self) -> M:
        """The model as a PyTorch module, with its hooks and changed weights; from now on PyTorch computes."""
        module: Any = self.folder.model
        return cast(M, module.to(self.device).eval())

    @property
    def engine(self) -> Engine | None:
        """The model in the native engine; None if PyTorch computes it, which it does in bfloat16."""
        if self.precision == "bfloat16" or self._why_not_native():
            return None
        assert isinstance(self.folder.weights, WeightFile)
        self._engine = self._engine or Engine(self.folder.weights, self.precision == "int8")
        return self._engine

    def __repr__(self) -> str:
        return describe_loaded(self, [self.folder], self.precision, self.device, self._why_not_native())

    def _why_not_native(self) -> str:
        if isinstance(self.folder.weights, WeightFile):
            return why_not_native([self.config], self.device)
        writes = f"`heedful convert {self.folder.path} NEW` writes one"
        return f"reads heedful's own model folders only ({writes})"


def resolve_precision(precision: str, device: str, why_not: str, native: str) -> str:
    """The precision to compute in: `auto` is `native` where the engine computes, else the fastest one of PyTorch.

    An unknown one is refused, and int8 where PyTorch computes, `why_not` saying why.
    """
    if precision not in PRECISIONS:
        raise SettingError(f"precision is {precision!r}; it must be {PRECISION_NAMES}.")
    if precision == "int8" and why_not:
        raise SettingError(
            f"precision is int8, but the native engine, which computes it, {why_not}; leave it out, or set it to "
            "float32."
        )
    return native if precision == "auto" and not why_not else choose_precision(precision, device)
