"""Three reasons behind the Transformer, seen in the gradients of fresh models.

    python benchmarks/gradients.py --picture docs/images/gradients.svg

1. How much of the gradient of the last output reaches a token k steps before it: RNN, LSTM, GRU, convolutions and the
   Transformer as language models of the same width, before any training, relative to the token itself.
2. Why √d_k: the variance of q · k for random vectors, and the slope of the softmax over it, with and without the scale.
3. Where the norm stands: the gradient of each layer's weights at depth 24, post-norm beside pre-norm.

Means over seeds, and their smallest and largest value. Half a minute on one core.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.model.transformer import build_model

sys.path.insert(0, str(Path(__file__).parent))
from drawing import figure

LENGTH, WIDTH, DEPTH, KEYS = 64, 64, 24, 32
SYSTEMS = {
    "RNN": {"architecture": "rnn", "cell": "rnn", "decoder_layers": 2},
    "LSTM": {"architecture": "rnn", "cell": "lstm", "decoder_layers": 2},
    "GRU": {"architecture": "rnn", "cell": "gru", "decoder_layers": 2},
    "convolutions, 8 layers": {"architecture": "conv", "decoder_layers": 8},
    "dilated, 5 layers": {"architecture": "conv", "decoder_layers": 5, "dilated": True},
    "Transformer": {"decoder_layers": 2},
}
D_KEYS = [4, 16, 64, 256, 1024]


def config(**changes: object) -> ModelConfig:
    sizes = {"family": "decoder", "vocab_size": 50, "d_model": WIDTH, "d_ff": 4 * WIDTH, "n_heads": 4, "dropout": 0.0}
    return ModelConfig.model_validate(sizes | {"max_length": LENGTH} | changes)


def reaching(changes: dict[str, object], seed: int) -> Tensor:
    """-> (LENGTH): the norm of the gradient at the token k steps back, relative to k = 0; mean over 16 texts."""
    torch.manual_seed(seed)
    model, embedded = build_model(config(**changes)), list[Tensor]()
    model.decoder.embedded.register_forward_hook(lambda tap, inputs, out: embedded.append(out))
    out = model(torch.randint(4, 50, (16, LENGTH)))[:, -1]
    (slope,) = torch.autograd.grad((out * torch.randn_like(out)).sum(), embedded)
    norms = slope.norm(dim=-1).flip(1)  # (16, k)
    return (norms / norms[:, :1]).mean(0)


def products(d_key: int, seed: int) -> tuple[float, float, float]:
    """The variance of q · k, and the norm of the softmax's Jacobian over 32 keys, without the scale and with it."""
    torch.manual_seed(seed)
    query, key = torch.randn(1000, 1, d_key), torch.randn(1000, KEYS, d_key)
    scores = (query * key).sum(-1)

    def slope(scores: Tensor) -> float:
        p = scores.softmax(-1)
        return float((torch.diag_embed(p) - p.unsqueeze(1) * p.unsqueeze(2)).norm(dim=(1, 2)).mean())

    return float(scores.var()), slope(scores), slope(scores / d_key**0.5)


def layers(norm: str, seed: int) -> list[float]:
    """The norm of the gradient of every layer's first feed-forward matrix, for a loss over random text."""
    torch.manual_seed(seed)
    model = build_model(config(pre_norm=norm == "pre", decoder_layers=DEPTH))
    ids = torch.randint(4, 50, (16, LENGTH))
    logits = model.project(model(ids[:, :-1]))
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    return [float(block.feed.up.weight.grad.norm()) for block in model.decoder.blocks]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", type=Path, help="where to draw all three: .svg or .png")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(arguments.seeds)
    distance = {name: torch.stack([reaching(changes, s) for s in seeds]) for name, changes in SYSTEMS.items()}
    print(
        "gradient at the token k steps back, relative to the last token itself: mean (smallest to largest of the seeds)"
    )
    for name, result in distance.items():
        shown = [f"k = {k}: {_spread(result[:, k])}" for k in (1, 8, 16, 32, 63)]
        print(f"  {name:24} {'   '.join(shown)}")
    scale = {d: torch.tensor([products(d, s) for s in seeds]) for d in D_KEYS}
    print("variance of q · k; norm of the softmax's Jacobian without and with 1/√d_k")
    for d, result in scale.items():
        print(f"  d_k = {d:5} {'   '.join(_spread(result[:, column]) for column in range(3))}")
    norms = {norm: torch.tensor([layers(norm, s) for s in seeds]) for norm in ("post", "pre")}
    print(f"gradient of layer 1, 12 and 24 at depth {DEPTH}, and the largest of all layers divided by the smallest")
    for norm, result in norms.items():
        ratio = result.amax(1) / result.amin(1)
        print(f"  {norm:5} {'   '.join(_spread(result[:, i]) for i in (0, 11, 23))}   ratio {_spread(ratio)}")
    if arguments.picture:
        draw(distance, scale, norms, arguments.picture)


def _spread(values: Tensor) -> str:
    return f"{float(values.mean()):.2g} ({float(values.min()):.2g} to {float(values.max()):.2g})"


def draw(distance: dict[str, Tensor], scale: dict[int, Tensor], norms: dict[str, Tensor], path: Path) -> None:
    with figure(path, 3, (13, 4.2)) as axes:
        for name, result in distance.items():
            axes[0].semilogy(result.mean(0), label=name, marker="")
        axes[0].set(
            xlabel="steps back, k", ylabel="gradient relative to k = 0", ylim=(1e-12, 10), title="Over distance"
        )
        axes[0].legend(fontsize=7)
        for column, name in ((1, "q · k"), (2, "q · k / √d_k")):
            axes[1].semilogx(list(scale), [float(item[:, column].mean()) for item in scale.values()], label=name)
        axes[1].set(xlabel="d_k", ylabel="norm of the softmax's Jacobian", ylim=(0, None), title="Why √d_k")
        axes[1].legend(fontsize=8)
        for norm, result in norms.items():
            axes[2].semilogy(range(1, DEPTH + 1), result.mean(0), label=f"{norm}-norm")
        axes[2].set(xlabel="layer", ylabel="gradient of its weights", title=f"Norm, at depth {DEPTH}")
        axes[2].legend(fontsize=8)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
