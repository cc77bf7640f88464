from __future__ import annotations

import numpy as np
import pytest
import torch
from search_toys import EOS, Conditional, Toy, batch, exhaustive
from transformers.generation.logits_process import (
    MinLengthLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

from heedful.errors import SettingError
from heedful.search import SearchOptions
from heedful.search.beam import beam_search
from heedful.search.constraints import ban, compose, force_prefix, min_length, no_repeat
from heedful.search.sample import sample
from heedful.search.token_sampler import penalize_repeated

SENTENCES = [(5, 4), (3,), (4, 4, 5, 3), (5, 4, 3)]
PREFIXES = ((4, 3), (), (3,), (5, 5, 4))
SENTENCE = torch.zeros(6, dtype=torch.long)


def table(rows=6, columns=7):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(1)).mul(3).log_softmax(1)


def prefixes(rows=6, length=9, columns=7):
    return torch.randint(0, columns, (rows, length), generator=torch.Generator().manual_seed(2))


def multiply_repeated(factor):
    """A constraint that changes the log-probability of every token that has occurred."""

    def apply(log_probs, prefix, sentence):
        return log_probs.scatter_(1, prefix, log_probs.gather(1, prefix) * factor)

    return apply


def both(toy, **options):
    """The results of beam search and of sampling, flat."""
    source = batch(SENTENCES)
    beams = beam_search(toy, *source, SearchOptions(beam=3, n_best=3, max_extra=6, **options))
    samples = sample(toy, *source, SearchOptions(n_best=3, max_extra=6, **options))
    return [[*b, *s] for b, s in zip(beams, samples, strict=True)]


@pytest.mark.parametrize("penalty", [0.7, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("length", [0, 1, 9])
def test_the_repetition_penalty_is_that_of_transformers(penalty, length):
    ids = prefixes(length=length)
    expected = RepetitionPenaltyLogitsProcessor(penalty)(ids, table()) if length else table()
    rows = table().numpy()
    for row, written in zip(rows, ids.tolist(), strict=True):
        penalize_repeated(row, written, penalty)
    assert np.allclose(rows, expected)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 2, 3, 9, 30])
def test_n_grams_are_banned_as_by_transformers(n, length):
    ids = prefixes(length=length, columns=4)
    assert torch.equal(no_repeat(n)(table(), ids, SENTENCE), NoRepeatNGramLogitsProcessor(n)(ids, table()))


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4])
def test_the_minimal_length_is_that_of_transformers(length):
    ids = prefixes(length=length)
    expected = MinLengthLogitsProcessor(3, EOS)(ids, table())
    assert torch.equal(min_length(3, EOS)(table(), ids, SENTENCE), expected)


def test_banned_tokens_are_gone_and_nothing_else_changes():
    out = ban([4, 2, 4])(table(), prefixes(), SENTENCE)
    assert (out[:, [2, 4]] == -torch.inf).all()
    assert torch.equal(out[:, [0, 1, 3, 5, 6]], table()[:, [0, 1, 3, 5, 6]])
    assert torch.equal(ban([])(table(), prefixes(), SENTENCE), table())


def test_constraints_apply_one_after_the_other():
    def double(log_probs, prefix, sentence):
        return log_probs * 2

    out = compose(double, multiply_repeated(3.0), double)(table(), prefixes(length=1), SENTENCE)
    expected = table() * 4
    expected.scatter_(1, prefixes(length=1), expected.gather(1, prefixes(length=1)) * 3)
    assert torch.allclose(out, expected)


def test_a_forced_token_keeps_its_number_whatever_the_other_constraints_say():
    forced = force_prefix(((5,), ()), then=ban([5, 6]))
    out = forced(table(2), prefixes(2, 0), torch.tensor([0, 1]))
    assert out[0, 5] == table(2)[0, 5] and (out[0, [0, 1, 2, 3, 4, 6]] == -torch.inf).all()
    assert torch.equal(out[1], ban([5, 6])(table(2), prefixes(2, 0), SENTENCE)[1])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_forced_prefix_gives_what_exhaustive_search_under_it_gives(alpha):
    toy = Toy(6, seed=8)
    options = SearchOptions(beam=200, n_best=5, length_penalty=alpha, max_extra=3, prefix=PREFIXES)
    result = beam_search(toy, *batch(SENTENCES), options)
    for sentence, prefix, actual in zip(SENTENCES, PREFIXES, result, strict=True):
        expected = exhaustive(toy, sentence, max(len(sentence) + 3, len(prefix) + 1), alpha, prefix)[:5]
        assert [(h.finished, h.ids) for h in actual] == [(finished, ids) for finished, _, ids in expected]
        assert [h.score for h in actual] == pytest.approx([score for _, score, _ in expected], abs=1e-9)


def test_outputs_begin_with_their_prefix_at_the_model_s_log_probabilities():
    toy = Toy(8, seed=8)
    for sentence, prefix, hypotheses in zip(SENTENCES, PREFIXES, both(toy, prefix=PREFIXES), strict=True):
        model = Conditional(toy, sentence)
        real = tuple(model.log_probs(prefix[:i])[token] for i, token in enumerate(prefix))
        assert len(hypotheses) == 6
        for h in hypotheses:
            assert h.ids[: len(prefix)] == prefix and h.token_log_probs[: len(prefix)] == real


def test_a_prefix_longer_than_source_and_extra_is_not_cut():
    options = SearchOptions(beam=2, max_extra=0, prefix=((4, 4, 4, 4),))
    (result,) = beam_search(Toy(eos=9.0), *batch([(3,)]), options)
    assert result[0].ids == (4, 4, 4, 4) and result[0].finished


@pytest.mark.parametrize(
    "prefix, more, message",
    [
        (((4,),), {}, "1 prefixes were given for 4 sentences"),
        (((4,), (EOS,), (), ()), {}, "a prefix holds token 2"),
        (((4,), (), (9,), ()), {}, "a prefix holds token 9; give ids below 6"),
        (((-1,), (), (), ()), {}, "a prefix holds token -1"),
        (((4, 4, 4), (), (), ()), {"max_length": 3}, "leaves no room in an output of 3"),
        (((4, 4, 4), (), (), ()), {"limit": 3}, "leaves no room in an output of 3"),
    ],
)
def test_impossible_prefixes_are_refused(prefix, more, message):
    for search in (beam_search, sample):
        with pytest.raises(SettingError, match=message):
            search(Toy(6), *batch(SENTENCES), SearchOptions(prefix=prefix, **more))


def test_banned_tokens_never_come():
    assert not {4, 7} & {token for item in both(Toy(8), constraints=(ban([4, 7]),)) for h in item for token in h.ids}


def test_no_n_gram_comes_twice():
    for item in both(Toy(6, eos=-30.0), constraints=(no_repeat(2),)):
        for h in item:
            pairs = list(zip(h.ids, h.ids[1:], strict=False))
            assert len(pairs) == len(set(pairs)) > 0


def test_no_output_is_shorter_than_asked_for():
    result = both(Toy(8, eos=3.0), constraints=(min_length(4, EOS),))
    assert {len(h.ids) >= 4 for item in result for h in item} == {True}
    assert {len(h.ids) for value in result for h in value} >= {4}


def test_what_a_constraint_changes_is_part_of_the_score():
    toy, penalty = Toy(5, seed=3, eos=-1.0), 1.7
    result = both(toy, constraints=(multiply_repeated(penalty),))
    for sentence, hypotheses in zip(SENTENCES, result, strict=True):
        model = Conditional(toy, sentence)
        for h in hypotheses:
            output = (*h.ids, EOS) if h.finished else h.ids
            real = [model.log_probs(output[:i])[v] * (penalty if v in output[:i] else 1) for i, v in enumerate(output)]
            assert np.allclose(h.token_log_probs, real)


def test_constraints_that_leave_no_token_end_the_output_where_it_is():
    for item in both(Toy(5), constraints=(no_repeat(1), min_length(99, EOS))):
        assert [h.finished for h in item] == [False] * 5
        assert sorted(h.ids for h in item[:2]) == [(3, 4), (4, 3)]  # beams; the other three are samples
        assert {tuple(sorted(h.ids)) for h in item} == {(3, 4)}
    for value in both(Toy(5), constraints=(ban([3, 4, EOS]),)):
        assert [(h.ids, h.log_prob, h.finished) for h in value] == [((), 0.0, False)] * 4


def test_no_token_is_not_an_end_even_if_eos_is_the_last_id():
    toy = Toy(5)
    toy.eos_id = 4
    assert [h.finished for item in both(toy, constraints=(ban([2, 3, 4]),)) for h in item] == [False] * 16


def test_what_can_only_end_is_not_cut_off_as_well():
    for item in beam_search(Toy(5), *batch(SENTENCES), SearchOptions(beam=9, n_best=9, constraints=(no_repeat(1),))):
        assert {h.ids for h in item} == {(), (3,), (4,), (3, 4), (4, 3)}
        assert [h.finished for h in item] == [True] * 5


def test_a_sentence_is_known_by_its_place_in_the_batch():
    words = torch.tensor([3, 4, 5, 6])  # sentence b says words[b] alone

    def only(log_probs, prefix, sentence):
        allowed = log_probs.gather(1, words[sentence][:, None])
        rest = torch.full_like(log_probs, -torch.inf)
        rest[:, EOS] = log_probs[:, EOS]
        return rest.scatter(1, words[sentence][:, None], allowed)

    for b, hypotheses in enumerate(both(Toy(8, eos=-1.0), constraints=(only,))):
        assert {token for h in hypotheses for token in h.ids} == {int(words[b])}


def test_numbers_out_of_range_are_refused():
    with pytest.raises(SettingError):
        no_repeat(0)
