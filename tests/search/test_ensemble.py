from __future__ import annotations

import numpy as np
import pytest
import torch
from search_toys import Conditional, Toy, batch

from heedful.errors import SettingError
from heedful.search import SearchOptions
from heedful.search.beam import beam_search
from heedful.search.ensemble import Ensemble
from heedful.search.sample import sample

SENTENCES = [(5, 4), (3,), (4, 4, 5, 3), (5, 4, 3)]


def test_an_ensemble_of_equal_models_is_the_model():
    toy = Toy(9, seed=1)
    options = SearchOptions(beam=4, n_best=4, max_extra=4)
    alone = beam_search(toy, *batch(SENTENCES), options)
    for together in (Ensemble([toy]), Ensemble([toy, Toy(9, seed=1), Toy(9, seed=1)])):
        for actual, expected in zip(beam_search(together, *batch(SENTENCES), options), alone, strict=True):
            assert [h.ids for h in actual] == [h.ids for h in expected]
            assert [h.score for h in actual] == pytest.approx([h.score for h in expected], abs=1e-5)


@pytest.mark.parametrize("search", [beam_search, sample])
def test_an_ensemble_averages_probabilities(search):
    toys = [Toy(9, seed=1), Toy(9, seed=2)]
    result = search(Ensemble(toys), *batch(SENTENCES), SearchOptions(beam=3, n_best=3, max_extra=4))
    for sentence, hypotheses in zip(SENTENCES, result, strict=True):
        models = [Conditional(toy, sentence) for toy in toys]
        for h in hypotheses:
            output = (*h.ids, 2) if h.finished else h.ids
            real = [
                np.log(np.mean([np.exp(m.log_probs(output[:i])[token]) for m in models]))
                for i, token in enumerate(output)
            ]
            assert h.token_log_probs == pytest.approx(real, abs=1e-5)


def test_tiny_probabilities_do_not_underflow():
    class Sure(Toy):
        def step(self, ids, cache):
            super().step(ids, cache)
            out = torch.full((len(ids), self.vocab_size), -300.0)
            out[:, 4] = -torch.inf
            return out

    ensemble = Ensemble([Sure(), Sure()])
    out = ensemble.step(torch.tensor([1, 1]), ensemble.start(*batch([(3,), (4,)])))
    assert out[:, 3].tolist() == pytest.approx([-300, -300]) and (out[:, 4] == -torch.inf).all()


@pytest.mark.parametrize("name", ["vocab_size", "bos_id", "eos_id", "pad_id"])
def test_models_of_different_vocabularies_are_refused(name):
    other = Toy(9)
    setattr(other, name, 8)
    with pytest.raises(SettingError, match=f"model 3 of the ensemble has {name} 8, and model 1 has"):
        Ensemble([Toy(9), Toy(9), other])


def test_no_models_are_refused():
    with pytest.raises(SettingError, match="no models"):
        Ensemble([])
