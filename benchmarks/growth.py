"""How the time of a sentence grows with the length of its translation: greedily and with a beam, on one thread.

    python benchmarks/growth.py --picture docs/images/growth.svg

A random model of the paper's base size, in 8 bits, translates one sentence of 30 tokens into exactly 10 to 500. All
lengths and searches take turns, in several rounds, and the fastest round of each counts. What is fitted to them has a
square term: attention to a growing past.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

from heedful.inference.native_search import NativeSearchPool
from heedful.inference.scheduler import search_in_order
from heedful.native import Engine, library
from heedful.native.torch_bridge import ModuleWeights
from heedful.search import SearchOptions, SearchRequest

sys.path.insert(0, str(Path(__file__).parent))
from drawing import figure
from translation_speed import base_model

LENGTHS = (10, 20, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500)
BEAMS = {1: "greedy", 5: "beam 5"}
SOURCE = 30


def milliseconds(engine: Engine, beam: int, length: int) -> float:
    source = torch.randint(4, 37_000, (SOURCE,), generator=torch.Generator().manual_seed(length)).tolist()
    arguments = SearchRequest(source, SearchOptions(beam=beam, length_penalty=0.0, max_length=length, loop_guard=False))
    began = time.perf_counter()
    (result,) = search_in_order(NativeSearchPool(engine, batched_calls=True), [arguments])
    spent = time.perf_counter() - began
    assert len(result[0].ids) == length
    return 1e3 * spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picture", type=Path, help="where to draw it: .svg or .png")
    arguments = parser.parse_args()
    if library() is None:
        sys.exit("there is no compiled engine to measure")
    torch.set_num_threads(1)
    engine = Engine(ModuleWeights(base_model()), int8=True)
    milliseconds(engine, 5, 50)  # warm
    rounds = [
        {(beam, length): milliseconds(engine, beam, length) for length in LENGTHS for beam in BEAMS}
        for _ in range(arguments.rounds)
    ]
    times = {beam: [min(item[beam, length] for item in rounds) for length in LENGTHS] for beam in BEAMS}
    for beam, name in BEAMS.items():
        print(
            f"{name}: milliseconds for " + ", ".join(f"{n}: {t:.0f}" for n, t in zip(LENGTHS, times[beam], strict=True))
        )
        square, line, fixed = np.polyfit(LENGTHS, times[beam], 2, w=1 / np.array(times[beam]))
        last = LENGTHS[-1]
        print(f"  {fixed:.1f} ms + {line:.3f} ms a token + {1e3 * square:.2f} µs a token squared, which is "
              f"{square * last**2 / times[beam][-1]:.0%} at {last} tokens")  # fmt: skip
    if arguments.picture:
        draw(arguments.picture, times)


def draw(path: Path, times: dict[int, list[float]]) -> None:
    with figure(path, 2, (10, 4)) as axes:
        for beam, name in BEAMS.items():
            axes[0].plot(LENGTHS, times[beam], label=name)
            axes[1].plot(LENGTHS, [t / n for n, t in zip(LENGTHS, times[beam], strict=True)], label=name)
        axes[0].set(xlabel="tokens of the translation", ylabel="milliseconds a sentence", xlim=0, ylim=0)
        axes[1].set(xlabel="tokens of the translation", ylabel="milliseconds a token", xlim=0, ylim=0)
        axes[0].legend()
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
