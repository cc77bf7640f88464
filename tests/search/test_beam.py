from __future__ import annotations

import math
import random
from itertools import zip_longest

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_toys import BOS, EOS, PAD, Conditional, Toy, batch, exhaustive, greedy, reference_beam

from heedful.errors import HeedfulError, SettingError
from heedful.search import SearchOptions, length_penalty
from heedful.search.beam import beam_search, beam_steps

SENTENCES = [(5, 4), (3,), (4, 4, 5, 3), (5, 4, 3), (3, 3)]


def run(toy, sentences, **options):
    return beam_search(
        toy, *batch(sentences), SearchOptions(loop_guard=False, **options)
    )  # the references have no guard


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("vocab_size, max_extra", [(5, 2), (6, 1)])
def test_a_wide_beam_finds_what_exhaustive_search_finds_in_the_same_order(alpha, vocab_size, max_extra):
    toy = Toy(vocab_size, seed=3)
    result = run(toy, SENTENCES, beam=300, n_best=20, length_penalty=alpha, max_extra=max_extra)
    for sentence, actual in zip(SENTENCES, result, strict=True):
        all_of_them = exhaustive(toy, sentence, len(sentence) + max_extra, alpha)[:20]
        assert [(h.finished, h.ids) for h in actual] == [(finished, ids) for finished, _, ids in all_of_them]
        assert [h.score for h in actual] == pytest.approx([score for _, score, _ in all_of_them], abs=1e-9)


@settings(max_examples=18, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    beam=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    eos=st.sampled_from([-2.0, 0.0, 2.0]),
    data=st.data(),
)
def test_beams_equal_a_reference_in_plain_loops(seed, beam, alpha, eos, data):
    toy = Toy(9, seed=seed, eos=eos)
    n_best = data.draw(st.integers(1, beam))
    result = run(toy, SENTENCES, beam=beam, n_best=n_best, length_penalty=alpha, max_extra=4)
    steps_taken, longest = len(toy.rows), 0
    for sentence, actual in zip(SENTENCES, result, strict=True):
        expected, steps = reference_beam(toy, sentence, beam, n_best, len(sentence) + 4, alpha)
        longest = max(longest, steps)
        assert [(h.ids, h.finished) for h in actual] == [(ids, finished) for ids, _, finished in expected]
        assert [h.score for h in actual] == pytest.approx([score for _, score, _ in expected], abs=1e-9)
    assert steps_taken == longest  # it stops as soon as it may


def test_a_beam_in_a_large_vocabulary_equals_the_reference():
    toy = Toy(1003, seed=5, sharp=3.0, eos=6.0)
    result = run(toy, SENTENCES, beam=3, n_best=3, max_extra=8)
    for sentence, actual in zip(SENTENCES, result, strict=True):
        expected, _ = reference_beam(toy, sentence, 3, 3, len(sentence) + 8, 0.6)
        assert [(h.ids, h.finished) for h in actual] == [(ids, finished) for ids, _, finished in expected]


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_is_greedy(seed):
    toy = Toy(12, seed=seed)
    for sentence, (actual,) in zip(SENTENCES, run(toy, SENTENCES, beam=1, max_extra=6), strict=True):
        assert (actual.ids, actual.finished) == greedy(toy, sentence, len(sentence) + 6)


def test_the_length_penalty_by_hand():
    for length, alpha, expected in ((1, 0.6, 1), (7, 1.0, 2), (19, 0.5, 2), (100, 0.0, 1)):
        assert length_penalty(length, SearchOptions(length_penalty=alpha)) == expected
    for length, alpha, expected in ((1, 0.6, 1), (7, 1.0, 7), (16, 0.5, 4), (100, 0.0, 1)):
        assert length_penalty(length, SearchOptions(length_penalty=alpha, length_penalty_form="power")) == expected


def test_a_hypothesis_carries_the_numbers_of_the_model():
    toy = Toy(8, seed=1, eos=1.0)
    for sentence, (actual, *_) in zip(SENTENCES, run(toy, SENTENCES, beam=4, max_extra=9), strict=True):
        model = Conditional(toy, sentence)
        output = (*actual.ids, EOS) if actual.finished else actual.ids
        real = [model.log_probs(output[:i])[token] for i, token in enumerate(output)]
        assert actual.token_log_probs == tuple(real)
        assert actual.log_prob == pytest.approx(math.fsum(real))
        assert actual.score == pytest.approx(actual.log_prob / ((5 + len(output)) / 6) ** 0.6)


def test_the_n_best_are_sorted_distinct_and_never_hold_special_tokens():
    for item in run(Toy(9, seed=2), SENTENCES, beam=5, n_best=5, max_extra=5):
        assert len({h.ids for h in item}) == len(item) == 5
        finished = [h.score for h in item if h.finished]
        cut = [h.score for h in item if not h.finished]
        assert [h.finished for h in item] == [True] * len(finished) + [False] * len(cut)
        assert finished == sorted(finished, reverse=True) and cut == sorted(cut, reverse=True)
        assert not {PAD, BOS, EOS} & {token for h in item for token in h.ids}


sentence = st.lists(st.integers(3, 9), min_size=1, max_size=6).map(tuple)


@settings(max_examples=18, deadline=None)
@given(
    sentences=st.lists(sentence, min_size=1, max_size=8),
    seed=st.integers(0, 99),
    beam=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.6, 3.0]),
    eos=st.sampled_from([-1.0, 1.0, 3.0]),
    order=st.randoms(use_true_random=False),
)
def test_a_sentence_gives_the_same_alone_and_in_any_batch(
    sentences: list[tuple[int, ...]], seed: int, beam: int, alpha: float, eos: float, order: random.Random
):
    toy = Toy(10, seed=seed, eos=eos)
    options = {"beam": beam, "n_best": (beam + 1) // 2, "length_penalty": alpha, "max_extra": 5}
    alone, rows = [], []
    shuffled = order.sample(sentences, len(sentences))
    for item in shuffled:
        alone += run(toy, [item], **options)
        rows.append(toy.rows)
        toy.rows = []
    assert run(toy, shuffled, **options) == alone
    assert toy.rows == [sum(step) for step in zip_longest(*rows, fillvalue=0)]  # it leaves when it would end alone


def test_sentences_that_are_done_leave_the_batch():
    toy = Toy(10, seed=4, eos=-1.0)
    sentences = [*SENTENCES, (9, 8, 7, 6, 5, 4, 3)]
    run(toy, sentences, beam=3, max_extra=3)
    assert toy.rows[0] == len(sentences)  # one row for each sentence at first
    assert toy.rows[1] == 3 * len(sentences)
    assert all(later <= earlier for earlier, later in zip(toy.rows[1:], toy.rows[2:], strict=False))
    assert len(set(toy.rows)) > 3


def test_the_cache_is_left_alone_while_no_row_moves():
    toy = Toy(10, seed=4, eos=-9.0)
    run(toy, SENTENCES[:1], beam=1, max_extra=20)
    assert len(toy.rows) == 22
    assert toy.cache.selects == 0


class Ties(Toy):
    """Every token is equally probable, always."""

    def step(self, ids, cache):
        super().step(ids, cache)
        return torch.full((len(ids), self.vocab_size), -math.log(self.vocab_size))


@pytest.mark.parametrize("vocab_size", [8, 700])
def test_ties_go_to_the_lowest_row_and_the_lowest_id(vocab_size):
    (result,) = run(Ties(vocab_size), [(3, 4)], beam=3, n_best=3, length_penalty=0, max_extra=1)
    assert [h.ids for h in result] == [(), (3,), (3, 3)]


def test_a_search_ends_when_nothing_can_improve():
    toy = Toy(10, seed=4, eos=8.0)  # eos is almost certain at once
    run(toy, SENTENCES, beam=5, length_penalty=0, max_extra=50)
    assert len(toy.rows) < 4


class Script(Toy):
    """Numbers by hand: of step t after the last id, {token: log-probability}, and nothing else is likely."""

    def __init__(self, script):
        super().__init__(6)
        self.script = script

    def step(self, ids, cache):
        super().step(ids, cache)
        out = torch.full((len(ids), self.vocab_size), -50.0)
        for row, last in enumerate(ids.tolist()):
            for token, log_prob in self.script(len(self.rows), last).items():
                out[row, token] = log_prob
        return out


@pytest.mark.parametrize("log_prob, steps", [(-1.38, 7), (-1.39, 1), (-1.6, 1)])
def test_a_search_ends_exactly_when_no_row_can_win(log_prob, steps):
    """An ending of log 0.5 at once, against log_prob / 2 at a length of 7, for which the penalty is 2."""
    toy = Script(lambda t, last: {EOS: math.log(0.5), 3: log_prob} if t == 1 else {3: 0.0})
    run(toy, [(3,)], beam=2, length_penalty=1, max_length=7)
    assert len(toy.rows) == steps


def test_a_row_that_may_still_win_is_waited_for_after_a_short_sentence_has_left():
    def script(t, last):
        if t == 1:
            return {3: -0.2, 4: -0.9}
        if t == 2:
            return {EOS: -0.8, 3: -1.8} if last == 3 else {}
        return {3: 0.0} if t < 13 else {EOS: 0.0}

    toy = Script(script)
    short, (actual,) = run(toy, [(3,), (3,) * 19], beam=2, length_penalty=1, max_extra=0)
    assert [h.ids for h in short] == [(3,)]
    assert actual.ids == (3,) * 12 and actual.score == pytest.approx(-2 / 3)  # and not -1 / (7 / 6) after two steps


def test_a_vocabulary_smaller_than_the_beam_is_enough():
    (result,) = run(Toy(4, seed=1), [(3,)], beam=10, n_best=10, max_extra=2)
    assert sorted(h.ids for h in result) == [(), (3,), (3, 3), (3, 3, 3)]
    assert [h.finished for h in result] == [True, True, True, False]


def test_lengths_come_from_the_source_unless_they_are_given():
    never = Toy(10, eos=-60.0)
    assert [len(item[0].ids) for item in run(never, SENTENCES, beam=2, max_extra=3)] == [5, 4, 7, 6, 5]
    assert [len(value[0].ids) for value in run(never, SENTENCES, beam=2, max_length=4)] == [4] * 5
    assert [len(entry[0].ids) for entry in run(never, SENTENCES, beam=2, max_extra=3, limit=6)] == [5, 4, 6, 6, 5]
    assert [len(hypotheses[0].ids) for hypotheses in run(never, [()], beam=2, max_extra=0)] == [1]


def test_no_sentences_give_no_hypotheses():
    assert run(Toy(), [], beam=2) == []


def test_eos_may_double_as_bos_and_pad():
    toy = Toy(6, eos=2.0)
    toy.bos_id = toy.pad_id = EOS
    assert all(item[0].finished for item in run(toy, SENTENCES, beam=2))


def test_more_hypotheses_than_beams_are_refused():
    with pytest.raises(SettingError, match=r"n_best \(3\) must not be above beam \(2\)"):
        run(Toy(), SENTENCES, beam=2, n_best=3)


def test_a_broken_model_is_refused():
    class Broken(Toy):
        def step(self, ids, cache):
            return super().step(ids, cache) * math.nan

    with pytest.raises(HeedfulError, match="not numbers"):
        run(Broken(), SENTENCES, beam=2)


def test_sentences_that_are_gone_leave_at_the_next_step_and_change_nothing_for_the_others():
    options = SearchOptions(beam=3, n_best=2, max_extra=6)
    whole = beam_search(Toy(9, seed=4, eos=-1.0), *batch(SENTENCES), options)
    toy, gone, ended = Toy(9, seed=4, eos=-1.0), set(), {}
    for number, step in enumerate(beam_steps(toy, *batch(SENTENCES), options, gone)):
        ended |= dict(step)
        if number == 1:
            assert not {0, 2} & ended.keys()
            gone |= {0, 2}
        if number == 2:
            assert {0, 2} <= ended.keys()
    assert set(ended) == set(range(len(SENTENCES)))
    for sentence in (1, 3, 4):
        assert ended[sentence] == whole[sentence]
    assert all(len(h.ids) <= 3 for sentence in (0, 2) for h in ended[sentence])
