"""The three families: what they are built of, what they share and what they refuse."""

import math

import pytest
import torch

from heedful.config import ModelConfig
from heedful.model.context import Context
from heedful.model.transformer import DecoderModel, EncoderDecoder, EncoderModel, build_model

from .samples import another, fresh, sentences, shared, small


@pytest.mark.parametrize(
    ("family", "kind"), [("encoder-decoder", EncoderDecoder), ("decoder", DecoderModel), ("encoder", EncoderModel)]
)
def test_each_family_builds_runs_and_projects(family, kind):
    model = shared(small(family=family))
    assert type(model) is kind
    ids = sentences([6, 4, 2])
    hidden = model(ids, sentences([5, 3, 4], start=2)) if family == "encoder-decoder" else model(ids)
    assert hidden.shape == (3, 5 if family == "encoder-decoder" else 6, 16)
    logits = model.project(hidden)
    assert logits.shape == (*hidden.shape[:2], 19)
    torch.testing.assert_close(logits, hidden @ model.embedding.weight.t())


def test_embeddings_are_scaled_by_the_root_of_the_width():
    scaled, plain = shared(small()), shared(small(scale_embedding=False))
    ids = sentences([5, 3])
    torch.testing.assert_close(scaled.embedding(ids), scaled.embedding.weight[ids] * math.sqrt(16))
    torch.testing.assert_close(plain.embedding(ids), plain.embedding.weight[ids])


def test_fresh_weights_are_as_described():
    torch.manual_seed(0)
    model = build_model(
        ModelConfig(vocab_size=2000, d_model=64, d_ff=128, n_heads=4, encoder_layers=1, decoder_layers=1)
    )
    assert model.embedding.weight.std().item() == pytest.approx(64**-0.5, rel=0.02)
    up = model.encoder.blocks[0].feed.up
    assert up.weight.abs().max().item() == pytest.approx(math.sqrt(6 / (64 + 128)), rel=0.01)
    assert up.weight.std().item() == pytest.approx(math.sqrt(2 / (64 + 128)), rel=0.03)
    assert all((p == 0).all() for name, p in model.named_parameters() if name.endswith("bias"))


def test_the_seed_decides_the_weights():
    first, again, other = fresh(small(), seed=1), fresh(small(), seed=1), fresh(small(), seed=2)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


@pytest.mark.parametrize(
    ("tie", "sizes", "matrices"),
    [
        ("all", {}, {(19, 16): 1}),
        ("target", {}, {(19, 16): 2}),
        ("none", {}, {(19, 16): 3}),
        ("target", {"source_vocab_size": 31}, {(19, 16): 1, (31, 16): 1}),
        ("none", {"source_vocab_size": 31}, {(19, 16): 2, (31, 16): 1}),
    ],
)
def test_tying_decides_how_many_vocabulary_matrices_there_are(tie, sizes, matrices):
    model = fresh(small(tie=tie, **sizes))
    shapes = [tuple(p.shape) for p in model.parameters() if p.size(0) in (19, 31)]
    assert {shape: shapes.count(shape) for shape in set(shapes)} == matrices
    source = sentences([6, 4])
    source[source != 0] += 12 if sizes else 0
    hidden = model(source, sentences([5, 3], seed=1, start=2))
    model.project(hidden).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_a_tied_matrix_gets_the_gradients_of_all_its_uses(tie):
    """The tied gradient is the sum of what three separate copies of the matrix would get."""
    tied, apart = fresh(small(tie=tie)), fresh(small(tie="none"))
    names = {"all": ["embedding"] * 3, "target": ["embedding", "source_embedding", "embedding"]}
    uses = names.get(tie, ["embedding", "source_embedding", "output"])
    copies = ["embedding", "source_embedding", "output"]
    state = tied.state_dict()
    apart.load_state_dict(state | {f"{c}.weight": state[f"{use}.weight"] for use, c in zip(uses, copies, strict=True)})
    source, target = sentences([6, 4]), sentences([5, 3], seed=1, start=2)
    for model in (tied, apart):
        model.project(model(source, target)).logsumexp(-1).sum().backward()
    for use in set(uses):
        parts = [apart.get_submodule(c).weight.grad for u, c in zip(uses, copies, strict=True) if u == use]
        torch.testing.assert_close(tied.get_submodule(use).weight.grad, sum(parts))


def test_an_output_bias_is_added_to_the_logits():
    model = fresh(small(output_bias=True))
    hidden = torch.randn(2, 3, 16, dtype=torch.float64)
    torch.testing.assert_close(model.project(hidden), hidden @ model.output_weight.t() + model.output_bias)


@pytest.mark.parametrize("d_key", [2, 4, 6, 32])
def test_keys_may_be_narrower_or_wider_than_values(d_key):
    model = fresh(small(d_key=d_key))
    attention = model.decoder.blocks[0].cross
    assert attention.query.weight.shape == attention.key.weight.shape == (4 * d_key, 16)
    assert attention.value.weight.shape == attention.output.weight.shape == (16, 16)
    assert model(sentences([6, 4]), sentences([5, 3], start=2)).isfinite().all()


def test_a_deep_encoder_and_a_single_decoder_layer():
    model = fresh(small(encoder_layers=12, decoder_layers=1))
    assert len(model.encoder.blocks) == 12
    assert len(model.decoder.blocks) == 1
    assert [name for name, _ in model.encoder.named_children() if name.isdigit()] == [str(i) for i in range(12)]
    source, target = sentences([6, 4]), sentences([5, 5], start=2)
    cache = model.start(source)
    steps = torch.cat([model.step(target[:, i : i + 1], cache) for i in range(5)], dim=1)
    torch.testing.assert_close(steps, model(source, target))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_all_weights_learn(norm):
    model = fresh(
        small(pre_norm=norm == "pre", activation="swiglu", positions="relative", output_bias=True, embedding_norm=True)
    )
    model.project(model(sentences([6, 4]), sentences([5, 3], start=2))).logsumexp(-1).sum().backward()
    untouched = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not untouched
    still = {name for name, p in model.named_parameters() if (p.grad == 0).all()}
    assert not {name for name in still if not name.endswith("key.bias")}  # adding to all keys changes no softmax


def test_token_types_are_told_apart():
    model = shared(small(family="encoder", token_types=3))
    assert model.token_types.weight.shape == (3, 16)
    ids, types = sentences([6, 4]), torch.tensor([[0, 0, 1, 1, 2, 2], [0, 1, 1, 0, 0, 0]])
    assert torch.equal(model(ids), model(ids, types=torch.zeros_like(ids)))
    assert (model(ids, types=types) - model(ids)).abs().amax(-1).min() > 1e-4
    x = model.embedding(ids) + model.token_types(types)
    torch.testing.assert_close(model(ids, types=types), model.encoder(x, Context((ids != 0)[:, None, None, :])))


def test_a_norm_may_follow_the_embeddings():
    model = fresh(small(family="encoder", embedding_norm=True, encoder_layers=1))
    seen = []
    model.encoder.first_norm.register_forward_hook(lambda module, inputs, out: seen.append((inputs[0], out)))
    model.encoder.blocks[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    ids = sentences([6, 4])
    model(ids)
    (before, after), entered = seen
    torch.testing.assert_close(before, model.encoder.position.embed(model.embedding(ids)))
    assert entered is after


def too_long(family: str, positions: str):
    model = shared(small(family=family, positions=positions, max_length=8))
    if family != "encoder-decoder":
        return [lambda: model(sentences([9, 2]))]
    short, long = sentences([8, 3]), sentences([9, 3])
    return [lambda: model(short, long), lambda: model(long, short), lambda: model.start(long)]


@pytest.mark.parametrize("family", ["encoder-decoder", "decoder", "encoder"])
@pytest.mark.parametrize("positions", ["sinusoidal", "alibi"])
def test_sequences_longer_than_max_length_are_refused(family, positions):
    for run in too_long(family, positions):
        with pytest.raises(ValueError, match="9 tokens, but the model takes 8 at most"):
            run()


@pytest.mark.parametrize("family", ["encoder-decoder", "decoder"])
def test_the_cached_tokens_count_towards_the_length(family):
    model = shared(small(family=family, max_length=8))
    cache = model.start(sentences([8, 3])) if family == "encoder-decoder" else model.start()
    model.step(sentences([8, 8]), cache)
    with pytest.raises(ValueError, match="9 tokens"):
        model.step(sentences([1, 1]), cache)


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_in_training_only(name):
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    model = fresh(small(**rates | {name: 0.3}))
    inputs = sentences([6, 4]), sentences([5, 3], start=2)
    expected = shared(small(**rates))(*inputs)
    assert torch.equal(model(*inputs), expected)
    model.train()
    torch.manual_seed(1)
    first, second = model(*inputs), model(*inputs)
    torch.manual_seed(1)
    assert torch.equal(model(*inputs), first)
    assert not torch.equal(first, second)
    assert not torch.equal(first, expected)


def test_without_any_dropout_training_and_using_are_the_same():
    model = fresh(small(dropout=0.0))
    inputs = sentences([6, 4]), sentences([5, 3], start=2)
    assert torch.equal(model.train()(*inputs), model.eval()(*inputs))


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_dropout_follows_the_embeddings_and_every_sublayer(rate, monkeypatch):
    """One on each side's embeddings, two in an encoder block, three in a decoder block, none elsewhere."""
    calls = []
    for where in ("heedful.model.block.dropout", "heedful.ops.scaled_dot_product.dropout"):
        monkeypatch.setattr(where, lambda x, r, training: calls.append((r, training)) or x)
    model = fresh(small(dropout=rate, encoder_layers=3, decoder_layers=2)).train()
    model(sentences([6, 4]), sentences([5, 3], start=2))
    assert sum(r == rate and training for r, training in calls) == 2 + 3 * 2 + 2 * 3
    assert {r for r, _ in calls} == {rate, 0.0}


def test_taps_show_every_attention_and_change_nothing():
    model = fresh(small())
    inputs = sentences([6, 4]), sentences([5, 3], start=2)
    expected, seen = model(*inputs), {}
    for name, module in model.named_modules():
        if name.endswith(".weights"):
            module.register_forward_hook(lambda module, inputs, out, name=name: seen.update({name: out.shape}))
    torch.testing.assert_close(model(*inputs), expected)
    assert seen == {
        "encoder.0.self.weights": (2, 4, 6, 6),
        "encoder.1.self.weights": (2, 4, 6, 6),
        "decoder.0.self.weights": (2, 4, 5, 5),
        "decoder.0.cross.weights": (2, 4, 5, 6),
        "decoder.1.self.weights": (2, 4, 5, 5),
        "decoder.1.cross.weights": (2, 4, 5, 6),
    }


def test_a_tap_may_silence_a_head():
    model = fresh(small())
    inputs = sentences([6, 4]), sentences([5, 3], start=2)

    def silence(module, inputs, weights):
        return weights * torch.tensor([0.0, 1, 1, 1])[None, :, None, None]

    attention = model.decoder.blocks[1].cross
    with attention.weights.register_forward_hook(silence):
        out = model(*inputs)
    with torch.no_grad():
        attention.output.weight[:, :4] = 0  # the first head's share of the output
    torch.testing.assert_close(out, model(*inputs))


def test_bfloat16_runs_through_every_part():
    for family in ("encoder-decoder", "decoder", "encoder"):
        model = fresh(small(family=family)).bfloat16()
        ids = sentences([6, 4])
        out = model(ids, ids) if family == "encoder-decoder" else model(ids)
        exact = shared(small(family=family))
        right = exact(ids, ids) if family == "encoder-decoder" else exact(ids)
        assert out.dtype == torch.bfloat16
        assert (out.double() - right)[ids != 0].norm() < 0.03 * right[ids != 0].norm()


def test_another_source_changes_the_translation():
    model = shared(small())
    source, target = sentences([6, 4]), sentences([5, 3], start=2)
    assert not torch.equal(model(another(source), target), model(source, target))
