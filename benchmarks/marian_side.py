"""Marian (pymarian) as a side of translation_speed.py: the same weights, written as Marian reads them, and its search.

Marian's decoder starts from a zero vector and computes positions with frequencies of its own, so the random model of
the benchmark takes both over. Marian limits outputs to a multiple of the longest source of a batch, not to a number of
tokens, so each of its workers gets one batch at a time, of sources of about the same length, with a multiple that is
the number of tokens that the others write. No output is longer: Marian computes the keys and values of all tokens
before in every step, so long outputs would slow it down.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

INT8 = "intgemm8"


def missing() -> str:
    """What is missing, if anything."""
    return "" if importlib.util.find_spec("pymarian") else "No module named 'pymarian'"


def adapt(model) -> None:
    """Positions and start of a model of ours become Marian's."""
    import torch

    from heedful.interop.marian_npz import SIDES, positions

    config = model.config
    table = torch.from_numpy(positions(config.max_length, config.d_model))
    with torch.no_grad():
        for side in SIDES:
            model.get_submodule(side).position.table.copy_(table)
        model.embedding.weight[config.bos_id] = 0


def write_folders(opened, folder: Path) -> None:
    """model.npz in float32 and model.bin in int8, which pymarian converts; tokens are named by their ids."""
    from heedful.interop.flat_yaml import dump
    from heedful.interop.marian_writer import save_archive

    config = opened.model.config
    names = {number: f"t{number}" for number in range(config.vocab_size)}
    names |= {config.eos_id: "</s>", config.pad_id: "<unk>"}
    for precision in ("float32", "int8"):
        (folder / f"marian-{precision}").mkdir()
        (folder / f"marian-{precision}" / "vocab.yml").write_text(
            dump({name: number for number, name in names.items()})
        )
    wide = folder / "marian-float32" / "model.npz"
    save_archive(wide, config, {name: tensor.detach() for name, tensor in opened.model.state_dict().items()})
    convert = ["convert", "--from", str(wide), "--to", str(folder / "marian-int8" / "model.bin"), "--gemm-type", INT8]
    subprocess.run([sys.executable, "-m", "pymarian", *convert], check=True, capture_output=True)


def marian(job) -> Callable[[list[list[int]]], list[Sequence[int]]]:
    from pymarian import Translator

    folder = Path(job.folder)
    model = folder / ("model.npz" if job.precision == "float32" else "model.bin")
    vocabulary = folder / "vocab.yml"
    translator = Translator(
        f"-m {model} -v {vocabulary} {vocabulary} --cpu-threads {job.workers} --beam-size {job.beam} --quiet "
        f"--quiet-translation {'--skip-cost' if job.beam == 1 else ''}"
    )

    def translate(sources: list[list[int]]) -> list[Sequence[int]]:
        result: list[Sequence[int]] = [()] * len(sources)
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        for start in range(0, len(order), job.workers * job.batch):
            turn = order[start : start + job.workers * job.batch]
            limits = {"max-length-factor": (job.length - 0.5) / len(sources[turn[-1]])}
            limits["mini-batch"] = -(-len(turn) // job.workers)
            chosen = [index for worker in range(job.workers) for index in turn[worker :: job.workers]]
            lines = [" ".join(f"t{number}" for number in sources[index][:-1]) for index in chosen]  # it adds the end
            for index, line in zip(chosen, translator.translate(lines, **limits), strict=True):
                result[index] = [int(token[1:]) for token in line.split()]
        return result

    return translate
