"""Lexical constraints in the compiled engine: the rules of Python, with and without a shortlist."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from heedful.config import ModelConfig
from heedful.errors import HeedfulError
from heedful.inference.native_search import NativeSearchPool
from heedful.inference.scheduler import search_in_order
from heedful.model.transformer import EncoderDecoder, build_model
from heedful.native import Engine, library
from heedful.native.torch_bridge import EngineNextToken, ModuleWeights
from heedful.search import LexicalConstraint, RequiredPhrase, SearchOptions, SearchRequest
from heedful.search.beam import beam_search

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")
VOCABULARY = 61
CONTINUES = (np.arange(VOCABULARY) % 3 == 0).astype(np.uint8)
CONSTRAINTS = [
    None,
    LexicalConstraint((RequiredPhrase(((7, 8), (7, 8, 9), (20,)), whole_words=True),), continues=CONTINUES),
    LexicalConstraint((RequiredPhrase(((7, 7, 9),)), RequiredPhrase(((7, 9),)), RequiredPhrase(((30,),)))),
    LexicalConstraint(
        (RequiredPhrase(((5,),)), RequiredPhrase(((5,),)), RequiredPhrase(((6,),), after=0)), reserved=(4, 5, 6)
    ),
    LexicalConstraint(tuple(RequiredPhrase(((token, token + 1),)) for token in range(10, 30))),  # more banks than rows
    None,
]


def model(seed: int) -> EncoderDecoder:
    torch.manual_seed(seed)
    sizes = {"vocab_size": VOCABULARY, "d_model": 24, "d_ff": 40, "n_heads": 3, "encoder_layers": 1}
    made = build_model(ModelConfig(**sizes | {"decoder_layers": 1, "max_length": 99, "dropout": 0.0}))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return made.eval()


def sources(seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [[*torch.randint(4, VOCABULARY, (n - 1,), generator=generator).tolist(), 3] for n in (7, 1, 12, 3, 5, 9)]


@pytest.mark.parametrize(("beam", "filled", "longest"), [(1, None, 60), (4, None, 60), (6, 2, 60), (6, 3, 12)])
@pytest.mark.parametrize("shortlist", [False, True])
def test_the_constrained_search_is_that_of_python(beam: int, filled: int | None, longest: int, shortlist: bool) -> None:
    options = SearchOptions(beam=beam, n_best=1, max_length=longest)
    constraints = [constraint and replace(constraint, filled=filled) for constraint in CONSTRAINTS]
    for seed in range(4):
        engine = Engine(ModuleWeights(model(seed)), int8=False, shortlists=shortlist)
        requested, prefixes = sources(seed), [(), (8,), (7,), (), (9,), (9, 10)]
        allowed = np.setdiff1d(np.arange(VOCABULARY), [40, 41, 42, 55]).astype(np.int32) if shortlist else None
        requests = [
            SearchRequest(source, options, prefix, allowed, phrases)
            for source, prefix, phrases in zip(requested, prefixes, constraints, strict=True)
        ]
        lengths = torch.tensor([len(source) for source in requested])
        padded = torch.zeros(len(requested), int(lengths.max()), dtype=torch.long)
        for row, source in zip(padded, requested, strict=True):
            row[: len(source)] = torch.tensor(source)
        changes = {"prefix": tuple(prefixes), "phrases": tuple(constraints), "shortlists": (allowed,) * 6}
        expected = beam_search(EngineNextToken(engine), padded, lengths, options.model_copy(update=changes))
        result = list(search_in_order(NativeSearchPool(engine), requests))
        for actual, reference in zip(result, expected, strict=True):
            assert [(h.ids, h.finished) for h in actual] == [(h.ids, h.finished) for h in reference]
            assert [h.score for h in actual] == pytest.approx([h.score for h in reference], abs=1e-4)
        plain = list(search_in_order(NativeSearchPool(engine), [r._replace(phrases=None) for r in requests]))
        assert [result[0], result[5]] == [plain[0], plain[5]]  # to the bit


def test_a_phrase_outside_the_vocabulary_or_the_shortlist_is_refused() -> None:
    engine = Engine(ModuleWeights(model(1)), int8=False, shortlists=True)
    phrases, options = LexicalConstraint((RequiredPhrase(((VOCABULARY,),)),)), SearchOptions(beam=2)
    with pytest.raises(HeedfulError, match="not in the vocabulary"):
        list(search_in_order(NativeSearchPool(engine), [SearchRequest([5, 3], options, phrases=phrases)]))
    few, phrases = np.arange(9, dtype=np.int32), LexicalConstraint((RequiredPhrase(((20,),)),))
    with pytest.raises(HeedfulError, match="lacks a token"):
        list(search_in_order(NativeSearchPool(engine), [SearchRequest([5, 3], options, (), few, phrases)]))
