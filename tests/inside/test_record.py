"""Recorded numbers are the real ones: in one pass, in padded batches, in beam search with its cache."""

from __future__ import annotations

import math
from itertools import chain
from threading import Thread

import pytest
import torch
from torch.testing import assert_close

from heedful.config import ModelConfig
from heedful.data.batch import collate
from heedful.data.pairs import Pairs
from heedful.errors import SettingError
from heedful.inference.record import LENGTHS, activation_names, record
from heedful.inference.translator import Translator
from heedful.model.masks import causal, not_padding
from heedful.model.positions import POSITIONS
from heedful.model.transformer import build_model

from .conftest import FAMILIES

TEXTS = ["The old man sleeps.", "Where is the dog that the children saw yesterday?", "She reads.", "I know it."]


def weights_by_formula(queries, keys, keep, bias):
    """softmax(q kᵀ / √d + bias) over what may be attended to, in plain loops over queries."""
    result = torch.zeros(*queries.shape[:3], keys.size(2), dtype=queries.dtype)
    scores = torch.einsum("bhqd,bhkd->bhqk", queries, keys) / math.sqrt(queries.size(-1))
    if bias is not None:
        scores = scores + bias
    for query in range(queries.size(2)):
        seen = keep.expand(scores.shape)[:, :, query]
        powers = torch.where(seen, scores[:, :, query].exp(), 0)
        result[:, :, query] = powers / powers.sum(-1, keepdim=True)
    return result


@pytest.mark.parametrize("positions", POSITIONS)
def test_weights_are_the_formula_on_recorded_queries_and_keys(positions):
    torch.manual_seed(1)
    sizes = {"vocab_size": 19, "d_model": 16, "d_ff": 24, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2}
    model = build_model(ModelConfig(**sizes, max_length=40, positions=positions, d_key=6)).eval().double()
    source, target = torch.randint(4, 19, (3, 7)), torch.randint(4, 19, (3, 6))
    source[1, 4:] = source[2, 2:] = target[2, 3:] = 0
    with record(model, "*") as trace:
        model(source, target)
    keeps = {
        "encoder.*.self": not_padding(source, 0),
        "decoder.*.self": causal(6, 6) & not_padding(target, 0),
        "decoder.*.cross": not_padding(source, 0),
    }
    for kind, keep in keeps.items():
        for layer in range(2):
            name = kind.replace("*", str(layer))
            queries, keys = trace[f"{name}.queries"], trace[f"{name}.keys"]
            stack = model.get_submodule(name.split(".")[0])
            bias = stack.position.layer(layer).bias(queries, keys.size(2)) if name.endswith("self") else None
            weights = trace[f"{name}.weights"]
            assert weights.axes == ("sentence", "head", "query", "key")
            assert_close(weights.sum(-1), torch.ones(3, 4, queries.size(2), dtype=torch.double))
            assert_close(weights + 0, weights_by_formula(queries, keys, keep, bias))
            assert_close(trace[f"{name}.heads"] + 0, weights @ trace[f"{name}.values"])
            merged = trace[f"{name}.heads"].transpose(1, 2).flatten(2)
            assert_close(model.get_submodule(f"{name}.output")(merged), trace[f"{name}.output"] + 0)


SYSTEMS = {
    "transformer": {},
    "rnn": {"architecture": "rnn"},
    "rnn of GRU with dot products": {"architecture": "rnn", "cell": "gru", "source_attention": "dot"},
    "convolutions": {"architecture": "conv"},
    "universal": {"universal": True},
    "universal with act_halting": {"universal": True, "act_halting": True},
    "separable convolutions": {"architecture": "conv", "separable": True},
    "local attention of factorized cells": {
        "architecture": "rnn",
        "cell": "flstm",
        "source_attention": "concat",
        "source_span": "local-p",
    },
    "bytenet": {"architecture": "bytenet", "unfold_ratio": 1.0, "unfold_extra": 0},
    "neural gpu": {"architecture": "neural-gpu", "unfold_ratio": 1.0, "unfold_extra": 0},
    "experts": {"experts": 3, "norm": "rms"},
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_name_is_recorded_with_its_axes(make_folder, family, system):
    if family == "decoder" and system == "neural gpu":
        pytest.skip("it needs a source")
    model, ids = make_folder(family, **SYSTEMS[system]).model, torch.randint(5, 300, (2, 6))
    with record(model, "*") as trace:
        hidden = model(ids, ids) if family == "encoder-decoder" else model(ids)
        logits = model.project(hidden)
    assert set(trace) == set(activation_names(model))
    for name, activation in trace.items():
        assert len(activation.axes) == activation.dim(), name
        assert all(activation.size(i) == 6 for i, axis in enumerate(activation.axes) if axis in LENGTHS), name
    stack = "decoder" if "decoder" in trace else "encoder"
    assert_close(trace[stack] + 0, hidden)
    assert_close(trace["logits"] + 0, logits)


def test_parts_are_picked_by_the_names_of_axes(translator_folder):
    ids = torch.randint(5, 300, (2, 6))
    with record(translator_folder.model) as trace:
        translator_folder.model(ids, ids[:, :4])
    weights = trace["decoder.1.cross.weights"]
    part = weights.pick(sentence=1, head=2)
    assert part.axes == ("query", "key")
    assert torch.equal(part, weights[1, 2])
    assert type(part @ part.T) is torch.Tensor
    with pytest.raises(
        SettingError, match="'source' is not an axis of this activation; it has sentence, head, query, key"
    ):
        weights.pick(source=1)


def test_an_unknown_name_gets_the_recorded_names(translator_folder, make_folder):
    with record(translator_folder.model, "encoder.0.self.weights") as trace:
        pass
    with pytest.raises(KeyError, match="not recorded"):
        trace["encoder.0.self.weights"]
    with (
        pytest.raises(SettingError, match=r"nothing in the model is called decoder\.7\.\*"),
        record(translator_folder.model, "decoder.7.*"),
    ):
        pass
    bytenet = make_folder(architecture="bytenet")  # which has no attention weights, the default
    shown = (
        r"called \*\.weights; give one of its \d+ names, such as logits, encoder, encoder\.embedded, encoder\.placed,"
    )
    with pytest.raises(SettingError, match=shown), record(bytenet):
        pass
    with pytest.raises(SettingError, match="str is not a model"), record("runs/x"):
        pass


def test_the_package_records_and_imports_nothing_slow():
    import subprocess
    import sys

    code = "import sys, heedful; assert 'torch' not in sys.modules; heedful.record; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_hooks_are_removed_even_after_an_error(translator_folder):
    translator = Translator([translator_folder])
    with pytest.raises(ZeroDivisionError), record(translator, "*"):
        raise ZeroDivisionError
    assert translator.observer is None
    assert not any(module._forward_hooks for module in translator_folder.model.modules())


@pytest.mark.parametrize(
    "changes",
    [{"positions": item} for item in ("sinusoidal", "rotary", "alibi", "relative")]
    + [SYSTEMS[name] for name in ("rnn", "rnn of GRU with dot products", "convolutions", "universal with act_halting")],
    ids=str,
)
@pytest.mark.parametrize("options", [{"beam": 4, "n_best": 2}, {"beam": 1}, {"sampling": True, "n_best": 3}])
def test_a_search_leaves_the_trace_of_its_best_outputs(make_folder, changes, options):
    """As if each output had been given to the model in one piece, alone and without padding."""
    translator = Translator([make_folder(**changes)])
    model = translator.models[0].double()  # what differs is not rounding
    with record(translator, "*") as trace:
        results = translator.translations(TEXTS, **options)
    assert len(trace.searches) <= 2  # the second one is of sentences with a loop
    hypotheses = {i: search.hypotheses[p][0] for search in trace.searches for p, i in search.indices.items()}
    longest = max(len(hypothesis.token_log_probs) for hypothesis in hypotheses.values())
    assert trace["decoder.0.cross.weights"].shape[::2] == (4, longest)
    for number, text in enumerate(TEXTS):
        ids = hypotheses[number].ids
        assert translator.tokenizer.decode(ids) == results[number][0].text
        batch = collate(Pairs.of([(translator.source_tokenizer.encode(text), ids)]), [0], translator.tokenizer.specials)
        inputs = batch.decoder_input[:, : len(hypotheses[number].token_log_probs)]
        with torch.no_grad(), record(model, "*") as alone:
            model.project(model(batch.source, inputs))
        actual = trace.sentence(number)
        assert set(actual) == set(alone)
        for name, activation in actual.items():
            assert activation.axes == alone[name].axes[1:]
            assert_close(activation + 0, alone[name][0], atol=1e-4, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
            padded = trace[name][number]
            assert_close(padded[tuple(slice(size) for size in activation.shape)], activation + 0)
            assert_close(padded.abs().sum(), activation.abs().sum(), rtol=1e-4, atol=1e-4)


def test_steps_that_a_search_did_without_are_not_those_of_another(make_folder):
    folder = make_folder(universal=True, act_halting=True)
    translator = Translator([folder])
    with record(translator) as trace:
        for bias in (-20.0, 20.0):  # all steps, and the first alone
            folder.model.encoder.halt.bias.data.fill_(bias)
            translator.translate(TEXTS[0], loop_guard=False)
    thorough, quick = (search.calls for search in trace.searches)
    assert "encoder.0.self.weights" in thorough and "encoder.0.self.weights" in quick
    assert "encoder.1.self.weights" in thorough and "encoder.1.self.weights" not in quick
    assert "encoder.1.self.weights" in trace.sentence(0)


def test_recording_changes_no_translation(translator_folder, monkeypatch):
    translator = Translator([translator_folder])
    compiled = translator.translations(TEXTS, n_best=3, alignments=True)
    with record(translator, "*") as trace:
        heard = translator.translations(TEXTS, n_best=3, alignments=True)
        assert translator.translate("") == ""
    assert trace["decoder.0.cross.weights"].size(0) == len(TEXTS)
    monkeypatch.setattr("heedful.inference.native_choice.library", lambda: None)
    assert translator.translations(TEXTS, n_best=3, alignments=True) == heard  # the same body, to the last bit
    for ours, expected in zip(chain(*heard), chain(*compiled), strict=True):  # and another body to its rounding
        assert (ours.text, ours.alignment) == (expected.text, expected.alignment)
        assert ours.token_log_probs == pytest.approx(expected.token_log_probs, abs=1e-4)


def test_sentences_of_several_searches_stand_in_the_order_they_were_given(translator_folder, monkeypatch):
    monkeypatch.setattr("heedful.inference.torch_search.ROWS", 6)  # two sentences at a time
    translator = Translator([translator_folder])
    with record(translator) as trace:
        translator.translate(TEXTS, loop_guard=False)
    assert len(trace.searches) == 2
    lengths = [len(translator.source_tokenizer.encode(text)) + 1 for text in TEXTS]
    assert [trace.sentence(number)["encoder.0.self.weights"].size(-1) for number in range(4)] == lengths
    assert trace["encoder.0.self.weights"].shape == (4, 4, max(lengths), max(lengths))
    with record(translator) as twice:
        translator.translate(TEXTS + TEXTS)  # more than are taken at once
    assert twice["encoder.0.self.weights"].shape[0] == 8
    assert [twice.sentence(number)["encoder.0.self.weights"].size(-1) for number in range(8)] == lengths + lengths
    with pytest.raises(SettingError, match="there is no sentence 4; 4 were translated"):
        trace.sentence(4)


def test_what_another_thread_computes_meanwhile_is_not_recorded():
    torch.manual_seed(1)
    model = build_model(
        ModelConfig(vocab_size=19, d_model=16, d_ff=24, n_heads=4, encoder_layers=2, decoder_layers=2)
    ).eval()
    ours, expected = torch.randint(4, 19, (2, 3, 7))
    with record(model) as alone:
        model(ours, ours)
    with record(model) as trace:
        model(ours, ours)
        other = Thread(target=model, args=(expected, expected))
        other.start()
        other.join()
    assert trace.calls.keys() == alone.calls.keys()
    for name, calls in alone.calls.items():
        assert_close(trace.calls[name], calls)
