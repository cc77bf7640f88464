"""Damaged and hostile model folders by the thousand: each must open or be refused in one sentence, and nothing may run.

    python benchmarks/hostile_folders.py --folders 5000

Makes a small MarianMT, GPT-2 and BERT model with transformers, in safetensors, zipped and old pickles, and folders of
our own format of each family. Damages one to three things in a copy, opens it under a limit on memory and on time, uses
it as the commands do and as the server's worker does, and counts. Then opens every payload of
tests/interop/payloads.py in each kind of pickle file. Exit code 1 if anything crashed, hung or ran.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ |= {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}  # threads outlive no fork

import torch
import transformers
from safetensors.torch import load_file
from tests.interop.makers import bert, gpt2, marian, word_pieces
from tests.interop.mutate import mutate
from tests.interop.own import OWN
from tests.interop.payloads import PAYLOADS, bare, legacy, zipped
from tests.interop.using import serve, use

from heedful.errors import HeedfulError

SMALL = {
    "marian": (marian, {"d_model": 8}),
    "gpt2": (gpt2, {"n_embd": 8, "n_layer": 1}),
    "bert": (bert, {"hidden_size": 8}),
}


def make(root: Path) -> list[Path]:
    for name, (build, sizes) in SMALL.items():
        build(root / name, **sizes)
        tensors = load_file(root / name / "model.safetensors")
        for form in ("zip", "old"):
            path = shutil.copytree(root / name, root / f"{name}-{form}")
            (path / "model.safetensors").unlink()
            torch.save(tensors, path / "pytorch_model.bin", _use_new_zipfile_serialization=form == "zip")
    (root / "bert/vocab.txt").unlink()
    (root / "bert/tokenizer.json").write_text(word_pieces())
    for name, make_own in OWN.items():
        make_own(root / name)
    return sorted(root.iterdir())


def try_to_open(path: Path, seconds: int) -> str:
    """opened (and used), refused, or what went wrong; in a process of its own, which may crash or hang."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        result = next(filter(None, (problem(entry, path) for entry in (use, serve))), "opened")
        os.write(writing, result.encode(errors="replace")[:4000])
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:  # noqa: PTH123
        ended = bool(select.select([answer], [], [], seconds)[0])
        if not ended:
            os.kill(child, signal.SIGKILL)
        result = answer.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return result or (f"ended with code {code}" if ended else f"took more than {seconds} seconds")


def problem(entry: Callable[[Path], None], path: Path) -> str:
    """Why an entry point did not take the folder: nothing, "refused" in one sentence, or what went wrong."""
    try:
        entry(path)
    except HeedfulError as error:
        text = str(error)
        good = text.endswith((".", "?")) and "\n" not in text and len(text) < 700
        return "refused" if good else f"{entry.__name__}: no sentence: {text!r}"
    except BaseException as error:
        return f"{entry.__name__}: {type(error).__name__}: {error}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", type=int, default=5000, help="damaged folders to try")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="memory that opening may take beyond the start")
    parser.add_argument("--seconds", type=int, default=10, help="time that one folder may take")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folders = make(root / "clean")
        for folder in folders:
            assert (result := try_to_open(folder, options.seconds)) == "opened", (folder, result)
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = taken + int(options.gigabytes * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        slowest = 0.0
        for seed in range(options.seed, options.seed + options.folders):
            path = shutil.copytree(folders[seed % len(folders)], root / "damaged")
            mutate(path, random.Random(seed))
            began = time.perf_counter()
            outcome = try_to_open(path, options.seconds)
            slowest = max(slowest, time.perf_counter() - began)
            outcomes[outcome] += 1
            if outcome not in ("opened", "refused"):
                print(f"seed {seed}, {folders[seed % len(folders)].name}: {outcome:.300}")
            shutil.rmtree(path)
        ran = sum(run_payload(folders, root, payload, form) for payload in PAYLOADS for form in (bare, legacy, zipped))
    wrong = options.folders - outcomes["opened"] - outcomes["refused"]
    print(f"{options.folders:,} damaged folders: {outcomes['opened']:,} opened, {outcomes['refused']:,} refused in one")
    print(
        f"sentence, {wrong} went wrong; the slowest took {slowest:.2f} s, memory was limited to {options.gigabytes} GB"
    )
    print(f"{3 * len(PAYLOADS)} pickles with code in them: {ran} ran")
    sys.exit(1 if wrong or ran else 0)


def run_payload(folders: list[Path], root: Path, payload: str, form: object) -> bool:
    """Whether it ran, or was not refused."""
    path = shutil.copytree(next(folder for folder in folders if folder.name == "gpt2-zip"), root / "hostile")
    mark = root / "it-ran"
    assert callable(form)
    (path / "pytorch_model.bin").write_bytes(form(PAYLOADS[payload](str(mark))))
    refused = try_to_open(path, 10) == "refused"
    shutil.rmtree(path)
    return mark.exists() or not refused


if __name__ == "__main__":
    main()
