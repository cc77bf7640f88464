"""The compiled engine against torch: the same numbers, the same search, whoever else is in it."""

import ctypes
import itertools
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.native.int8_reference import linear_int8, quantize_weight

from heedful import native
from heedful.config import ModelConfig
from heedful.errors import HeedfulError, SettingError
from heedful.inference.native_search import NativeSearchPool
from heedful.inference.scheduler import QueuedRequest, Scheduler, search_in_order
from heedful.inference.torch_backend import ModelNextToken
from heedful.model.transformer import EncoderDecoder, build_model
from heedful.native import Engine, EngineSearch, library, supports
from heedful.native.capi import ModelConfigStruct
from heedful.native.torch_bridge import EngineNextToken, ModuleWeights
from heedful.search import Hypothesis, SearchOptions, SearchRequest
from heedful.search.beam import beam_search
from heedful.search.sample import sample

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")
VOCABULARY = 61


def model(seed: int = 1, **changes: Any) -> EncoderDecoder:
    torch.manual_seed(seed)
    sizes = {"vocab_size": VOCABULARY, "d_model": 24, "d_ff": 40, "n_heads": 3, "encoder_layers": 2}
    made = build_model(ModelConfig(**sizes | {"decoder_layers": 2, "max_length": 64, "dropout": 0.0} | changes))
    with torch.no_grad():
        for parameter in made.parameters():  # biases and norms that matter, and distributions with a shape
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return made.eval()


def sources(lengths: list[int], seed: int = 5) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [[*torch.randint(4, VOCABULARY, (n - 1,), generator=generator).tolist(), 3] for n in lengths]


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for to, row in zip(ids, rows, strict=True):
        to[: len(row)] = torch.tensor(row)
    return ids, lengths


def search_all(
    engine: Engine, requests: Iterable[SearchRequest], workers: int = 1, threads: int = 1
) -> Iterator[list[Hypothesis]]:
    return search_in_order(NativeSearchPool(engine, workers, threads, batched_calls=True), requests)


def step_outcomes(scheduler: Scheduler) -> dict[QueuedRequest, Any]:
    return {result.queued: result.outcome for result in scheduler.step()}


def add_request(scheduler: Scheduler, source: list[int], options: SearchOptions) -> QueuedRequest:
    (queued,) = scheduler.add([SearchRequest(source, options)])
    return queued


KINDS: list[dict[str, Any]] = [
    {},
    {"pre_norm": True, "positions": "learned", "bias": False},
    {"positions": "rotary", "activation": "gelu", "pre_norm": True, "d_model": 36, "n_heads": 3},
    {"positions": "alibi", "activation": "swiglu", "tie": "none", "output_bias": True},
    {"activation": "gelu_tanh", "tie": "target", "source_vocab_size": VOCABULARY, "embedding_norm": True},
    {"activation": "silu", "scale_embedding": False, "d_model": 128, "d_ff": 200, "n_heads": 2, "encoder_layers": 1},
    {"d_model": 96, "n_heads": 1, "d_ff": 97, "norm_eps": 1e-3, "vocab_size": 257},
    {"pointer": True, "pre_norm": True},
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())) or "paper")
@torch.no_grad()
def test_every_step_has_the_numbers_of_torch(kind: dict[str, Any]) -> None:
    plain = model(**kind)
    source, lengths = padded(sources([7, 1, 12, 3]))
    reference, actual = ModelNextToken(plain), EngineNextToken(Engine(ModuleWeights(plain), int8=False))
    caches = reference.start(source, lengths), actual.start(source, lengths)
    ids, generator = torch.full((4,), 2), torch.Generator().manual_seed(3)
    for step in range(6):
        expected, outcome = reference.step(ids, caches[0]), actual.step(ids, caches[1])
        torch.testing.assert_close(outcome, expected, atol=2e-4, rtol=1e-4)
        rows, left = torch.arange(len(ids)), None
        if step == 1:  # three rows of each sentence
            rows = rows.repeat_interleave(3)
        elif step == 2:  # in another order within each
            rows = torch.tensor([2, 0, 0, 5, 5, 5, 6, 8, 7, 9, 11, 10])
        elif step == 3:  # two sentences leave
            rows, left = torch.tensor([3, 4, 5, 11, 10, 9]), torch.tensor([1, 3])
        for cache in caches:
            cache.select(rows, left)
        ids = torch.randint(4, VOCABULARY, (len(rows),), generator=generator)


SEARCHES = [
    SearchOptions(beam=1, max_length=9),
    SearchOptions(beam=4, n_best=3, max_length=20),
    SearchOptions(beam=5, n_best=5, length_penalty=0.0, max_length=6),
    SearchOptions(beam=2, length_penalty=2.0, max_extra=3),
    SearchOptions(beam=40, n_best=2, max_length=7),  # more candidates than there are tokens
    SearchOptions(beam=3, n_best=2, max_length=30, min_length=8, no_repeat_ngram=2),
    SearchOptions(beam=2, max_length=20, length_penalty=2.0, length_penalty_form="power", early_stopping="beam"),
    SearchOptions(beam=6, n_best=2, max_length=20, length_penalty=0.6, length_penalty_form="power"),
    SearchOptions(beam=3, n_best=3, max_length=30, length_penalty=1.5, early_stopping="first"),
    SearchOptions(beam=2, max_length=40, min_length=30, loop_guard=True),  # loops
    SearchOptions(beam=2, max_length=40, min_length=30, loop_guard=False),
]


@pytest.mark.parametrize("options", SEARCHES, ids=str)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_search_is_that_of_python(options: SearchOptions, seed: int) -> None:
    plain = model(seed)
    requested = sources([7, 1, 12, 3, 5, 9], seed)
    prefixes = [(), (8,), (), (9, 10, 11), (), (1,)]
    engine = Engine(ModuleWeights(plain), int8=False)
    expected = beam_search(
        EngineNextToken(engine), *padded(requested), options.model_copy(update={"prefix": tuple(prefixes)})
    )
    outcome = list(search_all(engine, [SearchRequest(s, options, p) for s, p in zip(requested, prefixes, strict=True)]))
    assert [[(h.ids, h.finished) for h in item] for item in outcome] == [
        [(h.ids, h.finished) for h in value] for value in expected
    ]
    for actual, reference in zip(itertools.chain(*outcome), itertools.chain(*expected), strict=True):
        assert actual.score == pytest.approx(reference.score, abs=1e-5)
        assert actual.token_log_probs == pytest.approx(reference.token_log_probs, abs=1e-5)


@pytest.mark.parametrize("int8", [False, True])
def test_a_sentence_is_the_same_alone_together_late_and_with_threads(int8: bool) -> None:
    engine = Engine(ModuleWeights(model(d_model=128, d_ff=256, n_heads=4)), int8)
    requested, options = sources([7, 1, 12, 3, 30, 9] * 3), SearchOptions(beam=3, n_best=3, max_length=25)
    alone = [next(search_all(engine, [SearchRequest(item, options)])) for item in requested]
    for workers, threads in ((1, 1), (3, 1), (1, 2)):
        assert (
            list(search_all(engine, [SearchRequest(value, options) for value in requested], workers, threads)) == alone
        )
    search, numbers, outcome = EngineSearch(engine), dict[Any, int](), dict[int, Any]()
    for index, source in enumerate(requested):  # one joins at every step
        numbers[search.add(SearchRequest(source, options))] = index
        outcome |= {numbers[number]: hypotheses for number, hypotheses in search.step()}
    while search.rows:
        outcome |= {numbers[number]: hypotheses for number, hypotheses in search.step()}
    assert [outcome[index] for index in range(len(requested))] == alone


@pytest.mark.parametrize("searches", [1, 3])
def test_requests_that_join_at_every_step_of_a_pool_have_the_same_results(searches: int) -> None:
    engine = Engine(ModuleWeights(model(d_model=128, d_ff=256, n_heads=4)), int8=False)
    requested, options = sources([7, 1, 12, 3, 30, 9] * 3), SearchOptions(beam=3, n_best=3, max_length=25)
    scheduler, results = Scheduler(NativeSearchPool(engine, searches)), dict[QueuedRequest, Any]()
    requests = []
    for item in requested:
        requests.append(add_request(scheduler, item, options))
        results |= step_outcomes(scheduler)
    while not scheduler.idle():
        results |= step_outcomes(scheduler)
    assert [results[request] for request in requests] == list(
        search_all(engine, [SearchRequest(value, options) for value in requested])
    )


def test_searches_of_a_pool_do_not_wait_for_each_other_and_requests_can_be_cancelled() -> None:
    engine = Engine(ModuleWeights(model(d_model=128, d_ff=256, n_heads=4)), int8=False)
    requested, options = sources([7, 12, 9, 5]), SearchOptions(beam=3, n_best=1, max_length=25)
    alone = [next(search_all(engine, [SearchRequest(item, options)])) for item in requested]
    pool, go = NativeSearchPool(engine, 2), threading.Event()
    scheduler, results = Scheduler(pool), dict[QueuedRequest, Any]()
    slow = pool.searches[0].search
    step, slow.step = slow.step, lambda *calls: go.wait(60) and step(*calls)
    requests = [add_request(scheduler, value, options) for value in requested[:3]]  # 0 and 2 wait in the slow one
    while requests[1] not in results:
        results |= step_outcomes(scheduler)
    scheduler.cancel({requests[0]})
    late = add_request(scheduler, requested[3], options)
    while late not in results:
        results |= step_outcomes(scheduler)
    assert results == {requests[1]: alone[1], late: alone[3]}
    assert pool.rows == options.beam
    go.set()
    while not scheduler.idle():
        results |= step_outcomes(scheduler)
    assert results == {requests[1]: alone[1], late: alone[3], requests[2]: alone[2]}


@pytest.mark.parametrize("searches", [1, 3])
def test_requests_that_join_and_leave_at_any_time_have_the_same_results_as_alone(searches: int) -> None:
    engine = Engine(ModuleWeights(model()), int8=False)
    random = np.random.default_rng(3)
    requested, options = sources(random.integers(3, 15, 200).tolist()), SearchOptions(beam=2, max_length=12)
    alone = list(search_all(engine, (SearchRequest(item, options) for item in requested)))
    scheduler, requests, results = Scheduler(NativeSearchPool(engine, searches)), [], dict[QueuedRequest, Any]()
    cancelled = set[QueuedRequest]()
    for index, source in enumerate(requested):
        requests.append(add_request(scheduler, source, options))
        if index % 3 == 0:
            running = [request for request in requests if request not in results.keys() | cancelled]
            leaving = running[random.integers(len(running))]
            scheduler.cancel({leaving})
            cancelled.add(leaving)
        if index % 5 == 0:
            results |= step_outcomes(scheduler)
    while not scheduler.idle():
        results |= step_outcomes(scheduler)
    assert not cancelled & results.keys()
    assert {request.number: hypotheses for request, hypotheses in results.items()} == {
        index: alone[index] for index, request in enumerate(requests) if request not in cancelled
    }


def test_the_threads_of_a_pool_end_with_it() -> None:
    before = set(threading.enumerate())
    pool = NativeSearchPool(Engine(ModuleWeights(model()), int8=False), 3)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 3
    del pool
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_an_error_ends_the_requests_of_its_search_alone() -> None:
    engine = Engine(ModuleWeights(model(d_model=128, d_ff=256, n_heads=4)), int8=False)
    requested, options = sources([7, 12, 9]), SearchOptions(beam=3, n_best=1, max_length=25)
    alone = [next(search_all(engine, [SearchRequest(item, options)])) for item in requested]
    pool, broken = NativeSearchPool(engine, 2), threading.Event()
    scheduler, results = Scheduler(pool), dict[QueuedRequest, Any]()
    step = pool.searches[1].search.step

    def breaks(*calls: int) -> Any:
        if broken.is_set():
            return step(*calls)
        broken.set()
        raise SettingError("broken")

    pool.searches[1].search.step = breaks
    first, second = (add_request(scheduler, value, options) for value in requested[:2])
    while not scheduler.idle():
        results |= step_outcomes(scheduler)
    assert results[first] == alone[0] and str(results[second]) == "broken"
    last = add_request(scheduler, requested[2], options)
    while not scheduler.idle():
        results |= step_outcomes(scheduler)
    assert results[last] == alone[2]
    assert pool.rows == 0


def shortlists(count: int, seed: int = 7) -> list[Any]:
    """Some tokens for most sentences, a few for others, none for every fourth."""
    random = np.random.default_rng(seed)
    chosen = [random.choice(np.arange(12, VOCABULARY), size, replace=False) for size in random.integers(1, 40, count)]
    lists = [np.unique(np.concatenate([np.arange(12), item])).astype(np.int32) for item in chosen]
    return [None if index % 4 == 2 else shortlist for index, shortlist in enumerate(lists)]


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[3], KINDS[6] | {"vocab_size": VOCABULARY}], ids=str)
@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_shortlists_are_those_of_python(options: SearchOptions, kind: dict[str, Any]) -> None:
    plain, requested = model(**kind), sources([7, 1, 12, 3, 5, 9])
    prefixes, lists = [(), (8,), (), (9, 10, 11), (), (1,)], shortlists(6)
    changes = {"prefix": tuple(prefixes), "shortlists": tuple(lists)}
    inputs = [SearchRequest(s, options, p, ids) for s, p, ids in zip(requested, prefixes, lists, strict=True)]
    for int8 in (False, True):
        engine = Engine(ModuleWeights(plain), int8, shortlists=True)
        reference = EngineNextToken(engine) if int8 else ModelNextToken(plain)
        expected = beam_search(reference, *padded(requested), options.model_copy(update=changes))
        outcome = list(search_all(engine, inputs))
        for actual, others in zip(itertools.chain(*outcome), itertools.chain(*expected), strict=True):
            assert (actual.ids, actual.finished) == (others.ids, others.finished)
            assert actual.token_log_probs == pytest.approx(others.token_log_probs, abs=1e-4)


@pytest.mark.parametrize("int8", [False, True])
def test_a_shortlist_depends_on_no_other_sentence(int8: bool) -> None:
    engine = Engine(ModuleWeights(model(d_model=128, d_ff=256, n_heads=4)), int8, shortlists=True)
    requested, options = sources([7, 1, 12, 3, 30, 9] * 3), SearchOptions(beam=3, n_best=3, max_length=25)
    inputs = [SearchRequest(s, options, (), ids) for s, ids in zip(requested, shortlists(18), strict=True)]
    alone = [next(search_all(engine, [item])) for item in inputs]
    for workers, threads in ((1, 1), (3, 1), (1, 2)):
        assert list(search_all(engine, inputs, workers, threads)) == alone


@pytest.mark.parametrize("wrong", [[0, 2, 3, 5, 4], [2, 3, 5], [0, 2, 3, VOCABULARY], [-1, 0, 2, 3], [0, 2, 3]])
def test_a_wrong_shortlist_is_refused(wrong: list[int]) -> None:
    search = EngineSearch(Engine(ModuleWeights(model()), False, shortlists=True))
    with pytest.raises(HeedfulError, match="shortlist"):
        search.add(SearchRequest([5, 3], SearchOptions(beam=2), (9,), np.array(wrong, dtype=np.int32)))


def test_what_is_longer_than_the_model_takes_is_refused() -> None:
    engine = Engine(ModuleWeights(model()), False)
    most = engine.config.max_length
    for source, options in (
        ([5] * (most + 1), SearchOptions(max_length=3)),
        ([5, 3], SearchOptions(max_length=most + 1)),
    ):
        with pytest.raises(ValueError, match=f"{most + 1} tokens, but the model takes {most} at most"):
            EngineSearch(engine).add(SearchRequest(source, options))


def test_sentences_have_options_of_their_own_and_may_leave() -> None:
    engine, (one, other, third) = Engine(ModuleWeights(model()), False), sources([5, 9, 4])
    wide, narrow = SearchOptions(beam=4, n_best=2, max_length=12), SearchOptions(beam=1, max_length=5)
    search = EngineSearch(engine)
    first, gone, last = (search.add(SearchRequest(*item)) for item in ((one, wide), (other, wide), (third, narrow)))
    unread = search.add(SearchRequest(other, wide))
    search.drop(unread)
    outcome = dict(search.step())
    search.drop(gone)
    while search.options:
        outcome |= dict(search.step())
    assert outcome == {
        first: next(search_all(engine, [SearchRequest(one, wide)])),
        last: next(search_all(engine, [SearchRequest(third, narrow)])),
    }


def test_sampling_and_constraints_see_the_same_model() -> None:
    plain = model()
    engine = EngineNextToken(Engine(ModuleWeights(plain), False))
    inputs = padded(sources([7, 1, 12, 3]))
    options = SearchOptions(n_best=3, max_length=12, top_k=9)
    actual, reference = sample(engine, *inputs, options), sample(ModelNextToken(plain), *inputs, options)
    assert [[h.ids for h in our] for our in actual] == [[h.ids for h in their] for their in reference]


def fake_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    y, _ = linear_int8(x.detach().reshape(-1, x.size(-1)).numpy(), weight.detach().numpy())
    out = torch.from_numpy(y).view(*x.shape[:-1], -1)
    return out if bias is None else out + bias


@pytest.mark.parametrize("extreme", [False, True])
@torch.no_grad()
def test_int8_is_that_of_the_reference(extreme: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = model(d_model=34, n_heads=1, d_ff=51, pre_norm=True)  # no multiple of four
    if extreme:  # all weights are 127 or -127, more than sums of 16 bits can take
        for item in (weight for weight in plain.parameters() if weight.dim() > 1):
            item.copy_(item.sign() * item.std())
    source, lengths = padded(sources([7, 1, 12]))
    ids = torch.full((3,), 2)
    outcome = EngineNextToken(Engine(ModuleWeights(plain), int8=True))
    cache = outcome.start(source, lengths)
    actual = outcome.step(ids, cache)
    monkeypatch.setattr("torch.nn.functional.linear", fake_linear)
    values, scale = quantize_weight(plain.embedding.weight.numpy())
    plain.embedding.weight.copy_(torch.from_numpy(values * scale[:, None]))
    reference = ModelNextToken(plain)
    expected = reference.step(ids, reference.start(source, lengths))
    # a number that lies between two whole ones may be rounded either way; nearly all agree
    assert ((actual - expected).abs() < 1e-3).float().mean() > 0.6
    assert (actual - expected).abs().max() < 0.15


def test_weights_that_are_not_finite_are_reported() -> None:
    broken = model()
    with torch.no_grad():
        broken.embedding.weight.fill_(1e38)
    with pytest.raises(HeedfulError, match="not numbers"):
        list(search_all(Engine(ModuleWeights(broken), False), [SearchRequest([5, 3], SearchOptions(beam=2))]))


def test_unsupported_models_are_left_to_torch() -> None:
    usual = model().config
    assert supports(usual)
    for change in ({"attention": "window"}, {"universal": True}, {"positions": "relative"}, {"d_key": 4}):
        assert not supports(ModelConfig(**usual.model_dump() | change))
    assert not supports(ModelConfig(**usual.model_dump() | {"architecture": "rnn"}))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("empty", [{0}, {0, 1, 2}, {2}, {1, 2}])
def test_sentences_of_no_tokens_keep_their_places(empty: set[int], workers: int) -> None:
    requested = [SearchRequest([] if i in empty else [5, 6, 3], SearchOptions(beam=2, max_length=4)) for i in range(3)]
    outcome = list(search_all(Engine(ModuleWeights(model()), False), requested, workers))
    assert [not item for item in outcome] == [i in empty for i in range(3)]


def test_a_problem_in_a_worker_reaches_the_caller_and_an_early_end_stops_them() -> None:
    engine, options = Engine(ModuleWeights(model()), False), SearchOptions(beam=2, max_length=9)
    with pytest.raises(SettingError, match="n_best"):
        list(search_all(engine, [SearchRequest([5, 3], SearchOptions(beam=1, n_best=2))] * 3, workers=2))
    endless = (SearchRequest([5, 6, 3], options) for _ in itertools.count())
    flow = search_all(engine, endless, workers=2)
    assert next(flow)
    flow.close()
    with pytest.raises(SettingError, match="leaves no room"):
        EngineSearch(engine).add(SearchRequest([5, 3], options, tuple(range(4, 20))))


def test_a_sentence_that_ends_where_another_fails_keeps_no_rows() -> None:
    """And is still told; the search goes on with others."""
    broken = model(tie="target", source_vocab_size=VOCABULARY)
    with torch.no_grad():
        broken.source_embedding.weight[7] = float("nan")
    engine = Engine(ModuleWeights(broken), int8=False)
    search, options = EngineSearch(engine), SearchOptions(beam=20, max_length=1)
    good_request, bad_request = SearchRequest([5, 3], options), SearchRequest([7, 3], options)
    expected = next(search_all(engine, [good_request]))
    for _ in range(3):  # as many rows as a search may have, and more
        good, bad = search.add(good_request), search.add(bad_request)
        with pytest.raises(HeedfulError, match="not numbers"):
            search.step()
        search.drop(bad)
        assert search.step() == [(good, expected)]
        dropped = [search.add(good_request), search.add(bad_request)]
        with pytest.raises(HeedfulError, match="not numbers"):
            search.step()
        for number in dropped:
            search.drop(number)
    last = search.add(good_request)
    assert search.step(steps=5) == [(last, expected)]


def test_a_search_without_enough_memory_is_refused() -> None:
    """Python passes no such number; a search that was not made must not be used."""
    engine = Engine(ModuleWeights(model()), int8=False)
    engine.library = NoMemory(engine.library)
    with pytest.raises(HeedfulError, match="there is not enough memory"):
        EngineSearch(engine)


class NoMemory:
    """The library, where nothing can be allocated."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def heedful_search_new(self, *_: Any) -> None:
        return None

    def heedful_error(self) -> bytes:
        return b"there is not enough memory"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)


def test_an_allocation_that_fails_is_a_sentence() -> None:
    loaded = library()
    assert loaded is not None
    huge = ModelConfigStruct(width=2**20, inner=2**20, heads=2, vocabulary=2**30)  # more than an address space
    assert not loaded.heedful_model_new(ctypes.byref(huge))
    assert loaded.heedful_error() == b"there is not enough memory"


def test_no_exception_leaves_the_library() -> None:
    """What may throw is guarded in every function that Python calls."""
    code = (Path(native.__file__).parent / "csrc" / "engine.cpp").read_text(encoding="utf-8")
    bodies = dict(
        re.findall(r"\b(heedful_\w+)\([^{;]*?\) {(.*?)(?=\n\w[^\n]*\bheedful_\w+\(|\n#pragma GCC)", code, re.S)
    )
    harmless = {"abi", "supported_isa", "error", "panel_width", "prefers_bf16", *(f"{kind}_free" for kind in FREED)}
    assert len(bodies) >= 18
    for name, body in bodies.items():
        assert "guarded(" in body or name.removeprefix("heedful_") in harmless, name


FREED = ("model", "search", "decoder", "trainer")
