"""Target tokens a second in translation, beside CTranslate2, Marian and transformers: same model, sentences, cores.

    python benchmarks/translation_speed.py runs/tiny test.en --reference test.de
    python benchmarks/translation_speed.py runs/tiny test.en --size base --rounds 3
    python benchmarks/translation_speed.py runs/tiny test.en --size base --marian

The model is converted, and the conversion compares logits and decoding before anything is measured. `--size base` takes
a random model of the paper's base size (V = 37,000) in place of it, whose end is so unlikely that every engine writes
exactly 30 tokens a sentence. With `--marian` this model starts from a zero vector, as Marian's do, and pymarian, if it
is installed, computes with the same weights in float32 and int8; it writes 30 tokens at most.
Searches have no length penalty, so that all of them do the same work; the share of sentences for which float32 gives
the same tokens here and there is printed. What is measured is the search: sentences are cut into tokens before, and put
together again after the clock has stopped, for all sides alike. With `--shortlist` both sides choose among the same
tokens, those of the model folder's shortlist (`heedful shortlist`): ours by sentence, CTranslate2 by batch (its
vocabulary map). Sentences with a token that the shortlist was not taught are left out.

Each engine runs in a process of its own, one after another, in several rounds, so that a machine that is busy for a
while slows all of them down. Before, each finds its best setting on some of the sentences: threads and workers for us,
the size of a batch (and AVX512, where the CPU has it) for CTranslate2 and Marian, which run one worker on each core.
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
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import marian_side

CORES = len(os.sched_getaffinity(0))
FORCED = 30  # tokens that the random model writes for every sentence
LONGEST = 200  # tokens that a trained one may write
UNLIKELY = -10_000.0  # logit of what is never to be written
TRIAL, WARM = 200, 32  # sentences that a setting is tried on, and that come before the clock starts
BATCHES = (16, 32, 64, 128, 256)

Sentences = list[list[int]] | list[list[str]]
Bleu = Callable[[list[list[int]]], float]


@dataclass(frozen=True)
class Job:
    """What one process is to do: an engine, how it is set, and what it translates."""

    engine: str
    precision: str
    folder: str
    sources: str  # a file of sentences, as ids for some engines and as pieces for others
    length: int
    beam: int = 1
    threads: int = 1
    workers: int = 1
    batch: int = 64
    isa: str = ""  # of CTranslate2; its own choice if empty
    sentences: int = 0  # the first so many; 0 for all
    alone: bool = False  # one after the other, to see how long each takes
    shortlist: bool = False

    @property
    def name(self) -> str:
        return f"{self.engine} {self.precision}"

    @property
    def setting(self) -> str:
        batch = f", batches of {self.batch}" * (self.engine != "heedful")
        return f"{self.workers} x {self.threads} threads{batch}{f', {self.isa}' * bool(self.isa)}"


@dataclass(frozen=True)
class Measured:
    """Token ids of the outputs, and what they took."""

    seconds: float
    processor: float  # seconds of all threads together, which other programs on the machine change less
    outputs: list[list[int]]
    times: list[float]  # of each sentence, if they came alone
    resident: float  # megabytes, when all was done
    peak: float

    @property
    def tokens(self) -> int:
        return sum(map(len, self.outputs))

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds


# ---- in a process of its own


def heedful(job: Job) -> Callable[[Sentences], list[Sequence[int]]]:
    from heedful.inference.native_search import NativeSearchPool
    from heedful.inference.scheduler import search_in_order
    from heedful.inference.translator import Translator
    from heedful.search import SearchRequest
    from heedful.storage import folder

    translator = Translator([folder.load_folder(job.folder)], job.precision, shortlist=job.shortlist)
    options = translator.options(
        {"beam": job.beam, "length_penalty": 0.0, "max_length": job.length, "loop_guard": False}
    )
    engine = translator.engines[0]

    def translate(sources: Sentences) -> list[Sequence[int]]:
        some = translator.shortlist.tokens if translator.shortlist else lambda ids: None
        arguments = (SearchRequest(ids, options, (), some(ids[:-1])) for ids in sources)
        pool = NativeSearchPool(engine, job.workers, job.threads, batched_calls=True)
        return [item[0].ids for item in search_in_order(pool, arguments)]

    return translate


def ctranslate2(job: Job) -> Callable[[Sentences], list[Sequence[str]]]:
    import ctranslate2

    translator = ctranslate2.Translator(
        job.folder, compute_type=job.precision, inter_threads=job.workers, intra_threads=job.threads
    )
    options = {"beam_size": job.beam, "length_penalty": 0, "max_decoding_length": job.length}
    options["use_vmap"] = job.shortlist

    def translate(sources: Sentences) -> list[Sequence[str]]:
        return [item.hypotheses[0] for item in translator.translate_batch(sources, max_batch_size=job.batch, **options)]

    return translate


def transformers(job: Job) -> Callable[[Sentences], list[Sequence[int]]]:
    import torch
    import transformers

    torch.set_num_threads(job.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.MarianMTModel.from_pretrained(job.folder).eval()
    pad, eos = model.config.pad_token_id, model.config.eos_token_id
    options = {"num_beams": job.beam, "length_penalty": 0.0, "do_sample": False, "max_new_tokens": job.length}

    def translate(sources: Sentences) -> list[Sequence[int]]:
        result: list[Sequence[int]] = [()] * len(sources)
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        for start in range(0, len(order), job.batch):
            chosen = order[start : start + job.batch]
            rows = [torch.tensor(sources[index]) for index in chosen]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
            with torch.inference_mode():
                written = model.generate(input_ids=ids, attention_mask=(ids != pad).long(), **options)
            for index, row in zip(chosen, written[:, 1:].tolist(), strict=True):
                result[index] = row[: row.index(eos)] if eos in row else [item for item in row if item != pad]
        return result

    return translate


ENGINES = {
    "heedful": heedful,
    "ctranslate2": ctranslate2,
    "marian": marian_side.marian,
    "transformers": transformers,
}


def work(job: Job) -> None:
    """Load, warm up, translate, and print what came out."""
    sources = json.loads(Path(job.sources).read_text(encoding="utf-8"))[: job.sentences or None]
    translate = ENGINES[job.engine](job)
    for item in ([source] for source in sources[:5]) if job.alone else [sources[:WARM]]:
        translate(item)
    times, result = [], []
    began, before = time.perf_counter(), time.process_time()
    for batch in ([source] for source in sources) if job.alone else [sources]:
        start = time.perf_counter()
        result += translate(batch)
        times.append(time.perf_counter() - start)
    spent = {"seconds": time.perf_counter() - began, "processor": time.process_time() - before}
    status = Path("/proc/self/status").read_text()
    resident, peak = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024 for name in ("VmRSS", "VmHWM"))
    print(json.dumps(spent | {"outputs": result, "times": times, "resident": resident, "peak": peak}))


def run(job: Job, ids: dict[str, int]) -> Measured:
    """One process from its start to its end; pieces that it wrote become ids."""
    environment = os.environ | {"OMP_NUM_THREADS": str(job.threads), "CUDA_VISIBLE_DEVICES": ""}
    if job.isa:
        environment["CT2_FORCE_CPU_ISA"] = job.isa
    done = subprocess.run(
        [sys.executable, __file__, "--work", json.dumps(asdict(job))],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{job.name} failed:\n{done.stderr[-3000:]}")
    values = json.loads(done.stdout.splitlines()[-1])
    values["outputs"] = [[ids[item] if isinstance(item, str) else item for item in row] for row in values["outputs"]]
    return Measured(**values)


# ---- what they translate


@contextmanager
def prepared(arguments: argparse.Namespace) -> Iterator[tuple[list[Job], dict[str, int], Bleu | None]]:
    """A job for each engine, the id of each piece, and what scores translations if there is a reference."""
    from heedful.inference.shortlist import load_shortlist
    from heedful.storage.folder import load_folder

    opened = load_folder(arguments.model)
    with tempfile.TemporaryDirectory() as name:
        folder, forced = Path(name), arguments.size == "base"
        shortlist = load_shortlist(opened) if arguments.shortlist else None
        rows, numbers = encoded(opened, read(arguments.lines, arguments.sentences), shortlist)
        references = arguments.reference and read(arguments.reference, arguments.sentences)
        if forced:
            frame = opened.tokenizer.specials
            opened = replace(opened, weights=base_model(frame.pad, frame.bos, frame.eos, arguments.marian))
        write_folders(opened, folder, arguments.transformers)
        if arguments.marian:
            marian_side.write_folders(opened, folder)
        if shortlist is not None:
            write_shortlists(shortlist, opened, folder)
        pieces = opened.tokenizer.pieces(range(opened.model.config.vocab_size))
        source_pieces = opened.source_tokenizer.pieces(range(opened.model.config.source_vocab_size or len(pieces)))
        spelled = [[source_pieces[number] for number in row[:-1]] for row in rows]  # theirs adds the end by itself
        (folder / "ids").write_text(json.dumps(rows))
        (folder / "pieces").write_text(json.dumps(spelled))
        length = FORCED if forced else min(LONGEST, opened.model.config.max_length - 1)
        jobs = []
        peers = ["ctranslate2", *["marian"] * arguments.marian, *["transformers"] * arguments.transformers]
        for engine in ["heedful", *peers]:
            for precision in ("float32", "int8")[: 1 if engine == "transformers" else 2]:
                sources = folder / ("pieces" if engine == "ctranslate2" else "ids")
                jobs.append(Job(engine, precision, str(folder / f"{engine}-{precision}"), str(sources), length,
                                shortlist=arguments.shortlist))  # fmt: skip
        bleu = references and scorer(opened.tokenizer, [references[number] for number in numbers])
        yield jobs, {piece: number for number, piece in enumerate(pieces)}, bleu


def read(path: Path, lines: int) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")[:lines]


def encoded(opened, lines: list[str], shortlist) -> tuple[list[list[int]], list[int]]:
    """Ids of all lines that the model takes as a whole, each with its end, and the numbers of these lines."""
    tokenizer, most = opened.source_tokenizer, opened.model.config.max_length // 2
    rows = {number: ids for number, ids in enumerate(tokenizer.encode_batch(lines)) if 0 < len(ids) < most}
    if shortlist is not None:
        lists = {number: shortlist.tokens(ids) for number, ids in rows.items()}
        rows = {number: ids for number, ids in rows.items() if lists[number] is not None}
        mean = statistics.mean(len(lists[number]) for number in rows)
        print(f"{len(rows)} sentences, each with {mean:,.0f} tokens to choose from")
    return [[*ids, tokenizer.eos_id] for ids in rows.values()], list(rows)


def scorer(tokenizer, references: list[str]) -> Bleu:
    from sacrebleu import corpus_bleu

    return lambda result: corpus_bleu(tokenizer.decode_batch(result), [references]).score


def base_model(pad: int = 0, bos: int = 2, eos: int = 3, for_marian: bool = False):
    """A random model of the paper's base size that never writes these three, so that outputs end where they must."""
    import torch

    from heedful.config import ModelConfig
    from heedful.model.transformer import build_model

    config = ModelConfig(
        vocab_size=37_000, d_model=512, d_ff=2048, n_heads=8, encoder_layers=6, decoder_layers=6, max_length=512,
        output_bias=True, pad_id=pad, bos_id=bos, eos_id=eos,
        **({"positions": "learned", "norm_eps": 1e-6} if for_marian else {}),
    )  # fmt: skip
    torch.manual_seed(1)
    model = build_model(config).eval()
    model.output_bias.data[[pad, bos, eos]] = UNLIKELY
    if for_marian:
        marian_side.adapt(model)
    return model


def write_folders(opened, folder: Path, with_transformers: bool) -> None:
    """The model as every engine wants it, checked to compute the same."""
    from heedful.interop import ctranslate2
    from heedful.interop.conversion import convert
    from heedful.storage.folder import save_folder

    for precision in ("float32", "int8"):
        save_folder(replace(opened, path=folder / f"heedful-{precision}"), precision=precision)
    actual = folder / "heedful-float32"
    others = {"ctranslate2": "ctranslate2", "transformers": "huggingface"}
    for name, form in list(others.items())[: 1 + with_transformers]:
        agreement = convert(actual, folder / f"{name}-float32", form)
        print(f"{agreement.other}: the same tokens, logits at most {agreement.difference:.1e} apart")
    (folder / "ctranslate2-int8").mkdir()
    ctranslate2.write(opened, folder / "ctranslate2-int8", quantization="int8")


def write_shortlists(shortlist, opened, folder: Path) -> None:
    """The same tokens for every engine."""
    from heedful.inference.shortlist import save_shortlist, vocabulary_map

    for precision in ("float32", "int8"):
        save_shortlist(shortlist, replace(opened, path=folder / f"heedful-{precision}"))
        (folder / f"ctranslate2-{precision}" / "vmap.txt").write_text(
            vocabulary_map(shortlist, opened), encoding="utf-8"
        )


# ---- comparing


def settings(job: Job, batches: Sequence[int]) -> list[Job]:
    """What an engine may be set to."""
    if job.engine == "heedful":
        return [replace(job, workers=workers, threads=CORES // workers) for workers in sorted({1, CORES})]
    if job.engine == "transformers":
        return [replace(job, threads=CORES, batch=batch) for batch in batches]
    if job.engine == "marian":
        return [replace(job, workers=CORES, batch=batch) for batch in batches]
    has_avx512 = "avx512f" in Path("/proc/cpuinfo").read_text()
    return [
        replace(job, workers=CORES, batch=batch, isa=isa) for isa in ["", *["AVX512"] * has_avx512] for batch in batches
    ]


def best(job: Job, ids: dict[str, int], batches: Sequence[int]) -> Job:
    tried = {setting: run(replace(setting, sentences=TRIAL), ids).speed for setting in settings(job, batches)}
    return max(tried, key=lambda setting: tried[setting])


def throughput(
    jobs: list[Job], ids: dict[str, int], rounds: int, batches: Sequence[int], forced: bool, bleu: Bleu | None
) -> None:
    for beam in (1, 5):
        print(f"\nbeam {beam}")
        chosen = [best(replace(job, beam=beam), ids, batches) for job in jobs]
        result: dict[str, list[Measured]] = {job.name: [] for job in chosen}
        for number in range(rounds):
            for job in chosen:
                measured = run(job, ids)
                if forced and job.engine != "marian" and {len(row) for row in measured.outputs} != {FORCED}:
                    sys.exit(f"{job.name} did not write {FORCED} tokens for every sentence")
                result[job.name].append(measured)
                print(f"round {number + 1}: {job.name:20} {measured.speed:9,.0f} tokens/s", flush=True)
        for job in chosen:
            print_side(job, result[job.name])
        for peer, precision in compared(jobs):
            pairs = list(zip(result[f"heedful {precision}"], result[f"{peer} {precision}"], strict=True))
            print_ratio(peer, precision, [a.speed / b.speed for a, b in pairs], "times as fast")
            used = [(a.processor / a.tokens) / (b.processor / b.tokens) for a, b in pairs]
            print_ratio(peer, precision, used, "of its processor time a token")
        for peer in dict(compared(jobs)):
            print_same(peer, result["heedful float32"][0].outputs, result[f"{peer} float32"][0].outputs, beam)
        for engine in ("heedful", "ctranslate2") if bleu else ():
            wide, small = (bleu(result[f"{engine} {precision}"][0].outputs) for precision in ("float32", "int8"))
            print(f"BLEU of {engine}: float32 {wide:.2f}, int8 {small:.2f}, {small - wide:+.2f}")


def latency(jobs: list[Job], ids: dict[str, int], rounds: int, sentences: int) -> None:
    for threads in sorted({1, CORES}):
        print(f"\none sentence after the other, greedily, {threads} thread{'s' * (threads > 1)}: milliseconds")
        alone = [replace(job, threads=threads, sentences=sentences, alone=True) for job in jobs]
        result: dict[str, list[tuple[float, float]]] = {job.name: [] for job in alone}
        for _ in range(rounds):
            for job in alone:
                times = sorted(run(job, ids).times)
                result[job.name].append((1e3 * statistics.median(times), 1e3 * times[int(0.99 * (len(times) - 1))]))
        for name, both in result.items():
            p50, p99 = (sorted(item) for item in zip(*both, strict=True))
            print(f"{name:20} p50 {statistics.median(p50):7.2f} ({p50[0]:.2f} to {p50[-1]:.2f}), "
                  f"p99 {statistics.median(p99):7.2f} ({p99[0]:.2f} to {p99[-1]:.2f})")  # fmt: skip
        for peer, precision in compared(jobs):
            pairs = list(zip(result[f"heedful {precision}"], result[f"{peer} {precision}"], strict=True))
            for index, name in enumerate(("p50", "p99")):
                print_ratio(peer, f"{precision} {name}", [a[index] / b[index] for a, b in pairs], "of its time")


def compared(jobs: list[Job]) -> list[tuple[str, str]]:
    """The peers that have both precisions, with each of them."""
    return [(job.engine, job.precision) for job in jobs if job.engine in ("ctranslate2", "marian")]


def print_side(job: Job, rounds: list[Measured]) -> None:
    seconds, result = statistics.median(value.seconds for value in rounds), rounds[-1].outputs
    peak = max(item.peak for item in rounds)
    print(f"{job.name:20} {rounds[-1].tokens / seconds:9,.0f} tokens/s {len(result) / seconds:8,.1f} sentences/s, "
          f"{rounds[-1].resident:5,.0f} MB, at most {peak:5,.0f}; {job.setting}")  # fmt: skip


def print_ratio(peer: str, what: str, ratios: list[float], meaning: str) -> None:
    print(f"heedful / {peer}, {what}: {statistics.median(ratios):.2f} {meaning}, "
          f"from {min(ratios):.2f} to {max(ratios):.2f}")  # fmt: skip


def print_same(peer: str, actual: list[list[int]], expected: list[list[int]], beam: int) -> None:
    """Marian's outputs may be shorter: in greedy search, the first tokens are compared."""
    pairs = list(zip(actual, expected, strict=True))
    if peer == "marian" and beam > 1:
        return
    if peer == "marian":
        pairs = [(a[: len(b)], b[: len(a)]) for a, b in pairs]
    same = sum(a == b for a, b in pairs)
    print(f"the same tokens as {peer} in float32: {same:,} of {len(actual):,} sentences")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a translator; with --size base only its vocabulary counts")
    parser.add_argument("lines", type=Path, help="sentences, one a line")
    parser.add_argument("--reference", type=Path, help="their translations, for BLEU")
    parser.add_argument("--size", choices=("own", "base"), default="own")
    parser.add_argument("--sentences", type=int, default=1000, help="the first so many lines")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="what the others may choose from")
    parser.add_argument("--alone", type=int, default=100, help="sentences whose latency is measured; 0 for none")
    parser.add_argument("--transformers", action="store_true", help="measure transformers too, which takes long")
    parser.add_argument("--shortlist", action="store_true", help="choose among the tokens of the model's shortlist")
    parser.add_argument("--marian", action="store_true", help="measure Marian (pymarian) too, with --size base")
    arguments = parser.parse_args()
    if arguments.marian and (arguments.size != "base" or arguments.transformers or arguments.shortlist):
        parser.error("--marian goes with --size base, without transformers and shortlists")
    if arguments.marian and (reason := marian_side.missing()):
        print(f"marian is missing: {reason}", flush=True)
        arguments.marian = False
    if arguments.shortlist and arguments.transformers:
        parser.error("transformers has no shortlists; leave one of the two out")
    with prepared(arguments) as (jobs, ids, bleu):
        throughput(jobs, ids, arguments.rounds, arguments.batches, arguments.size == "base", bleu)
        if arguments.alone:
            latency(jobs, ids, arguments.rounds, arguments.alone)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(Job(**json.loads(sys.argv[2])))
    else:
        main()
