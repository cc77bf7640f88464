"""Times of words: dynamic time warping as in transformers, sound and pauses, words and segments of a transcript."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from heedful.audio.log_mel import FeatureFrames
from heedful.inference.transcript_formats import (
    SpeechSegment,
    SpokenWord,
    as_object,
    join_texts,
    subrip,
    webvtt,
    word_segments,
)
from heedful.inference.word_times import (
    SoundPath,
    has_sound,
    path_costs,
    segment_bounds,
    time_warping,
    token_words,
    upper_heads,
)

STRIDE = 2  # frames of 10 ms that become one position


@pytest.mark.parametrize("labels", [1, 2, 7, 40])
@pytest.mark.parametrize("positions", [40, 63, 200])
def test_tokens_start_where_those_of_transformers_do(labels: int, positions: int) -> None:
    import torch
    from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter

    weights = np.random.default_rng(labels).gamma(0.3, size=(5, labels, positions)).astype(np.float32)
    theirs = torch.from_numpy(weights)
    deviation, mean = torch.std_mean(theirs, dim=-2, keepdim=True, unbiased=False)
    theirs = _median_filter(((theirs - mean) / deviation.clamp(min=1e-9))[None], 7)[0].mean(0)
    tokens, times = _dynamic_time_warping(-theirs.double())
    expected = times[np.diff(tokens, prepend=-1) > 0].tolist()
    costs = np.sum([path_costs(head).astype(np.float64) for head in weights], 0)
    assert time_warping(costs) == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_path_is_the_cheapest_of_all(seed: int) -> None:
    random = np.random.default_rng(seed)
    costs = random.normal(size=random.integers(1, 5, 2))

    def paths(label: int, position: int) -> list[list[tuple[int, int]]]:
        if (label, position) == (0, 0):
            return [[(0, 0)]]
        before = [(label - 1, position - 1), (label - 1, position), (label, position - 1)]
        return [[*path, (label, position)] for cell in before if min(cell) >= 0 for path in paths(*cell)]

    best = min(paths(*(length - 1 for length in costs.shape)), key=lambda path: sum(costs[cell] for cell in path))
    assert time_warping(costs) == [min(at for of, at in best if of == label) for label in range(len(costs))]


def frames(*parts: tuple[float, int]) -> FeatureFrames:
    """Stretches of a loudness, each of so many positions."""
    loudness = np.concatenate([np.full(length * STRIDE, level) for level, length in parts])
    return FeatureFrames.of(np.repeat(loudness[:, None], 8, 1).astype(np.float32), STRIDE)


def test_sound_has_no_short_gaps() -> None:
    recorded = frames((-0.5, 10), (0.6, 20), (-0.5, 5), (0.5, 20), (-0.5, 30), (0.4, 10))
    sound = has_sound(recorded.frames, STRIDE, recorded.positions)
    assert np.flatnonzero(np.diff(sound.astype(int))).tolist() == [9, 54, 84]
    assert has_sound(frames((0.2, 30), (0.3, 30)).frames, STRIDE, 60).all()  # noise without pauses


def test_digital_silence_does_not_make_the_noise_of_a_room_sound() -> None:
    recorded = frames((-0.15, 30), (0.45, 30), (-0.15, 30), (0.45, 30), (-0.6, 40))
    sound = has_sound(recorded.frames, STRIDE, recorded.positions)
    assert np.flatnonzero(np.diff(sound.astype(int))).tolist() == [29, 59, 89, 119]


def focused(*spans: tuple[int, int], positions: int) -> np.ndarray:
    """(1, T, S): attention of each label to a span of positions."""
    weights = np.full((1, len(spans), positions), 0.01, np.float32)
    for label, (start, end) in enumerate(spans):
        weights[0, label, start:end] = 1.0
    return weights


def test_words_are_timed_without_the_pauses_around_them() -> None:
    recorded = frames((-0.5, 20), (0.6, 20), (-0.5, 40), (0.6, 20), (-0.5, 20), (-0.5, 80))  # the last is padding
    weights = focused((20, 30), (30, 40), (80, 100), (110, 120), positions=200)
    path = SoundPath(weights, 3, recorded, 2.4)
    assert path.times((0, 1)) == pytest.approx((0.4, 0.8))
    assert path.times((2,)) == pytest.approx((1.6, 2.0))


def test_a_word_is_the_sound_that_its_tokens_attend_to() -> None:
    recorded = frames((0.6, 10), (-0.5, 30), (0.6, 20), (-0.5, 30), (0.6, 10))  # a word between two other sounds
    path = SoundPath(focused((40, 60), (60, 100), positions=100), 1, recorded, 2.0)
    assert path.times((0,)) == pytest.approx((0.8, 1.2))


def test_the_end_takes_no_sound_of_the_last_word() -> None:
    recorded = frames((-0.5, 10), (0.6, 30), (-0.5, 30))
    weights = focused((10, 40), (12, 40), positions=70)  # the end attends to the only word, too
    assert SoundPath(weights, 1, recorded, 1.4).times((0,)) == pytest.approx((0.2, 0.8), abs=0.15)


def test_times_are_within_the_sound_and_in_order() -> None:
    random = np.random.default_rng(5)
    for length in (1, 2, 3, 8, 60):
        recorded = FeatureFrames.of(random.normal(size=(length * STRIDE, 8)).astype(np.float32), STRIDE)
        for count in (1, 2, 9):
            weights = random.gamma(0.3, size=(2, count + 1, length)).astype(np.float32)
            seconds = length * STRIDE / 100 - 0.005
            for rows in (count + 1, count):  # without an end, the transcript was cut off
                path = SoundPath(weights[:, :rows], count, recorded, seconds)
                times = [path.times((token,)) for token in range(count)]
                bounds = [bound for pair in times for bound in pair]
                assert bounds == sorted(bounds) and 0 <= bounds[0] <= bounds[-1] <= seconds
                assert all(start < end for start, end in times if end < seconds)


def test_the_attention_of_a_large_model_is_not_copied() -> None:
    weights = np.random.default_rng(1).random((40, 50, 1500), np.float32)  # 12 MB
    recorded = FeatureFrames.of(np.random.default_rng(2).random((3000, 8), np.float32), STRIDE)
    tracemalloc.start()
    SoundPath(weights, 49, recorded, 30.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < weights.nbytes


@pytest.mark.parametrize(
    ("text", "spans", "expected"),
    [
        (" And so", [(0, 4), (4, 7)], [(" And", (0,)), (" so", (1,))]),
        ("tokenized, yes", [(0, 5), (5, 9), (9, 10), (10, 14)], [("tokenized,", (0, 1, 2)), (" yes", (3,))]),
        ("oui ! non", [(0, 3), (3, 5), (5, 9)], [("oui !", (0, 1)), (" non", (2,))]),
        ("a « b »", [(0, 1), (1, 3), (3, 5), (5, 7)], [("a", (0,)), (" « b »", (1, 2, 3))]),
        ("a 5 € b", [(0, 1), (1, 3), (3, 5), (5, 7)], [("a", (0,)), (" 5 €", (1, 2)), (" b", (3,))]),
        ("说「你」", [(0, 1), (1, 2), (2, 3), (3, 4)], [("说", (0,)), ("「你」", (1, 2, 3))]),
        ("a 「 b", [(0, 1), (1, 3), (3, 3), (3, 5)], [("a", (0,)), (" 「 b", (1, 2, 3))]),  # 「 of two byte tokens
        ("a (", [(0, 1), (1, 3)], [("a", (0,)), (" (", (1,))]),
        ("你好吗。", [(0, 2), (2, 3), (3, 4)], [("你好", (0,)), ("吗。", (1, 2))]),  # two words share a token
        ("é!", [(0, 0), (0, 1), (1, 2)], [("é!", (0, 1, 2))]),  # a character of two byte tokens
        ("", [], []),
    ],
)
def test_words_of_tokens(text: str, spans: list[tuple[int, int]], expected: list[tuple[str, tuple[int, ...]]]) -> None:
    assert [(word.text, word.tokens) for word in token_words(text, spans)] == expected


def test_segments_end_at_pauses_and_are_short() -> None:
    def spoken(*times: float) -> list[SpokenWord]:
        return [SpokenWord("word", time, time + 0.3, 0.9) for time in times]

    assert segment_bounds(spoken(0.0, 0.5, 1.5, 1.9)) == [(0, 2), (2, 4)]
    assert segment_bounds(spoken(*np.arange(20) * 0.5)) == [(0, 14), (14, 20)]  # seven seconds
    assert segment_bounds(spoken(*np.arange(20) * 0.31)) == [(0, 17), (17, 20)]  # 84 characters
    assert segment_bounds([]) == []
    chinese = [SpokenWord("字", place * 0.05, place * 0.05 + 0.05, 0.9) for place in range(100)]
    assert segment_bounds(chinese) == [(0, 84), (84, 100)]  # without spaces between them


def test_words_in_formats() -> None:
    words = SpokenWord("one", 0.5, 0.75, 0.9), SpokenWord("two", 1.0, 1.5, 0.25)
    segment = SpeechSegment(0.0, 2.0, "one two", -1.0, words).later(10.0)
    assert subrip(word_segments([segment])).splitlines()[:3] == ["1", "00:00:10,500 --> 00:00:10,750", "one"]
    instant = SpeechSegment(1.0, 1.0, "so")
    assert "00:00:01,000 --> 00:00:01,001" in subrip([instant]) and "00:01.000 --> 00:00:01.001" in webvtt([instant])
    from heedful.inference.transcriber import Transcript

    values = as_object(Transcript("one two", (segment,), 12.0))["segments"][0]
    assert (values["start"], values["words"][1]) == (
        10.0,
        {"word": "two", "start": 11.0, "end": 11.5, "probability": 0.25},
    )


def test_texts_are_joined_as_they_are_written() -> None:
    assert join_texts(["one", "", "two"]) == "one two"
    assert join_texts(["你好。", "世界", "and", "世界"]) == "你好。世界 and 世界"
    assert join_texts(["안녕", "세상"]) == "안녕 세상"
    assert join_texts(["สวัสดี", "ครับ"]) == "สวัสดีครับ"


def test_upper_heads() -> None:
    heads = [(layer, head) for layer in range(4) for head in range(2)]
    assert upper_heads(heads) == heads[4:] and upper_heads([(0, 0), (0, 1)]) == [(0, 0), (0, 1)]
