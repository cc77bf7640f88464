"""Alignments: the pieces of the method by hand, and whole corpora in order."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from heedful import demo
from heedful.errors import FolderError, SettingError
from heedful.inference.aligner import MARKS, Aligner, align_both
from heedful.inference.alignment import (
    HeadChoice,
    align_words,
    alignment_error,
    choose_heads,
    cross_attention,
    occlusion_effects,
    symmetrize,
    weights_by_word,
)
from heedful.inference.forced_decoding import frame_pair
from heedful.inference.results import pharaoh
from heedful.inference.torch_forced_decoder import TorchForcedDecoder
from heedful.inference.translator import Translator
from heedful.native import Engine, library
from heedful.native.forced_decoder import EngineForcedDecoder
from heedful.native.torch_bridge import ModuleWeights
from heedful.search import Hypothesis
from heedful.text import NO_WORD, Tokenizer, words_of_spans

TEXTS = [
    ("The old man sleeps.", "Der alte Mann schläft."),
    ("She reads.", "Sie liest."),
    ("I know it well.", "Ich weiß."),
]


@pytest.fixture
def pairs(translator_folder):
    tokenizer = translator_folder.tokenizer
    ids = [(tokenizer.encode(source), tokenizer.encode(target)) for source, target in TEXTS]
    return [frame_pair(*pair, tokenizer.specials, tokenizer.specials) for pair in ids]


@pytest.fixture(params=["torch", "engine"])
def decoder(request, translator_folder):
    model = translator_folder.model
    if request.param == "torch":
        return TorchForcedDecoder(model)
    if library() is None:
        pytest.skip("there is no compiled engine")
    return EngineForcedDecoder(Engine(ModuleWeights(model), int8=False), 2)


def test_occlusion_equals_a_loop_over_tokens(translator_folder, decoder, pairs):
    model = translator_folder.model
    for (source, target), effect in zip(pairs, occlusion_effects(decoder, pairs), strict=True):
        sources, inputs = torch.tensor([source]), torch.tensor([target[:-1]])
        labels = torch.tensor(target[1:])
        assert effect.shape == (len(labels), len(source))
        with torch.no_grad():
            for place in range(len(source) - 1):
                without = sources.clone()
                without[0, place] = model.config.pad_id
                both = [model.project(model(item, inputs)).log_softmax(-1)[0] for item in (sources, without)]
                loss = [value.gather(1, labels[:, None])[:, 0] for value in both]
                expected = (loss[0] - loss[1]).clamp(min=0)
                assert_close(torch.from_numpy(effect)[:, place], expected, atol=1e-4, rtol=1e-4)
        assert not effect[:, -1].any()


class DrawnDecoder:
    """Random attention; head 2 of layer 1 attends to what costs most when hidden, with `shift` one step later."""

    def __init__(self, pairs, shift):
        self.heads = list(product(range(2), range(4)))
        random = np.random.default_rng(5)
        self.effects, self.weights = [], {}
        for source, target in pairs:
            labels, keys = len(target) - 1, len(source)
            effect = random.random((labels, keys)).astype(np.float32)
            weights = random.dirichlet(np.ones(keys), (8, labels)).astype(np.float32)
            follows = np.roll(effect.argmax(1), 1) if shift else effect.argmax(1)
            weights[6] = 0.1 / keys + 0.9 * np.eye(keys)[follows]
            self.effects.append(effect)
            self.weights[tuple(source)] = weights

    def attention(self, pairs, heads):
        assert heads == self.heads
        return [self.weights[tuple(source)] for source, _ in pairs]


@pytest.mark.parametrize("shift", [False, True])
def test_the_head_that_agrees_with_occlusion_is_chosen(pairs, monkeypatch, shift):
    drawn = DrawnDecoder(pairs, shift)
    monkeypatch.setattr("heedful.inference.alignment.occlusion_effects", lambda model, pairs: drawn.effects)
    choice = choose_heads(drawn, pairs)
    assert choice == HeadChoice(((1, 2),), shift)
    assert choice.names == ["decoder.1.cross.2"]


def test_chosen_heads_are_averaged_and_shifted(translator_folder, decoder, pairs):
    from heedful.inference.record import record

    model, heads = translator_folder.model, ((0, 1), (1, 3))
    straight = cross_attention(decoder, pairs, HeadChoice(heads))
    shifted = cross_attention(decoder, pairs, HeadChoice(heads, shift=True))
    for (source, target), weights, later in zip(pairs, straight, shifted, strict=True):
        with record(model) as trace:
            model(torch.tensor([source]), torch.tensor([target[:-1]]))
        mean = (trace["decoder.0.cross.weights"][0, 1] + trace["decoder.1.cross.weights"][0, 3]) / 2
        assert_close(torch.from_numpy(weights), mean.as_subclass(torch.Tensor), atol=1e-5, rtol=1e-4)
        assert np.array_equal(later[:-1], weights[1:])
        assert later.shape == weights.shape


def test_words_take_what_their_pieces_attend_to():
    weights = np.array([[0.5, 0.3, 0.1, 0.1], [0.1, 0.2, 0.6, 0.1], [0.1, 0.4, 0.4, 0.1]], np.float32)
    assert weights_by_word(weights, [0, 0, 1], [0, 1, 1]) == pytest.approx(np.array([[0.8, 0.1], [0.4, 0.5]]))
    assert align_words(weights, [0, 0, 1], [0, 1, 1]) == [(0, 0), (1, 1)]
    assert align_words(weights, [], [0]) == align_words(weights, [0], []) == []


def test_an_unaligned_source_word_is_linked_to_the_word_that_attends_to_it():
    weights = np.array([[0.7, 0.2, 0.0], [0.6, 0.1, 0.04]])
    assert align_words(weights, [0, 1, 2], [0, 1]) == [(0, 0), (0, 1), (1, 0)]


def test_a_word_without_a_piece_has_no_link():
    weights = np.array([[0.7, 0.2], [0.1, 0.8]])
    assert align_words(weights, [0, 1], [0, 2]) == [(0, 0), (1, 2)]
    assert align_words(weights, [7, 9], [0, 2]) == [(7, 0), (9, 2)]


def test_a_piece_without_a_word_has_no_link():
    weights = np.array([[0.8, 0.1, 0.1], [0.7, 0.1, 0.2], [0.6, 0.1, 0.3]])
    assert align_words(weights, [NO_WORD, 0, 1], [NO_WORD, 0, 1]) == [(0, 0), (1, 0), (1, 1)]
    assert align_words(weights, [NO_WORD] * 3, [0, 1, 2]) == align_words(weights, [0, 1, 2], [NO_WORD] * 3) == []


def test_symmetrizing_grows_the_intersection():
    forward = [(0, 0), (1, 1), (2, 1), (4, 4)]
    backward = [(0, 0), (1, 1), (3, 3), (2, 2)]
    assert symmetrize(forward, backward) == [(0, 0), (1, 1), (2, 1), (2, 2), (3, 3), (4, 4)]
    assert symmetrize([], []) == []
    assert symmetrize(forward, forward) == forward
    assert symmetrize([(0, 0), (5, 5)], [(0, 0), (5, 1)]) == [
        (0, 0),
        (5, 5),
    ]  # what is far from all joins if both are free


def test_error_rate_and_pharaoh_form():
    assert alignment_error([[(0, 0), (1, 1)]], [[(0, 0), (1, 1)]]) == 0
    assert alignment_error([[(0, 0), (1, 2)], []], [[(0, 0), (1, 1)], [(0, 0)]]) == pytest.approx(1 - 2 / 5)
    assert alignment_error([[]], [[]]) == 0
    assert pharaoh([(2, 1), (0, 0)]) == "0-0 2-1"


def test_pieces_belong_to_words_or_to_marks(tokenizer):
    text = "Anna's dog, the old one, sleeps... 🙂 at 7!"
    ids = tokenizer.encode(text)

    def words_and_marks(text: str) -> list[int]:
        return words_of_spans(text, tokenizer.spans(text), MARKS)

    words = words_and_marks(text)
    grouped = [
        "".join(
            tokenizer.decode([*ids[:i], ids[i]])[len(tokenizer.decode(ids[:i])) :]
            for i in range(len(ids))
            if words[i] == w
        )
        for w in range(words[-1] + 1)
    ]
    assert [word.strip() for word in grouped[:8]] == ["Anna's", "dog", ",", "the", "old", "one", ",", "sleeps"]
    assert words == sorted(words)
    for pair in demo.generate(30, seed=9):
        assert words_and_marks(pair.target)[-1] + 1 == len(demo.words(pair.target))


BLANKS = [
    "  Der Hund schläft.",
    "\x0bDer Hund",
    "Der  alte\u00a0Mann \u3000 schläft. ",
    "\u00a0\u00a0Der Hund\u2003",
    "\x1cDer\x1fHund \x85 schläft",
    " 我 \u2028\u00a0爱  ",
]


def spelled(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Ids that a model may write and that decode to the text as it is, with white space that `encode` takes away."""
    pieces = ["▁", *(f"<0x{byte:02X}>" if byte != 32 else "▁" for byte in text.encode())]
    vocabulary = dict(zip(tokenizer.pieces(range(tokenizer.vocab_size)), range(tokenizer.vocab_size), strict=True))
    return tuple(vocabulary[piece] for piece in pieces)


@pytest.mark.parametrize("text", BLANKS)
def test_links_count_the_words_of_the_printed_text_whatever_white_space_it_has(translator_folder, text):
    translator = Translator([translator_folder])
    ids = spelled(translator.tokenizer, text)
    source = f"{text}reads{text[:2]}"
    (part,) = translator.parts([source], [""])
    written = translator.decode([Hypothesis(ids, -1.0, -1.0, (-1.0,) * len(ids), True)])
    assert written[0].text == text
    ((result,),) = translator.aligned([part], [written])
    assert {target for _, target in result.alignment} == set(range(len(text.split())))
    assert {source for source, _ in result.alignment} <= set(range(len(source.split())))
    (inputs,) = Aligner(translator_folder).align([(source, text)])
    assert {target for _, target in inputs} == set(range(len(text.split())))
    assert max(part.words(translator.source_tokenizer)) == len(source.split()) - 1


@pytest.mark.parametrize("text", [" \u00a0", "  "])
def test_a_translation_of_nothing_but_white_space_has_no_links(translator_folder, text):
    translator = Translator([translator_folder])
    ids = spelled(translator.tokenizer, text)
    written = translator.decode([Hypothesis(ids, -1.0, -1.0, (-1.0,) * len(ids), True)])
    ((result,),) = translator.aligned(translator.parts(["She reads."], [""]), [written])
    assert (result.text, result.alignment) == (text, [])


def test_a_corpus_is_aligned_in_order_whatever_the_batches(translator_folder, monkeypatch):
    choice = HeadChoice(((0, 1), (1, 3)))
    texts = [*TEXTS, ("", "Nichts."), ("Nothing.", ""), ("word " * 200, "Wort"), *TEXTS]
    notes = []
    aligner = Aligner(translator_folder, choice)
    aligner.notice = notes.append
    alone = [next(iter(aligner.align([pair]))) for pair in texts]
    longest = len(translator_folder.tokenizer.encode("word " * 200))
    assert notes == [f"pair 1 has a side of {longest} tokens, and this model takes 63: no links."]
    assert list(aligner.align(texts)) == alone
    monkeypatch.setattr("heedful.inference.aligner.CHUNK", 4)
    assert list(aligner.align(texts)) == alone
    assert alone[3] == alone[4] == alone[5] == []
    for (source, target), links in zip(texts, alone, strict=True):
        assert all(i < len(source.split()) and j < len(target.split()) for i, j in links)


def test_heads_are_chosen_once(translator_folder):
    aligner = Aligner(translator_folder)
    first = list(aligner.align(TEXTS))
    choice = aligner.choice
    assert choice is not None
    assert list(aligner.align(TEXTS[:1])) == first[:1]
    assert aligner.choice is choice


def test_two_directions_are_symmetrized(translator_folder):
    choice = HeadChoice(((1, 0),))
    forward, backward = Aligner(translator_folder, choice), Aligner(translator_folder, choice)
    actual = list(forward.align(TEXTS))
    expected = [[(i, j) for j, i in links] for links in backward.align([(t, s) for s, t in TEXTS])]
    both = list(align_both(forward, backward, TEXTS))
    assert both == [symmetrize(a, b) for a, b in zip(actual, expected, strict=True)]


def test_only_translators_align(make_folder):
    with pytest.raises(FolderError, match="holds a GPT, which has no cross-attention"):
        Aligner(make_folder("decoder"))


def test_the_translator_aligns_the_same_way(translator_folder):
    translator = Translator([translator_folder])
    result = translator.translations([source for source, _ in TEXTS], alignments=True, beam=1)
    for (source, _), (translation,) in zip(TEXTS, result, strict=True):
        assert all(i < len(source.split()) for i, _ in translation.alignment)
        assert {j for _, j in translation.alignment} == set(range(len(translation.text.split())))


def test_other_architectures_are_aligned_too(make_folder):
    for changes in ({"architecture": "rnn"}, {"architecture": "conv"}, {"universal": True}):
        aligner = Aligner(make_folder(**changes))
        result = list(aligner.align(TEXTS))
        assert len(result) == len(TEXTS)
        assert all(result)
        assert all(name.startswith("decoder.") for name in aligner.choice.names)
    with pytest.raises(SettingError, match="has no attention over its source"):
        list(Aligner(make_folder(architecture="rnn", source_attention="none")).align(TEXTS))
