"""How much faster a GPT writes texts of many users together than one after the other.

    python benchmarks/writing.py
    python benchmarks/writing.py runs/gpt --texts 1,8,32

Without a model folder a GPT with random weights is taken: what it writes is nonsense, but takes as long. Prompts have
different lengths and settings, as those of different users have. Each round writes the same texts both ways, in turn,
compares them, and prints tokens a second and their ratio.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch

from heedful.config import ModelConfig, SearchSettings
from heedful.inference.generator import GenerationBatch, Generator
from heedful.inference.scheduler import Scheduler
from heedful.interop import open_folder
from heedful.model.transformer import build_model
from heedful.storage.folder import ModelFolder
from heedful.text import train_plain_vocabulary

WORDS = ["the", "old", "man", "reads", "a", "book", "while", "his", "dog", "sleeps", "near", "the", "fire"]
SETTINGS = ({}, {"temperature": 0.7, "top_k": 40}, {"top_p": 0.9}, {"temperature": 0.0})


def random_gpt() -> Generator:
    """Six layers of 256, a vocabulary of bytes."""
    tokenizer = train_plain_vocabulary([" ".join(WORDS)], "bytes")
    ids = {"pad_id": tokenizer.pad_id, "bos_id": tokenizer.eos_id, "eos_id": tokenizer.eos_id}
    torch.manual_seed(1)
    config = ModelConfig(
        family="decoder", vocab_size=tokenizer.vocab_size, d_model=256, d_ff=1024, n_heads=8, decoder_layers=6,
        pre_norm=True, positions="rotary", max_length=512, dropout=0.0, **ids,
    )  # fmt: skip
    folder = Path(tempfile.gettempdir()) / "random-gpt"
    return Generator(ModelFolder(build_model(config), tokenizer, tokenizer, SearchSettings(), folder))


def random_requests(count: int, tokens: int, seed: int) -> list[tuple[str, dict]]:
    chance = random.Random(seed)
    prompts = (" ".join(chance.choices(WORDS, k=chance.randint(1, 20))) for _ in range(count))
    return [
        (prompt, SETTINGS[number % len(SETTINGS)] | {"max_tokens": tokens, "seed": number})
        for number, prompt in enumerate(prompts)
    ]


def together(generator: Generator, requests: list[tuple[str, dict]]) -> list[str]:
    scheduler = Scheduler(GenerationBatch(generator))
    texts = dict.fromkeys(scheduler.add(generator.text(prompt, range(1), **how) for prompt, how in requests), "")
    while not scheduler.idle():
        for result in scheduler.step():
            texts[result.queued] += "".join(delta.text for delta in result.get())
    return list(texts.values())


def alone(generator: Generator, requests: list[tuple[str, dict]]) -> list[str]:
    return [generator.generate(prompt, **how) for prompt, how in requests]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--texts", default="1,4,16,64")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    generator = Generator(open_folder(arguments.model)) if arguments.model else random_gpt()
    for count in map(int, arguments.texts.split(",")):
        rates: dict[str, list[float]] = {"together": [], "alone": []}
        for seed in range(arguments.rounds + 1):
            requests = random_requests(count, arguments.tokens, seed)
            results = []
            for name, write in (("together", together), ("alone", alone)):
                began = time.perf_counter()
                results.append(write(generator, requests))
                rates[name].append(count * arguments.tokens / (time.perf_counter() - began))
            assert results[0] == results[1], "texts are not those that are written alone"
        ratios = [a / b for a, b in zip(*(item[1:] for item in rates.values()), strict=True)]
        actual, expected = (statistics.median(rate[1:]) for rate in rates.values())
        print(
            f"{count:3} texts: {actual:7.0f} tokens/s together, {expected:7.0f} one after the other, "
            f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
