"""Who watches a search sees all of it, and changes nothing."""

from __future__ import annotations

import torch
from search_toys import EOS, Conditional, Toy, batch

from heedful.search import Observer, SearchOptions
from heedful.search.beam import beam_search
from heedful.search.sample import sample

SENTENCES = [(5, 4), (3,), (4, 4, 5, 3)]


class Diary(Observer):
    def __init__(self):
        self.seen, self.ended, self.lived = [], set(), []

    def step(self, sentence, prefix, log_probs):
        rows = zip(sentence.tolist(), map(tuple, prefix.tolist()), log_probs.clone(), strict=True)
        self.seen += [(index, ids, row) for index, ids, row in rows]

    def choose(self, sentence, prefix, candidates, ending, live):
        width = len(prefix) // len(sentence)
        for place, index in enumerate(sentence.tolist()):
            for parent, id, ends in zip(candidates.parent[place], candidates.id[place], ending[place], strict=True):
                assert parent // width == place
                if ends:
                    self.ended.add((index, tuple(prefix[parent].tolist()), int(id)))
            parents, ids = live.parent[place].tolist(), live.id[place].tolist()
            grown = [(*prefix[parent].tolist(), id) for parent, id in zip(parents, ids, strict=True)]
            self.lived.append((index, grown))


def test_an_observer_sees_the_rows_and_endings_of_a_beam():
    toy, diary = Toy(8, seed=1, eos=1.0), Diary()
    options = SearchOptions(beam=3, n_best=2, max_extra=5)
    quiet = beam_search(toy, *batch(SENTENCES), options)
    watched = beam_search(toy, *batch(SENTENCES), options.model_copy(update={"observer": diary}))
    assert watched == quiet
    for index, ids, row in diary.seen:
        real = torch.from_numpy(Conditional(toy, SENTENCES[index]).log_probs(ids)).float()
        assert torch.equal(row[2:], real[2:])  # pad and bos are banned
    for index, hypotheses in enumerate(watched):
        for hypothesis in hypotheses:
            assert (index, hypothesis.ids, EOS) in diary.ended
    seen = {(index, ids) for index, ids, _ in diary.seen}
    grown = {(index, ids) for index, prefixes in diary.lived for ids in prefixes}
    assert {item for item in seen if item[1]} <= grown


def test_an_observer_sees_sampling_too():
    toy, diary = Toy(8, seed=1, eos=1.0), Diary()
    options = SearchOptions(n_best=2, max_extra=5, observer=diary)
    result = sample(toy, *batch(SENTENCES), options)
    seen = {(index, ids) for index, ids, _ in diary.seen}
    for index, hypotheses in enumerate(result):
        for hypothesis in hypotheses:
            assert all((index, hypothesis.ids[:length]) in seen for length in range(len(hypothesis.token_log_probs)))
