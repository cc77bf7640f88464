"""Kinds of attention that cost less: equal to the weights they stand for, and to full attention where they must be."""

import pytest
import torch
import torch.nn.functional as F

from heedful.config import ModelConfig
from heedful.config import validate_section as build_section
from heedful.errors import SettingError
from heedful.model.attention import ATTENTIONS
from heedful.model.positions import POSITIONS
from heedful.model.transformer import build_model

from .samples import another, fresh, sentences, shared, small

LENGTHS = [41, 23, 37]
KINDS = (
    [
        pytest.param(
            {"attention": "window", "attention_window": reach, "positions": positions}, id=f"window-{reach}-{positions}"
        )
        for reach, positions in [(1, "sinusoidal"), (3, "rotary"), (9, "alibi"), (13, "relative"), (30, "learned")]
    ]
    + [
        pytest.param(
            {
                "attention": "sparse",
                "attention_window": 2,
                "attention_global": g,
                "attention_stride": s,
                "positions": p,
            },
            id=f"sparse-{g}-{s}-{p}",
        )
        for g, s, p in [(0, 5, "sinusoidal"), (1, 7, "alibi"), (3, 4, "relative"), (12, 16, "rotary")]
    ]
    + [
        pytest.param({"attention": "linear", "positions": positions}, id=f"linear-{positions}")
        for positions in ("sinusoidal", "learned", "rotary")
    ]
    + [pytest.param({"attention": "linformer", "decoder_attention": "full", "attention_rank": 6}, id="linformer")]
)
every_kind = pytest.mark.parametrize("shape", KINDS)


def run_with_hooks(model, *inputs):
    """The output with a hook on all attention weights, and the recorded weights."""
    recorded = {}
    handles = [
        module.register_forward_hook(lambda module, inputs, out, name=name: recorded.update({name: out}))
        for name, module in model.named_modules()
        if name.endswith(".weights")
    ]
    out = model(*inputs)
    for handle in handles:
        handle.remove()
    return out, recorded


@every_kind
@pytest.mark.parametrize("family", ["encoder", "decoder"])
def test_outputs_and_gradients_are_the_same_with_recorded_weights(shape, family):
    """Values and gradients are the same with a hook, which makes the weights be computed, and without."""
    ids = sentences(LENGTHS)
    real = ids != 0
    results = []
    for hooked in (False, True):
        model = fresh(small(**shape, family=family))
        out, recorded = run_with_hooks(model, ids) if hooked else (model(ids), {})
        gradients = torch.autograd.grad(out[real].square().cos().sum(), list(model.parameters()))
        results.append([out[real], *gradients])
    torch.testing.assert_close(*results, atol=1e-9, rtol=1e-7)
    weights = recorded[f"{family}.1.self.weights"]
    assert weights.shape == (3, 4, 41, 41)
    if shape["attention"] != "linformer":
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4, 41, dtype=weights.dtype))


@every_kind
@pytest.mark.parametrize("size", [1, 5, 17, 41])
def test_long_texts_are_decoded_in_pieces_of_any_size(shape, size):
    model = shared(small(**shape, family="decoder"))
    ids = sentences([41, 41], start=2)
    cache = model.start()
    out = torch.cat([model.step(piece, cache) for piece in ids.split(size, dim=1)], 1)
    torch.testing.assert_close(out, model(ids), atol=1e-10, rtol=1e-8)


@every_kind
def test_long_rows_are_the_same_alone_and_with_padding(shape):
    model, ids = shared(small(**shape, family="encoder")), sentences(LENGTHS)
    together = model(F.pad(ids, (0, 7)))
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(together[row, :length], model(ids[row : row + 1, :length])[0])


@every_kind
def test_rows_of_different_lengths_are_decoded_the_same_with_taps(shape):
    """Left padding of the shorter rows is masked whether or not the weights are computed."""
    model, results = fresh(small(**shape, family="decoder")), []
    for tapped in (False, True):
        caches = [model.start() for _ in range(2)]
        handles = [m.register_forward_hook(lambda *_: None) for m in model.modules() if tapped]
        for cache, length in zip(caches, (9, 4), strict=True):
            model.step(sentences([length]), cache)
        caches[0].join(caches[1])
        results.append(model.step(sentences([1, 1], seed=1), caches[0]))
        for handle in handles:
            handle.remove()
    torch.testing.assert_close(*results)


def with_weights_of(config: ModelConfig, other):
    model = fresh(config)
    model.load_state_dict(other.state_dict(), strict=False)
    return model


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("family", ["encoder", "decoder", "encoder-decoder"])
def test_a_window_as_wide_as_the_text_is_full_attention(positions, family):
    full = shared(small(positions=positions, family=family))
    ids = sentences(LENGTHS)
    inputs = (ids, sentences([39, 40, 41], seed=1, start=2)) if family == "encoder-decoder" else (ids,)
    real = inputs[-1] != 0
    for kind, more in (("window", {}), ("sparse", {"attention_stride": 3})):
        config = small(positions=positions, family=family, attention=kind, attention_window=41, **more)
        wide = with_weights_of(config, full)
        torch.testing.assert_close(wide(*inputs)[real], full(*inputs)[real])


@pytest.mark.parametrize("family", ["encoder", "decoder"])
@pytest.mark.parametrize("reach", [1, 6])
def test_a_window_is_masked_full_attention(family, reach):
    """Against `torch`'s own attention, in every layer, with a mask written here by its definition."""
    config = small(family=family, attention="window", attention_window=reach)
    model, ids = shared(config), sentences([33, 33])
    allowed = torch.tensor(
        [[abs(i - j) <= reach and (family == "encoder" or j <= i) for j in range(33)] for i in range(33)]
    )
    stack = model.get_submodule(family)
    x = stack.position.embed(model.embedding(ids))
    for block in stack.blocks:
        a = block.self
        q, k, v = (a.split_heads(layer(x)) for layer in (a.query, a.key, a.value))
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed).transpose(1, 2).flatten(2)
        x = block.self_residual(x, lambda _, heads=heads, a=a: a.output(heads))
        x = block.feed_residual(x, block.feed)
    torch.testing.assert_close(model(ids), x)


@pytest.mark.parametrize("family", ["encoder", "decoder"])
def test_sparse_attention_sees_what_it_should(family):
    """One layer: near tokens, the first two, the last of every block of five; and the first two see everything."""
    config = small(
        family=family, attention="sparse", attention_window=1, attention_global=2, attention_stride=5,
        encoder_layers=1, decoder_layers=1,
    )  # fmt: skip
    model, ids = shared(config), sentences([30])
    out = model(ids)
    for place in range(30):
        changed = ids.clone()
        changed[0, place] = another(ids[0, place])
        felt = (model(changed) - out).abs().amax(-1)[0] > 1e-12
        for query in range(30):
            sees = abs(query - place) <= 1 or place < 2 or place % 5 == 4 or query < 2
            assert felt[query] == (sees and (family == "encoder" or place <= query))


def test_linformer_of_full_rank_is_full_attention():
    """With identities for mixtures, each mixed key is a key."""
    full = shared(small(family="encoder", max_length=24))
    config = small(family="encoder", max_length=24, attention="linformer", attention_rank=24)
    lowrank, ids = with_weights_of(config, full), sentences([24, 24, 24])
    with torch.no_grad():
        for block in lowrank.encoder.blocks:
            for name in ("mix_keys", "mix_values"):
                block.self.get_parameter(name).copy_(torch.eye(24))
    torch.testing.assert_close(lowrank(ids), full(ids))


@pytest.mark.parametrize("family", ["encoder", "decoder"])
def test_linear_attention_is_its_quadratic_form(family):
    """Σ_j φ(q_i) · φ(k_j) v_j / Σ_j φ(q_i) · φ(k_j), by loops over i, with j up to i where attention is causal."""
    length = 70  # more than a chunk
    model = shared(small(family=family, attention="linear", encoder_layers=1, decoder_layers=1, max_length=80))
    ids, stack = sentences([length, length]), model.get_submodule(family)
    x = stack.position.embed(model.embedding(ids))
    (block,) = stack.blocks
    a = block.self
    q, k, v = (a.split_heads(layer(x)) for layer in (a.query, a.key, a.value))
    q, k = (torch.where(item > 0, item + 1, item.exp()) for item in (q, k))
    rows = []
    for i in range(length):
        end = i + 1 if family == "decoder" else length
        w = (q[:, :, i : i + 1] * k[:, :, :end]).sum(-1, keepdim=True)  # (B, H, j, 1)
        rows.append((w * v[:, :, :end]).sum(2) / w.sum(2))
    heads = torch.stack(rows, 2).transpose(1, 2).flatten(2)
    x = block.self_residual(x, lambda _: a.output(heads))
    torch.testing.assert_close(model(ids), block.feed_residual(x, block.feed))


def test_the_cache_of_linear_attention_does_not_grow():
    model = shared(small(family="decoder", attention="linear"))
    cache, sizes = model.start(), []
    for token in sentences([60, 60]).split(20, dim=1):
        model.step(token, cache)
        sizes.append([state.numel() for layer in cache.layers for state in layer.state])
        assert all(not layer.buffers for layer in cache.layers)
    assert sizes[0] == sizes[2]
    assert cache.length == 60


@pytest.mark.parametrize("kind", ["window", "linear", "sparse"])
def test_dropout_and_single_precision_run_through_every_kind(kind):
    rates = {"dropout": 0.2, "attention_dropout": 0.0 if kind == "linear" else 0.2}
    for family in ("encoder", "decoder"):
        torch.manual_seed(0)
        model = build_model(small(attention=kind, attention_window=2, family=family, **rates))
        ids = sentences(LENGTHS)
        out = model(ids)
        out[ids != 0].square().sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model(ids)[ids != 0].isfinite().all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "linformer"}, "so it cannot be causal; set model.decoder_attention"),
        ({"attention": "linformer", "family": "decoder"}, "so it cannot be causal"),
        ({"decoder_attention": "linformer"}, "so it cannot be causal"),
        ({"decoder_attention": "window", "family": "encoder"}, "has no decoder"),
        ({"attention": "linear", "positions": "relative"}, "linear attention computes no score per pair"),
        ({"attention": "linear", "positions": "alibi"}, "set model.positions to sinusoidal, learned or rotary"),
        (
            {"attention": "linformer", "positions": "alibi", "family": "encoder"},
            "linformer attention computes no score per pair",
        ),
        ({"decoder_attention": "linear", "attention_dropout": 0.1}, "no attention weights to apply dropout to"),
        ({"act_halting": True}, "set model.universal=true"),
        ({"architecture": "rnn", "attention": "window"}, "attention is a setting of the transformer architecture"),
        ({"architecture": "conv", "universal": True}, "universal is a setting of the transformer architecture"),
        (
            {"separable": True},
            "separable is a setting of the conv and bytenet architectures, and model.architecture is",
        ),
        ({"cell": "flstm"}, "cell is a setting of the rnn architecture, and model.architecture is transformer; leave"),
        ({"source_span": "local-m"}, "source_span is a setting of the rnn architecture"),
        ({"unfold_ratio": 1.5}, "unfold_ratio is a setting of the bytenet and neural-gpu architectures"),
        ({"memory_size": 9}, "memory_size is a setting of the memory-network architecture"),
        ({"architecture": "bytenet", "dilated": True}, "dilated is a setting of the conv architecture"),
        ({"architecture": "conv", "positions": "rotary"}, "conv architecture does not support rotary positions"),
        ({"architecture": "conv", "kernel_width": 4}, "an odd kernel_width, and it is 4"),
        ({"architecture": "rnn", "d_model": 15}, "an even d_model, and it is 15"),
        ({"attention": "widow"}, "'full', 'window', 'sparse', 'linformer' or 'linear'"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(SettingError) as error:
        build_section(ModelConfig, settings, "model")
    assert message in str(error.value)
    assert str(error.value).startswith("model")
    assert "\n" not in str(error.value)


def test_every_kind_has_a_setting():
    kinds = ModelConfig.model_fields["attention"].annotation.__args__
    assert set(kinds) == set(ATTENTIONS)
