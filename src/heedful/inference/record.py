"""Listening to a model while it works: `with record(model) as trace:`.

Every activation worth seeing leaves a module of the model, and the dotted path of that module is its name:
`decoder.3.cross.weights` are the attention weights of decoder layer 3 over the source. Nothing is computed for a
listener that is not there. A translator searches: of everything that its beams computed, a trace gives what led to the
best output of each sentence, as if that output had been computed in one piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from heedful.errors import SettingError
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
}
HIDDEN = ("position", "width")  # what every other module passes on
HIDDEN_SUFFIXES = (
    "query", "key", "value", "embedding",  # taps show the same by heads, and with source and target apart
    "cells", "convolve", "bridge", "halt",  # parts of other architectures whose results are no row of positions
)  # fmt: skip
WEIGHTS = ("output",)  # a module that is only a place for weights, and is never called
LENGTHS = ("position", "query", "key")


class Activation(Tensor):
    """A tensor whose axes have names, `axes`; what is computed from it is an ordinary tensor."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    axes: tuple[str, ...]

    def pick(self, **places: int) -> Activation:
        """The part at some places: `weights.pick(sentence=0, head=3)` has the axes `query` and `key`."""
        if unknown := set(places) - set(self.axes):
            raise SettingError(f"{unknown.pop()!r} is no axis of this activation; it has {', '.join(self.axes)}.")
        part = self.as_subclass(Tensor)[tuple(places.get(axis, slice(None)) for axis in self.axes)]
        return name_axes(part, tuple(axis for axis in self.axes if axis not in places))


def name_axes(tensor: Tensor, axes: Sequence[str]) -> Activation:
    """The same numbers with names for their axes."""
    activation = tensor.as_subclass(Activation)
    activation.axes = tuple(axes)
    return activation


def axes_of(name: str) -> tuple[str, ...]:
    """The axes of an activation by its name, behind the first one, which counts sentences."""
    return AXES.get(name.rpartition(".")[2], HIDDEN)


def activation_names(model: nn.Module) -> list[str]:
    """Every name that `record` and `patch` know in a model: what its modules give out, taps included."""
    return [
        name
        for name, module in model.named_modules()
        if name
        and name not in WEIGHTS
        and not name.endswith(HIDDEN_SUFFIXES)
        and not isinstance(module, Attention)
        and ".position" not in name
    ]


@dataclass
class SearchTrace:
    """What one search of several sentences left behind."""

    indices: list[int] = field(default_factory=list)  # of the sentences among all that were given
    sources: list[list[int]] = field(default_factory=list)  # their ids with their end
    found: list[list[Hypothesis]] = field(default_factory=list)
    rows: list[dict[tuple[int, tuple[int, ...]], int]] = field(default_factory=list)  # of each step, by their prefixes
    calls: dict[str, list[Tensor]] = field(default_factory=dict)

    def of(self, name: str, place: int) -> Tensor:
        """One sentence's activation, without padding: of the source, or of its best output joined from all steps."""
        source, calls = len(self.sources[place]), self.calls[name]
        if name.startswith("encoder"):
            return _cut(calls[-1][place], name, source, source)
        if ".cross." in name and axes_of(name)[1] == "key":
            return _cut(calls[-1][place], name, 0, source)
        steps = [call[row] for call, row in zip(calls[-len(self.rows) :], self.path(place), strict=False)]
        axes = axes_of(name)
        along = next(number for number, axis in enumerate(axes) if axis in LENGTHS)
        if axes[-1] == "key":  # the keys of self-attention grow with every step
            steps = [_wider(step, source if ".cross." in name else len(steps)) for step in steps]
        return torch.cat(steps, along)

    def path(self, place: int) -> list[int]:
        """The row of each step whose prefix became the best output of a sentence."""
        best = self.found[place][0]
        return [rows[place, best.ids[:length]] for length, rows in enumerate(self.rows[: len(best.token_log_probs)])]


class Trace(Mapping[str, Activation]):
    """What was recorded, by name: of each sentence that was translated, or of the last pass of a bare model.

    `calls` holds everything as it came, a tensor for each time that a module ran. During a search its first axis
    counts the rows of the beam.
    """

    def __init__(self) -> None:
        self.calls: dict[str, list[Tensor]] = {}
        self.searches: list[SearchTrace] = []

    def __getitem__(self, name: str) -> Activation:
        """(sentence, …): the shorter ones of several translated sentences are filled up with zeros."""
        if name not in self.calls:
            raise KeyError(f"{name} was not recorded; recorded were {', '.join(self.calls) or 'none'}")
        axes = ("sentence", *axes_of(name))
        if not self.searches:
            return name_axes(self.calls[name][-1], axes)
        each = sorted((found for found in self._sentences() if name in found[0].calls), key=lambda found: found[2])
        return name_axes(_stacked([search.of(name, place) for search, place, _ in each]), axes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def sentence(self, number: int) -> dict[str, Activation]:
        """Everything about one sentence, without its axis and without padding."""
        for search, place, index in self._sentences():
            if index == number:
                return {name: name_axes(search.of(name, place), axes_of(name)) for name in search.calls}
        if self.searches:
            raise SettingError(f"there is no sentence {number}; {len(list(self._sentences()))} were translated.")
        return {name: self[name].pick(sentence=number) for name in self}

    def _sentences(self) -> Iterator[tuple[SearchTrace, int, int]]:
        for search in self.searches:
            for place, index in enumerate(search.indices):
                yield search, place, index


class TraceObserver(Observer):
    """Follows a search, so that the path of its outputs through the beams is known."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.search = trace, SearchTrace()
        self.before: dict[str, int] = {}  # how often each module had run when the search began

    def step(self, sentence: Tensor, prefix: Tensor, log_probs: Tensor) -> None:
        keys = zip(sentence.tolist(), map(tuple, prefix.tolist()), strict=True)
        self.search.rows.append({key: row for row, key in enumerate(keys)})

    def finish(
        self, indices: Sequence[int], sources: Sequence[Sequence[int]], hypotheses: Sequence[list[Hypothesis]]
    ) -> None:
        search, self.search = self.search, SearchTrace()
        search.indices, search.sources = list(indices), [list(ids) for ids in sources]
        search.found = list(hypotheses)
        calls = self.trace.calls
        new = {name: calls[name][self.before.get(name, 0) :] for name in calls}
        search.calls = {name: found for name, found in new.items() if found}  # steps after all have halted do not run
        self.before = {name: len(found) for name, found in calls.items()}
        self.trace.searches.append(search)


@contextmanager
def record(model: Any, *patterns: str) -> Iterator[Trace]:
    """Record what a model, or a translator, computes under names that match `patterns`; attention weights by default.

    Of an ensemble, the first model is recorded; of what several threads compute with it, this thread's part.
    """
    module = module_of(model)
    patterns = patterns or ("*.weights",)
    chosen = [name for name in activation_names(module) if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not chosen:
        raise SettingError(f"nothing in the model is called {' or '.join(patterns)}; `names(model)` lists them all.")
    trace = Trace()
    with ExitStack() as stack:
        for name in chosen:
            stack.enter_context(module.get_submodule(name).register_forward_hook(_keeper(trace, name)))
        if hasattr(model, "observer"):
            stack.callback(setattr, model, "observer", model.observer)
            model.observer = TraceObserver(trace)
        yield trace


def module_of(model: Any) -> nn.Module:
    """The module inside a translator, a model folder, or itself."""
    for part in ("models", "model"):
        if not isinstance(model, nn.Module) and hasattr(model, part):
            model = getattr(model, part)
    model = model[0] if isinstance(model, list) else model
    if not isinstance(model, nn.Module):
        raise SettingError(f"{type(model).__name__} is no model; give one, or a translator that has one.")
    return model


def _keeper(trace: Trace, name: str) -> Any:
    thread = get_ident()

    def keep(module: nn.Module, given: Any, result: Any) -> None:
        if isinstance(result, Tensor) and get_ident() == thread:
            whole = result.dim() > len(axes_of(name))  # a search projects hidden states of one position, (R, D)
            trace.calls.setdefault(name, []).append(result.detach() if whole else result.detach().unsqueeze(1))

    return keep


def _cut(tensor: Tensor, name: str, queries: int, keys: int) -> Tensor:
    """Without what belongs to padding."""
    for number, axis in enumerate(axes_of(name)):
        if axis in LENGTHS:
            tensor = tensor.narrow(number, 0, keys if axis == "key" else queries)
    return tensor


def _wider(tensor: Tensor, length: int) -> Tensor:
    """(…, S) -> (…, length): zeros behind the last key, or fewer keys, if they belong to padding."""
    room = tensor.new_zeros(*tensor.shape[:-1], length)
    least = min(length, tensor.size(-1))
    room[..., :least] = tensor[..., :least]
    return room


def _stacked(tensors: list[Tensor]) -> Tensor:
    """One more axis in front; zeros fill up what is shorter."""
    shape = [max(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True)]
    room = tensors[0].new_zeros(len(tensors), *shape)
    for row, tensor in zip(room, tensors, strict=True):
        row[tuple(slice(size) for size in tensor.shape)] = tensor
    return room
