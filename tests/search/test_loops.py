"""The guard against repetition loops, beside slow definitions of what a loop is."""

from __future__ import annotations

import random

import pytest
import torch
from search_toys import Toy, ToyCache, batch

from heedful.search import SearchOptions
from heedful.search.beam import beam_search, beam_steps
from heedful.search.loops import MAX_COPIES, has_loop, loop_tokens, max_copies
from heedful.search.sample import sample

PLAIN, LOOPING = (5, 4, 3), (4, 4, 4, 4, 4, 4, 3)


def slow_max_copies(ids):
    """The definition: the largest k such that some n-gram stands k times in a row."""
    best = min(1, len(ids))
    for start in range(len(ids)):
        for n in range(1, len(ids) + 1):
            k = 1
            while ids[start : start + n] == ids[start + k * n : start + (k + 1) * n] and start + (k + 1) * n <= len(
                ids
            ):
                k += 1
            best = max(best, k)
    return best


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 9])
def test_copies_are_those_of_the_definition(vocabulary):
    numbers = random.Random(vocabulary)
    for length in (0, 1, 2, 3, 5, 8, 13, 21):
        for _ in range(20):
            ids = [numbers.randrange(vocabulary) for _ in range(length)]
            assert max_copies(ids) == slow_max_copies(ids), ids


@pytest.mark.parametrize("copies", [2, 3])
def test_a_loop_token_is_one_that_would_add_to_the_copies(copies):
    numbers = random.Random(copies)
    for _ in range(300):
        ids = [numbers.randrange(3) for _ in range(numbers.randrange(2, 14))]
        expected = set()
        for token in range(3):
            for n in range(1, len(ids) // copies + 1):
                gram = ids[-n:]
                if ids[-copies * n :] == gram * copies and token == gram[0]:
                    expected.add(token)
        assert loop_tokens(ids, copies) == expected, ids


class Stuck(Toy):
    """A toy that repeats one token for sources of more than two."""

    def start(self, source: torch.Tensor, source_lengths: torch.Tensor) -> ToyCache:
        cache = super().start(source, source_lengths)
        cache.longer = source_lengths > 2
        select = cache.select

        def narrowed(rows, sources=None):
            select(rows, sources)
            cache.longer = cache.longer if sources is None else cache.longer[sources]

        cache.select = narrowed
        return cache

    def step(self, ids: torch.Tensor, cache: ToyCache) -> torch.Tensor:
        scores = super().step(ids, cache)
        width = len(ids) // len(cache.longer)
        longer = cache.longer.repeat_interleave(width).float()
        scores[:, 4] += 30 * longer
        scores[:, self.eos_id] -= 60 * longer
        return scores.log_softmax(1)


SENTENCES = [(5, 4), PLAIN, (3,), LOOPING, (4, 4, 5, 3)]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_loop_is_searched_again_and_every_other_output_is_the_same(beam):
    options = SearchOptions(beam=beam, max_extra=9)
    free = beam_search(Stuck(), *batch(SENTENCES), options.model_copy(update={"loop_guard": False}))
    guarded = beam_search(Stuck(), *batch(SENTENCES), options)
    loops = [has_loop(hypotheses[0].ids, source) for hypotheses, source in zip(free, SENTENCES, strict=True)]
    assert loops == [False, True, False, True, True]  # the output has more copies than any source
    for before, after, loop, source in zip(free, guarded, loops, SENTENCES, strict=True):
        assert (before == after) is not loop
        if loop:
            assert max_copies(after[0].ids) <= max(2, max_copies(source))
    for source, together in zip(SENTENCES, guarded, strict=True):  # alone as in a batch
        assert beam_search(Stuck(), *batch([source]), options)[0] == together


def test_a_loop_of_the_source_is_no_loop():
    options = SearchOptions(beam=2, max_length=6)
    free = beam_search(Stuck(), *batch([LOOPING]), options.model_copy(update={"loop_guard": False}))
    assert max_copies(free[0][0].ids) > MAX_COPIES
    assert has_loop(free[0][0].ids, PLAIN) and not has_loop(free[0][0].ids, LOOPING)
    assert beam_search(Stuck(), *batch([LOOPING]), options) == free


def test_a_cancelled_sentence_is_not_searched_again_to_its_end():
    toy, gone = Stuck(), set()
    for finished in beam_steps(toy, *batch([PLAIN, PLAIN]), SearchOptions(beam=2, max_length=12), gone):
        if len(toy.rows) == 12:  # both are at their limit, and begin again
            assert not finished
            gone.add(0)
        if len(toy.rows) == 13:
            assert [sentence for sentence, _ in finished] == [0]
    assert len(toy.rows) > 13


def test_samples_pass_short_runs_and_end_long_ones():
    def longest(guard: bool) -> int:
        options = SearchOptions(n_best=2, max_length=80, loop_guard=guard, seed=3)
        return max(max_copies(item.ids) for item in sample(Stuck(eos=-9.0), *batch([PLAIN]), options)[0])

    assert longest(False) == 80
    assert longest(True) == 32
