"""A translator's weights in the compiled engine, as any search sees it and with a search of its own.

The engine computes what `model` computes, in float32 or with weights and activations of 8 bits. It has no padding and
sums every number in one order, so a sentence has the same result to the last bit alone or beside any others.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable, Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.errors import HeedfulError
from heedful.model import EncoderDecoder
from heedful.model.positions import POSITIONS as SCHEMES
from heedful.native.build import BuildError, built
from heedful.search import Hypothesis, Options
from heedful.search.hypothesis import hypothesis

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "swiglu")  # as they are numbered there
ROWS = 32, 64  # fewest and most that a search computes at once

log = logging.getLogger("heedful")
POSITIONS = {"sinusoidal": 0, "learned": 0, "rotary": 1, "alibi": 2}


class _Shape(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("width", "inner", "heads", "encoder_layers", "decoder_layers", "vocabulary")),
        *((name, c_int32) for name in ("source_vocabulary", "longest", "activation", "positions")),
        *((name, c_int32) for name in ("norm_first", "embedding_norm", "tied", "small", "shortlists")),
        *((name, c_float) for name in ("norm_epsilon", "embedding_scale")),
    ]


class _Tensor(ctypes.Structure):
    _fields_ = [*((name, c_void_p) for name in ("floats", "wholes", "scales")), ("count", c_int64)]


class _Options(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("beam", "n_best", "limit", "bos", "eos", "pad")),
        ("alpha", c_double),
    ]


def computes(config: ModelConfig) -> bool:
    """Whether the engine knows such a model: the Transformer of the paper and what is usual today."""
    return (
        config.family == "encoder-decoder"
        and config.architecture == "transformer"
        and config.attention == config.attention_of_decoder == "full"
        and not config.recurrent_depth
        and config.key_width == config.d_head
        and config.positions in POSITIONS
    )


class Weights(Protocol):
    """A model that is not in memory: its tensors come one after the other, and with scales if they are of 8 bits."""

    config: ModelConfig

    def tensors(self) -> Iterable[tuple[str, Tensor, Tensor | None]]: ...


class Engine:
    """The weights of one model, copied and laid out for products; searches share it."""

    def __init__(
        self,
        weights: EncoderDecoder | Weights,
        small: bool,
        shortlists: bool = False,
        loaded: ctypes.CDLL | None = None,
    ) -> None:
        """`shortlists` lets sentences have some: it takes memory for another layout of the output's matrix."""
        self.config = weights.config
        found = loaded or library()
        assert found is not None
        self.library = found
        self.model = c_void_p(self.library.heedful_model(byref(_shape(self.config, small, shortlists))))
        self._taken(0 if self.model else -1)
        for name, tensor, scale in _tensors(weights):
            self._fill(name, tensor.detach().contiguous(), scale)
        self._taken(self.library.heedful_filled(self.model))

    def _fill(self, name: str, tensor: Tensor, scale: Tensor | None) -> None:
        if scale is None:
            tensor = tensor.float()
            given = _Tensor(tensor.data_ptr(), None, None, tensor.numel())
        else:
            given = _Tensor(None, tensor.data_ptr(), scale.data_ptr(), tensor.numel())
        self._taken(self.library.heedful_fill(self.model, name.encode(), byref(given)))

    def _taken(self, code: int) -> None:
        if code < 0:
            raise HeedfulError(f"the engine cannot take the model: {self.error()}.")

    def __del__(self) -> None:
        if getattr(self, "model", None):
            self.library.heedful_model_free(self.model)

    def error(self) -> str:
        return str(self.library.heedful_error().decode())

    def checked(self, code: int) -> int:
        """What a function returned, or its error."""
        if code < 0:
            raise HeedfulError(f"{self.error()}; the model's weights are damaged or overflow.")
        return code


def rows_at_once(engine: Engine) -> int:
    """How many rows a search should have: many share the reading of large weights, few stay near the CPU themselves."""
    return min(max(ROWS[0], engine.config.d_model // 2), ROWS[1])


class EngineNextToken:
    """The engine as any search sees it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        config = engine.config
        self.bos_id, self.eos_id, self.pad_id = config.bos_id, config.eos_id, config.pad_id
        self.vocab_size = config.vocab_size

    def start(self, source: Tensor, source_lengths: Tensor) -> EngineCache:
        return EngineCache(self.engine, source, source_lengths)

    def step(self, ids: Tensor, cache: Any) -> Tensor:
        log_probs: Tensor = cache.advance(ids)
        return log_probs


class EngineCache:
    """Rows as nodes of the engine's trees; to rearrange them is to rearrange their numbers."""

    def __init__(self, engine: Engine, source: Tensor, source_lengths: Tensor) -> None:
        self.engine = engine
        lengths = source_lengths.int().contiguous()
        kept = torch.arange(source.size(1)) < lengths.unsqueeze(1)
        ids = source[kept].int()
        steps = engine.library.heedful_steps(
            engine.model, torch.get_num_threads(), _at(ids), _at(lengths), len(lengths)
        )
        if not steps:
            raise HeedfulError(f"the engine failed: {engine.error()}.")
        self.steps = c_void_p(steps)
        self.sentences = torch.arange(len(source), dtype=torch.int32)  # (B,) those that are left
        self.nodes = torch.full((len(source),), -1, dtype=torch.int32)  # (R,) the last of each row

    def __del__(self) -> None:
        if getattr(self, "steps", None):
            self.engine.library.heedful_steps_free(self.steps)

    def advance(self, ids: Tensor) -> Tensor:
        """(R,) -> (R, V)."""
        rows, last = len(ids), ids.int().contiguous()
        of_row = self.sentences.repeat_interleave(rows // len(self.sentences))
        log_probs = torch.empty(rows, self.engine.config.vocab_size)
        self.engine.checked(
            self.engine.library.heedful_advance(
                self.steps, rows, _at(of_row), _at(self.nodes), _at(last), _at(log_probs)
            )
        )
        return log_probs

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.nodes = self.nodes[rows]
        if sources is not None:
            self.sentences = self.sentences[sources]


class EngineSearch:
    """A beam search that sentences join and leave at any step; each may have options of its own."""

    def __init__(self, engine: Engine, threads: int = 1) -> None:
        self.engine, self.most = engine, rows_at_once(engine)
        self.search = c_void_p(engine.library.heedful_search(engine.model, threads))
        self.options: dict[int, Options] = {}  # of the sentences that are in it
        self.rows = 0  # of all of them, if their beams are full

    def __del__(self) -> None:
        if getattr(self, "search", None):
            self.engine.library.heedful_search_free(self.search)

    def add(
        self,
        source: Sequence[int],
        options: Options,
        prefix: Sequence[int] = (),
        shortlist: npt.NDArray[np.int32] | None = None,
    ) -> int:
        """A sentence, with its eos, that joins with the next step, if there is room -> its number."""
        config = self.engine.config
        options.check_beam()
        if prefix:
            forced = options.model_copy(update={"prefix": (tuple(prefix),)})
            forced.check(1, config.vocab_size, {config.bos_id, config.eos_id, config.pad_id})
        limit = options.longest(len(source), len(prefix))
        asked = _Options(
            options.beam, options.n_best, limit, config.bos_id, config.eos_id, config.pad_id, options.alpha
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
            found.append(hypothesis(ids[:length], log_probs[:length], options.alpha, bool(finished.value)))
        self.drop(number)
        return sorted(found, key=lambda each: (not each.finished, -each.score))[: options.n_best]


def _shape(config: ModelConfig, small: bool, shortlists: bool) -> _Shape:
    scale = config.d_model**0.5 if config.scale_embedding else 1.0
    source = 0 if config.tie == "all" else config.source_vocab_size or config.vocab_size
    return _Shape(
        config.d_model, config.d_ff, config.n_heads, config.encoder_layers, config.decoder_layers, config.vocab_size,
        source, config.max_length, ACTIVATIONS.index(config.activation), POSITIONS[config.positions],
        config.norm == "pre", config.embedding_norm, config.tie != "none", small, shortlists, config.norm_eps, scale,
    )  # fmt: skip


def _tensors(weights: EncoderDecoder | Weights) -> Iterable[tuple[str, Tensor, Tensor | None]]:
    """All that the engine wants to know, tables of positions that are computed included."""
    if isinstance(weights, EncoderDecoder):
        yield from ((name, each, None) for name, each in weights.named_parameters())
    else:
        yield from weights.tensors()
    if weights.config.positions == "learned":
        return
    for name, table in SCHEMES[weights.config.positions](weights.config, 0).named_buffers():
        for side in ("encoder", "decoder"):
            yield f"{side}.position.{name.replace('turns', 'table')}", table, None


def _at(tensor: Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())


@cache
def library() -> ctypes.CDLL | None:
    """The compiled part, or None with a notice."""
    try:
        return _declared(built(_wrong))
    except BuildError as error:
        log.warning("no compiled engine (%s): translation runs on plain torch, which is slower.", error)
        return None


def _declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    for name in ("model", "search", "steps"):
        getattr(loaded, f"heedful_{name}").restype = c_void_p
    loaded.heedful_error.restype = c_char_p
    return loaded


@torch.no_grad()
def _wrong(loaded: ctypes.CDLL) -> str:
    """Where a new library strays from torch on a small model, if it does."""
    config = ModelConfig(
        vocab_size=131, d_model=96, d_ff=102, n_heads=3, encoder_layers=2, decoder_layers=2, dropout=0.0
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = EncoderDecoder(config).eval()
    sources = [[*range(4, 4 + length), config.eos_id] for length in (4, 0, 16)]
    source, bos = torch.full((3, 17), config.pad_id), torch.full((3,), config.bos_id)
    for row, ids in zip(source, sources, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    expected = model.project(model(source, bos.unsqueeze(1)))[:, 0].log_softmax(-1)
    some = np.array([0, 1, 2, 3, *range(5, 131, 4)], dtype=np.int32)
    for small, bound in ((False, 1e-3), (True, 0.3)):
        found = EngineNextToken(Engine(model, small, True, _declared(loaded)))
        cache = found.start(source, torch.tensor([len(ids) for ids in sources]))
        apart = float((found.step(bos, cache) - expected).abs().max())
        search = EngineSearch(found.engine)
        search.add(sources[2], Options(beam=1, max_length=1), shortlist=some)
        ((_, (best,)),) = search.step()
        among = expected[2, torch.from_numpy(some).long()].logsumexp(0)
        apart = max(apart, abs(best.log_prob - float(expected[2, best.ids[0]] - among)))
        if not apart < bound:
            return f"{'8 bits' if small else 'float32'} are {apart:.2g} apart from torch"
    return ""
