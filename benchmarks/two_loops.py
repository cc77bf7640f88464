"""What one loop for training and inference would cost: the engine's two ways through the same pairs.

    python benchmarks/two_loops.py

Training records a tape over whole sentences, in float32 or bfloat16, and packs the weights again at every step.
Inference evaluates rows with a KV cache, in float32 or int8, and packs the weights once (docs/native-engine.md). The
training step computes loss and gradients, three times the products of a forward pass, so a third of its time is what
its loop would need for inference. Forced decoding gives the log-probabilities of the same targets (`heedful score`).

Pairs of 25 and 25 tokens, random weights, one thread. Sides take turns; CPU milliseconds, median and range.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from heedful.config import ModelConfig
from heedful.data.batch import Batch
from heedful.model.transformer import build_model
from heedful.native import Engine
from heedful.native.flat_batch import LossOptions, flatten
from heedful.native.forced_decoder import EngineForcedDecoder
from heedful.native.torch_bridge import ModuleWeights
from heedful.native.trainer import native_trainer

LENGTH = 25
SIZES = {
    "tiny, V = 10,000": {"vocab_size": 10_000, "d_model": 128, "d_ff": 256, "n_heads": 4, "layers": 4},
    "base, V = 37,000": {"vocab_size": 37_000, "d_model": 512, "d_ff": 2048, "n_heads": 8, "layers": 6},
}
Side = Callable[[], object]


def make_sides(sizes: dict[str, int], pairs: int) -> Iterator[tuple[str, Side]]:
    torch.manual_seed(1)
    depth = {"encoder_layers": sizes["layers"], "decoder_layers": sizes["layers"], "dropout": 0.0}
    model = build_model(ModelConfig.model_validate({name: sizes[name] for name in sizes if name != "layers"} | depth))
    config = model.config
    source = torch.randint(4, config.vocab_size, (pairs, LENGTH))
    target = torch.randint(4, config.vocab_size, (pairs, LENGTH + 1))
    target[:, 0] = config.bos_id
    lengths = torch.full((pairs,), LENGTH)
    batch = flatten(Batch(source, target, lengths, lengths, pairs * LENGTH), config.pad_id, config.max_length)
    for precision in ("float32", "bfloat16"):
        if (trainer := native_trainer(model, precision)) and trainer.precision == precision:
            gradients = trainer.new_gradients()
            yield (
                f"training step, {precision}",
                lambda trainer=trainer, gradients=gradients: trainer.train_step(batch, LossOptions(), gradients),
            )
    rows = list(zip(source.tolist(), target.tolist(), strict=True))
    for int8 in (False, True):
        decoder = EngineForcedDecoder(Engine(ModuleWeights(model), int8=int8), 1)
        yield f"forced decoding, {'int8' if int8 else 'float32'}", lambda decoder=decoder: decoder.log_probs(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, sizes in SIZES.items():
        sides = dict(make_sides(sizes, options.pairs))
        times: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(options.rounds + 1):  # the first is the warm-up
            for side, work in sides.items():
                began = time.process_time()
                work()
                if number:
                    times[side].append(1000 * (time.process_time() - began))
        print(f"{name}, {options.pairs} pairs")
        for side, values in times.items():
            third = f"; a third: {statistics.median(values) / 3:.1f}" if "training" in side else ""
            print(f"  {side:26} {statistics.median(values):8.1f} ms ({min(values):.1f} to {max(values):.1f}){third}")


if __name__ == "__main__":
    main()
