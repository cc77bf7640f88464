"""The transcriber: windows, recordings together and alone, silence, formats of its output, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

import heedful
from heedful.audio.log_mel import FeatureFrames
from heedful.cli.commands import build_app
from heedful.config import ModelConfig, SearchSettings
from heedful.errors import DataError, SettingError
from heedful.evaluation import word_errors
from heedful.inference.transcriber import AHEAD, MAX_SEARCHES, SpeechSegment, Transcriber, Transcript
from heedful.inference.transcript_formats import clock, subrip, webvtt
from heedful.model.transformer import build_model
from heedful.native.engine import AUDIO_ROWS
from heedful.search.options import SearchOptions
from heedful.storage.folder import ModelFolder, save_folder
from heedful.text import train_plain_vocabulary
from tests.audio.sounds import tone, word


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained recognizer with windows of two seconds."""
    import torch

    torch.manual_seed(3)
    tokenizer = train_plain_vocabulary(["mamasatinokumesotanike"] * 3, "characters")
    config = ModelConfig(
        features=80, vocab_size=tokenizer.vocab_size, d_model=16, d_ff=32, n_heads=2, encoder_layers=2,
        decoder_layers=1, source_max_length=100, max_length=12, pre_norm=True, pad_id=tokenizer.pad_id,
        bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("model") / "asr"
    save_folder(ModelFolder(build_model(config), tokenizer, tokenizer, SearchSettings(beam=2), path))
    return path


@pytest.fixture(scope="module")
def transcriber(folder: Path) -> Transcriber:
    return heedful.load(folder, kind=Transcriber, precision="float32")


def long_recording() -> np.ndarray:
    pause = np.zeros(4_000, np.float32)
    return np.concatenate([part for n in range(30) for part in (word("mati"[n % 3 :], n), pause)])


def times(transcript: Transcript) -> list[tuple[float, float, str]]:
    return [(segment.start, segment.end, segment.text) for segment in transcript.segments]


def test_transcripts_are_the_same_alone_and_together(transcriber: Transcriber) -> None:
    recordings = [word("ma"), long_recording(), word("ti"), np.zeros(16_000, np.float32), word("so", 4)]
    together = transcriber.transcripts(recordings)
    alone = [transcriber.transcripts([recording])[0] for recording in recordings]
    assert list(map(times, together)) == list(map(times, alone))
    assert together[3].text == "" and together[3].duration == 1.0
    assert [transcript.duration for transcript in together] == [len(recording) / 16_000 for recording in recordings]
    assert transcriber.transcribe(word("ma")) == together[0].text


def test_the_windows_of_a_long_recording_cover_it(transcriber: Transcriber) -> None:
    recording = long_recording()
    windows = list(transcriber.windows(recording))
    assert len(windows) > 5 and windows[-1].end == pytest.approx(len(recording) / 16_000)
    transcripts = list(transcriber.transcribe_windows(windows))
    assert [(transcript.start, transcript.end) for transcript in transcripts] == [
        (window.start, window.end) for window in windows
    ]
    alone = [transcriber.transcribe(window.samples) for window in windows]
    assert [transcript.text for transcript in transcripts] == alone
    assert transcriber.transcribe(recording) == " ".join(text for text in alone if text)


def test_windows_are_transcribed_as_they_come(transcriber: Transcriber) -> None:
    """Memory is bounded: few windows are read ahead of the first result."""
    read = 0

    def endless() -> object:
        nonlocal read
        while True:
            read += 1
            yield from transcriber.windows(word("no", read))

    results = transcriber.transcribe_windows(endless())  # type: ignore[arg-type]
    next(results)
    assert read <= AHEAD + 2 * AUDIO_ROWS * MAX_SEARCHES


def test_features_give_the_transcripts_of_files(transcriber: Transcriber, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", word("ku"), 16_000, subtype="FLOAT")
    features = transcriber.features(next(transcriber.windows(word("ku"))))
    assert isinstance(features, FeatureFrames)
    assert list(transcriber.transcribe_features([features])) == [transcriber.transcribe(tmp_path / "a.wav")]


def test_wrong_input_is_refused(transcriber: Transcriber, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="give one channel at 16 kHz"):
        transcriber.transcribe(np.zeros((2, 100), np.float32))
    for wrong in (word("ma") * 32768, np.full(100, np.nan), np.full(100, 1e300)):
        with pytest.raises(SettingError, match="not numbers or above 64; give floats between -1 and 1"):
            transcriber.transcribe(wrong)
    with pytest.raises(TypeError, match="recordings are an array of samples; give one or several arrays in a list"):
        transcriber.transcripts(word("ma"))  # type: ignore[arg-type]
    for wrong in (3, None, b"a.wav", [3], [None]):
        with pytest.raises(TypeError, match="give a recording as a path or an array of samples"):
            transcriber.transcribe(wrong)
    with pytest.raises(SettingError, match="no choice of languages"):
        transcriber.transcribe(word("ma"), language="de")
    with pytest.raises(DataError, match="does not exist"):
        transcriber.transcribe(tmp_path / "no.wav")
    with pytest.raises(SettingError, match=r"unknown key search\.bean"):
        transcriber.transcribe(word("ma"), bean=3)


def test_subtitles() -> None:
    segments = (SpeechSegment(0.0, 1.25, "One & two"), SpeechSegment(3661.5, 3662.0, "three"))
    assert clock(3661.5) == "01:01:01.500"
    assert subrip(segments) == (
        "1\n00:00:00,000 --> 00:00:01,250\nOne & two\n\n2\n01:01:01,500 --> 01:01:02,000\nthree\n"
    )
    assert webvtt(segments).startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.250\nOne &amp; two\n\n")


def test_the_command_writes_text_json_and_subtitles(folder: Path, tmp_path: Path, transcriber: Transcriber) -> None:
    soundfile.write(tmp_path / "a.wav", word("ma"), 16_000, subtype="FLOAT")
    soundfile.write(tmp_path / "b.flac", tone(500, 0.4, 44_100), 44_100)
    files = [str(tmp_path / "a.wav"), str(tmp_path / "b.flac")]
    run = CliRunner()
    plain = run.invoke(build_app(), ["transcribe", str(folder), *files, "--precision", "float32"])
    assert plain.exit_code == 0, plain.output
    assert plain.stdout.splitlines() == transcriber.transcribe([Path(file) for file in files])
    lines = run.invoke(build_app(), ["transcribe", str(folder), *files, "--json"]).stdout.splitlines()
    assert [json.loads(line)["file"] for line in lines] == files
    assert 0 < json.loads(lines[0])["segments"][0]["end"] <= len(word("ma")) / 16_000
    assert "words" not in json.loads(lines[0])["segments"][0]
    srt = run.invoke(build_app(), ["transcribe", str(folder), files[0], "--srt"]).stdout
    assert srt.startswith("1\n00:00:00,")
    timed = run.invoke(build_app(), ["transcribe", str(folder), files[0], "--timestamps"]).stdout
    assert timed.startswith("[00:00:00.")
    timed = run.invoke(build_app(), ["transcribe", str(folder), *files, "--timestamps"]).stdout
    assert [line.partition(": [00:00:00.")[0] for line in timed.splitlines()] == files
    both = run.invoke(build_app(), ["transcribe", str(folder), files[0], "--srt", "--json"])
    assert "give one of them" in str(both.exception)


def test_words_have_times(transcriber: Transcriber) -> None:
    recording = long_recording()
    plain, timed = (transcriber.transcripts([recording], word_timestamps=words)[0] for words in (False, True))
    assert not any(segment.words for segment in plain.segments)
    assert [segment.text for segment in timed.segments] == [segment.text for segment in plain.segments]
    for segment in timed.segments:
        assert " ".join(word.text for word in segment.words) == segment.text
        bounds = [bound for word in segment.words for bound in (word.start, word.end)]
        assert bounds == sorted(bounds) and (segment.start, segment.end) == (bounds[0], bounds[-1])
        assert all(0 < word.probability < 1 for word in segment.words)
    divided = transcriber.transcripts([recording, word("ma")], timestamps=True, word_timestamps=True)[0]
    assert divided == transcriber.transcripts([recording], timestamps=True, word_timestamps=True)[0]
    assert divided.text == plain.text and len(divided.segments) >= len(plain.segments)
    assert [segment.start for segment in divided.segments] == [segment.words[0].start for segment in divided.segments]
    assert [segment.end for segment in divided.segments] == [segment.words[-1].end for segment in divided.segments]


def test_the_command_writes_words(folder: Path, tmp_path: Path, transcriber: Transcriber) -> None:
    soundfile.write(tmp_path / "a.wav", word("ma"), 16_000, subtype="FLOAT")
    words = transcriber.transcripts([tmp_path / "a.wav"], word_timestamps=True)[0].segments[0].words
    command = ["transcribe", str(folder), str(tmp_path / "a.wav"), "--precision", "float32", "--word-timestamps"]
    lines, as_json, srt = (
        CliRunner().invoke(build_app(), [*command, *form]).stdout for form in ([], ["--json"], ["--srt"])
    )
    assert lines.splitlines() == [f"[{clock(one.start)} --> {clock(one.end)}] {one.text}" for one in words]
    assert [one["word"] for one in json.loads(as_json)["segments"][0]["words"]] == [one.text for one in words]
    assert srt.count(" --> ") == len(words)


def test_the_command_goes_on_after_a_recording_that_cannot_be_read(
    folder: Path, tmp_path: Path, transcriber: Transcriber
) -> None:
    for name, sound in (("a", word("ma")), ("b", long_recording()), ("c", word("ti"))):
        soundfile.write(tmp_path / f"{name}.flac", sound, 16_000)
    whole = (tmp_path / "b.flac").read_bytes()
    (tmp_path / "b.flac").write_bytes(whole[: len(whole) * 2 // 3])  # some of its windows can be read
    good = [str(tmp_path / name) for name in ("a.flac", "c.flac")]
    names = ("no.wav", "a.flac", "no.wav", "b.flac", "no.wav", "c.flac", "no.wav")
    files = [str(tmp_path / name) for name in names]
    run = CliRunner()
    done = run.invoke(build_app(), ["transcribe", str(folder), *files, "--precision", "float32"])
    assert done.exit_code == 2
    first, last = transcriber.transcribe([Path(file) for file in good])
    assert first and last
    assert done.stdout.splitlines() == ["", first, "", "", "", last, ""]
    errors = done.stderr.splitlines()
    assert [line.startswith("error: ") for line in errors] == [True] * 5
    assert ["does not exist" in line for line in errors] == [True, True, False, True, True] and "b.flac" in errors[2]
    lines = run.invoke(build_app(), ["transcribe", str(folder), *files, "--json"]).stdout.splitlines()
    assert [json.loads(line)["file"] for line in lines] == good
    kept = tmp_path / "kept.txt"
    kept.write_text("earlier", encoding="utf-8")
    alone = run.invoke(build_app(), ["transcribe", str(folder), files[0], "--output", str(kept)])
    assert isinstance(alone.exception, DataError) and kept.read_text(encoding="utf-8") == "earlier"


def test_evaluate_prints_error_rates(folder: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", word("ma"), 16_000)
    (tmp_path / "test.tsv").write_text("a.wav\tma\n", encoding="utf-8")
    arguments = ["evaluate", str(folder), "--audio", str(tmp_path / "test.tsv")]
    result = CliRunner().invoke(build_app(), [*arguments, "--json"])
    assert json.loads(result.stdout)["words"] == 1
    assert "normalization: NFKC" in CliRunner().invoke(build_app(), arguments).stdout
    assert "--source is missing" in str(CliRunner().invoke(build_app(), ["evaluate", str(folder)]).exception)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], {}),
        (["--max-length", "3"], {"max_length": 3}),
        (["--no-loop-guard"], {"loop_guard": False}),
        (["--beam", "3", "--length-penalty", "2"], {"beam": 3, "length_penalty": 2.0}),
    ],
)
def test_commands_search_with_their_options(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], options: dict[str, Any]
) -> None:
    """Commands score and write the text of Python's transcriber with the same options."""
    scored: list[list[str]] = []
    changes: list[dict[str, Any]] = []
    score, search_options = word_errors.evaluate_speech, Transcriber.options

    def evaluate_speech(hypotheses: list[str], references: list[str]) -> word_errors.SpeechEvaluation:
        scored.append(hypotheses)
        return score(hypotheses, references)

    def record_options(self: Transcriber, new: dict[str, Any]) -> SearchOptions:
        changes.append(new)
        return search_options(self, new)

    soundfile.write(tmp_path / "a.wav", word("ma", 4), 16_000)
    (tmp_path / "test.tsv").write_text("a.wav\tma\n", encoding="utf-8")
    transcriber = heedful.load(folder, kind=Transcriber, precision="float32")
    expected = transcriber.transcribe([tmp_path / "a.wav"], **options)
    monkeypatch.setattr(word_errors, "evaluate_speech", evaluate_speech)
    monkeypatch.setattr(Transcriber, "options", record_options)
    command = ["evaluate", str(folder), "--audio", str(tmp_path / "test.tsv"), "--precision", "float32", *arguments]
    result = CliRunner().invoke(build_app(), command)
    assert result.exit_code == 0, result.output
    assert scored == [expected]
    assert changes == [options]
    command = ["transcribe", str(folder), str(tmp_path / "a.wav"), "--precision", "float32", *arguments]
    assert CliRunner().invoke(build_app(), command).stdout.splitlines() == expected
    assert changes[1:] == [options]


@pytest.mark.parametrize("option", ["--tokenize=13a", "--lowercase", "--calibrate", "--workers=2", "--shortlist"])
def test_evaluate_refuses_options_of_translators_for_recordings(folder: Path, tmp_path: Path, option: str) -> None:
    (tmp_path / "test.tsv").write_text("a.wav\tma\n", encoding="utf-8")
    result = CliRunner().invoke(build_app(), ["evaluate", str(folder), "--audio", str(tmp_path / "test.tsv"), option])
    assert isinstance(result.exception, SettingError)
    assert str(result.exception).startswith(f"{option.partition('=')[0]} has no effect with --audio")
