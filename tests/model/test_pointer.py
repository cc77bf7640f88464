"""The pointer-generator: its mixture and loss against loops in NumPy, its search with a cache, and what it refuses."""

import numpy as np
import pytest
import torch

from heedful.config import ModelConfig
from heedful.data.batch import collate
from heedful.data.pairs import Pairs
from heedful.errors import SettingError
from heedful.inference.torch_backend import ModelNextToken
from heedful.interop.architecture import refuse_other_systems
from heedful.model.transformer import EncoderDecoder, build_model
from heedful.ops import cross_entropy
from heedful.search import SearchOptions
from heedful.search.beam import beam_search
from heedful.text import Specials
from heedful.training.losses import translation_loss

V, PAD, EOS = 23, 0, 3
PAIRS = [([5, 9, 5, 7], [5, 5, 11]), ([8, 8, 20, 21, 22, 4], [22, 6]), ([17], [17, 17, 18, 19, 4])]


def pointer_model(**settings: object) -> EncoderDecoder:
    torch.manual_seed(1)
    sizes = {"d_model": 16, "d_ff": 24, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.0}
    model = build_model(
        ModelConfig.model_validate({"vocab_size": V, "max_length": 32, "pointer": True, **sizes, **settings})
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    assert isinstance(model, EncoderDecoder)
    return model.eval()


def probabilities(model: EncoderDecoder, source: list[int], target: list[int]) -> np.ndarray:
    """(T, V), from the weights and hidden states of one sentence, without padding."""
    weights = {name: weight.detach().double().numpy() for name, weight in model.named_parameters()}
    with torch.no_grad():
        context = model.encode(torch.tensor([source]))
        states = model.decode(torch.tensor([target]), context)[0].double().numpy()
        memory = context.memory[0].double().numpy()
    result = np.zeros((len(target), V))
    for t, state in enumerate(states):
        logits = weights["embedding.weight"] @ state
        vocabulary = np.exp(logits) / np.exp(logits).sum()
        query = weights["pointer.query.weight"] @ state + weights["pointer.query.bias"]
        keys = [weights["pointer.key.weight"] @ row + weights["pointer.key.bias"] for row in memory]
        scores = np.array([query @ key / np.sqrt(len(key)) for key in keys])
        copy = np.exp(scores) / np.exp(scores).sum()
        generate = 1 / (1 + np.exp(-(weights["pointer.gate.weight"][0] @ state + weights["pointer.gate.bias"][0])))
        result[t] = generate * vocabulary
        for token, weight in zip(source, copy, strict=True):
            result[t, token] += (1 - generate) * weight
    return result


def batch_of(pairs: list[tuple[list[int], list[int]]]):
    return collate(Pairs.of(pairs), range(len(pairs)), Specials(pad=PAD, bos=2, eos=EOS))


def test_the_mixture_is_that_of_a_loop_in_numpy() -> None:
    model, batch = pointer_model(), batch_of(PAIRS)
    with torch.no_grad():
        actual = model.target_logits(batch.source, batch.decoder_input).exp().numpy()
    assert actual.sum(-1) == pytest.approx(np.ones(actual.shape[:2]), rel=1e-5)
    for row, (source, target) in enumerate(PAIRS):
        expected = probabilities(model, [*source, EOS], [2, *target])
        assert actual[row, : len(target) + 1] == pytest.approx(expected, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("samples", [0, V - 1])  # the labels and V - 1 others: all tokens
def test_the_loss_is_that_of_a_loop_in_numpy(samples: int, gradients: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "_chunks", lambda hidden, size: [slice(0, 4), slice(4, None)])
    model, batch, smoothing = pointer_model(), batch_of(PAIRS), 0.1
    with torch.set_grad_enabled(gradients):
        loss = translation_loss(model, batch, smoothing, samples)
    nll = uniform = 0.0
    embedding = model.embedding.weight.detach().double().numpy()
    for source, target in PAIRS:
        labels = [*target, EOS]
        mixture = probabilities(model, [*source, EOS], [2, *target])
        nll -= np.log(mixture[np.arange(len(labels)), labels]).sum()
        with torch.no_grad():
            states = model(torch.tensor([[*source, EOS]]), torch.tensor([[2, *target]]))[0].double().numpy()
        logits = states @ embedding.T
        uniform += (np.log(np.exp(logits).sum(1)) - logits.mean(1)).sum()  # mean of -log P_vocab over the vocabulary
    assert loss.likelihood.item() == pytest.approx(nll, rel=1e-5)
    assert loss.smoothed.item() == pytest.approx((1 - smoothing) * nll + smoothing * uniform, rel=1e-5)


def test_the_gradient_is_finite_where_nothing_can_be_copied() -> None:
    model, batch = pointer_model().train(), batch_of([([5, 6, 7], [12, 13]), ([8], [9, 10, 11])])
    translation_loss(model, batch, 0.1).smoothed.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("beam", [1, 3])
def test_search_with_a_cache_finds_the_scores_of_whole_targets(beam: int) -> None:
    model, batch = pointer_model(), batch_of(PAIRS)
    lengths = (batch.source != PAD).sum(1)
    options = SearchOptions(beam=beam, n_best=beam, length_penalty=0.0, max_length=8, loop_guard=False)
    with torch.inference_mode():
        results = beam_search(ModelNextToken(model), batch.source, lengths, options)
    for (source, _), hypotheses in zip(PAIRS, results, strict=True):
        for hypothesis in hypotheses:
            labels = [*hypothesis.ids, *[EOS] * hypothesis.finished]
            mixture = probabilities(model, [*source, EOS], [2, *labels[:-1]])
            expected = np.log(mixture[np.arange(len(labels)), labels]).sum()
            assert hypothesis.score == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"source_vocab_size": 30, "tie": "target"}, "one vocabulary; set text.joint=true"),
        ({"family": "decoder"}, "this model reads none"),
        ({"architecture": "rnn"}, "pointer is a setting of the transformer architecture"),
    ],
)
def test_what_cannot_be_copied_is_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        pointer_model(**settings)


def test_other_formats_have_no_pointer() -> None:
    with pytest.raises(SettingError, match=r"model.pointer is True, but a MarianMT model does not support it"):
        refuse_other_systems(pointer_model().config, "MarianMT")
