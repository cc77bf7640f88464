"""The native engine as Python objects: the weights of a model, and its beam search.

The engine computes what `model` computes, in float32 or in int8 (weights and activations). It pads nothing and
sums in a fixed order, so a sentence has the same result to the last bit alone or in any batch.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable, Sequence
from ctypes import POINTER, byref, c_float, c_int32, c_void_p
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from heedful.audio.log_mel import FeatureFrames
from heedful.config import ModelConfig
from heedful.errors import HeedfulError
from heedful.native.capi import CONSTRAINT, EngineError, SearchOptionsStruct, WeightStruct, concatenate, pointer
from heedful.native.isa import LibraryChoice, choose_library
from heedful.native.support import config_struct, position_tensors
from heedful.search import Hypothesis, SearchOptions, SearchRequest
from heedful.search.hypothesis import hypothesis

ROWS_PER_STEP = 32, 64  # bounds on the hypotheses that a search computes at once,
AUDIO_ROWS = 4  # and on those of recordings

log = logging.getLogger("heedful")
Array = npt.NDArray[Any]


class WeightSource(Protocol):
    """A model that yields its tensors one by one: name, values, and the scales of int8 values."""

    config: ModelConfig

    def tensors(self) -> Iterable[tuple[str, Array, Array | None]]: ...


class Engine:
    """The weights of one model, copied and packed for GEMM; searches share them."""

    def __init__(self, weights: WeightSource, int8: bool, shortlists: bool = False) -> None:
        """`shortlists` allows requests to have one, at the price of a second layout of the output matrix."""
        self.config = weights.config
        loaded = library()
        assert loaded is not None
        self.library = loaded
        self.model = c_void_p(self.library.heedful_model_new(byref(config_struct(self.config, int8, shortlists))))
        self._check_loaded(0 if self.model else -1)
        for name, tensor, scale in weights.tensors():
            if not name.startswith("ctc."):  # used in training alone
                self._load_tensor(name, tensor, scale)
        for name, table in position_tensors(self.config):
            self._load_tensor(name, table)
        self._check_loaded(self.library.heedful_model_check_complete(self.model))

    def _load_tensor(self, name: str, tensor: Array, scale: Array | None = None) -> None:
        tensor = np.ascontiguousarray(tensor, np.float32 if scale is None else np.int8)
        values = WeightStruct(tensor.ctypes.data, None, None, tensor.size)
        if scale is not None:
            values = WeightStruct(None, tensor.ctypes.data, scale.ctypes.data, tensor.size)
        self._check_loaded(self.library.heedful_model_load(self.model, name.encode(), byref(values)))

    def _check_loaded(self, code: int) -> None:
        if code < 0:
            raise HeedfulError(f"the native engine cannot load the model: {self.error()}.")

    def __del__(self) -> None:
        if getattr(self, "model", None):
            self.library.heedful_model_free(self.model)

    def error(self) -> str:
        return str(self.library.heedful_error().decode())

    def check_length(self, length: int, source_length: int = 0) -> None:
        """Refuse more tokens, or more positions of a source, than the engine has positions for."""
        for tokens, most in ((length, self.config.max_length), (source_length, self.config.source_length)):
            if tokens > most:
                raise ValueError(f"{tokens} tokens, but the model takes {most} at most")

    def checked(self, code: int) -> int:
        """The return value of a library function; raises its error if it is negative."""
        if code < 0:
            raise HeedfulError(f"{self.error()}; the model's weights are damaged or overflow.")
        return code


def rows_per_step(engine: Engine) -> int:
    """Rows to compute at once: enough to amortize reading the weights, few enough to stay in the CPU's cache.

    Those of recordings are few: their encoder memory is what takes time and space.
    """
    if engine.config.features:
        return AUDIO_ROWS
    return min(max(ROWS_PER_STEP[0], engine.config.d_model // 2), ROWS_PER_STEP[1])


class EngineSearch:
    """A beam search with continuous batching: requests, each with its own options, join and leave at any step."""

    def __init__(self, engine: Engine, threads: int = 1) -> None:
        self.engine, self.max_rows = engine, rows_per_step(engine)
        self.search = c_void_p(engine.library.heedful_search_new(engine.model, threads))
        engine.checked(0 if self.search else -1)
        self.options: dict[int, SearchOptions] = {}  # of the requests in the search
        self.constraints = _Constraints(engine.config.vocab_size)
        self.continues: dict[int, Array | None] = {}  # borrowed by the engine until the request is removed
        self.rows = 0  # of all requests, with full beams

    def __del__(self) -> None:
        if getattr(self, "search", None):
            self.engine.library.heedful_search_free(self.search)

    def add(self, request: SearchRequest) -> int:
        """Queue a request; it joins with the next step that has rows for it -> its number."""
        source, options, prefix, shortlist, phrases = request
        config = self.engine.config
        options.check_beam()
        if prefix:
            forced = options.model_copy(update={"prefix": (tuple(prefix),)})
            forced.check(1, config.vocab_size, {config.bos_id, config.eos_id, config.pad_id})
        limit = options.max_target_length(len(source), len(prefix))
        self.engine.check_length(limit, len(source))
        settings = SearchOptionsStruct(
            options.beam, options.n_best, limit, config.bos_id, config.eos_id, config.pad_id,
            options.min_length, options.no_repeat_ngram, options.loop_guard,
            options.n_best if options.early_stopping == "n-best" else options.beam,
            options.early_stopping == "first", options.length_penalty_form == "power", options.length_penalty,
        )  # fmt: skip
        ids, frames = source_pointers(source)
        forced_ids = _numbers(prefix)
        count = 0 if shortlist is None else len(shortlist)
        continues = None if phrases is None else phrases.continues
        number = self.engine.checked(
            self.engine.library.heedful_search_add(
                self.search, ids, frames, len(source), byref(settings), forced_ids, len(prefix),
                pointer(shortlist), count, None if phrases is None else _numbers(phrases.flattened()),
                pointer(continues), self.constraints.function if options.constraints else None,
            )
        )  # fmt: skip
        self.options[number] = options
        self.constraints.of_search[number] = options.constraints
        self.continues[number] = continues
        self.rows += options.beam
        return number

    def step(self, steps: int = 1, enough: int = 1) -> list[tuple[int, list[Hypothesis]]]:
        """Decode a token for each request, up to `steps` times or until `enough` finish -> these, with hypotheses."""
        finished = (c_int32 * len(self.options))()
        count = self.engine.checked(
            self.engine.library.heedful_search_run(self.search, steps, enough, self.max_rows, finished)
        )
        self.constraints.raise_error()
        return [(number, self._take_hypotheses(number)) for number in finished[:count]]

    def drop(self, number: int) -> None:
        """Remove a request, finished or not."""
        self.rows -= self.options.pop(number).beam
        self.engine.checked(self.engine.library.heedful_search_remove(self.search, number))
        del self.continues[number], self.constraints.of_search[number]

    def _take_hypotheses(self, number: int) -> list[Hypothesis]:
        options, hypotheses = self.options[number], list[Hypothesis]()
        ids, log_probs, finished = POINTER(c_int32)(), POINTER(c_float)(), c_int32()
        for index in range(self.engine.checked(self.engine.library.heedful_search_count(self.search, number))):
            length = self.engine.checked(
                self.engine.library.heedful_search_hypothesis(
                    self.search, number, index, byref(ids), byref(log_probs), byref(finished)
                )
            )
            hypotheses.append(hypothesis(ids[:length], log_probs[:length], options, bool(finished.value)))
        self.drop(number)
        return sorted(hypotheses, key=lambda candidate: (not candidate.finished, -candidate.score))[: options.n_best]


class _Constraints:
    """Lets the engine call the constraints of searches; an exception in one of them is raised after the call."""

    def __init__(self, vocab_size: int) -> None:
        self.of_search: dict[int, tuple[Any, ...]] = {}  # by number
        self.errors: list[BaseException] = []
        of_search, errors = self.of_search, self.errors  # not `self`: the function must not keep it alive

        def constrain(number: int, logits: Any, ids: Any, count: int) -> None:
            try:
                row, written = np.ctypeslib.as_array(logits, (vocab_size,)), ids[:count]
                for constraint in of_search[number]:
                    constraint.forbid(row, written)
            except BaseException as error:  # such as Ctrl-C
                errors.append(error)

        self.function = CONSTRAINT(constrain)

    def raise_error(self) -> None:
        if self.errors:
            error = self.errors[0]
            self.errors.clear()
            raise error


def source_pointers(source: Sequence[int] | FeatureFrames) -> tuple[Any, Any]:
    """Ids or audio frames as the engine reads them; the other one is None."""
    if isinstance(source, FeatureFrames):
        return None, np.ascontiguousarray(source.frames, np.float32).ctypes.data_as(c_void_p)
    return _numbers(source), None


def concatenate_sources(
    sources: Sequence[Sequence[int] | FeatureFrames],
) -> tuple[npt.NDArray[np.int32] | None, npt.NDArray[np.float32] | None, npt.NDArray[np.int32]]:
    """Ids, or audio frames, of several sources, the other one None; and the length of each source."""
    recordings = [source for source in sources if isinstance(source, FeatureFrames)]
    ids = [source for source in sources if not isinstance(source, FeatureFrames)]
    if recordings and ids:
        raise TypeError("sources are recordings and ids; a model reads only one kind")
    if recordings:
        frames = np.ascontiguousarray(np.concatenate([source.frames for source in recordings]), np.float32)
        return None, frames, np.array([len(source) for source in recordings], np.int32)
    concatenated, lengths = concatenate(ids)
    return concatenated, None, lengths


def _numbers(values: Sequence[int]) -> ctypes.Array[c_int32]:
    return (c_int32 * len(values))(*values)


@cache
def library_choice() -> LibraryChoice | None:
    """The library for this CPU; None, with a warning, if there is none."""
    try:
        return choose_library()
    except EngineError as error:
        log.warning("no native engine (%s): PyTorch is used, which is slower.", error)
        return None


def library() -> ctypes.CDLL | None:
    return choice.library if (choice := library_choice()) else None


def training_precision(precision: str, loaded: ctypes.CDLL) -> str:
    """The precision to train in; 'auto' is the faster one on this CPU."""
    if precision != "auto":
        return precision
    return "bfloat16" if loaded.heedful_prefers_bf16() else "float32"
