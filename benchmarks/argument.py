"""The paper's argument itself, on your own pairs: BLEU for the training time, of what was before and of what came next.

    python benchmarks/argument.py path/to/multi30k en de --minutes 20 --seeds 2 --picture docs/images/argument.svg

An RNN (GRU) with additive attention, an LSTM with dot attention, convolutions, the Transformer and the Universal
Transformer, with about as many parameters, train for equal time, one after another, through `heedful train`. The time
is the processor's, of each thread, so that other work on the machine takes nothing from a system. The folder holds
train.*, val.* and a test set. Shown: BLEU of the validation set over time, and BLEU and chrF of the best model of each
run on the test set, by sacreBLEU. What a run trained is left in --out, where a second start finds it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from drawing import figure
from runs import count_parameters, heedful_by_cpu_time, read_metrics

# Of about 2.5 million parameters each, with a joint vocabulary of 8,000 tokens. Rates are the best of two to three on
# the validation set after two or three minutes, each twice the one before.
SYSTEMS = {
    "GRU, additive": [
        "model.architecture=rnn", "model.cell=gru", "model.source_attention=additive", "model.d_model=208",
        "model.encoder_layers=1", "model.decoder_layers=1", "model.dropout=0.3", "train.learning_rate=8e-3",
    ],
    "LSTM, dot": [
        "model.architecture=rnn", "model.cell=lstm", "model.source_attention=dot", "model.d_model=208",
        "model.encoder_layers=1", "model.decoder_layers=1", "model.dropout=0.3", "train.learning_rate=8e-3",
    ],
    "convolutions": [
        "model.architecture=conv", "model.d_model=160", "model.encoder_layers=4", "model.decoder_layers=3",
        "model.dropout=0.3", "train.learning_rate=4e-3",
    ],
    "Transformer": [
        "model.pre_norm=true", "model.d_model=128", "model.d_ff=320", "model.encoder_layers=4",
        "model.decoder_layers=4",
        "model.dropout=0.2", "train.learning_rate=5e-3", "train.warmup=400",
    ],
    "Universal": [
        "model.pre_norm=true", "model.universal=true", "model.d_model=208", "model.d_ff=416", "model.n_heads=4",
        "model.encoder_layers=4", "model.decoder_layers=4", "model.dropout=0.2", "train.learning_rate=3e-3",
        "train.warmup=400",
    ],
}  # fmt: skip


def train(data: Path, pair: tuple[str, str], out: Path, settings: list[str], minutes: float, threads: int) -> None:
    """One run; a complete one is left as it is."""
    if (out / "done").exists():
        return
    files = {"--source": "train", "--target": "train", "--valid-source": "val", "--valid-target": "val"}
    words = [
        str(part) for i, (option, name) in enumerate(files.items()) for part in (option, data / f"{name}.{pair[i % 2]}")
    ]
    words += ["--out", str(out), "--time", f"{round(60 * minutes)}s", "--preset", "tiny", f"train.threads={threads}"]
    words += [
        "text.vocab_size=8000",
        "train.batch_tokens=2048",
        "train.optimizer=adam",
        "train.embedding_init=random",
        "train.sampled_softmax=0",
        "train.bpe_dropout=0",
        "train.patience=0",
        "search.length_penalty=0.6",
        "train.valid_sentences=200",
        *settings,
    ]
    heedful_by_cpu_time("train", *words, threads=threads)
    (out / "done").touch()


def curve(out: Path) -> list[tuple[float, float]]:
    """Minutes and BLEU of every validation."""
    records = read_metrics(out)
    minutes = {record["update"]: record["seconds"] / 60 for record in records if "seconds" in record}
    return [(minutes[r["update"]], r["valid_bleu"]) for r in records if "valid_bleu" in r and r["update"] in minutes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with train, val and the test set, one file a language")
    parser.add_argument("source", help="ending of the source files, such as en")
    parser.add_argument("target", help="ending of the target files, such as de")
    parser.add_argument("--test", default="test_2016_flickr", help="name of the test set")
    parser.add_argument("--minutes", type=float, default=20, help="of each run")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--systems", nargs="*", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--out", type=Path, help="folder for the runs; a temporary one if not given")
    parser.add_argument("--picture", type=Path, help="where to draw BLEU over time: .svg or .png")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        compare(arguments, arguments.out or Path(temporary))


def compare(arguments: argparse.Namespace, out: Path) -> None:
    curves: dict[str, list[list[tuple[float, float]]]] = {}
    pair = (arguments.source, arguments.target)
    test = [str(arguments.data / f"{arguments.test}.{side}") for side in pair]
    print(
        f"{arguments.minutes:g} minutes each, {arguments.threads} thread(s), {arguments.seeds} seed(s): "
        f"{arguments.test}, beam 4"
    )
    print(f"{'':14} parameters   updates   BLEU, mean (each seed)      chrF")
    for name in arguments.systems:
        bleu, chrf, updates, parameters = [], [], [], 0
        curves[name] = []
        for seed in range(1, arguments.seeds + 1):
            folder = out / f"{re.sub(r'[^a-z]+', '-', name.lower())}-{seed}"
            settings = [*SYSTEMS[name], f"train.seed={seed}"]
            train(arguments.data, pair, folder, settings, arguments.minutes, arguments.threads)
            scores = json.loads(
                heedful_by_cpu_time(
                    "evaluate",
                    str(folder),
                    "--source",
                    test[0],
                    "--reference",
                    test[1],
                    "--json",
                    threads=arguments.threads,
                )
            )
            bleu.append(scores["bleu"])
            chrf.append(scores["chrf"])
            curves[name].append(curve(folder))
            updates.append(read_metrics(folder)[-1]["update"])
            parameters = count_parameters(folder)
        by_seed = ", ".join(f"{value:.2f}" for value in bleu)
        print(
            f"{name:14} {parameters:10,}   {statistics.mean(updates):7.0f}   {statistics.mean(bleu):5.2f} ({by_seed})"
            f"{'':6}{statistics.mean(chrf):5.2f}",
            flush=True,
        )
    if arguments.picture:
        draw(curves, arguments.picture)


def draw(curves: dict[str, list[list[tuple[float, float]]]], path: Path) -> None:
    from drawing import COLOURS, MARKS

    with figure(path, 1, (7, 4.5)) as (axis,):
        for (name, seeds), colour, mark in zip(curves.items(), COLOURS, MARKS, strict=False):
            for number, points in enumerate(seeds):
                axis.plot(
                    *zip(*points, strict=True), color=colour, marker=mark, label=None if number else name,
                    linestyle="-" if number == 0 else "--",
                )  # fmt: skip
        axis.set(xlabel="minutes of training", ylabel="BLEU on the validation set")
        axis.legend()
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
