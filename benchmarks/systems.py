"""The rarer systems of the paper's story side by side: each learns the embedded grammar for the same CPU time.

    python benchmarks/systems.py --seconds 60

Recurrent models with each kind of attention, convolutions, ByteNet, the Extended Neural GPU, a mixture of experts and
Transformers with each norm train through `heedful train`, one after another, on one thread, in PyTorch (the last row:
the native engine, as users get it). The time is that of the processor from the first update on, validation included.
Printed for each: parameters, updates, CPU milliseconds of an update without validation, the validation loss, exact
match and BLEU of held-out sentences with a beam of 4 and, for experts, the share of tokens of the busiest one on the
validation set (an even load would be 100 % / experts). What a run trained is left in --out, where a second start finds
it.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from pathlib import Path

from heedful import demo
from runs import best_validation, count_parameters, heedful_by_cpu_time, read_metrics, seconds_per_update

COMMON = [
    "text.vocab_size=1000", "model.d_model=64", "model.d_ff=128", "model.n_heads=4", "model.encoder_layers=2",
    "model.decoder_layers=2", "model.dropout=0", "train.batch_tokens=1024", "train.optimizer=adam",
    "train.embedding_init=random", "train.sampled_softmax=0", "train.bpe_dropout=0", "train.weight_decay=0",
    "train.label_smoothing=0", "train.clip_norm=1", "train.schedule=linear", "train.warmup=100", "train.threads=1",
    "train.learning_rate=5e-3", "train.backend=torch", "train.precision=float32", "train.average_checkpoints=1",
    "train.patience=0", "train.valid_sentences=50", "search.length_penalty=0.6", "model.pre_norm=true",
]  # fmt: skip
RNN = ["model.architecture=rnn", "model.encoder_layers=1", "model.decoder_layers=1"]
DOT = [*RNN, "model.source_attention=dot"]
CONVS2S = ["model.architecture=conv"]
DILATED_LAYERS = ["model.encoder_layers=5", "model.decoder_layers=5"]  # dilations 1, 2, 4, 8 and 16
# Updates are so slow that they have fewer sentences.
NEURAL_GPU = ["model.architecture=neural-gpu", "model.d_model=32", "model.unfold_ratio=1.0", "train.batch_tokens=256"]
SYSTEMS = {
    "LSTM, additive": RNN,
    "LSTM, dot": DOT,
    "F-LSTM, dot": [*DOT, "model.cell=flstm"],
    "LSTM, general": [*RNN, "model.source_attention=general"],
    "LSTM, concat": [*RNN, "model.source_attention=concat"],
    "LSTM, dot, local-m": [*DOT, "model.source_span=local-m", "model.source_window=3"],
    "LSTM, dot, local-p": [*DOT, "model.source_span=local-p", "model.source_window=3"],
    "ConvS2S": CONVS2S,
    "ConvS2S, separable": [*CONVS2S, "model.separable=true"],
    "ByteNet": ["model.architecture=bytenet", *DILATED_LAYERS],
    "Extended Neural GPU": NEURAL_GPU,
    "Transformer": [],
    "Transformer, 8 experts": ["model.experts=8"],
    "Transformer, RMSNorm": ["model.norm=rms"],
    "Transformer, batch norm": ["model.norm=batch"],
    "Transformer, instance norm": ["model.norm=instance"],
    "Universal Transformer": ["model.universal=true"],
    "Transformer, native engine": ["train.backend=native", "train.precision=auto"],
}


def train(data: Path, out: Path, settings: list[str], seconds: int) -> None:
    """One run; a complete one is left as it is."""
    if (out / "done").exists():
        return
    files = {"--source": "train.en", "--target": "train.de", "--valid-source": "valid.en", "--valid-target": "valid.de"}
    words = [part for option, name in files.items() for part in (option, str(data / name))]
    words += ["--out", str(out), "--preset", "tiny", "--time", f"{seconds}s", f"data.cache_dir={data / 'cache'}"]
    heedful_by_cpu_time("train", *words, *COMMON, *settings)
    (out / "done").touch()


def row(name: str, data: Path, out: Path) -> str:
    test = ["--source", data / "test.en", "--reference", data / "test.de"]
    scores = json.loads(heedful_by_cpu_time("evaluate", out, *test, "--beam", "4", "--json"))
    best = best_validation(out)
    busiest = f"{best['valid_busiest_expert']:.0f} %" if "valid_busiest_expert" in best else ""
    updates, milliseconds = read_metrics(out)[-1]["update"], 1000 * seconds_per_update(out)
    return (
        f"| {name} | {count_parameters(out):,} | {updates:,} | {milliseconds:.0f} "
        f"| {best['valid_loss']:.3f} | {scores['exact']:.1f} % | {scores['bleu']:.1f} | {busiest} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="CPU time of each run")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), metavar="NAME")
    parser.add_argument("--sentences", type=int, default=200, help="held-out sentences")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder for the runs; a temporary one if not given")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="settings other than those of the table")
    options = parser.parse_intermixed_args()
    print(
        f"{options.seconds} CPU seconds each, one thread, seed {options.seed}; {options.sentences} held-out sentences"
    )
    print("| | parameters | updates | ms an update | validation loss | exact match | BLEU | busiest expert |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        data = folder / "data"
        demo.write(data, test=options.sentences)
        for name in options.systems:
            out = folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}-{options.seed}"
            settings = [*SYSTEMS[name], f"train.seed={options.seed}", *options.settings]
            train(data, out, settings, options.seconds)
            print(row(name, data, out), flush=True)


if __name__ == "__main__":
    main()
