"""One text of 4,096 tokens as a language model's batch: full attention beside window, sparse and linear attention.

    python benchmarks/long_input.py path/to/text.txt --minutes 2 --picture docs/images/long_input.svg

For each kind: seconds of an update, the memory that the forward pass keeps for the backward one, and the loss on text
that was held out, over equal wall time. Characters, 4 layers, 128 wide, rotary positions, the same seed. The kinds take
turns, one update each, so that a machine that is busy for a while slows all of them down.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.transformer import build_model
from heedful.ops.cross_entropy import linear_cross_entropy

sys.path.insert(0, str(Path(__file__).parent))
from drawing import figure

KINDS = ("full", "window", "sparse", "linear")
RATE, WARMUP = 2e-3, 10


class Runner:
    """A model of one kind of attention, its optimiser, and what it took and learned so far."""

    def __init__(self, kind: str, vocabulary: int, length: int) -> None:
        torch.manual_seed(1)
        sizes = {"d_model": 128, "d_ff": 512, "n_heads": 4, "decoder_layers": 4, "dropout": 0.0, "attention_stride": 64}
        self.model = build_model(
            ModelConfig.model_validate(
                sizes
                | {"family": "decoder", "vocab_size": vocabulary, "max_length": length, "attention": kind}
                | {"pre_norm": True, "positions": "rotary", "scale_embedding": False, "activation": "gelu"}
            )
        )
        self.optimiser = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.99), weight_decay=0.1)
        self.times, self.losses, self.bytes = list[float](), list[tuple[float, float]](), 0

    def loss(self, ids: Tensor) -> Tensor:
        hidden = self.model(ids[:, :-1])
        labels = ids[:, 1:].flatten()
        loss, _ = linear_cross_entropy(hidden.flatten(0, 1), self.model.output_weight, None, labels)
        return loss / len(labels)

    def update(self, ids: Tensor) -> None:
        began = time.perf_counter()
        for group in self.optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (len(self.times) + 1) / WARMUP)
        self.optimiser.zero_grad()
        self.loss(ids).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.times.append(time.perf_counter() - began)

    @torch.no_grad()
    def measure(self, held_out: Tensor) -> None:
        self.losses.append((sum(self.times), float(self.loss(held_out))))

    def measure_saved_bytes(self, ids: Tensor) -> None:
        """Bytes of the tensors that a forward pass keeps, weights excepted."""
        storages: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            if not isinstance(tensor, nn.Parameter):
                storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            self.loss(ids)
        self.bytes = sum(storages.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="plain text, some hundred thousand characters")
    parser.add_argument("--length", type=int, default=4096, help="tokens of a batch, which is one text")
    parser.add_argument("--minutes", type=float, default=2.0, help="training time of each kind")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--picture", type=Path, help="where to draw the losses: .svg or .png")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    text = arguments.text.read_text(encoding="utf-8")
    number = {character: i for i, character in enumerate(sorted(set(text)), 4)}
    stream = torch.tensor([number[character] for character in text])
    if len(stream) < 4 * arguments.length:
        sys.exit(
            f"{arguments.text} has {len(stream):,} characters; {4 * arguments.length:,} are the fewest that will do."
        )
    stream, held_out = stream[: -2 * arguments.length - 1], stream[-arguments.length - 1 :].unsqueeze(0)
    runners = {kind: Runner(kind, len(number) + 4, arguments.length) for kind in KINDS}
    generator = torch.Generator().manual_seed(1)
    while running := [runner for runner in runners.values() if sum(runner.times) < 60 * arguments.minutes]:
        start = int(torch.randint(len(stream) - arguments.length - 1, (1,), generator=generator))
        for item in running:
            if not item.bytes:
                item.measure_saved_bytes(stream[start : start + arguments.length + 1].unsqueeze(0))
            item.update(stream[start : start + arguments.length + 1].unsqueeze(0))
            if len(item.times) % 5 == 0 or sum(item.times) >= 60 * arguments.minutes:
                item.measure(held_out)
    print(f"{arguments.length:,} tokens, {arguments.minutes:g} minutes of updates each, {arguments.threads} thread(s)")
    print(f"{'':8} seconds an update (fastest to slowest)   kept by forward   updates   loss on held-out text")
    for kind, runner in runners.items():
        median, fast, slow = statistics.median(runner.times[1:]), min(runner.times[1:]), max(runner.times[1:])
        print(
            f"{kind:8} {median:.2f} ({fast:.2f} to {slow:.2f}){'':22}{runner.bytes / 2**20:6.0f} MB{'':9}"
            f"{len(runner.times):5}     {runner.losses[-1][1]:.3f}"
        )
    if arguments.picture:
        with figure(arguments.picture, 1, (6.5, 4)) as (axis,):
            for kind, runner in runners.items():
                axis.plot([t / 60 for t, _ in runner.losses], [loss for _, loss in runner.losses], label=kind)
            axis.set(xlabel="minutes of training", ylabel="loss on held-out text, nats a character")
            axis.legend()
        print(f"wrote {arguments.picture}")


if __name__ == "__main__":
    main()
