"""Norms over sequences of different lengths: why the Transformer has LayerNorm.

    python benchmarks/norms.py --picture docs/images/norms.svg

Small encoders with each norm learn to tell whether the first digit of a sequence occurs again in it, from sequences of
4 to 12 digits in batches of one length each; then they are tested on lengths from 2 to 48. Batch normalization uses its
running statistics there. Shown are the accuracy at each length and how far the statistics that a norm uses are from
those of the sequences at hand: the root mean square, over channels, of the difference of means in deviations.
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
from heedful.model.transformer import EncoderModel, build_model

sys.path.insert(0, str(Path(__file__).parent))
from drawing import LINES, figure

NORMS = ("layer", "rms", "batch", "instance")
TRAINED, TESTED = (4, 12), (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)


def examples(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(B, n + 1) ids and (B,) whether the first digit occurs again; half of them do."""
    digits = torch.randint(4, 34, (count, length), generator=generator)
    again = torch.rand(count, generator=generator) < 0.5
    first = digits[:, :1]
    digits[:, 1:] = torch.where(digits[:, 1:] == first, 4 + (first - 3) % 30, digits[:, 1:])
    place = torch.randint(1, length, (count, 1), generator=generator)
    digits = torch.where(again[:, None], digits.scatter(1, place, first), digits)
    return torch.cat((torch.full((count, 1), 2), digits), 1), again.long()


def train(norm: str, seconds: float, seed: int) -> EncoderModel:
    torch.manual_seed(seed)
    sizes = {"family": "encoder", "vocab_size": 34, "d_model": 32, "d_ff": 64, "n_heads": 4, "encoder_layers": 2}
    sizes |= {"labels": ("no", "yes"), "head": "none", "norm": norm, "pre_norm": True, "dropout": 0.0}
    model = build_model(ModelConfig.model_validate(sizes | {"max_length": 64, "positions": "rotary"}))
    assert isinstance(model, EncoderModel)
    generator, optimizer = torch.Generator().manual_seed(seed), torch.optim.Adam(model.parameters())
    began = time.process_time()
    while (spent := (time.process_time() - began) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, 20 * spent) * (1 - spent)
        length = int(torch.randint(TRAINED[0], TRAINED[1] + 1, (), generator=generator))
        ids, labels = examples(64, length, generator)
        loss = nn.functional.cross_entropy(model.classify(model(ids), ids != 0), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.inference_mode()
def measure(model: EncoderModel, length: int) -> tuple[float, float]:
    """Accuracy at a length, in percent, and the distance of the statistics of the last norm from what it uses."""
    ids, labels = examples(500, length, torch.Generator().manual_seed(length))
    seen: list[Tensor] = []
    norm = model.encoder.norm
    with norm.register_forward_hook(lambda module, inputs, out: seen.append(inputs[0])):
        right = model.classify(model(ids), ids != 0).argmax(1) == labels
    (x,) = seen
    shift = 0.0
    if hasattr(norm, "running_mean"):
        shift = float(((x.mean((0, 1)) - norm.running_mean) / norm.running_var.sqrt()).square().mean().sqrt())
    return 100 * float(right.float().mean()), shift


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2, help="training time of all models together")
    parser.add_argument("--norms", nargs="+", choices=NORMS, default=list(NORMS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--picture", type=Path, help="where to draw accuracy and shift: .svg or .png")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seconds = 60 * options.minutes / (len(options.norms) * options.seeds)
    print(f"{seconds:.0f} s of one core for each model; accuracy in percent at lengths {', '.join(map(str, TESTED))}")
    accuracy: dict[str, list[float]] = {}
    shifts: list[float] = []
    for name in options.norms:
        models = [train(name, seconds, seed) for seed in range(1, options.seeds + 1)]
        measurements = [[measure(model, length) for model in models] for length in TESTED]
        accuracy[name] = [statistics.mean(right for right, _ in by_seed) for by_seed in measurements]
        print(f"{name:9} {'  '.join(f'{value:5.1f}' for value in accuracy[name])}", flush=True)
        if name == "batch":
            shifts = [statistics.mean(shift for _, shift in by_seed) for by_seed in measurements]
            print(f"{'shift':9} {'  '.join(f'{value:5.2f}' for value in shifts)}", flush=True)
    if options.picture:
        draw(accuracy, shifts, options.picture)


def draw(accuracy: dict[str, list[float]], shifts: list[float], path: Path) -> None:
    with figure(path, 2, (9, 4.4), legend=4) as (left, right):
        for name, values in accuracy.items():
            left.plot(TESTED, values, label=name)
        left.set(ylabel="accuracy in percent", title="accuracy; chance is 50")
        right.plot(TESTED, shifts, **dict(zip(("color", "marker"), LINES[list(accuracy).index("batch")], strict=False)))
        right.set(ylabel="deviations", ylim=(0, None), title="distance from the running mean, batch")
        for axis in (left, right):
            axis.set(xscale="log", xlabel="length; shaded: in training", xticks=TESTED, xticklabels=TESTED)
            axis.minorticks_off()
            axis.axvspan(*TRAINED, alpha=0.1)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
