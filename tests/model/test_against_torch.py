"""The same numbers and gradients as `torch`'s own attention, layers and stacks, given the same weights."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.block import Block
from heedful.model.context import LayerContext
from heedful.model.masks import causal, not_padding
from heedful.model.positions import Position

from .samples import fresh, sentences, small, stir

NO_POSITION = Position(small(), 1)
EPS = 1e-5


def attention_in_torch(actual: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Our tensors (weights or gradients) under the names of `nn.MultiheadAttention`."""
    reference = {
        f"in_proj_{kind}": torch.cat([actual[f"{prefix}{part}.{kind}"] for part in ("query", "key", "value")])
        for kind in ("weight", "bias")
    }
    return reference | {f"out_proj.{kind}": actual[f"{prefix}output.{kind}"] for kind in ("weight", "bias")}


def block_in_torch(actual: dict[str, Tensor], cross: bool) -> dict[str, Tensor]:
    """Our tensors under the names of `nn.TransformerEncoderLayer` or `nn.TransformerDecoderLayer`."""
    reference = {f"self_attn.{name}": x for name, x in attention_in_torch(actual, "self.").items()}
    names = {"feed.up": "linear1", "feed.down": "linear2", "self_residual.norm": "norm1"}
    if cross:
        reference |= {f"multihead_attn.{name}": x for name, x in attention_in_torch(actual, "cross.").items()}
        names |= {"cross_residual.norm": "norm2", "feed_residual.norm": "norm3"}
    else:
        names |= {"feed_residual.norm": "norm2"}
    kinds = ("weight", "bias")
    return reference | {f"{b}.{kind}": actual[f"{a}.{kind}"] for a, b in names.items() for kind in kinds}


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same_gradients(inputs: list[Tensor], actual: Tensor, reference: Tensor) -> None:
    """Gradients for the inputs here; those for the weights are left in `.grad` on both sides."""
    upstream = random(*actual.shape, seed=9)
    pairs = []
    for out in (actual, reference):
        for x in inputs:
            x.grad = None
        out.backward(upstream)
        pairs.append([x.grad for x in inputs])
    torch.testing.assert_close(*pairs)


def padding(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]  # (B, S)


@pytest.mark.parametrize("masks", ["nothing", "padding", "causal", "causal padding"])
@pytest.mark.parametrize("over", ["itself", "memory"])
@pytest.mark.parametrize("batch", [2, 3])
def test_attention_equals_multihead_attention(batch, over, masks):
    queries, lengths = 5, [7, 4, 2][:batch] if over == "memory" else [5, 4, 2][:batch]
    torch.manual_seed(1)
    actual = stir(MultiHeadAttention(small()))
    reference = nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    reference.load_state_dict(attention_in_torch(actual.state_dict()))
    x = random(batch, queries, 16).requires_grad_()
    memory = random(batch, lengths[0], 16, seed=1).requires_grad_() if over == "memory" else x

    keep, options = torch.tensor(True), {}
    if "padding" in masks:
        keep = padding(lengths)[:, None, None, :]
        options["key_padding_mask"] = ~padding(lengths)
    if "causal" in masks:
        keep = keep & causal(queries, lengths[0])
        options["attn_mask"] = ~causal(queries, lengths[0])[0, 0]
    seen = []
    with actual.weights.register_forward_hook(lambda module, inputs, weights: seen.append(weights)):
        if over == "itself":
            out = actual.self_attention(x, LayerContext(NO_POSITION, keep))
        else:
            out = actual.cross_attention(x, LayerContext(NO_POSITION, memory=memory, memory_keep=keep))
    expected, weights = reference(x, memory, memory, **options, average_attn_weights=False)

    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(seen, [weights])
    assert_same_gradients([x, memory], out, expected)
    torch.testing.assert_close(attention_in_torch(gradients(actual)), gradients(reference))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("cross", [False, True])
def test_block_equals_the_layers_of_torch(cross, activation, norm, batch):
    torch.manual_seed(2)
    actual = stir(Block(small(pre_norm=norm == "pre", activation=activation), cross))
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    reference = kind(16, 4, 24, 0.0, activation, EPS, batch_first=True, norm_first=norm == "pre", dtype=torch.float64)
    reference.load_state_dict(block_in_torch(actual.state_dict(), cross))
    lengths, memory_lengths = [6, 4, 3][:batch], [5, 5, 2][:batch]
    x, memory = random(batch, 6, 16).requires_grad_(), random(batch, 5, 16, seed=1).requires_grad_()
    keep = padding(lengths)[:, None, None, :]
    if cross:
        memory_keep = padding(memory_lengths)[:, None, None, :]
        out = actual(x, LayerContext(NO_POSITION, keep & causal(6, 6), memory, memory_keep))
        options = {"tgt_key_padding_mask": ~padding(lengths), "memory_key_padding_mask": ~padding(memory_lengths)}
        expected = reference(x, memory, tgt_mask=~causal(6, 6)[0, 0], **options)
    else:
        out = actual(x, LayerContext(NO_POSITION, keep))
        expected = reference(x, src_key_padding_mask=~padding(lengths))
    torch.testing.assert_close(out, expected)
    assert_same_gradients([x, memory] if cross else [x], out, expected)
    torch.testing.assert_close(block_in_torch(gradients(actual), cross), gradients(reference))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("layers", [(2, 2), (3, 1)])
def test_the_whole_model_equals_the_stacks_of_torch(layers, activation, norm):
    actual = fresh(
        small(pre_norm=norm == "pre", activation=activation, encoder_layers=layers[0], decoder_layers=layers[1])
    )
    options = {"batch_first": True, "norm_first": norm == "pre", "dtype": torch.float64}
    torch_model = nn.Transformer(16, 4, layers[0], layers[1], 24, 0.0, activation, **options)
    for name in ("encoder", "decoder"):
        stack, twin = getattr(actual, name), getattr(torch_model, name)
        for block, layer in zip(stack.blocks, twin.layers, strict=True):
            layer.load_state_dict(block_in_torch(block.state_dict(), name == "decoder"))
        if norm == "pre":
            twin.norm.load_state_dict(stack.norm.state_dict())
        else:
            twin.norm = None  # `nn.Transformer` puts a second norm after the last one of a post-norm stack

    source, target = sentences([7, 5, 2]), sentences([4, 6, 3], seed=1, start=2)

    def embed(ids: Tensor) -> Tensor:
        """Embeddings and positions written out once more."""
        place, column = np.meshgrid(np.arange(ids.size(1)), np.arange(16), indexing="ij")
        angle = place / 10_000 ** (column // 2 * 2 / 16)
        table = torch.from_numpy(np.where(column % 2, np.cos(angle), np.sin(angle)))
        return actual.embedding.weight[ids] * math.sqrt(16) + table

    expected = torch_model(
        embed(source),
        embed(target),
        tgt_mask=~torch.ones(6, 6, dtype=torch.bool).tril(),
        src_key_padding_mask=source == 0,
        tgt_key_padding_mask=target == 0,
        memory_key_padding_mask=source == 0,
    )
    out = actual(source, target)
    assert torch.equal(not_padding(source, 0)[:, 0, 0], source != 0)
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)  # our table of positions is in single precision
    logits = actual.project(out)
    torch.testing.assert_close(logits, out @ actual.embedding.weight.t())
    (gradient,) = torch.autograd.grad(logits[target != 0].logsumexp(-1).sum(), actual.embedding.weight)
    reference = (expected @ actual.embedding.weight.t())[target != 0].logsumexp(-1).sum()
    torch.testing.assert_close(
        gradient, torch.autograd.grad(reference, actual.embedding.weight)[0], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu", "swiglu"])
def test_feed_forward_is_what_numpy_computes(name):
    feed = stir(Block(small(activation=name), cross=False)).feed
    x = random(2, 3, 16)
    functions = {
        "relu": lambda x: np.maximum(x, 0),
        "gelu": lambda x: x * np.vectorize(math.erfc)(-x / math.sqrt(2)) / 2,
        "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
        "silu": lambda x: x / (1 + np.exp(-x)),
    }
    weights = {name: tensor.detach().numpy() for name, tensor in feed.named_parameters()}
    inner = x.numpy() @ weights["up.weight"].T + weights["up.bias"]
    if name == "swiglu":
        inner *= functions["silu"](x.numpy() @ weights["gate.weight"].T + weights["gate.bias"])
    else:
        inner = functions[name](inner)
    expected = inner @ weights["down.weight"].T + weights["down.bias"]
    torch.testing.assert_close(feed(x).detach(), torch.from_numpy(expected))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("eps", [1e-12, 0.1])
def test_every_norm_has_the_epsilon_of_the_settings(eps, norm):
    model = fresh(small(pre_norm=norm == "pre", norm_eps=eps, embedding_norm=True))
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert {module.eps for module in norms} == {eps}
    assert len(norms) == 2 * 2 + 2 * 3 + 2 + 2 * (norm == "pre")


def test_layer_norm_of_the_worked_example():
    norm = Block(small(d_model=4, n_heads=2), cross=False).feed_residual.norm
    out = norm(torch.tensor([3.0, 5.0, 2.0, 8.0]))
    assert [round(x, 2) for x in out.tolist()] == [-0.65, 0.22, -1.09, 1.53]
