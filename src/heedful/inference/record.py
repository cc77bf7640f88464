"""Record activations: `with record(model) as trace:`.

Every activation is the output of a module, and the dotted path of that module is its name: `decoder.3.cross.weights`
are the attention weights of decoder layer 3 over the source. Without a recording nothing extra is computed. Of a beam
search a trace gives the activations that led to the best output of each sentence, as in one pass with teacher forcing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from heedful.errors import SettingError
from heedful.inference.folder_models import FolderModels
from heedful.model.attention.multi_head import Attention
from heedful.search import Hypothesis, Observer

AXES = {
    "queries": ("head", "query", "width"),
    "keys": ("head", "key", "width"),
    "values": ("head", "key", "width"),
    "weights": ("head", "query", "key"),
    "heads": ("head", "query", "width"),
    "inner": ("position", "unit"),
    "up": ("position", "unit"),
    "gate": ("position", "unit"),
    "logits": ("position", "token"),
    "ponder": ("position",),
    "gates": ("position", "expert"),
    "load": ("position", "expert"),
}
HIDDEN = ("position", "width")  # of every other module
HIDDEN_SUFFIXES = (
    "query", "key", "value", "embedding",  # taps show the same by head, and separately for source and target
    "cells", "convolve", "depthwise", "pointwise", "bridge", "halt", "center", "center_value",
    "front_end.first", "front_end.second",  # no position axis
)  # fmt: skip
WEIGHTS = ("output", "ctc", "pointer")  # modules that only hold weights and are never called
LENGTHS = ("position", "query", "key")
EXAMPLES = 6  # names that an error shows


class Activation(Tensor):
    """A tensor with names for its axes, `axes`; results computed from it are ordinary tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    axes: tuple[str, ...]

    def pick(self, **places: int) -> Activation:
        """Index by axis name: `weights.pick(sentence=0, head=3)` has the axes `query` and `key`."""
        if unknown := set(places) - set(self.axes):
            raise SettingError(f"{unknown.pop()!r} is not an axis of this activation; it has {', '.join(self.axes)}.")
        part = self.as_subclass(Tensor)[tuple(places.get(axis, slice(None)) for axis in self.axes)]
        return name_axes(part, tuple(axis for axis in self.axes if axis not in places))


def name_axes(tensor: Tensor, axes: Sequence[str]) -> Activation:
    """A tensor as an activation with these axes."""
    activation = tensor.as_subclass(Activation)
    activation.axes = tuple(axes)
    return activation


def axes_of(name: str) -> tuple[str, ...]:
    """The axes of an activation by its name, without the first one, which is the sentence."""
    return AXES.get(name.rpartition(".")[2], HIDDEN)


def activation_names(model: nn.Module) -> list[str]:
    """Every name that `record` and `patch` accept for a model: the outputs of its modules, taps included."""
    return [
        name
        for name, module in model.named_modules()
        if name
        and name not in WEIGHTS
        and not name.endswith(HIDDEN_SUFFIXES)
        and not isinstance(module, Attention)
        and ".position" not in name
        and ".experts" not in name  # an expert sees a part of the tokens
        and ".cells" not in name  # called once a step, on a whole memory
    ]


@dataclass
class SearchTrace:
    """The recording of one search of several sentences."""

    indices: dict[int, int] = field(default_factory=dict)  # place in the search -> number among all of the call
    lengths: list[int] = field(default_factory=list)  # of the sources: ids with eos, or positions of audio
    hypotheses: list[list[Hypothesis]] = field(default_factory=list)
    rows: list[dict[tuple[int, tuple[int, ...]], int]] = field(
        default_factory=list
    )  # of each step, by sentence and prefix
    calls: dict[str, list[Tensor]] = field(default_factory=dict)

    def of(self, name: str, place: int) -> Tensor:
        """The activation of one sentence without padding: of its source, or of its best output over all steps."""
        source, calls = self.lengths[place], self.calls[name]
        if name.startswith(("encoder", "front_end")):
            return _cut(calls[-1][place], name, source, source)
        if ".cross." in name and axes_of(name)[1] == "key":
            return _cut(calls[-1][place], name, 0, source)
        steps = [call[row] for call, row in zip(calls[-len(self.rows) :], self.path(place), strict=False)]
        axes = axes_of(name)
        along = next(number for number, axis in enumerate(axes) if axis in LENGTHS)
        if axes[-1] == "key":  # the keys of self-attention grow with every step
            steps = [_resize_keys(step, source if ".cross." in name else len(steps)) for step in steps]
        return torch.cat(steps, along)

    def path(self, place: int) -> list[int]:
        """The row of each step whose prefix became the best output of a sentence."""
        best = self.hypotheses[place][0]
        return [rows[place, best.ids[:length]] for length, rows in enumerate(self.rows[: len(best.token_log_probs)])]


class Trace(Mapping[str, Activation]):
    """Recorded activations by name: of each translated sentence, or of the last forward pass of a module.

    `calls` holds the raw outputs, a tensor for each call of a module. During a search their first axis is the row of
    the beam.
    """

    def __init__(self) -> None:
        self.calls: dict[str, list[Tensor]] = {}
        self.searches: list[SearchTrace] = []

    def __getitem__(self, name: str) -> Activation:
        """(sentence, …): shorter sentences are padded with zeros."""
        if name not in self.calls:
            raise KeyError(f"{name} was not recorded; recorded were {', '.join(self.calls) or 'none'}")
        axes = ("sentence", *axes_of(name))
        if not self.searches:
            return name_axes(self.calls[name][-1], axes)
        sentences = sorted((s for s in self._sentences() if name in s[0].calls), key=lambda sentence: sentence[2])
        return name_axes(_pad_and_stack([search.of(name, place) for search, place, _ in sentences]), axes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def sentence(self, number: int) -> dict[str, Activation]:
        """All activations of one sentence, without the sentence axis and without padding."""
        for search, place, index in self._sentences():
            if index == number:
                return {name: name_axes(search.of(name, place), axes_of(name)) for name in search.calls}
        if self.searches:
            raise SettingError(f"there is no sentence {number}; {len(list(self._sentences()))} were translated.")
        return {name: self[name].pick(sentence=number) for name in self}

    def _sentences(self) -> Iterator[tuple[SearchTrace, int, int]]:
        for search in self.searches:
            for place, index in search.indices.items():
                yield search, place, index


class TraceObserver(Observer):
    """Records the rows of every step, to know the path of each output through the beam."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.searches: list[tuple[SearchTrace, list[int]]] = []  # of one batch, with the sentences of each
        self.before: dict[str, int] = {}  # calls of each module before the search
        self.now: dict[str, int] = {}  # calls of each module up to the last step

    def step(self, sentence: Tensor, prefix: Tensor, log_probs: Tensor) -> None:
        if not prefix.size(1):
            self._end_search()
            self.searches.append((SearchTrace(), sentence.tolist()))
        search, sentences = self.searches[-1]
        places = {number: place for place, number in enumerate(sentences)}
        keys = zip(sentence.tolist(), map(tuple, prefix.tolist()), strict=True)
        search.rows.append({(places[number], ids): row for row, (number, ids) in enumerate(keys)})
        self.now = {name: len(tensors) for name, tensors in self.trace.calls.items()}

    def finish(self, indices: Sequence[int], sources: Sequence[Sized], hypotheses: Sequence[list[Hypothesis]]) -> None:
        self._end_search()
        again: set[int] = set()  # sentences of a later search, which has the final hypotheses
        for search, sentences in reversed(self.searches):
            search.indices = {p: indices[number] for p, number in enumerate(sentences) if number not in again}
            search.lengths = [len(sources[number]) for number in sentences]
            search.hypotheses = [hypotheses[number] for number in sentences]
            again |= set(sentences)
        self.trace.searches += [search for search, _ in self.searches]
        self.searches = []

    def _end_search(self) -> None:
        """Give the last search the calls since it began."""
        if self.searches:
            new = {name: self.trace.calls[name][self.before.get(name, 0) : end] for name, end in self.now.items()}
            calls = {name: tensors for name, tensors in new.items() if tensors}  # steps after halting do not run
            self.searches[-1][0].calls = calls
            self.before = self.now


@contextmanager
def record(model: Any, *patterns: str) -> Iterator[Trace]:
    """Record the activations of a model or translator whose names match `patterns`; attention weights by default.

    Of an ensemble the first model is recorded. Computations of other threads are not recorded.
    """
    module = module_of(model)
    patterns = patterns or ("*.weights",)
    chosen = [name for name in activation_names(module) if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not chosen:
        known = activation_names(module)
        raise SettingError(
            f"nothing in the model is called {' or '.join(patterns)}; give one of its {len(known)} names, such as"
            f" {', '.join(known[:EXAMPLES])}; heedful.inside.activation_names lists them all."
        )
    trace = Trace()
    with ExitStack() as stack:
        for name in chosen:
            stack.enter_context(module.get_submodule(name).register_forward_hook(_recording_hook(trace, name)))
        if hasattr(model, "observer"):
            stack.callback(setattr, model, "observer", model.observer)
            model.observer = TraceObserver(trace)
        yield trace


def module_of(model: Any) -> nn.Module:
    """The module inside a translator, a model folder, or itself."""
    if isinstance(model, nn.Module):
        return model
    loaded: FolderModels | None = getattr(model, "folder_models", None)  # while it has hooks, PyTorch computes
    module = getattr(model, "model", None) if loaded is None else loaded.modules[0]
    if not isinstance(module, nn.Module):
        raise SettingError(f"{type(model).__name__} is not a model; give a module, a model folder or a translator.")
    return module


def _recording_hook(trace: Trace, name: str) -> Any:
    thread = get_ident()

    def hook(module: nn.Module, inputs: Any, result: Any) -> None:
        if isinstance(result, Tensor) and get_ident() == thread:
            whole = result.dim() > len(axes_of(name))  # a search projects hidden states of one position, (R, D)
            trace.calls.setdefault(name, []).append(result.detach() if whole else result.detach().unsqueeze(1))

    return hook


def _cut(tensor: Tensor, name: str, queries: int, keys: int) -> Tensor:
    """Without padding."""
    for number, axis in enumerate(axes_of(name)):
        if axis in LENGTHS:
            tensor = tensor.narrow(number, 0, keys if axis == "key" else queries)
    return tensor


def _resize_keys(tensor: Tensor, length: int) -> Tensor:
    """(…, S) -> (…, length): pad keys with zeros, or cut off padding."""
    padded = tensor.new_zeros(*tensor.shape[:-1], length)
    least = min(length, tensor.size(-1))
    padded[..., :least] = tensor[..., :least]
    return padded


def _pad_and_stack(tensors: list[Tensor]) -> Tensor:
    """Stack tensors along a new first axis, padded with zeros."""
    shape = [max(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True)]
    padded = tensors[0].new_zeros(len(tensors), *shape)
    for row, tensor in zip(padded, tensors, strict=True):
        row[tuple(slice(size) for size in tensor.shape)] = tensor
    return padded
