"""The models of folders, in the native engine and as PyTorch modules, each read on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from heedful.native import Engine, WeightSource
from heedful.storage.folder import ModelFolder
from heedful.storage.weight_file import WeightFile

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.storage.module_weights import AnyModel


class FolderModels:
    """One model, or several as an ensemble. Imports torch only if a model is a PyTorch module, or is asked for as one.

    Weights on disk are loaded into the engine without a copy as modules. PyTorch computes once the modules are handed
    out, since any change of theirs counts then, and while they have forward hooks. Weights that change in
    `ModelFolder.model` are loaded again, if PyTorch counts the change: it does not for fused optimizers and `.data`.
    """

    def __init__(self, folders: Sequence[ModelFolder], device: str, int8: bool, shortlists: bool = False) -> None:
        self.folders, self.device, self.int8, self.shortlists = folders, device, int8, shortlists
        self.handed_out = False
        self._modules: list[AnyModel] = []
        self._engines: list[Engine] = []
        self._loaded: list[tuple[Tensor, int]] | None = None  # what the engines hold of modules

    def __getstate__(self) -> dict[str, Any]:
        """Without the engines: a copy loads its own."""
        return self.__dict__ | {"_engines": [], "_loaded": None}

    def hand_out(self) -> list[AnyModel]:
        """The models as PyTorch modules, for a caller who may change them: from now on PyTorch computes."""
        self.handed_out = True
        return self.modules

    @property
    def modules(self) -> list[AnyModel]:
        """The models as PyTorch modules, on the device, in evaluation mode."""
        if not self._modules:
            on_disk = self._weight_files()
            self._modules = [folder.model.to(self.device) for folder in self.folders]
            self._loaded = self._weights() if on_disk and self._engines else None
        return [model.eval() for model in self._modules]

    @property
    def why_torch(self) -> str:
        """Why the engine does not compute these models now, as the end of a sentence about it; empty if it does."""
        if self.handed_out:
            return "leaves it to PyTorch once its module is asked for"
        modules = [] if self._weight_files() else self.modules
        if any(m._forward_hooks or m._forward_pre_hooks for model in modules for m in model.modules()):
            return "calls no forward hooks"
        return ""

    @property
    def engines(self) -> list[Engine]:
        """The models in the native engine, which must support them; empty while PyTorch computes."""
        if self.why_torch:
            return []
        if files := self._weight_files():
            self._engines = self._engines or self._build_engines(files)
        elif not self._holds(weights := self._weights()):
            from heedful.native.torch_bridge import ModuleWeights

            self._engines = self._build_engines([ModuleWeights(model) for model in self.modules])
            self._loaded = weights
        return self._engines

    def _build_engines(self, weights: Sequence[WeightSource]) -> list[Engine]:
        return [Engine(source, self.int8, self.shortlists) for source in weights]

    def _weight_files(self) -> list[WeightFile]:
        """The weights of the models, if all of them are on disk and none has been read."""
        files = [folder.weights for folder in self.folders if isinstance(folder.weights, WeightFile)]
        return files if len(files) == len(self.folders) else []

    def _weights(self) -> list[tuple[Tensor, int]]:
        """Each weight, kept alive so that its memory is not used again, and the number of changes that PyTorch counts.

        Weights that were made in inference mode have no such number.
        """
        weights = (weight for model in self.modules for weight in model.parameters())
        return [(weight.detach(), 0 if weight.is_inference() else weight._version) for weight in weights]

    def _holds(self, weights: Sequence[tuple[Tensor, int]]) -> bool:
        """Whether the engines hold these weights."""
        loaded = self._loaded
        return loaded is not None and [(w.data_ptr(), n) for w, n in loaded] == [(w.data_ptr(), n) for w, n in weights]
