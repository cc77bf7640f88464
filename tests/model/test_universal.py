"""Recurrent depth: one set of weights, steps that are told apart, and tokens that halt by themselves."""

import copy

import pytest
import torch

from heedful.model.context import LayerContext
from heedful.model.transformer import build_model
from heedful.ops import position_tables

from .samples import fresh, sentences, shared, small


def universal(**changes):
    return small(**{"universal": True, "encoder_layers": 3, "decoder_layers": 3} | changes)


def test_a_universal_stack_has_the_weights_of_one_layer():
    one, three = build_model(universal(encoder_layers=1, decoder_layers=1)), build_model(universal())
    assert sum(p.numel() for p in one.parameters()) == sum(p.numel() for p in three.parameters())
    assert one.state_dict().keys() == three.state_dict().keys()
    assert three.encoder.blocks[2].feed.up.weight is three.encoder.blocks[0].feed.up.weight


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_each_step_is_the_block_over_position_and_step(norm):
    model = shared(universal(pre_norm=norm == "pre", family="encoder"))
    ids = sentences([6, 4])
    keep, x = (ids != 0)[:, None, None, :], model.embedding(ids)
    for step in range(3):
        x = (
            x
            + torch.from_numpy(position_tables.sinusoids(80, 16)[:6] + position_tables.sinusoids(3, 16)[step]).double()
        )
        x = model.encoder.blocks[0](x, LayerContext(model.encoder.position, keep))
    expected = x if norm == "post" else model.encoder.norm(x)
    torch.testing.assert_close(model(ids), expected)


def test_saved_and_loaded_it_is_the_same():
    model, other = fresh(universal()), fresh(universal(), seed=5)
    inputs = sentences([6, 4]), sentences([5, 3], seed=1, start=2)
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(other(*inputs), model(*inputs))
    with torch.no_grad():
        other.encoder.blocks[0].feed.up.weight += 1
    assert torch.equal(other.encoder.blocks[2].feed.up.weight, other.encoder.blocks[0].feed.up.weight)


def test_the_gradient_is_the_sum_over_the_steps():
    """Of the same model with three blocks of their own, whose depth encodings are put in by hand."""
    actual = fresh(universal(family="encoder", positions="rotary", pre_norm=True))
    apart = fresh(small(family="encoder", positions="rotary", pre_norm=True, encoder_layers=3))
    state = dict(actual.state_dict())
    block = {k.removeprefix("encoder.0."): v for k, v in state.items() if k.startswith("encoder.0.")}
    apart.load_state_dict(state | {f"encoder.{i}.{k}": v for i in range(3) for k, v in block.items()})
    for step, layer in enumerate(apart.encoder.blocks):
        depth = torch.from_numpy(position_tables.sinusoids(3, 16)[step]).double()
        layer.register_forward_pre_hook(lambda module, inputs, depth=depth: (inputs[0] + depth, *inputs[1:]))
    ids = sentences([6, 4])
    for model in (actual, apart):
        model(ids)[ids != 0].square().cos().sum().backward()
    reference = sum(item.feed.up.weight.grad for item in apart.encoder.blocks)
    torch.testing.assert_close(actual.encoder.blocks[0].feed.up.weight.grad, reference)


def halt_by_hand(model, ids):
    """Graves' rule for every token of one encoder, in plain loops -> (T, D) and (T) steps + remainder."""
    encoder, n = model.encoder, ids.size(1)
    x = encoder.position.embed(model.embedding(ids))
    total, out, steps, rest = [0.0] * n, torch.zeros_like(x), [0] * n, [0.0] * n
    running = [True] * n
    for step in range(len(encoder.blocks)):
        placed = x if step == 0 else encoder.position.embed(x)
        new = encoder.blocks[0](placed + encoder.depth[step], LayerContext(encoder.position))
        x = x.clone()
        for t in range(n):
            if not running[t]:
                continue
            x[0, t] = new[0, t]
            p = float(torch.sigmoid(encoder.halt(x[0, t])))
            steps[t] += 1
            if total[t] + p >= 0.99 or step + 1 == len(encoder.blocks):
                rest[t], p, running[t] = 1 - total[t], 1 - total[t], False
            total[t] += p
            out[0, t] += p * x[0, t]
    return out[0], [s + r for s, r in zip(steps, rest, strict=True)]


@pytest.mark.parametrize("bias", [-3.0, -0.5, 0.5, 3.0])
def test_tokens_halt_by_graves_rule(bias):
    model = fresh(universal(act_halting=True, family="encoder", encoder_layers=6)).requires_grad_(False)
    model.encoder.halt.bias.fill_(bias)
    model.encoder.halt.weight.mul_(3)
    pondered = []
    model.encoder.ponder.register_forward_hook(lambda module, inputs, out: pondered.append(out))
    ids = sentences([9])
    out, ponder = halt_by_hand(model, ids)
    torch.testing.assert_close(model(ids)[0], out)
    torch.testing.assert_close(pondered[0][0], torch.tensor(ponder, dtype=torch.float64))


def test_tokens_halt_at_different_steps_and_a_batch_ends_with_its_last():
    model = fresh(universal(act_halting=True, family="encoder", encoder_layers=8)).requires_grad_(False)
    halt, pondered, calls = model.encoder.halt, [], []
    model.encoder.ponder.register_forward_hook(lambda module, inputs, out: pondered.append(out))
    for block in model.encoder.blocks:
        block.register_forward_hook(lambda *_: calls.append(1))
    for bias in range(-8, 9):
        halt.bias.fill_(bias)
        model(sentences([40]))
    steps = [(ponder - 0.005).floor() for ponder in pondered]  # the remainder is at most 1
    assert max(item.unique().numel() for item in steps) > 2
    assert [float(step.mean()) for step in steps] == sorted((float(value.mean()) for value in steps), reverse=True)
    halt.bias.fill_(30.0)
    calls.clear()
    model(sentences([40]))
    assert len(calls) == 1


def test_the_ponder_cost_has_a_gradient_for_the_halting_unit():
    model = fresh(universal(act_halting=True, family="encoder"))
    pondered = []
    model.encoder.ponder.register_forward_hook(lambda module, inputs, out: pondered.append(out))
    model(sentences([6, 6]))
    pondered[0].sum().backward()
    assert model.encoder.halt.bias.grad.item() < 0  # to halt earlier is cheaper


def test_every_step_has_names_of_its_own():
    model = fresh(universal())
    recorded = {}
    for name, module in model.named_modules():
        if name.endswith(("cross.weights", "cross.output")):
            module.register_forward_hook(
                lambda module, inputs, out, name=name: recorded.setdefault(name, []).append(out)
            )
    model(sentences([6, 4]), sentences([5, 3], seed=1, start=2))
    assert set(recorded) == {f"decoder.{step}.cross.{what}" for step in range(3) for what in ("weights", "output")}
    assert all(len(calls) == 1 for calls in recorded.values())
