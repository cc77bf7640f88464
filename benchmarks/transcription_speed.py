"""CPU seconds to transcribe with the same Whisper weights: heedful beside OpenAI's package and faster-whisper.

    python benchmarks/transcription_speed.py tiny.en.pt jfk.wav --copies 6 --threads 1

Needs the packages openai-whisper and faster-whisper, which heedful does not. The recording is repeated; all sides write
it greedily, with timestamps, at temperature 0 and without the text before. The weights are converted to Hugging Face's
format by heedful and from there to CTranslate2's, in int8. Sides alternate in one run, each is warmed up first. On a
busy machine only CPU seconds can be compared. --lengths shows how time and memory grow with the recording.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from heedful.audio.audio_files import AudioFile

Side = Callable[[np.ndarray], str]


def reference(model: Path) -> Side:
    """OpenAI's implementation, in float32."""
    import whisper

    loaded = whisper.load_model(str(model), device="cpu")
    options = {"temperature": 0.0, "condition_on_previous_text": False, "fp16": False}
    return lambda samples: loaded.transcribe(samples, **options)["text"]


def faster_whisper(folder: Path, threads: int) -> Side:
    """CTranslate2 in int8."""
    from faster_whisper import WhisperModel

    model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=threads)

    def transcribe(samples: np.ndarray) -> str:
        segments, _ = model.transcribe(
            samples, language="en", beam_size=1, temperature=0.0, condition_on_previous_text=False
        )
        return "".join(segment.text for segment in segments)

    return transcribe


def heedful(folder: Path, precision: str) -> Side:
    from heedful.inference.transcriber import Transcriber

    transcriber = Transcriber.load(folder, precision)
    return lambda samples: transcriber.transcribe(samples, timestamps=True, loop_guard=False)


def convert_weights(model: Path, scratch: Path) -> None:
    from ctranslate2.converters import TransformersConverter

    from heedful.interop.conversion import convert

    convert(model, scratch / "heedful", "heedful")
    convert(model, scratch / "hf", "huggingface")
    TransformersConverter(str(scratch / "hf"), copy_files=["tokenizer.json"]).convert(
        str(scratch / "ct2"), quantization="int8"
    )


def timed(run: Side, samples: np.ndarray) -> tuple[float, float, str]:
    """Wall seconds, CPU seconds, and the text."""
    wall, cpu = time.perf_counter(), time.process_time()
    text = run(samples)
    return time.perf_counter() - wall, time.process_time() - cpu, text.strip()


def print_growth(folder: Path, samples: np.ndarray, threads: int) -> None:
    """CPU seconds and peak memory of a process each, for recordings of several lengths."""
    for copies in (1, 4, 16, 64):
        np.save(folder / "samples.npy", np.tile(samples, copies))
        program = [
            sys.executable,
            __file__,
            str(folder),
            str(folder / "samples.npy"),
            "--once",
            "--threads",
            str(threads),
        ]
        printed = subprocess.run(program, check=True, capture_output=True, text=True).stdout.strip()
        print(f"heedful int8, {copies * len(samples) / 16_000:.0f} seconds of sound: {printed}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--copies", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lengths", action="store_true")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    from heedful.ops.threads import set_num_threads

    set_num_threads(arguments.threads)
    if arguments.once:
        run = heedful(arguments.model / "heedful", "int8")
        wall, cpu, _ = timed(run, np.load(arguments.recording))
        status = Path("/proc/self/status").read_text(encoding="utf-8")  # unlike getrusage, without the parent's memory
        peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
        print(f"{wall:.1f} s, {cpu:.1f} s of CPU, peak {peak:.0f} MB")
        return None
    samples = AudioFile.of(arguments.recording).samples()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        convert_weights(arguments.model, folder)
        if arguments.lengths:
            return print_growth(folder, samples, arguments.threads)
        compare(arguments, folder, np.tile(samples, arguments.copies))
    return None


def compare(arguments: argparse.Namespace, folder: Path, samples: np.ndarray) -> None:
    import torch

    torch.set_num_threads(arguments.threads)
    print(f"{len(samples) / 16_000:.0f} seconds of sound, {arguments.threads} threads", flush=True)
    sides = {
        "openai-whisper float32": reference(arguments.model),
        "faster-whisper int8": faster_whisper(folder / "ct2", arguments.threads),
        "heedful float32": heedful(folder / "heedful", "float32"),
        "heedful int8": heedful(folder / "heedful", "int8"),
    }
    for name, run in sides.items():
        print(f"  {name}: {timed(run, samples)[2]}", flush=True)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, run in sides.items():
            wall, cpu, _ = timed(run, samples)
            seconds[name].append(cpu)
            print(f"  {name}: {wall:.1f} s, {cpu:.2f} s of CPU", flush=True)
    for name, own in seconds.items():
        ratios = [
            f"{statistics.median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f}) times {peer}"
            for peer in list(sides)[:2]
            if (pairs := [theirs / ours for theirs, ours in zip(seconds[peer], own, strict=True)])
        ]
        print(f"{name}: {statistics.median(own):.2f} s of CPU; speed {', '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
