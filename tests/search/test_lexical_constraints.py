"""Lexical constraints: against exhaustive search, and against a search for the phrases in the ids."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_toys import Toy, batch, exhaustive

from heedful.errors import SettingError
from heedful.search import LexicalConstraint, RequiredPhrase, SearchOptions
from heedful.search.beam import beam_search
from heedful.search.lexical_constraints import Banked, PhraseState, share_beam

SENTENCES = [(5, 4), (3,), (4, 4, 5, 3), (5, 4, 3), (3, 3)]
RARELY_ENDS = -8.0  # the log-odds of eos: it is never the most probable token, which would end a row's free extensions


def phrase(*forms: tuple[int, ...], **options) -> RequiredPhrase:
    return RequiredPhrase(forms, **options)


def run(toy, sentences, phrases, **options):
    return beam_search(toy, *batch(sentences), SearchOptions(phrases=tuple(phrases), loop_guard=False, **options))


def holds(ids: tuple[int, ...], form: tuple[int, ...]) -> bool:
    return any(ids[at : at + len(form)] == form for at in range(len(ids)))


def met(ids, constraint) -> list[bool]:
    state = PhraseState()
    for token in ids:
        state = constraint.next(state, token)
    return [bool(state.met >> number & 1) for number in range(len(constraint.phrases))]


@pytest.mark.parametrize("forms", [((3, 3, 4),), ((4,),), ((5, 3), (4, 4))])
def test_a_wide_beam_finds_the_best_outputs_with_the_phrase(forms):
    toy, constraint = Toy(6, seed=3, eos=RARELY_ENDS), LexicalConstraint((phrase(*forms),))
    n_best_lists = run(
        toy, SENTENCES, [constraint] * len(SENTENCES), beam=700, n_best=20, length_penalty=0.6, max_extra=2
    )
    for sentence, mine in zip(SENTENCES, n_best_lists, strict=True):
        expected = [
            hypothesis
            for hypothesis in exhaustive(toy, sentence, len(sentence) + 2, 0.6)
            if hypothesis[0] and any(holds(hypothesis[2], form) for form in forms)
        ]
        assert [h.ids for h in mine if h.finished] == [ids for _, _, ids in expected[:20]]
        assert [h.score for h in mine if h.finished] == pytest.approx([score for _, score, _ in expected[:20]])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), beam=st.integers(1, 5), eos=st.sampled_from([-2.0, 0.0, 4.0]), data=st.data())
def test_every_finished_hypothesis_contains_its_phrases(seed, beam, eos, data):
    forms = data.draw(st.lists(st.lists(st.integers(3, 8), min_size=1, max_size=3), min_size=1, max_size=2))
    constraint = LexicalConstraint(tuple(phrase(tuple(form)) for form in forms))
    toy, constraints = Toy(9, seed=seed, eos=eos), [constraint, None, constraint]
    n_best_lists = run(toy, SENTENCES[:3], constraints, beam=constraint.beam(beam), n_best=1, max_extra=30)
    for place in (0, 2):
        (mine,) = n_best_lists[place]
        assert mine.finished or eos < 4.0  # a toy that rarely ends may reach the limit, with phrases or without
        for form in forms if mine.finished else []:
            assert holds(mine.ids, tuple(form))
    plain = beam_search(
        toy, *batch(SENTENCES[:3]), SearchOptions(beam=constraint.beam(beam), max_extra=30, loop_guard=False)
    )
    assert n_best_lists[1] == plain[1]  # a sentence without phrases is searched as if there were none beside it


def test_a_sentence_has_the_same_result_alone_and_in_a_batch():
    toy, constraint = Toy(9, seed=8), LexicalConstraint((phrase((3, 4)), phrase((7,))))
    together = run(toy, SENTENCES, [constraint] * 5, beam=6, n_best=2, max_extra=9)
    for sentence, mine in zip(SENTENCES, together, strict=True):
        assert run(toy, [sentence], [constraint], beam=6, n_best=2, max_extra=9)[0] == mine


def test_the_same_phrase_twice_occurs_twice_and_reserved_tokens_only_as_phrases():
    constraint = LexicalConstraint((phrase((5,)), phrase((5,))), reserved=(5, 6, 7))
    for seed in range(8):
        for (mine,) in run(Toy(9, seed=seed), SENTENCES, [constraint] * 5, beam=6, max_extra=20):
            assert mine.finished and mine.ids.count(5) == 2 and not {6, 7} & set(mine.ids)


def test_a_phrase_follows_the_one_that_must_precede_it():
    constraint = LexicalConstraint((phrase((5,)), phrase((6,), after=0)), reserved=(5, 6))
    for seed in range(8):
        for (mine,) in run(Toy(9, seed=seed), SENTENCES, [constraint] * 5, beam=6, max_extra=20):
            assert mine.ids.index(5) < mine.ids.index(6)


def test_no_token_that_continues_a_word_follows_a_phrase_of_whole_words():
    continues = np.array([0, 0, 0, 1, 1, 1, 0, 0, 1], dtype=np.uint8)
    constraint = LexicalConstraint((phrase((4, 5), whole_words=True),), continues=continues)
    for seed in range(8):
        for (mine,) in run(Toy(9, seed=seed, eos=-3), SENTENCES, [constraint] * 5, beam=4, max_extra=20):
            at = next(i for i in range(len(mine.ids)) if mine.ids[i : i + 2] == (4, 5))
            assert not any(continues[token] for token in mine.ids[at + 2 : at + 3])


@settings(max_examples=200, deadline=None)
@given(form=st.lists(st.integers(0, 1), min_size=1, max_size=4), ids=st.lists(st.integers(0, 1), max_size=12))
def test_a_phrase_is_found_where_it_is(form, ids):
    constraint = LexicalConstraint((phrase(tuple(form)),))
    assert met(ids, constraint) == [holds(tuple(ids), tuple(form))]


def test_longer_forms_and_other_phrases_share_their_beginning():
    constraint = LexicalConstraint((phrase((1, 2)), phrase((1, 2, 3)), phrase((1,))))
    assert met((1, 2, 3, 1, 2, 1), constraint) == [True, True, True]
    assert met((1, 2, 1, 2), constraint) == [True, False, True]


def test_banks_share_the_beam():
    banks = [2, 2, 0, 2, 1, 0]
    candidates = [Banked(bank, place) for place, bank in enumerate(banks)]
    assert share_beam(candidates, 2) == [0, 2]  # the best of the last and of the first bank
    assert share_beam(candidates, 4) == [0, 1, 2, 4]
    assert share_beam([Banked(3, 0), Banked(1, 1), Banked(2, 2), Banked(0, 3)], 3) == [0, 2, 3]
    assert share_beam(candidates, 9) == [0, 1, 2, 3, 4, 5]
    assert share_beam(candidates, 9, filled=4) == [0, 1, 2, 4]
    assert share_beam(candidates, 9, filled=1) == [0, 2, 4]  # the best of every bank has a row all the same


def improbable(log_probs, prefix, sentence):
    """A constraint: token 5 is very improbable everywhere."""
    log_probs[:, 5] = log_probs.max(1).values - 30
    return log_probs


def test_phrases_are_placed_before_the_limit():
    constraint = LexicalConstraint((phrase((5, 6), (5, 6, 7)), phrase((8,))))
    options = {"constraints": (improbable,), "max_extra": 3}
    for seed in range(6):
        for (mine,) in run(Toy(9, seed=seed, eos=-50.0), SENTENCES, [constraint] * 5, beam=6, **options):
            assert all(met(mine.ids, constraint))


def test_a_prefix_comes_before_phrases_that_do_not_fit():
    constraint, prefix = LexicalConstraint((phrase((7, 8, 6)),)), (5, 4, 3)
    for longest in range(len(prefix) + 1, 8):
        (mine,) = run(Toy(9, seed=1), [(5, 4)], [constraint], beam=4, max_length=longest, prefix=(prefix,))
        assert mine[0].ids[:4] == (*prefix, 7) and len(mine[0].ids) == longest


def test_wrong_phrases_are_refused():
    with pytest.raises(SettingError, match="65 phrases; 64"):
        LexicalConstraint(tuple(itertools.repeat(phrase((3,)), 65)))
    for forms in ((), ((),)):
        with pytest.raises(SettingError, match="no form, or an empty one"):
            LexicalConstraint((RequiredPhrase(forms),))
