"""The models of folders, in the native engine and as PyTorch modules, each read on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.native import Engine, WeightSource
from heedful.storage.folder import ModelFolder
from heedful.storage.weight_file import WeightFile

if TYPE_CHECKING:
    from heedful.storage.module_weights import AnyModel


class FolderModels:
    """One model, or several as an ensemble. Imports torch only if a model is a PyTorch module, or is asked for as one.

    Weights on disk are loaded into the engine without a copy as modules. While a module has forward hooks, the engine
    does not compute it; when its weights change, the engine loads them again (a change through `.data` is not seen).
    """

    def __init__(self, folders: Sequence[ModelFolder], device: str, int8: bool, shortlists: bool = False) -> None:
        self.folders, self.device, self.int8, self.shortlists = folders, device, int8, shortlists
        self._modules: list[AnyModel] = []
        self._engines: list[Engine] = []
        self._engine_state: list[tuple[int, int]] | None = None  # of the weights that the engines hold

    @property
    def modules(self) -> list[AnyModel]:
        """The models as PyTorch modules, on the device."""
        if not self._modules:
            on_disk = self._weight_files()
            self._modules = [folder.model.to(self.device).eval() for folder in self.folders]
            self._engine_state = self._weights_state() if on_disk and self._engines else None
        return self._modules

    @property
    def engines(self) -> list[Engine]:
        """The models in the native engine, which must support them; empty while a module has forward hooks."""
        if files := self._weight_files():
            self._engines = self._engines or self._build_engines(files)
            return self._engines
        if any(m._forward_hooks or m._forward_pre_hooks for model in self.modules for m in model.modules()):
            return []
        if self._engine_state != (state := self._weights_state()):
            from heedful.native.torch_bridge import ModuleWeights

            weights = [ModuleWeights(model) for model in self.modules]
            self._engine_state, self._engines = state, self._build_engines(weights)
        return self._engines

    def _build_engines(self, weights: Sequence[WeightSource]) -> list[Engine]:
        return [Engine(source, self.int8, self.shortlists) for source in weights]

    def _weight_files(self) -> list[WeightFile]:
        """The weights of the models, if all of them are on disk and none has been read."""
        files = [folder.weights for folder in self.folders if isinstance(folder.weights, WeightFile)]
        return files if len(files) == len(self.folders) else []

    def _weights_state(self) -> list[tuple[int, int]]:
        """Changes with every operation of PyTorch on a weight, except those on its `.data`.

        Weights that were made in inference mode have no version.
        """
        parameters = (parameter for model in self._modules for parameter in model.parameters())
        return [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in parameters]
