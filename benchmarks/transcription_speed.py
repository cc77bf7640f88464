"""Seconds to transcribe a recording with the same Whisper weights: heedful beside transformers.

    python benchmarks/transcription_speed.py tiny.en.pt jfk.wav --copies 6

The recording is repeated; both sides write it greedily without timestamps, transformers in batches of its own 30-second
windows, heedful in windows cut at silence. Sides alternate in one run. CPU seconds are printed beside wall seconds: on
a busy machine, only they can be compared.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers

from heedful.audio.audio_files import AudioFile
from heedful.inference.transcriber import Transcriber
from heedful.interop import open_folder
from heedful.interop.conversion import convert

WINDOW = 480_000  # samples


def their_transcript(
    model: transformers.PreTrainedModel, extractor: object, tokenizer: object, samples: np.ndarray
) -> str:
    windows = [samples[start : start + WINDOW] for start in range(0, len(samples), WINDOW)]
    features = extractor(windows, sampling_rate=16_000, return_tensors="pt").input_features
    prompt = torch.tensor([[50257, 50362]] * len(windows))
    with torch.inference_mode():
        ids = transformers.GenerationMixin.generate(
            model, input_features=features, decoder_input_ids=prompt, max_new_tokens=200, do_sample=False, num_beams=1
        )
    return " ".join(tokenizer.batch_decode(ids, skip_special_tokens=True))


def timed(run: Callable[[], str]) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds, and characters written."""
    wall, cpu = time.perf_counter(), time.process_time()
    text = run()
    return time.perf_counter() - wall, time.process_time() - cpu, len(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--copies", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    samples = np.tile(AudioFile.of(arguments.recording).samples(), arguments.copies)
    print(f"{len(samples) / 16_000:.0f} seconds of sound, {arguments.threads} threads", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        convert(arguments.model, Path(scratch) / "hf", "huggingface")
        theirs = transformers.WhisperForConditionalGeneration.from_pretrained(Path(scratch) / "hf").eval()
        extractor = transformers.WhisperFeatureExtractor.from_pretrained(Path(scratch) / "hf")
        tokenizer = transformers.AutoTokenizer.from_pretrained(Path(scratch) / "hf")
    folder = open_folder(arguments.model)
    sides: dict[str, Callable[[], str]] = {
        "transformers": lambda: their_transcript(theirs, extractor, tokenizer, samples)
    }
    for precision in ("float32", "bfloat16"):
        transcriber = Transcriber(folder, precision)
        sides[f"heedful {precision}"] = lambda each=transcriber: each.transcribe(samples, loop_guard=False)
    results: dict[str, list[tuple[float, float, int]]] = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, run in sides.items():
            results[name].append(timed(run))
            wall, cpu, characters = results[name][-1]
            print(f"  {name}: {wall:.1f} s, {cpu:.1f} s of CPU, {characters} characters", flush=True)
    slow = statistics.median(cpu for _, cpu, _ in results["transformers"])
    for name, rounds in results.items():
        cpu = statistics.median(cpu for _, cpu, _ in rounds)
        print(f"{name}: {cpu:.1f} s of CPU in the middle, {slow / cpu:.2f} times transformers", flush=True)


if __name__ == "__main__":
    main()
