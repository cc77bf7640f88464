"""LoadedModels: encoder-decoders of model folders, in the native engine or as PyTorch modules, read on first use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from heedful.errors import SettingError
from heedful.inference.folder_models import FolderModels
from heedful.inference.forced_decoding import ForcedDecoder
from heedful.inference.native_choice import (
    describe_loaded,
    describe_torch,
    join_paths,
    resolve_precision,
    why_not_native,
)
from heedful.inference.scheduler import SearchBackend
from heedful.inference.shortlist import Shortlist
from heedful.inference.source_trees import use_trees
from heedful.native import Engine
from heedful.native.forced_decoder import EngineForcedDecoder
from heedful.ops.threads import num_threads
from heedful.packages import explain_missing
from heedful.search import NextToken, Observer
from heedful.storage.folder import ModelFolder

if TYPE_CHECKING:
    from heedful.data.token_trees import Parser, TokenTrees
    from heedful.inference.torch_backend import TorchBackend
    from heedful.model.transformer import EncoderDecoder


class LoadedModels:
    """One encoder-decoder, or several as an ensemble: what a translator and a transcriber have in common."""

    def __init__(
        self,
        folders: Sequence[ModelFolder],
        precision: str = "float32",
        device: str = "cpu",
        threads: int = 0,
        shortlist: Shortlist | None = None,
    ) -> None:
        self.folders, self.device, self.shortlist = folders, device, shortlist
        self.threads = threads or num_threads()
        self.configs = [folder.config for folder in folders]
        _check_same_vocabularies(folders)
        first = folders[0]
        self.source_tokenizer, self.tokenizer, self.search = first.source_tokenizer, first.tokenizer, first.search
        self.precision = resolve_precision(precision, device, why_not_native(folders, device), "int8")
        self.observer: Observer | None = None  # called at every step of every search
        self.source_trees: list[TokenTrees] = []  # of each model, if trees are given
        self.folder_models = FolderModels(folders, device, self.precision == "int8", shortlist is not None)

    def __repr__(self) -> str:
        return describe_loaded(self, self.folders, self.precision, self.device, self._why_not_native())

    @property
    def engine(self) -> str:
        """A short description of what computes the searches."""
        backend = "the native engine" if self.engines else describe_torch(self.device, self._why_not_native())
        shortlist = "" if self.shortlist is None else ", shortlist"
        return f"{backend}, {self.precision}, {self.threads} thread{'s' * (self.threads > 1)}{shortlist}"

    @property
    def models(self) -> list[EncoderDecoder]:
        """The models as PyTorch modules; from now on PyTorch computes them, with all that is changed in them."""
        return cast("list[EncoderDecoder]", self.folder_models.hand_out())

    @property
    def modules(self) -> list[EncoderDecoder]:
        """The models as PyTorch modules for what only reads them; the engine goes on computing."""
        return cast("list[EncoderDecoder]", self.folder_models.modules)

    def use_trees(self, trees: Sequence[Path] | Parser) -> None:
        """Give models with syntax positions the dependency trees of sentences: CoNLL-U files, or a parser."""
        self.source_trees = [use_trees(folder, trees) for folder in self.folders]

    @property
    def engines(self) -> list[Engine]:
        """The models in the native engine; empty if PyTorch computes.

        PyTorch computes models that the engine does not support, on other devices, in bfloat16, while modules have
        forward hooks, and after `models` was read.
        """
        by_torch = self.precision == "bfloat16" or why_not_native(self.folders, self.device)
        return [] if by_torch else self.folder_models.engines

    def _why_not_native(self) -> str:
        return why_not_native(self.folders, self.device) or self.folder_models.why_torch

    @cached_property
    def torch(self) -> TorchBackend:
        """Computes in PyTorch; imported on first use."""
        with explain_missing(self._torch_task()):
            from heedful.inference.torch_backend import TorchBackend

        return TorchBackend(lambda: self.modules, self.source_tokenizer, self.tokenizer, self.precision, self.device)

    @property
    def forced_decoders(self) -> Sequence[ForcedDecoder]:
        """Each model as scores and alignments see it."""
        if engines := self.engines:
            return [EngineForcedDecoder(engine, self.threads) for engine in engines]
        return self.torch.forced_decoders()

    @property
    def aligns(self) -> bool:
        """Whether there is an attention over the source to read alignments off, and something to compute it."""
        return self.configs[0].has_cross_attention and (bool(self.engines) or find_spec("torch") is not None)

    def torch_lanes(self, sampling: bool = False, **options: Any) -> SearchBackend:
        """Searches in PyTorch, or in the engine for searches that only PyTorch knows."""
        with explain_missing(self._torch_task(sampling)):
            from heedful.inference.torch_search import TorchSearchLanes

        return TorchSearchLanes(self.torch, self.next_token, sampling=sampling, **options)

    def _torch_task(self, sampling: bool = False) -> str:
        """What needs PyTorch, for the message that it is not installed."""
        if why_not := self._why_not_native():
            return f"computing {join_paths(self.folders)}, which the native engine does not (it {why_not}),"
        if self.precision == "bfloat16":
            return "precision bfloat16"
        if sampling:
            return "sampling translations (`translate --sample`)"
        if len(self.folders) > 1:
            return f"translating with an ensemble ({join_paths(self.folders)})"
        return "a search that calls Python (constraints, observer)"

    @property
    def next_token(self) -> NextToken:
        """The model, or the ensemble, as search sees it."""
        return self.torch.next_token(self.engines)


def _check_same_vocabularies(folders: Sequence[ModelFolder]) -> None:
    first = folders[0]
    for other in folders[1:]:
        same = other.tokenizer.to_json() == first.tokenizer.to_json()
        if not same or other.source_tokenizer.to_json() != first.source_tokenizer.to_json():
            raise SettingError(
                f"{other.path} and {first.path} have different vocabularies; the models of an ensemble must share one."
            )
