"""A translator's weights in the compiled engine, with a search of its own.

The engine computes what `model` computes, in float32 or with weights and activations of 8 bits. It has no padding and
sums every number in one order, so a sentence has the same result to the last bit alone or beside any others.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable
from ctypes import POINTER, byref, c_float, c_int32, c_void_p
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from heedful.config import ModelConfig
from heedful.errors import HeedfulError
from heedful.native.capi import EngineError, SearchOptionsStruct, Shape, Tensor
from heedful.native.isa import LibraryChoice, choose_library
from heedful.native.support import POSITIONS, position_tensors
from heedful.search import Hypothesis, SearchOptions, SearchRequest
from heedful.search.hypothesis import hypothesis

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "swiglu")  # as they are numbered there
ROWS_PER_STEP = 32, 64  # fewest and most that a search computes at once

log = logging.getLogger("heedful")
Array = npt.NDArray[Any]


class WeightSource(Protocol):
    """A model whose tensors come one after the other, and with scales if they are of 8 bits."""

    config: ModelConfig

    def tensors(self) -> Iterable[tuple[str, Array, Array | None]]: ...


class Engine:
    """The weights of one model, copied and laid out for products; searches share it."""

    def __init__(self, weights: WeightSource, small: bool, shortlists: bool = False) -> None:
        """`shortlists` lets sentences have some: it takes memory for another layout of the output's matrix."""
        self.config = weights.config
        found = library()
        assert found is not None
        self.library = found
        self.model = c_void_p(self.library.heedful_model(byref(_shape(self.config, small, shortlists))))
        self._taken(0 if self.model else -1)
        for name, tensor, scale in weights.tensors():
            self._fill(name, tensor, scale)
        for name, table in position_tensors(self.config):
            self._fill(name, table)
        self._taken(self.library.heedful_filled(self.model))

    def _fill(self, name: str, tensor: Array, scale: Array | None = None) -> None:
        tensor = np.ascontiguousarray(tensor, np.float32 if scale is None else np.int8)
        given = Tensor(tensor.ctypes.data, None, None, tensor.size)
        if scale is not None:
            given = Tensor(None, tensor.ctypes.data, scale.ctypes.data, tensor.size)
        self._taken(self.library.heedful_fill(self.model, name.encode(), byref(given)))

    def _taken(self, code: int) -> None:
        if code < 0:
            raise HeedfulError(f"the engine cannot take the model: {self.error()}.")

    def __del__(self) -> None:
        if getattr(self, "model", None):
            self.library.heedful_model_free(self.model)

    def error(self) -> str:
        return str(self.library.heedful_error().decode())

    def check_length(self, length: int) -> None:
        """The engine has positions for so many tokens, and looks at no others."""
        if length > self.config.max_length:
            raise ValueError(f"{length} tokens, but the model takes {self.config.max_length} at most")

    def checked(self, code: int) -> int:
        """What a function returned, or its error."""
        if code < 0:
            raise HeedfulError(f"{self.error()}; the model's weights are damaged or overflow.")
        return code


def rows_per_step(engine: Engine) -> int:
    """How many rows a search should have: many share the reading of large weights, few stay near the CPU themselves."""
    return min(max(ROWS_PER_STEP[0], engine.config.d_model // 2), ROWS_PER_STEP[1])


class EngineSearch:
    """A beam search that sentences join and leave at any step; each may have options of its own."""

    def __init__(self, engine: Engine, threads: int = 1) -> None:
        self.engine, self.most = engine, rows_per_step(engine)
        self.search = c_void_p(engine.library.heedful_search(engine.model, threads))
        engine.checked(0 if self.search else -1)
        self.options: dict[int, SearchOptions] = {}  # of the sentences that are in it
        self.rows = 0  # of all of them, if their beams are full

    def __del__(self) -> None:
        if getattr(self, "search", None):
            self.engine.library.heedful_search_free(self.search)

    def add(self, request: SearchRequest) -> int:
        """Queue a request; it joins with the next step that has rows for it -> its number."""
        source, options, prefix, shortlist = request
        config = self.engine.config
        options.check_beam()
        if prefix:
            forced = options.model_copy(update={"prefix": (tuple(prefix),)})
            forced.check(1, config.vocab_size, {config.bos_id, config.eos_id, config.pad_id})
        limit = options.longest(len(source), len(prefix))
        self.engine.check_length(max(len(source), limit))
        asked = SearchOptionsStruct(
            options.beam, options.n_best, limit, config.bos_id, config.eos_id, config.pad_id, options.length_penalty
        )
        ids, begin = (c_int32 * len(source))(*source), (c_int32 * len(prefix))(*prefix)
        some = c_void_p(None if shortlist is None else shortlist.ctypes.data)
        count = 0 if shortlist is None else len(shortlist)
        number = self.engine.checked(
            self.engine.library.heedful_add(
                self.search, ids, len(source), byref(asked), begin, len(prefix), some, count
            )
        )
        self.options[number] = options
        self.rows += options.beam
        return number

    def step(self, steps: int = 1, enough: int = 1) -> list[tuple[int, list[Hypothesis]]]:
        """One token more for all, or more until enough ended -> those that did, with their hypotheses, best first."""
        ended = (c_int32 * len(self.options))()
        count = self.engine.checked(self.engine.library.heedful_run(self.search, steps, enough, self.most, ended))
        return [(number, self._found(number)) for number in ended[:count]]

    def drop(self, number: int) -> None:
        """A sentence leaves, done or not."""
        self.rows -= self.options.pop(number).beam
        self.engine.checked(self.engine.library.heedful_drop(self.search, number))

    def _found(self, number: int) -> list[Hypothesis]:
        options, found = self.options[number], []
        ids, log_probs, finished = POINTER(c_int32)(), POINTER(c_float)(), c_int32()
        for index in range(self.engine.checked(self.engine.library.heedful_found(self.search, number))):
            length = self.engine.checked(
                self.engine.library.heedful_hypothesis(
                    self.search, number, index, byref(ids), byref(log_probs), byref(finished)
                )
            )
            found.append(hypothesis(ids[:length], log_probs[:length], options.length_penalty, bool(finished.value)))
        self.drop(number)
        return sorted(found, key=lambda each: (not each.finished, -each.score))[: options.n_best]


def _shape(config: ModelConfig, small: bool, shortlists: bool) -> Shape:
    scale = config.d_model**0.5 if config.scale_embedding else 1.0
    source = 0 if config.tie == "all" else config.source_vocab_size or config.vocab_size
    return Shape(
        config.d_model, config.d_ff, config.n_heads, config.encoder_layers, config.decoder_layers, config.vocab_size,
        source, config.max_length, ACTIVATIONS.index(config.activation), POSITIONS[config.positions],
        config.pre_norm, config.embedding_norm, config.tie != "none", small, shortlists, config.norm_eps, scale,
    )  # fmt: skip


@cache
def library_choice() -> LibraryChoice | None:
    """The engine's library for this machine, or None with a notice."""
    try:
        return choose_library()
    except EngineError as error:
        log.warning("no compiled engine (%s): torch is used, which is slower.", error)
        return None


def library() -> ctypes.CDLL | None:
    return found.library if (found := library_choice()) else None


def training_precision(precision: str, loaded: ctypes.CDLL) -> str:
    """What to learn in: 'auto' takes what is faster on this CPU."""
    if precision != "auto":
        return precision
    return "bfloat16" if loaded.heedful_fast_halves() else "float32"
