"""Decoding with a cache gives what decoding without one gives, however the rows are rearranged."""

from itertools import product

import pytest
import torch
from torch import Tensor

from heedful.model.kv_cache import GROWTH, KVCache
from heedful.model.positions import POSITIONS

from .samples import ACTIVATIONS, NORMS, SYSTEMS, families, sentences, shared, small

SHAPES = [
    pytest.param({"positions": p, "pre_norm": n == "pre", "activation": a}, id=f"{p}-{n}-{a}")
    for p, n, a in product(POSITIONS, NORMS, ACTIVATIONS)
] + [pytest.param(shape, id=name) for name, shape in SYSTEMS.items()]
every_shape = pytest.mark.parametrize("shape", SHAPES)
every_decoder = pytest.mark.parametrize("shape", [item for item in SHAPES if "decoder" in families(item.values[0])])
SOURCE_LENGTHS = [7, 3, 5]


def assert_same(actual: Tensor, reference: Tensor) -> None:
    torch.testing.assert_close(actual, reference, atol=1e-11, rtol=1e-9)


def in_pieces(model, cache: KVCache, ids: Tensor, sizes: list[int]) -> Tensor:
    assert sum(sizes) == ids.size(1)
    return torch.cat([model.step(piece, cache) for piece in ids.split(sizes, dim=1)], dim=1)


@every_shape
@pytest.mark.parametrize("sizes", [[1] * 9, [4, 1, 3, 1]], ids=["one by one", "in chunks"])
def test_cached_equals_uncached(shape, sizes):
    source, target = sentences(SOURCE_LENGTHS), sentences([9, 9, 9], seed=1, start=2)
    model = shared(small(**shape))
    assert_same(in_pieces(model, model.start(source), target, sizes), model(source, target))
    if "decoder" in families(shape):
        model = shared(small(**shape, family="decoder"))
        assert_same(in_pieces(model, model.start(), target, sizes), model(target))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("sizes", [[1] * 70, [GROWTH, 1, GROWTH, 5], [3, 60, 7], [70]])
def test_buffers_may_grow(positions, sizes):
    source, target = sentences(SOURCE_LENGTHS), sentences([70] * 3, seed=1, start=2)
    model = shared(small(positions=positions))
    assert_same(in_pieces(model, model.start(source), target, sizes), model(source, target))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("width", [2, 3])
def test_beams_that_fork_and_sentences_that_end(positions, norm, width):
    """R = B * W rows over B memories: at each step beams are exchanged, and now and then a sentence is done."""
    model = shared(small(positions=positions, pre_norm=norm == "pre"))
    generator = torch.Generator().manual_seed(width)
    source = sentences(SOURCE_LENGTHS)
    cache = model.start(source)
    written = torch.full((len(source), 1), 2)
    model.step(written, cache)
    rows = torch.arange(len(source)).repeat_interleave(width)  # every sentence opens into its beams
    cache.select(rows)
    written = written[rows]
    for step in range(10):
        size = GROWTH - 2 if step == 0 else 1 + step % 2  # the buffers grow while the beams are exchanged
        tokens = torch.randint(4, 19, (len(written), size), generator=generator)
        written = torch.cat([written, tokens], dim=1)
        out = model.step(tokens, cache)
        expected = model(source.repeat_interleave(width, dim=0), written)
        assert_same(out, expected[:, -size:])

        alive = torch.tensor([0, 2]) if step == 4 else torch.tensor([1]) if step == 7 else torch.arange(len(source))
        beams = torch.randint(width, (len(alive), width), generator=generator)
        rows = (alive[:, None] * width + beams).flatten()
        cache.select(rows, None if len(alive) == len(source) else alive)
        written, source = written[rows], source[alive]
        assert all(layer.memory[0].size(0) == len(source) for layer in cache.layers)
    assert len(source) == 1
    assert cache.length == written.size(1) > GROWTH + 10


@pytest.mark.parametrize("positions", POSITIONS)
def test_rows_of_a_language_model_may_be_rearranged(positions):
    model = shared(small(positions=positions, family="decoder"))
    written, cache = sentences([5, 5, 5], start=2), model.start()
    model.step(written, cache)
    for step, rows in enumerate([[2, 0, 0, 1], [3, 3], [1, 0, 1, 0, 1]]):
        cache.select(torch.tensor(rows))
        tokens = sentences([3] * len(rows), seed=step)
        written = torch.cat([written[rows], tokens], dim=1)
        assert_same(model.step(tokens, cache), model(written)[:, -3:])


@every_decoder
def test_rows_of_different_lengths_join_and_leave(shape):
    """Continuous batching of a language model: every row has the hidden states that it has alone."""
    model = shared(small(**shape, family="decoder"))
    texts = [sentences([length], seed=length, start=2)[0].tolist() for length in (5, 9, 3, 5)]
    cache, written = model.start(), []
    for step, (come, stay) in enumerate(
        [([0], [0]), ([1], [1, 0]), ([2, 3], [3, 1, 2, 0, 0]), ([], [0, 2]), ([], [1]), ([0], [1, 0])]
    ):
        for text in come:
            new = model.start()
            model.step(torch.tensor([texts[text]]), new)
            if written:
                cache.join(new)
            else:
                cache = new
            written.append(texts[text])
        cache.select(torch.tensor(stay))
        written = [written[row] for row in stay]
        for size in (1, 2 + step % 2):
            tokens = sentences([size] * len(written), seed=10 * step + size)
            written = [[*row, *more] for row, more in zip(written, tokens.tolist(), strict=True)]
            out = model.step(tokens, cache)
            for row, hidden in zip(written, out, strict=True):
                assert_same(hidden, model(torch.tensor([row]))[0, -size:])
        assert cache.length == max(map(len, written))


def test_rows_of_one_length_have_no_padding():
    model = shared(small(family="decoder"))
    caches = [model.start() for _ in range(3)]
    for cache, length in zip(caches, (4, 7, 4), strict=True):
        model.step(sentences([length]), cache)
    caches[0].join(caches[1])
    assert caches[0].layers[0].left_padding.tolist() == [3, 0]
    caches[0].select(torch.tensor([0]))
    assert caches[0].length == 4 and caches[0].layers[0].left_padding is None
    caches[0].join(caches[2])
    assert caches[0].length == 4 and caches[0].not_padding(1) is None


def test_selecting_before_the_first_step_leaves_out_sources():
    model = shared(small())
    source, target = sentences(SOURCE_LENGTHS), sentences([4, 4], seed=1, start=2)
    cache = model.start(source)
    cache.select(torch.tensor([2, 0]), torch.tensor([2, 0]))
    assert_same(model.step(target, cache), model(source[[2, 0]], target))


def test_caches_of_two_searches_are_independent():
    """The cache belongs to the caller: two of them over one model are independent."""
    model = shared(small())
    sources = [sentences([6, 4], seed=3), sentences([5, 5], seed=4)]
    targets = [sentences([6, 6], seed=5, start=2), sentences([6, 6], seed=6, start=2)]
    caches = [model.start(source) for source in sources]
    steps = [
        [model.step(target[:, i : i + 1], cache) for target, cache in zip(targets, caches, strict=True)]
        for i in range(6)
    ]
    for i in range(2):
        assert_same(torch.cat([step[i] for step in steps], 1), model(sources[i], targets[i]))


def test_the_memory_is_projected_once_and_not_copied_for_beams():
    model = shared(small())
    cache = model.start(sentences(SOURCE_LENGTHS))
    before = [layer.memory[0].data_ptr() for layer in cache.layers]
    cache.select(torch.arange(3).repeat_interleave(4))
    model.step(torch.full((12, 1), 2), cache)
    cache.select(torch.arange(12).flip(0).view(3, 4).flip(0).flatten())
    assert [layer.memory[0].data_ptr() for layer in cache.layers] == before
    assert cache.length == 1
