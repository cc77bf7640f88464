"""End-to-End Memory Networks against loops in NumPy over sentences, words and hops."""

import numpy as np
import pytest
import torch

from heedful.model.baselines.memory_network import noisy_times
from heedful.model.sentences import sentence_numbers
from heedful.model.transformer import build_model

from . import test_cache, test_properties
from .samples import another, pad_right, sentences, shared, small

END, EOS = 18, 3  # the mark at the end of a sentence, and the end of a text
DECODER = {"architecture": "memory-network", "memory_size": 4, "decoder_layers": 3}
STORIES = [  # token 2 begins; the last sentence is the question
    [2, 5, 6, 7, END, 8, 9, END, 5, 9, 10, 11, END, EOS, 12, 5, END, EOS],
    [2, 8, 9, END, EOS, 12, 9, 13, EOS],
    [2, 5, END, 6, END, 7, END, 8, END, 9, END, EOS, 10, EOS],
]


def reader(**changes):
    sizes = {"architecture": "memory-network", "family": "encoder", "memory_size": 4, "sentence_ends": (END,)}
    return shared(small(**sizes | {"encoder_layers": 3} | changes))


def story_ids():
    ids = torch.zeros(len(STORIES), max(map(len, STORIES)), dtype=torch.long)
    for row, story in zip(ids, STORIES, strict=True):
        row[: len(story)] = torch.tensor(story)
    return ids


def split(story):
    sentences, sentence = [], []
    for token in [*story, EOS]:
        if token in (2, EOS, END):
            sentences, sentence = sentences + [sentence] * bool(sentence), []
        else:
            sentence.append(token)
    return sentences


def embed(sentence, table):
    """Σ_j l_j ∘ A x_j with l_kj = (1 - j / J) - (k / d) (1 - 2 j / J)."""
    total, depth = np.zeros(table.shape[1]), table.shape[1]
    for j, word in enumerate(sentence, 1):
        for k in range(1, depth + 1):
            share = j / len(sentence)
            total[k - 1] += ((1 - share) - (k / depth) * (1 - 2 * share)) * table[word, k - 1]
    return total


def softmax(x):
    x = np.exp(x - np.max(x))
    return x / x.sum()


def answer_by_hand(model, story, normalize=softmax):
    """The state after the last hop, and the weights of every hop over the sentences, the latest first."""
    tables = [model.embedding.weight.numpy() * 4.0, *model.encoder.tables.numpy()]  # √d_model is 4
    temporal = model.encoder.temporal.numpy()
    *facts, question = split(story)
    facts = facts[::-1][:4]  # the latest first, four memories at most
    u, hops = embed(question, tables[0]), []
    for hop in range(3):
        m = [embed(fact, tables[hop]) + temporal[hop, age] for age, fact in enumerate(facts)]
        c = [embed(fact, tables[hop + 1]) + temporal[hop + 1, age] for age, fact in enumerate(facts)]
        p = normalize(np.array([u @ key for key in m]))
        u, hops = u + sum(weight * value for weight, value in zip(p, c, strict=True)), [*hops, p]
    return u, hops


def test_an_answer_is_what_the_paper_writes():
    model, ids = reader(), story_ids()
    hidden = model(ids)
    for row, story in enumerate(STORIES):
        expected, _ = answer_by_hand(model, story)
        for place in range(len(story)):
            np.testing.assert_allclose(hidden[row, place].numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(model(pad_right(ids, 3))[:, :1].numpy(), hidden[:, :1].numpy(), atol=1e-12)


def test_a_linear_start_has_no_softmax():
    model, ids = reader(), story_ids()
    model.encoder.linear = True
    for row, story in enumerate(STORIES):
        expected, _ = answer_by_hand(model, story, normalize=lambda scores: scores)
        np.testing.assert_allclose(model(ids)[row, 0].numpy(), expected, rtol=1e-10)
    model.encoder.linear = False


def test_random_noise_puts_empty_memories_between_the_real_ones():
    """Of 2 memories with noise 0.5: no or one empty memory, equally often, which stands at any of 3 places."""
    torch.manual_seed(1)
    times = noisy_times(torch.full((6000,), 2), 0.5)
    for pair, share in {(0, 1): 2 / 3, (0, 2): 1 / 6, (1, 2): 1 / 6}.items():
        assert float((times == torch.tensor(pair)).all(1).float().mean()) == pytest.approx(share, abs=0.03)
    times = noisy_times(torch.tensor([0, 5, 20]), 0.1)
    assert (times[1, :5].diff() > 0).all() and times[1, 4] <= 5 and times[2, 19] <= 21
    assert noisy_times(torch.tensor([3]), 0.0).tolist() == [[0, 1, 2]]


def test_a_tap_shows_which_sentence_a_hop_reads_and_may_replace_it():
    model, ids = reader(), story_ids()
    before, seen = model(ids), []
    taps = [model.encoder.get_submodule(f"{hop}.self.weights") for hop in range(3)]
    hooks = [tap.register_forward_hook(lambda tap, inputs, out: seen.append(out)) for tap in taps]
    torch.testing.assert_close(model(ids), before)
    for hook in hooks:
        hook.remove()
    numbers = sentence_numbers(ids, ids != 0, model.config)
    for row, story in enumerate(STORIES):
        facts = len(split(story)) - 1
        for weights, expected in zip(seen, answer_by_hand(model, story)[1], strict=True):
            shown = [float(weights[row, 0, 0][numbers[row] == facts - age].sum()) for age in range(len(expected))]
            np.testing.assert_allclose(shown, expected, atol=1e-12)
    with taps[0].register_forward_hook(lambda tap, inputs, out: 0 * out):
        assert (model(ids) - before).abs().amax((1, 2)).min() > 1e-4


def test_a_text_without_sentences_before_the_question_is_the_question():
    model = reader()
    ids = torch.tensor([[2, 5, 6, EOS]])
    expected = embed([5, 6], model.embedding.weight.numpy() * 4.0)
    np.testing.assert_allclose(model(ids)[0, 0].numpy(), expected, atol=1e-12)
    assert model(torch.tensor([[2, EOS]])).isfinite().all()


def test_a_language_model_is_what_the_paper_writes():
    """u starts at 0.1; u ← H u + o; the second half of u through ReLU; the last four tokens are the memories."""
    model = shared(small(**DECODER, family="decoder"))
    ids = sentences([9, 9], start=2)
    out, decoder = model(ids), model.decoder
    A, C, H = model.embedding.weight.numpy() * 4.0, decoder.table.numpy(), decoder.mapping.weight.numpy()
    T_A, T_C = decoder.temporal.numpy()
    for row, t in np.ndindex(2, 9):
        tokens = ids[row, max(0, t - 3) : t + 1].flip(0).tolist()  # the current one first
        u = np.full(16, 0.1)
        for _ in range(3):
            p = softmax(np.array([u @ (A[token] + T_A[age]) for age, token in enumerate(tokens)]))
            u = H @ u + sum(p[age] * (C[token] + T_C[age]) for age, token in enumerate(tokens))
            u[8:] = np.maximum(u[8:], 0)
        np.testing.assert_allclose(out[row, t].numpy(), u, atol=1e-12)


@pytest.mark.parametrize("sizes", [[1] * 9, [4, 1, 3, 1]], ids=["one by one", "in chunks"])
def test_a_language_model_keeps_the_contracts_of_all_others(sizes):
    model = shared(small(**DECODER, family="decoder"))
    test_properties.assert_causal(model, 9)
    target = sentences([9, 9, 9], seed=1, start=2)
    cached = test_cache.in_pieces(model, model.start(), target, sizes)
    test_cache.assert_same(cached, model(target))
    test_cache.test_rows_of_different_lengths_join_and_leave(DECODER)


def test_a_sentence_beyond_the_memory_is_forgotten():
    model, ids = reader(), story_ids()[2:]
    changed = ids.clone()
    changed[0, 1] = another(ids[0, 1])  # the first of five sentences; there are four memories
    torch.testing.assert_close(model(changed), model(ids))
    changed[0, 3] = another(ids[0, 3])
    assert (model(changed) - model(ids)).abs().max() > 1e-6


def test_it_translates_nothing():
    with pytest.raises(ValueError, match="translates nothing"):
        small(architecture="memory-network")


@pytest.mark.parametrize("family", ["encoder", "decoder"])
def test_it_trains_in_bfloat16(family):
    sizes = {"architecture": "memory-network", "family": family, "memory_size": 4, "dropout": 0.0, "memory_noise": 0}
    model, ids = build_model(small(**sizes)), story_ids()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(ids)
    rough.float().square().sum().backward()
    assert (rough - model(ids)).norm() < 0.1 * rough.norm()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
