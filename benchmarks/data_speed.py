"""How long data takes: encoding a corpus, starting from an encoded one, waiting for batches, padding, and memory.

    python benchmarks/data_speed.py --pairs 200000 2000000

The corpus is invented: words of syllables whose frequencies follow Zipf's law, each with a word of the other language
that stands for it, now and then twice or not at all, so that lengths differ as they do between languages. Each size is
encoded by `heedful train`, which then makes one update; the same command again finds the corpus ready, and so does one
that leaves the model to the corpus. CPU seconds, of all threads, stand beside those of the clock, which count only on a
machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from heedful import config
from heedful.config.presets import preset_for
from heedful.data.bucketing import padding
from heedful.training import loop
from heedful.training.run_report import RunReport
from heedful.training.setup import open_run
from heedful.training.tasks.translation import TranslationTask

WORDS = 60_000  # different ones in each language
CHUNK = 100_000  # pairs written at once
# How the lines of a run begin that say: it reads, the corpus is ready, it begins to learn, it has made an update.
START, READY, BEGIN, FIRST = "checking", "encoded corpus:", "training:", "update 1 of"
ONE_UPDATE = ["train.max_updates=1", "train.checkpoint_every=1", "train.valid_sentences=1"]
MINUTE_MODEL = [
    "model.d_model=32", "model.d_ff=32", "model.n_heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "train.batch_tokens=4096",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[200_000, 2_000_000])
    parser.add_argument("--updates", type=int, default=10, help="of Transformer-Tiny, to see how long they wait")
    parser.add_argument("--rounds", type=int, default=3, help="of starting")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores", flush=True)
    for pairs in arguments.pairs:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), pairs, arguments.updates, arguments.rounds, arguments.seed)


def measure(folder: Path, pairs: int, updates: int, rounds: int, seed: int) -> None:
    write_corpus(folder, pairs, seed)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{pairs:,} pairs, {size / 1e6:,.0f} MB", flush=True)
    log, most = train(folder, "new", MINUTE_MODEL)
    wall, cpu = log[READY] - log[START]
    print(f"  encoded in {wall:.1f} s ({cpu:.1f} s of CPU): {60 * pairs / wall:,.0f} pairs a minute, "
          f"{60 * pairs / cpu:,.0f} a minute of CPU; at most {most:,.0f} MB", flush=True)  # fmt: skip
    print_start(folder, "of a model 32 wide", MINUTE_MODEL, rounds)
    print_start(folder, f"of preset {preset_for(pairs)}", [], rounds)
    print_waiting(folder, updates)


def print_start(folder: Path, what: str, settings: list[str], rounds: int) -> None:
    """How long it takes to begin with an encoded corpus."""
    runs = [train(folder, f"{what} {i}", settings, until=FIRST) for i in range(rounds)]
    begin, first, cpu = (
        sorted(float(log[line][i]) for log, _ in runs) for line, i in ((BEGIN, 0), (FIRST, 0), (FIRST, 1))
    )
    print(f"  from command to first update {what}: {median(first):.1f} s, {first[0]:.1f} to {first[-1]:.1f} "
          f"in {rounds} rounds ({median(cpu):.1f} s of CPU), {median(begin):.1f} s of them until it begins; "
          f"at most {max(most for _, most in runs):,.0f} MB", flush=True)  # fmt: skip


def write_corpus(folder: Path, pairs: int, seed: int) -> None:
    """A mean of nine and a half words, at least one."""
    random = np.random.default_rng(seed)
    words = [invent(random, "bdfgklmnprstvz", "aeiou"), invent(random, "bdfghklmnprstwz", "aeiouäöü")]
    often = np.cumsum(1 / np.arange(1, WORDS + 1))
    for done in range(0, pairs, CHUNK):
        lengths = 1 + random.gamma(2.0, 4.5, min(CHUNK, pairs - done)).astype(np.int64)
        firsts = np.cumsum(lengths) - lengths
        ranks = np.searchsorted(often, often[-1] * random.random(int(lengths.sum())))
        times = random.choice(3, len(ranks), p=[0.1, 0.8, 0.1])
        times[firsts] = 1
        append_lines(folder / "source", words[0][ranks], lengths)
        append_lines(folder / "target", words[1][np.repeat(ranks, times)], np.add.reduceat(times, firsts))


def invent(random: np.random.Generator, consonants: str, vowels: str) -> NDArray[Any]:
    """Words by rank; the rarer, the longer."""
    syllables = [first + vowel + last for first in ["", *consonants] for vowel in vowels for last in ["", "n", "s"]]
    count = 1 + (np.log(np.arange(1, WORDS + 1)) / np.log(60)).astype(int)
    return np.array(["".join(random.choice(syllables, item)) for item in count], dtype=object)


def append_lines(path: Path, words: NDArray[Any], lengths: NDArray[np.int64]) -> None:
    rest = iter(words.tolist())
    with path.open("a", encoding="utf-8") as file:
        file.writelines(" ".join(islice(rest, length)) + "\n" for length in lengths.tolist())


def train(folder: Path, out: str, settings: list[str], until: str = "") -> tuple[dict[str, NDArray[np.float64]], float]:
    """One update by the command line -> seconds of clock and CPU at which its lines began to be said; megabytes.

    `until` ends it at a line that begins so.
    """
    files = ["--source", folder / "source", "--target", folder / "target", "--out", folder / out]
    command = [sys.executable, "-m", "heedful", "train", *map(str, files), *ONE_UPDATE, *settings]
    began, log, lines = time.perf_counter(), {}, []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stderr
        for line in process.stderr:
            now = np.array([time.perf_counter() - began, cpu_seconds(process.pid)])
            log |= {beginning: now for beginning in (START, READY, BEGIN, FIRST) if line.startswith(beginning)}
            lines.append(line)
            if until and line.startswith(until):
                process.kill()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not (until and until in log):
        sys.exit("".join(lines))
    return log, used.ru_maxrss / 1024


def cpu_seconds(process: int) -> float:
    """What all threads of a process have used; Linux tells."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def print_waiting(folder: Path, updates: int) -> None:
    """What else the loop does beside forward, backward and step, for Transformer-Tiny; and the padding of an epoch."""
    settings = ["preset=tiny", f"train.max_updates={updates}", f"train.checkpoint_every={updates}"]
    arguments = config.load_config(None, settings, data={"source": folder / "source", "target": folder / "target"})
    run = open_run(arguments, folder / "waiting", False, RunReport(folder / "waiting", Console(quiet=True)))
    assert isinstance(run.task, TranslationTask)
    run.task.measure = lambda *context: {"valid_bleu": 0.0, "valid_chrf": 0.0}  # type: ignore[method-assign]
    moments: list[float] = []  # CPU seconds at the beginning and the end of every update

    def apply_update(*positional: Any, **named: Any) -> Any:
        moments.append(time.process_time())
        outcome = real(*positional, **named)
        moments.append(time.process_time())
        return outcome

    real, loop.apply_update = loop.apply_update, apply_update
    loop.train(run)
    loop.apply_update = real
    began = time.process_time()
    epoch = run.task.plan(1)
    planned = (time.process_time() - began) / len(epoch)  # for each update
    computed = sum(
        moments[i + 1] - moments[i] for i in range(2, len(moments), 2)
    )  # the first update waits for the plan
    between = (moments[-1] - moments[1] - computed) / (updates - 1) + planned
    share = between / (between + computed / (updates - 1))
    train = run.task.corpus.train
    padded = [padding(epoch, lengths) for lengths in (train.sources.lengths, train.targets.lengths)]
    print(f"  beside forward, backward and step {share:.2%} of the CPU time; an epoch is planned in "
          f"{planned * len(epoch):.1f} s of CPU; padding {padded[0]:.1%} of the source, {padded[1]:.1%} of the target",
          flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
