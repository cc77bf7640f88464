"""Made-up speech: "words" of formants, tones and noise, so that no test needs a recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

RATE = 16_000
VOWELS = {"a": (800, 1200), "e": (500, 1900), "i": (300, 2300), "o": (500, 900), "u": (320, 700)}
CONSONANTS = {"m": 250, "s": 5000, "t": 3500, "n": 400, "k": 2200}
WORDS = ("ma", "sa", "ti", "no", "ku", "me", "so", "ta", "ni", "ke")


def tone(hertz: float, seconds: float, rate: int = RATE) -> NDArray[np.float32]:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def word(letters: str, seed: int = 0, rate: int = RATE) -> NDArray[np.float32]:
    """A consonant and a vowel: a burst of noise around a frequency, then two formants over a pitch."""
    random = np.random.default_rng([seed, *letters.encode()])
    stretch, pitch = random.uniform(0.85, 1.15), random.uniform(90, 180)
    sounds = []
    for letter in letters:
        time = np.arange(int(0.09 * stretch * rate)) / rate
        if letter in VOWELS:
            source = sum(np.sin(2 * np.pi * pitch * k * time) * _formants(letter, pitch * k) for k in range(1, 30))
        else:
            center = CONSONANTS[letter] * random.uniform(0.95, 1.05)
            source = np.sin(2 * np.pi * center * time + np.cumsum(random.normal(0, 0.3, len(time))))
        sounds.append(source / np.abs(source).max() * np.hanning(len(time)))
    joined = np.concatenate([np.zeros(rate // 50), *sounds, np.zeros(rate // 50)])
    noisy = 0.4 * joined + random.normal(0, 0.002, len(joined))
    return noisy.astype(np.float32)


def _formants(vowel: str, hertz: float) -> float:
    return float(sum(np.exp(-(((hertz - formant) / 150) ** 2)) for formant in VOWELS[vowel])) + 0.02


def utterance(words: Sequence[str], seed: int) -> tuple[NDArray[np.float32], list[tuple[float, float]]]:
    """Words with pauses around them, and the start and end of each word in seconds."""
    random = np.random.default_rng([seed, 7])
    parts, spans, silence = [random.normal(0, 0.002, RATE // 5)], list[tuple[float, float]](), RATE // 50
    for number, letters in enumerate(words):
        sound, before = word(letters, 10 * seed + number), sum(map(len, parts))
        spans.append(((before + silence) / RATE, (before + len(sound) - silence) / RATE))
        parts += [sound, random.normal(0, 0.002, int(random.uniform(0.25, 0.9) * RATE))]
    return np.concatenate(parts).astype(np.float32), spans


def write_corpus(folder: Path, copies: int, words: tuple[str, ...] = WORDS, rate: int = RATE, first: int = 0) -> Path:
    """Recordings of every word and a manifest of them."""
    lines = []
    for letters in words:
        for seed in range(first, first + copies):
            name = f"{letters}-{seed}.wav"
            soundfile.write(folder / name, word(letters, seed, rate), rate, subtype="PCM_16")
            lines.append(f"{name}\t{letters}\n")
    manifest = folder / f"words-{first}.tsv"
    manifest.write_text("".join(lines), encoding="utf-8")
    return manifest
