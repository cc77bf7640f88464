"""Whether the native engine or PyTorch computes a model, and in which precision. Imports no torch on a CPU."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar, cast

from heedful.config import Family
from heedful.errors import SettingError
from heedful.inference.folder_models import FolderModels
from heedful.native import Engine, library
from heedful.native.support import unsupported_setting
from heedful.ops.precision import PRECISION_NAMES, PRECISIONS, choose_precision
from heedful.packages import explain_missing
from heedful.storage.folder import ModelFolder, load_folder, wrong_family_error
from heedful.storage.model_kind import model_kind

log = logging.getLogger("heedful")
M = TypeVar("M")  # the class of a model as a PyTorch module


def why_not_native(folders: Sequence[ModelFolder], device: str) -> str:
    """Why the engine does not compute these models, as the end of a sentence about it; empty if it does."""
    if device != "cpu":
        return "needs a CPU"
    for folder in folders:
        if setting := unsupported_setting(folder.config):
            return f"does not know {setting}"
    return "" if library() is not None else "is not available"


def torch_notice(folders: Sequence[ModelFolder], device: str = "cpu", precision: str = "auto") -> str:
    """A sentence that says why PyTorch computes these models, for the log; empty if it was asked for, or does not.

    A missing engine is not repeated: it is reported when its library is looked for.
    """
    why_not = why_not_native(folders, device)
    if not why_not or device != "cpu" or precision == "bfloat16" or library() is None:
        return ""
    return f"PyTorch computes {join_paths(folders)}: the native engine {why_not}."


def log_torch_notice(folders: Sequence[ModelFolder], device: str, precision: str) -> None:
    if notice := torch_notice(folders, device, precision):
        log.warning(notice)


def describe_torch(device: str, why_not_native: str) -> str:
    """'PyTorch on cpu (the native engine does not know model.attention=window)'."""
    reason = f" (the native engine {why_not_native})" if why_not_native and device == "cpu" else ""
    return f"PyTorch on {device}{reason}"


def join_paths(folders: Sequence[ModelFolder]) -> str:
    return " and ".join(str(folder.path) for folder in folders)


def describe_loaded(
    loaded: object, folders: Sequence[ModelFolder], precision: str, device: str, why_not_native: str
) -> str:
    """The repr of a loaded model: what it is, where, what computes it, and its method; reads no weights."""
    kind = model_kind(folders[0].config, folders[0].task)
    by_torch = why_not_native or precision == "bfloat16"
    precision = "float32" if by_torch and precision == "int8" else precision  # PyTorch does not compute int8
    what = f"{kind.title} in {join_paths(folders)}"
    backend = describe_torch(device, why_not_native) if by_torch else "the native engine"
    use = f"{kind.method}(…)" if kind.method else "heedful.train(init=…)"
    return f"<heedful.{type(loaded).__name__}: {what}, {backend}, {precision}; use {use}>"


class LoadedModel(Generic[M]):
    """A GPT or a BERT, in the native engine or as a PyTorch module, read on first use."""

    family: ClassVar[Family]
    lacks: ClassVar[str]  # what a model of another family does not do, as a clause

    def __init__(self, folder: ModelFolder, precision: str = "float32", device: str = "cpu") -> None:
        """With precision "auto" the engine computes in float32."""
        if folder.config.family != self.family:
            raise wrong_family_error(folder, self.lacks)
        self.folder, self.config, self.tokenizer, self.device = folder, folder.config, folder.tokenizer, device
        self.precision = resolve_precision(precision, device, why_not_native([folder], device), "float32")
        self.folder_models = FolderModels([folder], device, self.precision == "int8")

    @classmethod
    def load(cls, path: Path | str, precision: str = "float32", device: str = "cpu") -> Self:
        loaded = cls(load_folder(path), precision, device)
        log_torch_notice([loaded.folder], device, precision)
        return loaded

    @property
    def model(self) -> M:
        """The model as a PyTorch module; from now on PyTorch computes it, with all that is changed in it."""
        return cast(M, self.folder_models.hand_out()[0])

    @property
    def module(self) -> M:
        """The model as a PyTorch module for what only reads it; the engine goes on computing."""
        return cast(M, self.folder_models.modules[0])

    @property
    def engine(self) -> Engine | None:
        """The model in the native engine.

        None if PyTorch computes it: in bfloat16, while it has forward hooks, and after `model` was read.
        """
        if self.precision == "bfloat16" or why_not_native([self.folder], self.device):
            return None
        return next(iter(self.folder_models.engines), None)

    def __repr__(self) -> str:
        return describe_loaded(self, [self.folder], self.precision, self.device, self._why_not_native())

    def _why_not_native(self) -> str:
        return why_not_native([self.folder], self.device) or self.folder_models.why_torch


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
    if precision == "auto" and not why_not:
        return native
    with explain_missing(f"a model that the native engine does not compute (it {why_not})"):
        return choose_precision(precision, device)
