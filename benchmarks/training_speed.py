"""Target tokens a second in training, beside other toolkits, on the same data, model, token budget and threads.

    python benchmarks/training_speed.py path/to/multi30k/tok --venvs ~/.cache/heedful-peers
    python benchmarks/training_speed.py path/to/corpus --size base --peers transformers --updates 4 --rounds 3

Peers are set up once, each in a virtual environment of its own below --venvs, with the `torch` that we run on: JoeyNMT
2.3.0 with the module that it needs and does not declare, OpenNMT-py 3.5.1 without its bound on `torch`. The plain loop
of `transformers` (Marian, AdamW, float32) runs in our environment; `torch` is heedful without its compiled engine. They
train one after another, in several rounds, so that a machine that is busy for a while slows all of them down. All see
the same subwords: ours, written out as words. The base size has 37,000 of them, for which Multi30k is too small.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import yaml
from torch.utils.benchmark import Timer

from heedful.native.engine import library, training_precision
from heedful.native.muon_step import newton_schulz_native
from heedful.ops.newton_schulz import ROUNDS
from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Size:
    """A model and a budget that all sides take."""

    layers: int
    width: int
    inner: int
    heads: int
    vocabulary: int
    batch_tokens: int
    dropout: float


SIZES = {"tiny": Size(4, 128, 256, 4, 9_700, 4096, 0.3), "base": Size(6, 512, 2048, 8, 37_000, 4096, 0.1)}
RATE = 1e-3
LENGTH = 128


@dataclass(frozen=True)
class Task:
    """What is to be measured, where."""

    size: Size
    folder: Path  # {train,valid}.{en,de} as plain text, {train,valid}.bpe.{en,de} in subwords, and vocabulary.txt
    updates: int
    threads: int

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"OMP_NUM_THREADS": str(self.threads), "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Speed:
    """One measurement."""

    tokens_per_second: float
    megabytes: float  # at most, resident


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        task = Task(SIZES[options.size], Path(folder), options.updates, options.threads)
        write_data(task, options.corpus)
        sides = {"heedful": heedful} | {name: PEERS[name] for name in options.peers}
        pythons = {name: environment_of(name, options.venvs) for name in sides}
        result: dict[str, list[Speed]] = {name: [] for name in sides}
        for number in range(options.rounds):
            for name, run in sides.items():
                result[name].append(run(task, pythons[name]))
                speed = result[name][-1]
                print(f"round {number + 1}: {name:13} {speed.tokens_per_second:8,.0f} target tokens/s, "
                      f"{speed.megabytes:6,.0f} MB", flush=True)  # fmt: skip
    for name in options.peers:
        print_ratio(name, result["heedful"], result[name])
    print_share(task, result["heedful"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="folder with train.en, train.de, val.en, val.de")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["joeynmt", "opennmt", "transformers"])
    parser.add_argument("--venvs", type=Path, default=Path(".peers"), help="where the peers are, or will be, installed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=60, help="of one measurement")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="CPU threads of each")
    return parser.parse_args()


def write_data(task: Task, corpus: Path) -> None:
    """The corpus as text for us, and as the very subwords that we make of it for the others."""
    for actual, expected in (("train", "train"), ("valid", "val")):
        for language in ("en", "de"):
            (task.folder / f"{actual}.{language}").write_bytes((corpus / f"{expected}.{language}").read_bytes())
    heedful(Task(task.size, task.folder, 1, task.threads), sys.executable)
    tokenizer = Tokenizer.load(task.folder / "run" / "tokenizer.json")
    for part in ("train", "valid"):
        for language in ("en", "de"):
            lines = (task.folder / f"{part}.{language}").read_text(encoding="utf-8").splitlines()
            cut = (" ".join(tokenizer.pieces(ids)) for ids in tokenizer.encode_batch(lines))
            (task.folder / f"{part}.bpe.{language}").write_text("\n".join(cut) + "\n", encoding="utf-8")
    pieces = [piece for piece in tokenizer.pieces(range(tokenizer.vocab_size)) if not re.fullmatch(r"<\w+>", piece)]
    (task.folder / "vocabulary.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")


def run(command: Sequence[str | Path], task: Task) -> tuple[str, float]:
    """-> what a command printed, and the megabytes that it held at most."""
    words = [str(word) for word in command]
    with (task.folder / "log").open("w+", encoding="utf-8") as log:
        process = subprocess.Popen(words, cwd=task.folder, env=task.environment, stdout=log, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        log.seek(0)
        printed = log.read()
    if status:
        sys.exit(f"{' '.join(words)} failed:\n{printed[-3000:]}")
    return printed, used.ru_maxrss / 1024


def settled(speeds: Sequence[float]) -> float:
    """The median of a log's speeds, without the first, which holds the start."""
    if not speeds:
        sys.exit("a log held no speed; take more --updates")
    return statistics.median(speeds[1:] or speeds)


def heedful(task: Task, python: str, *settings: str) -> Speed:
    size, out = task.size, task.folder / "run"
    words = [
        f"text.vocab_size={size.vocabulary}", f"model.d_model={size.width}", f"model.d_ff={size.inner}",
        f"model.n_heads={size.heads}", f"model.encoder_layers={size.layers}", f"model.decoder_layers={size.layers}",
        f"model.dropout={size.dropout}", f"train.batch_tokens={size.batch_tokens}", "train.micro_batches=1",
        f"train.max_updates={task.updates}", f"train.checkpoint_every={task.updates}", "train.valid_sentences=1",
        f"train.learning_rate={RATE}", "train.optimizer=adam", "model.pre_norm=false", "train.average_checkpoints=1",
        "train.embedding_init=random", "train.sampled_softmax=0", "train.bpe_dropout=0", "search.length_penalty=0.6",
        f"train.threads={task.threads}", *settings,
    ]  # fmt: skip
    files = [word for part in ("", "valid-") for side, language in (("source", "en"), ("target", "de"))
             for word in (f"--{part}{side}", task.folder / f"{part.rstrip('-') or 'train'}.{language}")]  # fmt: skip
    subprocess.run(["rm", "-rf", str(out)], check=True)
    _, peak = run([python, "-m", "heedful", "train", *files, "--out", out, *words], task)
    records = map(json.loads, (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return Speed(settled([record["tokens_per_second"] for record in records if "tokens_per_second" in record]), peak)


def joeynmt(task: Task, python: str) -> Speed:
    size, folder = task.size, task.folder
    side = {"max_length": LENGTH, "level": "word", "voc_file": str(folder / "joey_vocabulary.txt")}
    pieces = (folder / "vocabulary.txt").read_text(encoding="utf-8")
    (folder / "joey_vocabulary.txt").write_text("<unk>\n<pad>\n<s>\n</s>\n" + pieces, encoding="utf-8")
    stack = {
        "type": "transformer", "num_layers": size.layers, "num_heads": size.heads, "hidden_size": size.width,
        "embeddings": {"embedding_dim": size.width, "scale": True}, "ff_size": size.inner, "dropout": size.dropout,
    }  # fmt: skip
    often = max(2, task.updates // 6)
    settings = {
        "name": "speed", "joeynmt_version": "2.3.0", "model_dir": str(folder / "joey"), "use_cuda": False,
        "data": {"train": str(folder / "train.bpe"), "dev": str(folder / "valid.bpe"), "dataset_type": "plain",
                 "src": side | {"lang": "en"}, "trg": side | {"lang": "de"}},
        "testing": {"beam_size": 1, "batch_size": 4096, "batch_type": "token", "eval_metrics": ["bleu"]},
        "training": {
            "random_seed": 1, "optimizer": "adamw", "scheduling": "warmupinversesquareroot",
            "learning_rate_warmup": 100, "learning_rate": RATE, "batch_size": size.batch_tokens,
            "batch_type": "token", "epochs": 100, "updates": task.updates, "validation_freq": 10**6 * often,
            "logging_freq": often, "overwrite": True, "shuffle": True, "loss": "crossentropy",
            "label_smoothing": 0.1, "normalization": "tokens", "num_workers": 0,
        },
        "model": {"initializer": "xavier_uniform", "tied_embeddings": True, "tied_softmax": True, "encoder": stack,
                  "decoder": stack},
    }  # fmt: skip
    (folder / "joey.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    printed, peak = run([python, "-m", "joeynmt", "train", folder / "joey.yaml", "--skip-test"], task)
    return Speed(settled([float(item) for item in re.findall(r"Tokens per Sec:\s*([\d.]+)", printed)]), peak)


def opennmt(task: Task, python: str) -> Speed:
    size, folder = task.size, task.folder
    settings = {
        "data": {"corpus_1": {"path_src": str(folder / "train.bpe.en"), "path_tgt": str(folder / "train.bpe.de")}},
        "src_vocab": str(folder / "vocabulary.txt"), "tgt_vocab": str(folder / "vocabulary.txt"), "share_vocab": True,
        "save_model": str(folder / "onmt"), "encoder_type": "transformer", "decoder_type": "transformer",
        "layers": size.layers, "heads": size.heads, "hidden_size": size.width, "word_vec_size": size.width,
        "transformer_ff": size.inner, "dropout": [size.dropout], "position_encoding": True, "share_embeddings": True,
        "share_decoder_embeddings": True, "optim": "adam", "learning_rate": RATE, "label_smoothing": 0.1,
        "batch_type": "tokens", "batch_size": size.batch_tokens, "normalization": "tokens", "accum_count": [1],
        "train_steps": task.updates, "save_checkpoint_steps": 10**9, "valid_steps": 10**9, "num_workers": 0,
        "report_every": max(2, task.updates // 6), "src_seq_length": LENGTH, "tgt_seq_length": LENGTH,
    }  # fmt: skip
    (folder / "onmt.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    program = "import sys; from onmt.bin.train import main; main()"
    printed, peak = run([python, "-c", program, "-config", folder / "onmt.yaml"], task)
    return Speed(settled([float(item) for item in re.findall(r"\d+/\s*(\d+) tok/s", printed)]), peak)


def transformers(task: Task, python: str) -> Speed:
    """The loop that most people would write: in a process of its own, to see its memory."""
    printed, peak = run([python, Path(__file__).with_name("plain_loop.py"), task.folder, json.dumps(vars(task.size)),
                         str(task.updates), str(RATE)], task)  # fmt: skip
    return Speed(
        settled([float(item) for item in re.findall(r"^([\d.]+) target tokens/s", printed, re.MULTILINE)]), peak
    )


def without_engine(task: Task, python: str) -> Speed:
    """We ourselves, by torch alone."""
    return heedful(task, python, "train.backend=torch")


PEERS = {"torch": without_engine, "joeynmt": joeynmt, "opennmt": opennmt, "transformers": transformers}
INSTALL = {  # without dependencies, and what they need of those
    "joeynmt": (["joeynmt==2.3.0"], [
        "pillow", "tensorboard", "sacrebleu", "sacremoses", "sentencepiece", "subword-nmt", "matplotlib", "seaborn",
        "pyyaml", "datasets", "packaging", "pandas", "importlib_metadata", "numpy", "setuptools<81",
    ]),
    "opennmt": (["OpenNMT-py==3.5.1"], [
        "configargparse", "ctranslate2<5", "tensorboard", "flask", "waitress", "pyonmttok", "pyyaml", "sacrebleu",
        "rapidfuzz", "pyahocorasick", "six", "spacy", "fasttext-wheel", "numpy", "setuptools<81",
    ]),
}  # fmt: skip


def environment_of(name: str, venvs: Path) -> str:
    """The interpreter that runs a side, set up first if it is not there."""
    if name not in INSTALL:
        return sys.executable
    folder = venvs.expanduser().absolute() / name
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        print(f"setting up {name} in {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        itself, needs = INSTALL[name]
        for words in ([f"torch=={torch.__version__.split('+')[0]}"], needs, ["--no-deps", *itself]):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *words], check=True)
        ready.touch()
    return str(python)


def print_ratio(name: str, actual: Sequence[Speed], expected: Sequence[Speed]) -> None:
    ratios = sorted(a.tokens_per_second / b.tokens_per_second for a, b in zip(actual, expected, strict=True))
    memory = statistics.median(a.megabytes for a in actual) / statistics.median(b.megabytes for b in expected)
    print(f"heedful / {name}: {statistics.median(ratios):.2f} x, from {ratios[0]:.2f} to {ratios[-1]:.2f}; "
          f"memory {memory:.2f} x")  # fmt: skip


def print_share(task: Task, actual: Sequence[Speed]) -> None:
    """How much of the rate of products alone, measured now, the products of training make up.

    Alone they are torch's, and those of Muon's steps by the engine, which has instructions that torch may not use.
    """
    size = task.size
    layer = 4 * size.width**2 + 2 * size.width * size.inner
    weights = size.layers * (2 * layer + 4 * size.width**2) + size.vocabulary * size.width
    reached = 6 * weights * statistics.median(our.tokens_per_second for our in actual)
    print(f"products of the weights: {reached / 1e9:.0f} GFLOP/s")
    for dtype in (torch.float32, torch.bfloat16):
        a, b = torch.randn(4096, size.width, dtype=dtype), torch.randn(size.width, max(size.inner, 512), dtype=dtype)
        timer = Timer("a @ b", globals={"a": a, "b": b}, num_threads=task.threads)
        rate = 2 * a.numel() * b.size(1) / min(timer.blocked_autorange(min_run_time=1).times)
        name = str(dtype).removeprefix("torch.")
        print(f"  {reached / rate:.0%} of the {rate / 1e9:.0f} GFLOP/s that torch reaches in {name}")
    loaded = library()
    if loaded is not None and training_precision("auto", loaded) == "bfloat16":  # in float32 it needs fewer products
        work = {"made": partial(newton_schulz_native, torch.randn(8, 512, 512), loaded, "bfloat16")}
        timer = Timer("made()", globals=work, num_threads=task.threads)
        rate = 8 * ROUNDS * 3 * 2 * 512**3 / min(timer.blocked_autorange(min_run_time=1).times)
        print(f"  {reached / rate:.0%} of the {rate / 1e9:.0f} GFLOP/s that the engine reaches in Muon's steps")


if __name__ == "__main__":
    main()
