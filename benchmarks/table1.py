"""Table 1 of the paper, measured: time and memory of one layer, steps that wait for each other, longest path.

    python benchmarks/table1.py --picture docs/images/table1.svg

For self-attention, restricted self-attention, recurrent, convolutional and dilated layers, for what was tried besides
(factorized LSTM, separable convolutions, ByteNet's residual block, one step of a Neural GPU, one hop of a memory
network) and for what followed (Linformer and linear attention), as heedful builds them: the time of one layer, forward
and backward, and the memory that it takes, against the length n and against the width d, with the exponents of fitted
power laws beside the papers'; the number of steps that wait for each other, counted in the graph of operations that a
backward pass follows; and how many layers it takes until the last output depends on the first input, found by following
the gradient. Attention is measured without its projections, as in the paper's table, once by its plain body and once by
torch's fused kernel. Time is the processor's; three minutes on one core, or name some rows with --rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention import ATTENTIONS
from heedful.model.baselines import bytenet, conv, memory_network, neural_gpu, rnn
from heedful.model.context import Context, LayerContext
from heedful.model.kv_cache import LayerKVCache
from heedful.model.positions import Position
from heedful.ops import scaled_dot_product as ops

sys.path.insert(0, str(Path(__file__).parent))
from drawing import figure

WINDOW, KERNEL = 32, 3
PAPER = {  # exponents of n and d in the complexity of a layer, sequential operations, longest path
    "self-attention": (2, 1, "1", "1"),
    "self-attention, fused": (2, 1, "1", "1"),
    "restricted": (1, 1, "1", "n / r"),
    "recurrent": (1, 2, "n", "n"),
    "factorized LSTM": (1, 2, "n", "n"),
    "convolutional": (1, 2, "1", "n / k"),
    "separable": (1, 2, "1", "n / k"),
    "dilated": (1, 2, "1", "log_k n"),
    "ByteNet": (1, 2, "1", "log_k n"),
    "Neural GPU, one step": (1, 2, "1", "n / k"),
    "memory, one hop": (2, 1, "1", "1"),
    "Linformer": (1, 1, "1", "1"),
    "linear attention": (1, 2, "1", "1"),
}
ATTENTION = {
    "self-attention": "full",
    "self-attention, fused": "full",
    "restricted": "window",
    "Linformer": "linformer",
    "linear attention": "linear",
}
RECURRENT = {"recurrent": nn.RNNCell, "factorized LSTM": nn.LSTMCell}
LENGTHS, WIDTHS = [512, 1024, 2048, 4096], [128, 256, 512, 1024]
LENGTH, WIDTH = 256, 128  # what stays while the other changes
PATHS, REACH = [16, 32, 64], 8  # lengths of which the path is found, and the window there


def config(width: int, length: int = 4096, layers: int = 1, **changes: object) -> ModelConfig:
    sizes = {"vocab_size": 8, "d_model": width, "n_heads": 1, "max_length": length, "dropout": 0.0, "d_ff": 8}
    sizes |= {"encoder_layers": layers, "decoder_layers": layers, "attention_window": WINDOW, "positions": "learned"}
    if changes.get("architecture") == "rnn":
        sizes |= {"bidirectional": False, "cell": "rnn"}
    if changes.get("architecture") in ("conv", "bytenet", "neural-gpu"):
        sizes |= {"kernel_width": KERNEL}
    return ModelConfig.model_validate(sizes | changes)


def layer(name: str, width: int, index: int = 1, **changes: object) -> Callable[[Tensor], Tensor]:
    """(1, n, d) -> (1, n, d): what the table compares; only a dilated layer depends on its number in a stack."""
    torch.manual_seed(index)
    if name in ATTENTION:
        kind = ATTENTION[name]
        attention, nothing = (
            ATTENTIONS[kind](config(width, attention=kind, decoder_attention="full", **changes)),
            LayerContext(Position(config(width), 1)),
        )

        def find(x: Tensor) -> Tensor:
            ops.FUSED_FROM = 0 if name == "self-attention, fused" else 10**12
            return attention.attend_heads(x[:, None], x[:, None], x[:, None], nothing)

        return find
    return other_layer(name, width, index)


def other_layer(name: str, width: int, index: int) -> Callable[[Tensor], Tensor]:
    """The layers without attention."""
    match name:
        case "recurrent" | "factorized LSTM":
            cell = "rnn" if name == "recurrent" else "flstm"
            cells = rnn.RNNDecoderLayer(config(width, architecture="rnn", cell=cell), width, cross=False)
            return lambda x: cells(x, LayerKVCache())
        case "ByteNet":
            return bytenet.ResidualBlock(config(width, architecture="bytenet"), index, causal=True)
        case "Neural GPU, one step":
            return MemoryStep(config(width, architecture="neural-gpu"))
        case "memory, one hop":
            sizes = config(width, architecture="memory-network", family="decoder", memory_size=4096)
            return MemoryHop(memory_network.MemoryDecoder(sizes, 1))
    kind = {"dilated": name == "dilated", "separable": name == "separable"}
    return conv.GatedConvolution(config(width, architecture="conv", **kind), index, causal=True)


class MemoryStep(nn.Module):
    """A CGRU of the Neural GPU on a memory whose first row is the sequence."""

    def __init__(self, sizes: ModelConfig) -> None:
        super().__init__()
        self.cell, self.rows = neural_gpu.CGRU(sizes, tape=False), sizes.memory_width

    def forward(self, x: Tensor) -> Tensor:
        memory = nn.functional.pad(x.transpose(1, 2).unsqueeze(3), (0, self.rows - 1))
        return self.cell(memory)[..., 0].transpose(1, 2)


class MemoryHop(nn.Module):
    """A hop of a memory network over all tokens so far."""

    def __init__(self, decoder: memory_network.MemoryDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(x, Context(ids=torch.zeros(x.shape[:2], dtype=torch.long)))


def seconds(run: Callable[[Tensor], Tensor], length: int, width: int, repeats: int) -> float:
    """The median time of one forward and backward pass."""
    x = torch.randn(1, length, width, requires_grad=True)
    times = []
    for number in range(repeats + 1):
        began = time.process_time()
        run(x).sum().backward()
        if number:  # the first one warms up
            times.append(time.process_time() - began)
    return statistics.median(times)


def memory(run: Callable[[Tensor], Tensor], length: int, width: int) -> int:
    """Bytes of the tensors that a forward pass keeps for the backward one, weights and the input excepted."""
    x, saved_bytes = torch.randn(1, length, width, requires_grad=True), dict[int, int]()

    def pack(tensor: Tensor) -> Tensor:
        if (
            not isinstance(tensor if tensor._base is None else tensor._base, nn.Parameter)
            and tensor.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        ):
            saved_bytes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run(x)
    return sum(saved_bytes.values())


def exponent(sizes: list[int], values: list[float]) -> float:
    """The slope of a straight line through logarithms, without the smallest size."""
    return float(np.polyfit(np.log(sizes[1:]), np.log(values[1:]), 1)[0])


def waits(name: str, width: int, length: int) -> int:
    """Operations on the longest way from input to output in the graph of the backward pass, over one token or many."""
    if name == "recurrent":  # torch's kernel is one node of the graph: the same layer, cell by cell
        cell = nn.RNNCell(width, width)
        inputs = torch.randn(1, length, width, requires_grad=True)
        state = torch.zeros(1, width)
        for token in inputs.unbind(1):
            state = cell(token, state)
        out = state
    else:
        out = layer(name, width)(torch.randn(1, length, width, requires_grad=True))
    deepest: dict[object, int] = {}
    stack = [(out.grad_fn, False)]
    while stack:
        node, seen = stack.pop()
        if node in deepest:
            continue
        below = [child for child, _ in node.next_functions if child is not None]
        if seen:
            deepest[node] = 1 + max((deepest.get(child, 0) for child in below), default=0)
        else:
            stack.append((node, True))
            stack += [(child, False) for child in below if child not in deepest]
    return deepest[out.grad_fn]


def path(name: str, length: int, width: int = 16) -> int:
    """The least number of layers through which the last output has any gradient at the first input.

    A recurrent layer connects them at once, but by way of every token in between: its path is counted in steps.
    """
    x = 0.1 * torch.randn(1, length, width, dtype=torch.float64)  # small, so that no weight of attention comes to zero
    x.requires_grad_()
    if name in RECURRENT:
        cell = RECURRENT[name](width, width).double()
        state, steps = None, 0
        for token in x.unbind(1):
            state, steps = cell(token, state), steps + 1
        return steps if reaches(state[0] if isinstance(state, tuple) else state, x) else 0
    out, depth = x, 0
    while not reaches(out[:, -1], x):
        run, depth = layer(name, width, depth, attention_window=REACH), depth + 1
        run = run.double() if isinstance(run, nn.Module) else run
        out = run(out) if isinstance(run, MemoryStep) else out + run(out)  # a gated unit carries its state itself
    return depth


def reaches(out: Tensor, x: Tensor) -> bool:
    """Whether the first token of x has any influence on an output."""
    (slope,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
    return bool((slope[:, 0] != 0).any())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="passes whose median is the time")
    parser.add_argument("--rows", nargs="+", choices=list(PAPER), default=list(PAPER))
    parser.add_argument("--picture", type=Path, help="where to draw time and memory: .svg or .png")
    parser.add_argument("--kernels", action="store_true", help="full and separable convolutions by kernel width only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.kernels:
        compare_kernels(arguments.repeats)
        return
    rows: dict[str, dict[str, list[float]]] = {}
    print(f"{'':21} time by n   time by d   memory by n   steps that wait    longest path")
    print(f"{'':21} exponent    exponent    exponent      n = 128 -> 256     n = {' -> '.join(map(str, PATHS))}")
    for name in arguments.rows:
        n, d, sequential, longest = PAPER[name]
        runs = {width: layer(name, width) for width in {*WIDTHS, WIDTH}}
        row = rows[name] = {
            "time_n": [seconds(runs[WIDTH], length, WIDTH, arguments.repeats) for length in LENGTHS],
            "time_d": [seconds(runs[width], LENGTH, width, arguments.repeats) for width in WIDTHS],
            "memory_n": [float(memory(runs[WIDTH], length, WIDTH)) for length in LENGTHS],
        }
        steps = [waits(name, 16, length) for length in (128, 256)]
        row["path"] = [float(path(name, length)) for length in PATHS]
        reach = " -> ".join(f"{layers:.0f}" for layers in row["path"])
        print(
            f"{name:21} {exponent(LENGTHS, row['time_n']):.2f} ({n})    {exponent(WIDTHS, row['time_d']):.2f} ({d})"
            f"    {exponent(LENGTHS, row['memory_n']):.2f}          {steps[0]} -> {steps[1]} ({sequential})"
            f"{'':6}{reach} ({longest})",
            flush=True,
        )
    print(
        f"In brackets the papers'. n = {LENGTH} while d changes, d = {WIDTH} while n does; r = {WINDOW}, k = {KERNEL}."
    )
    if arguments.picture:
        draw(rows, arguments.picture)


def compare_kernels(repeats: int) -> None:
    """Print the time of a full and of a separable convolution against the kernel width k, and what the paper counts."""
    length, width = 512, 256
    print(
        f"n = {length}, d = {width}: milliseconds, forward and backward; ratio; k d / (k + d), the ratio of the costs"
    )
    for kernel in (3, 7, 15, 31):
        full, separable = (
            conv.GatedConvolution(config(width, architecture="conv", kernel_width=kernel, separable=kind), 0, True)
            for kind in (False, True)
        )
        slow, fast = (1e3 * seconds(layer, length, width, repeats) for layer in (full, separable))
        print(
            f"k = {kernel:2}   {slow:6.1f}  {fast:6.1f}   {slow / fast:5.2f}   {kernel * width / (kernel + width):5.1f}"
        )


def draw(rows: dict[str, dict[str, list[float]]], path: Path) -> None:
    panels = (
        ("time_n", LENGTHS, "length n", "milliseconds", 1e3),
        ("time_d", WIDTHS, "width d", "milliseconds", 1e3),
        ("memory_n", LENGTHS, "length n", "MB kept for the backward pass", 1e-6),
        ("path", PATHS, "length n", "maximum path length, in layers or steps", 1),
    )
    with figure(path, 2, (10, 9), rows=2, legend=4) as axes:
        for axis, (key, sizes, across, up, scale) in zip(axes, panels, strict=True):
            for name, row in rows.items():
                axis.loglog(sizes, [value * scale for value in row[key]], label=name)
            axis.set(xlabel=across, ylabel=up, xticks=sizes, xticklabels=sizes)
            axis.minorticks_off()
        axes[3].set(yticks=[1, 2, 4, 8, 16, 32, 64], yticklabels=[1, 2, 4, 8, 16, 32, 64])
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
