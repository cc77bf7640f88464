"""Tokens a second that a GPT of GPT-2's small size generates, beside CTranslate2 and transformers, in turns.

    python benchmarks/generate_speed.py
    python benchmarks/generate_speed.py --batches 1 --tokens 32 --rounds 2

The model has random weights (124 million, V = 50,257) and is converted for each side. Every side continues the same
prompts by the same number of tokens, greedily, with a KV cache; text is neither tokenized nor decoded by the peers.
CTranslate2 first finds its best setting. Peers that are not installed are named and left out.
"""

from __future__ import annotations

import argparse
import string
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from heedful.interop.conversion import convert
from sides import (
    THREADS,
    Work,
    alternate,
    best_setting,
    gemm_seconds,
    machine,
    open_sides,
    print_rates,
    print_ratios,
    print_share,
    read_seconds,
)

LAYERS, WIDTH, VOCABULARY = 12, 768, 50_257
PROMPT = 16  # tokens of a prompt, one for each character


# ---- each side, in its own process: -> the generated ids


def heedful(folder: Path, precision: str, prompts: list[str], tokens: int) -> Work:
    from heedful.inference.generator import GenerationBatch, Generator
    from heedful.inference.scheduler import Scheduler

    generator = Generator.load(folder, precision)

    def generate() -> list[list[int]]:
        scheduler = Scheduler(GenerationBatch(generator))
        options = {"max_tokens": tokens, "temperature": 0.0, "loop_guard": False}
        queued = scheduler.add(generator.text(prompt, range(1), **options) for prompt in prompts)
        while not scheduler.idle():
            scheduler.step()
        return [entry.request.written[0] for entry in queued]

    return generate


def ctranslate2(folder: Path, precision: str, prompts: list[str], tokens: int) -> Work:
    import ctranslate2

    settings = [(workers, THREADS // workers) for workers in sorted({1, THREADS}) if workers <= len(prompts)]
    generators = {
        (workers, threads): ctranslate2.Generator(
            str(folder), compute_type=precision, inter_threads=workers, intra_threads=threads
        )
        for workers, threads in settings
    }

    def generate(setting: tuple[int, int], tokens: int) -> list[list[int]]:
        results = generators[setting].generate_batch(
            [list(prompt) for prompt in prompts], max_batch_size=len(prompts) // setting[0], beam_size=1,
            sampling_topk=1, min_length=tokens, max_length=tokens, include_prompt_in_result=False,
        )  # fmt: skip
        return [result.sequences_ids[0] for result in results]

    chosen = best_setting(settings, lambda setting: generate(setting, 8))
    return lambda: generate(chosen, tokens)


def hugging_face(folder: Path, prompts: list[str], tokens: int) -> Work:
    torch.set_num_threads(THREADS)
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = torch.tensor([encoding.ids for encoding in tokenizer.encode_batch(prompts)])
    options = {"do_sample": False, "min_new_tokens": tokens, "max_new_tokens": tokens, "pad_token_id": VOCABULARY - 1}

    def generate() -> list[list[int]]:
        with torch.inference_mode():
            written = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
        return written[:, PROMPT:].tolist()

    return generate


# ---- the model


def write_model(folder: Path) -> None:
    """GPT-2's small size with random weights, and a vocabulary in which every ASCII character is one token."""
    letters = string.ascii_letters + string.digits
    words = {letter: number for number, letter in enumerate(letters)}
    words |= {f"word{number}": number for number in range(len(words), VOCABULARY - 1)}
    tokenizer = Tokenizer(models.BPE(words | {"<|endoftext|>": VOCABULARY - 1}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    end = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **end).save_pretrained(folder)
    torch.manual_seed(1)
    transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(folder)


def write_ctranslate2(model: Path, folder: Path) -> bool:
    try:
        import ctranslate2
    except ImportError as error:
        print(f"ctranslate2 is missing: {error}")
        return False
    ctranslate2.converters.TransformersConverter(str(model)).convert(str(folder))
    return True


# ---- the limit


def print_limits(runs, batch: int, tokens: int) -> None:
    """A single row is bound by reading the weights from memory, a batch by its matrix products."""
    layers = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
    weights = LAYERS * sum(inner * outer for inner, outer in layers) + WIDTH * VOCABULARY
    shapes = [*((inner, outer, LAYERS) for inner, outer in layers), (WIDTH, VOCABULARY, 1)]
    for precision, size in (("int8", 1), ("float32", 4)):
        name = f"heedful {precision}"
        print_share(name, runs[name], tokens * read_seconds(size * weights), "reading all weights for each token")
        if batch > 1:
            seconds = tokens * gemm_seconds(batch, shapes, precision == "int8")
            print_share(name, runs[name], seconds, "PyTorch's matrix products alone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16], help="prompts that are continued together")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each prompt")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "transformers")
        convert(folder / "transformers", folder / "heedful")
        loaders = {f"heedful {kind}": (heedful, folder / "heedful", kind) for kind in ("int8", "float32")}
        ours = list(loaders)
        if write_ctranslate2(folder / "transformers", folder / "ctranslate2"):
            for kind in ("int8", "float32"):
                loaders[f"ctranslate2 {kind}"] = (ctranslate2, folder / "ctranslate2", kind)
        loaders["transformers float32"] = (hugging_face, folder / "transformers")
        for batch in arguments.batches:
            letters = np.random.default_rng(1).choice(list(string.ascii_letters), (batch, PROMPT))
            prompts = ["".join(row) for row in letters.tolist()]
            sides = open_sides({side: (*loader, prompts, arguments.tokens) for side, loader in loaders.items()})
            runs = alternate(sides, arguments.rounds)
            for side, of_side in runs.items():
                if {len(ids) for ids in of_side[0].output} != {arguments.tokens}:
                    sys.exit(f"{side} did not generate {arguments.tokens} tokens for each prompt")
            print(f"\nbatch {batch}, {arguments.tokens} new tokens, {machine()}")
            print_rates(runs, batch * arguments.tokens, "tokens")
            print_ratios(runs, ours)
            same = runs["heedful float32"][0].output == runs["transformers float32"][0].output
            print(f"the same tokens as transformers in float32: {same}")
            print_limits(runs, batch, arguments.tokens)
            for side in sides:
                side.process.shutdown()


if __name__ == "__main__":
    main()
