"""The recurrent encoder-decoder against `torch.nn`'s own layers and against loops in NumPy."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from heedful.model.baselines import rnn
from heedful.model.baselines.factorized_lstm import FactorizedLSTM
from heedful.model.spec import CELL_STATES
from heedful.model.transformer import build_model

from .samples import fresh, sentences, shared, small

CELLS = ["rnn", "lstm", "gru"]
SOURCE_LENGTHS = [7, 3, 5]


def recurrent(**changes):
    return small(**{"architecture": "rnn"} | changes)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_encoder_is_torchs_over_packed_sequences(cell, bidirectional):
    """Two layers of ours are one module of two layers of theirs."""
    model = shared(recurrent(cell=cell, bidirectional=bidirectional))
    kind = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[cell]
    reference = kind(16, 8 if bidirectional else 16, 2, batch_first=True, bidirectional=bidirectional).double()
    layers = [model.encoder.get_submodule(f"{index}.cells") for index in range(2)]
    reference.load_state_dict(
        {k.replace("l0", f"l{i}"): v for i, layer in enumerate(layers) for k, v in layer.state_dict().items()}
    )
    source = sentences(SOURCE_LENGTHS)
    memory = model.encode(source).memory
    packed = nn.utils.rnn.pack_padded_sequence(
        model.embedding(source), torch.tensor(SOURCE_LENGTHS), batch_first=True, enforce_sorted=False
    )
    expected, _ = nn.utils.rnn.pad_packed_sequence(reference(packed)[0], batch_first=True)
    torch.testing.assert_close(memory, expected)


@pytest.mark.parametrize("cell", CELLS)
def test_a_language_model_is_torchs(cell):
    model = shared(recurrent(cell=cell, family="decoder"))
    kind = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[cell]
    reference = kind(16, 16, 2, batch_first=True).double()
    layers = [model.decoder.get_submodule(f"{index}.cells") for index in range(2)]
    reference.load_state_dict(
        {k.replace("l0", f"l{i}"): v for i, layer in enumerate(layers) for k, v in layer.state_dict().items()}
    )
    ids = sentences([9, 9, 9])
    torch.testing.assert_close(model(ids), reference(model.embedding(ids))[0])


def softmax(x):
    x = np.exp(x - x.max())
    return x / x.sum()


def numpy_of(module: nn.Module | None):
    return None if module is None else module.weight.detach().numpy()


def decode_by_hand(model, memory, first, inputs):
    """One sentence of a GRU with one layer, as the papers write it: memory (S, D), first state, inputs (T, D)."""
    decoder = model.decoder
    cross, (w_ih, w_hh, b_ih, b_hh) = decoder.cross, (p.detach().numpy() for p in decoder.layers[0].cells.parameters())
    combine, bias = decoder.combine.weight.detach().numpy(), decoder.combine.bias.detach().numpy()

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def step(x, h):
        i, s = np.split(w_ih @ x + b_ih, 3), np.split(w_hh @ h + b_hh, 3)
        r, z = sigmoid(i[0] + s[0]), sigmoid(i[1] + s[1])
        return (1 - z) * np.tanh(i[2] + r * s[2]) + z * h

    def look(s, place=0):
        W, U, v = numpy_of(cross.query), numpy_of(cross.key), numpy_of(cross.value)
        if cross.score in ("additive", "concat"):
            both = np.concatenate([W, U], 1)  # Luong's W_a of [s; h]
            scores = [float((v @ np.tanh(both @ np.concatenate([s, h])))[0]) for h in memory]
        elif cross.score == "general":
            scores = [float(s @ (U @ h)) for h in memory]
        else:
            scores = [float(s @ h) for h in memory]
        center = min(place, len(memory) - 1) if cross.span == "local-m" else None
        if cross.span == "local-p":
            Wp, vp = numpy_of(cross.center), numpy_of(cross.center_value)
            center = len(memory) * sigmoid(float((vp @ np.tanh(Wp @ s))[0]))
        inside = [j for j in range(len(memory)) if center is None or abs(j - center) <= cross.window]
        weights = dict(zip(inside, softmax(np.array([scores[j] for j in inside])), strict=True))
        if cross.span == "local-p":
            sigma = cross.window / 2
            weights = {j: w * np.exp(-((j - center) ** 2) / (2 * sigma**2)) for j, w in weights.items()}
        return sum(weight * memory[j] for j, weight in weights.items())

    state, out = first, []
    for place, x in enumerate(inputs):
        if cross.score == "additive":
            context = look(state)
            state = step(np.concatenate([x, context]), state)
        else:
            state = step(x, state)
            context = look(state, place)
        out.append(np.tanh(combine @ np.concatenate([context, state]) + bias))
    return np.stack(out)


ATTENTIONS = [(score, "global") for score in ("additive", "dot", "general", "concat")]
ATTENTIONS += [("dot", "local-m"), ("general", "local-p"), ("concat", "local-p")]


@pytest.mark.parametrize(("score", "span"), ATTENTIONS)
def test_the_decoder_is_what_the_papers_write(score, span):
    """Bahdanau attends before a step and feeds the context in; Luong attends after it. Padding is on both sides."""
    model = shared(recurrent(cell="gru", source_attention=score, source_span=span, source_window=2, decoder_layers=1))
    source, target = sentences(SOURCE_LENGTHS), sentences([4, 6, 2], seed=1, start=2)
    memory, out = model.encode(source).memory, model(source, target)
    for row, (s, t) in enumerate(zip(SOURCE_LENGTHS, [4, 6, 2], strict=True)):
        states = memory[row, :s].numpy()
        end = np.concatenate([states[-1, :8], states[0, 8:]])  # forward at the end, backward at the beginning
        first = np.tanh(model.decoder.bridge.weight.numpy() @ end + model.decoder.bridge.bias.numpy())
        expected = decode_by_hand(model, states, first, model.embedding(target[row, :t]).numpy())
        np.testing.assert_allclose(out[row, :t].numpy(), expected, atol=1e-12)


def test_without_attention_the_decoder_reads_one_vector():
    """Two sources whose encoders end in the same state have the same translation."""
    model = shared(recurrent(source_attention="none"))
    source, target = sentences([6, 6]), sentences([5, 5], seed=1, start=2)
    context = model.encode(source)
    changed = replace(context, memory=context.memory.clone())
    changed.memory[:, 1:-1] = 7.0  # everything but both ends
    torch.testing.assert_close(model.decode(target, changed), model.decode(target, context))
    changed.memory[:, -1, :8] += 1.0  # the forward state at the end
    assert (model.decode(target, changed) - model.decode(target, context)).abs().amax(-1).min() > 1e-6


@pytest.mark.parametrize("score", ["additive", "dot"])
def test_a_hook_records_the_weights_of_all_steps_and_may_replace_them(score):
    model = fresh(recurrent(source_attention=score))
    source, target = sentences(SOURCE_LENGTHS), sentences([5, 5, 5], seed=1, start=2)
    silent, seen = model(source, target), []
    tap = model.decoder.cross.weights
    with tap.register_forward_hook(lambda module, inputs, out: seen.append(out)):
        torch.testing.assert_close(model(source, target), silent)
    (weights,) = seen
    assert weights.shape == (3, 1, 5, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 5, dtype=torch.float64))
    assert weights.masked_select((source == 0)[:, None, None, :]).abs().max() == 0
    with tap.register_forward_hook(lambda module, inputs, out: out * 0):
        blind = model(source, target)
    with torch.no_grad():
        width = 16
        model.decoder.combine.weight[:, :width] = 0
        if score == "additive":
            model.decoder.layers[0].cells.weight_ih_l0[:, width:] = 0
    torch.testing.assert_close(blind, model(source, target))


def test_a_hidden_token_is_no_input_and_cannot_be_attended_to():
    """An experiment on a pair hides tokens in its middle: the rest keeps its place."""
    model = shared(recurrent(source_attention="dot"))
    source, target = sentences([6]), sentences([4], seed=1, start=2)
    hidden = source.clone()
    hidden[0, 2] = 0
    memory = model.encode(hidden).memory
    layers = [model.encoder.get_submodule(f"{index}.cells") for index in range(2)]
    x = model.embedding(source) * torch.tensor([1, 1, 0, 1, 1, 1.0]).view(1, 6, 1)
    for layer in layers:
        x = layer(x)[0]
    torch.testing.assert_close(memory, x)
    assert model(hidden, target).isfinite().all()


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("score", ["additive", "dot"])
def test_cells_stay_in_single_precision_where_the_rest_is_not(cell, score):
    torch.manual_seed(0)
    model = build_model(recurrent(cell=cell, source_attention=score))
    source, target = sentences(SOURCE_LENGTHS), sentences([4, 6, 2], seed=1, start=2)
    exact = model.eval()(source, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(source, target)
        stepped = model.step(target[:, :1], model.start(source))
    rough.float().sum().backward()
    assert (rough - exact).norm() < 0.05 * exact.norm()
    torch.testing.assert_close(stepped, rough[:, :1], atol=0.05, rtol=0.05)


def test_every_cell_of_torch_is_there():
    assert set(rnn.CELLS) == set(CELLS) == set(CELL_STATES) - {"flstm"}


def torchs_lstm(result: FactorizedLSTM, input_size: int) -> nn.LSTM:
    """`torch.nn.LSTM` with the product of our two factors as its weight."""
    reference = nn.LSTM(input_size, result.hidden_size, batch_first=True, bidirectional=result.bidirectional).double()
    with torch.no_grad():
        for direction in ("", "_reverse") if result.bidirectional else ("",):
            product = result.get_parameter(f"weight_out_l0{direction}") @ result.get_parameter(
                f"weight_in_l0{direction}"
            )
            reference.get_parameter(f"weight_ih_l0{direction}").copy_(product[:, :input_size])
            reference.get_parameter(f"weight_hh_l0{direction}").copy_(product[:, input_size:])
            reference.get_parameter(f"bias_ih_l0{direction}").copy_(result.get_parameter(f"bias_l0{direction}"))
            reference.get_parameter(f"bias_hh_l0{direction}").zero_()
    return reference


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_factorized_lstm_is_torchs_with_the_product_of_its_factors(bidirectional):
    torch.manual_seed(0)
    result = FactorizedLSTM(10, 6, 4, bidirectional).double()
    torch_lstm, x = torchs_lstm(result, 10), torch.randn(3, 7, 10, dtype=torch.float64)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(SOURCE_LENGTHS), batch_first=True, enforce_sorted=False)
    unpack = partial(nn.utils.rnn.pad_packed_sequence, batch_first=True)
    (actual, state), (reference, expected) = result(packed), torch_lstm(packed)
    torch.testing.assert_close(unpack(actual)[0], unpack(reference)[0])
    torch.testing.assert_close(torch.stack(state), torch.stack(expected))
    if not bidirectional:
        (actual, state), (reference, expected) = result(x, state), torch_lstm(x, expected)
        torch.testing.assert_close(actual, reference)
        torch.testing.assert_close(torch.stack(state), torch.stack(expected))


def test_local_attention_needs_luongs_scores():
    with pytest.raises(ValueError, match=r"set model\.source_attention to dot, general or concat"):
        recurrent(source_attention="additive", source_span="local-p")
