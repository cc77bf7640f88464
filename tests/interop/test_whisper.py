"""Whisper models with random weights: Hugging Face's folders and OpenAI's checkpoints, against transformers."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import transformers
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

import heedful
from heedful.audio.audio_files import AudioFile
from heedful.errors import FolderError, SettingError
from heedful.inference.timestamp_rules import SuppressTokens, TimestampRules
from heedful.inference.transcriber import Transcriber
from heedful.inference.whisper_tokens import WhisperTokens
from heedful.interop import open_folder, openai_whisper
from heedful.interop.conversion import convert
from heedful.model.transformer import EncoderDecoder
from heedful.search import Hypothesis
from heedful.serve.api.schemas import TranscriptionRequest
from heedful.serve.api.transcriptions import _response
from heedful.serve.speech_workload import SpeechJob
from tests.audio.sounds import word
from tests.interop.makers import shaken

BYTES = 256  # the vocabulary of the tests: bytes, a few merges, and Whisper's special tokens
MERGES = [b" a", b"th", b"the", b"in", b" the"]
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>"]
SPECIAL += ["<|startofprev|>", "<|nospeech|>", "<|notimestamps|>", *(f"<|{step / 50:.2f}|>" for step in range(101))]
EOS = BYTES + len(MERGES)
SIZES = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
SIZES |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 80}
SIZES |= {"max_source_positions": 100, "max_target_positions": 24}  # windows of two seconds


def tiktoken() -> str:
    ranks = [bytes([byte]) for byte in range(BYTES)] + MERGES
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(ranks))


def vocabulary() -> Any:
    ranks = {bytes([byte]): byte for byte in range(BYTES)} | {merge: BYTES + n for n, merge in enumerate(MERGES)}
    inner = openai_whisper.byte_pair_vocabulary(ranks)
    inner.add_special_tokens(SPECIAL)
    return inner


def whisper(path: Path, **changes: Any) -> Any:
    """A WhisperForConditionalGeneration, saved with a vocabulary."""
    ids = {"pad_token_id": EOS, "bos_token_id": EOS, "eos_token_id": EOS, "decoder_start_token_id": EOS + 1}
    config = transformers.WhisperConfig(vocab_size=EOS + len(SPECIAL), **SIZES, **ids, **changes)
    model = shaken(transformers.WhisperForConditionalGeneration(config), seed=23)  # its transcripts end by themselves
    model.generation_config.suppress_tokens = model.generation_config.begin_suppress_tokens = None
    path.mkdir()
    model.save_pretrained(path)
    vocabulary().save(str(path / "tokenizer.json"))
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whisper") / "model"


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return whisper(folder)


@torch.inference_mode()
def test_logits_are_those_of_transformers(folder: Path, theirs: Any) -> None:
    model = open_folder(folder).model
    assert isinstance(model, EncoderDecoder)
    frames, target = torch.randn(3, 200, 80), torch.randint(0, EOS, (3, 7))
    expected = theirs(input_features=frames.transpose(1, 2), decoder_input_ids=target).logits
    assert (model.project(model(frames, target)) - expected).abs().max() < 1e-4
    lengths = torch.full((3,), 100)
    assert (model.project(model(frames, target, lengths)) - expected).abs().max() < 1e-4


@torch.inference_mode()
def test_greedy_transcripts_are_those_of_transformers(folder: Path, theirs: Any) -> None:
    """With the same features, prompt and suppressed tokens."""
    transcriber = heedful.load(folder, kind=Transcriber, precision="float32")
    assert transcriber.window_seconds == 2.0 and transcriber.whisper is not None
    samples = np.concatenate([word("ma"), word("ti"), word("so")])
    window = next(transcriber.windows(samples))
    features = torch.from_numpy(transcriber.features(window).frames).unsqueeze(0)
    tokens, ids = transcriber.whisper, [EOS + 1, transcriber.whisper.no_timestamps]
    while len(ids) < 24 and ids[-1] != EOS:
        logits = theirs(input_features=features.transpose(1, 2), decoder_input_ids=torch.tensor([ids])).logits[0, -1]
        logits[[*tokens.suppressed, *(tokens.blank if len(ids) == 2 else ())]] = -torch.inf
        logits[EOS + 1] = -torch.inf
        ids.append(int(logits.argmax()))
    result = next(transcriber.transcribe_windows([window], beam=1, loop_guard=False))
    assert list(result.ids) == [number for number in ids[1:] if number != EOS]


def test_a_folder_is_converted_both_ways(folder: Path, theirs: Any, tmp_path: Path) -> None:
    agreement = convert(folder, tmp_path / "ours")
    assert agreement.decoded and agreement.difference < 1e-4
    again = convert(tmp_path / "ours", tmp_path / "theirs", "huggingface")
    assert again.difference < 1e-4
    loaded = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "theirs")
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(tmp_path / "theirs")
    assert extractor.n_samples == 32_000
    transcriber = heedful.load(folder, kind=Transcriber, precision="float32")
    recordings = [np.concatenate([word("ma", seed), word("ti"), word("so")]) for seed in range(3)]
    for samples in recordings:  # their generation, with the settings in the folder
        features = extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features
        generated = loaded.generate(features)[0].tolist()
        (window,) = transcriber.windows(samples)
        _, *ids = next(transcriber.transcribe_windows([window], beam=1, loop_guard=False)).ids
        text, expected = (list(takewhile(lambda number: number < EOS, each)) for each in (ids, generated))
        assert text == expected != []  # up to a time, which begins another segment there
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model"]["full_window"] is True
    with pytest.raises(SettingError, match="only translators are written for CTranslate2"):
        convert(folder, tmp_path / "ct2", "ctranslate2")


def checkpoint(path: Path, model: Any) -> None:
    """The same weights as OpenAI's package saves them."""
    names = [
        ("model.", ""), (".layers.", ".blocks."), ("encoder_attn_layer_norm", "cross_attn_ln"),
        ("self_attn_layer_norm", "attn_ln"), ("final_layer_norm", "mlp_ln"), ("encoder_attn", "cross_attn"),
        ("self_attn", "attn"), ("fc1", "mlp.0"), ("fc2", "mlp.2"), ("q_proj", "query"), ("k_proj", "key"),
        ("v_proj", "value"), ("out_proj", "out"), ("encoder.layer_norm", "encoder.ln_post"),
        ("decoder.layer_norm", "decoder.ln"), ("embed_tokens", "token_embedding"),
        ("embed_positions.weight", "positional_embedding"),
    ]  # fmt: skip
    state = {}
    for name, tensor in model.state_dict().items():
        if name != "proj_out.weight":
            theirs = name
            for old, new in names:
                theirs = theirs.replace(old, new)
            state[theirs] = tensor.half()
    sizes = {"n_mels": 80, "n_vocab": model.config.vocab_size, "n_audio_ctx": 100, "n_audio_state": 16}
    sizes |= {"n_audio_head": 2, "n_audio_layer": 2, "n_text_ctx": 24, "n_text_state": 16, "n_text_head": 2}
    torch.save({"dims": sizes | {"n_text_layer": 2}, "model_state_dict": state}, path)


def test_a_checkpoint_holds_the_same_model(
    folder: Path, theirs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(tmp_path / "tiny.en.pt", theirs)
    monkeypatch.setattr(openai_whisper, "_vocabulary_folders", lambda path: [tmp_path])
    monkeypatch.setattr(openai_whisper, "special_tokens", lambda vocab_size: SPECIAL)
    monkeypatch.setattr(openai_whisper, "eos_of", lambda vocab_size: EOS)
    with pytest.raises(FolderError, match=r"needs its vocabulary gpt2\.tiktoken; copy that file"):
        open_folder(tmp_path / "tiny.en.pt")
    (tmp_path / "gpt2.tiktoken").write_text(tiktoken())
    opened = open_folder(tmp_path / "tiny.en.pt")
    expected = open_folder(folder).model.state_dict()
    for name, tensor in opened.model.state_dict().items():
        assert torch.equal(tensor, expected[name].half().float()), name
    text = "the cat in a hat, naïve 🙂"
    assert opened.tokenizer.decode(opened.tokenizer.encode(text)) == text
    assert opened.tokenizer.to_json() == open_folder(folder).tokenizer.to_json()


@pytest.mark.parametrize("content", [{"dims": 1}, {"dims": {}, "model_state_dict": {}}, {"a": torch.zeros(2)}])
def test_other_checkpoints_are_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(FolderError, match="is not a checkpoint of Whisper"):
        open_folder(tmp_path / "x.pt")


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return (print, ("run",))

    torch.save({"dims": Payload(), "model_state_dict": {}}, tmp_path / "x.pt")
    with pytest.raises(FolderError, match="nothing in it was run"):
        open_folder(tmp_path / "x.pt")


@pytest.mark.parametrize("line", ["not base64 !! 0", "AA== 7", "AA=="])
def test_a_damaged_vocabulary_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "gpt2.tiktoken").write_text(f"{line}\n")
    with pytest.raises(FolderError, match=r"gpt2\.tiktoken is damaged in line 1"):
        openai_whisper.read_vocabulary(tmp_path / "x.pt", 51_864)


def test_the_vocabulary_of_multilingual_models_has_an_id_without_bytes(tmp_path: Path) -> None:
    (tmp_path / "multilingual.tiktoken").write_text(f"{tiktoken()}= {BYTES + len(MERGES)}\n")
    tokenizer = openai_whisper.read_vocabulary(tmp_path / "x.pt", 51_865)
    text = "the cat in a hat, naïve 🙂"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.find("<|endoftext|>") == BYTES + len(MERGES) + 1


def test_ids_of_special_tokens_and_languages() -> None:
    english, all_languages = openai_whisper.special_tokens(51_864), openai_whisper.special_tokens(51_865)
    assert 50_256 + english.index("<|notimestamps|>") == 50_362 and 50_256 + len(english) == 51_864
    assert 50_257 + all_languages.index("<|de|>") == 50_261 and 50_257 + len(all_languages) == 51_865
    assert openai_whisper.special_tokens(51_866).index("<|yue|>") == 101


def test_the_server_names_the_language(folder: Path, theirs: Any) -> None:
    """As OpenAI's server does: in English, in lower case."""
    transcriber = heedful.load(folder, kind=Transcriber, precision="float32")
    file = io.BytesIO()
    soundfile.write(file, word("ma"), 16_000, format="wav")
    request = TranscriptionRequest(model="x", response_format="verbose_json")

    def named(tokens: WhisperTokens | None, language: str | None = None) -> tuple[str | None, str]:
        transcriber.whisper = tokens
        file.seek(0)
        result = SpeechJob(transcriber, transcriber, AudioFile(file, "a.wav"), 60, language=language)
        code = result._language()
        answer = {"text": "", "seconds": 1, "segments": [], "language": code}
        return code, json.loads(_response(request, answer).body)["language"]

    tokens = transcriber.whisper
    assert tokens is not None
    assert named(tokens) == ("en", "english")
    assert named(replace(tokens, languages={"de": EOS + 2, "fr": EOS + 3}), "fr") == ("fr", "french")
    assert named(None) == (None, "unknown")


def test_timestamp_rules_are_those_of_transformers(folder: Path, theirs: Any) -> None:
    opened = open_folder(folder)
    tokens = WhisperTokens.of(opened.tokenizer, opened.config.vocab_size)
    assert tokens is not None and not tokens.languages
    generation = transformers.GenerationConfig(
        no_timestamps_token_id=tokens.no_timestamps, eos_token_id=EOS, max_initial_timestamp_index=50
    )
    processor = WhisperTimeStampLogitsProcessor(generation, begin_index=1)
    rules, random = TimestampRules(tokens, 0), np.random.default_rng(0)
    first = tokens.first_time
    starts = [[], [first], [first, 5], [first, 5, first + 9], [first, 5, first + 9, first + 9], [first, 5, 6, 7]]
    starts += [[first, 5, first + 9, first + 9, 7], [first + 3, 5, first + 9, first + 9, 7, 8, first + 60]]
    for written in starts:
        for _ in range(20):
            scores = torch.from_numpy(random.normal(0, 3, (1, opened.config.vocab_size)))
            scores[:, EOS + 1 : first] = -torch.inf  # as `SuppressTokens` does
            ids = torch.tensor([[EOS + 1, *written]])
            expected = processor(ids, scores.clone())
            result = rules(scores.clone(), ids[:, 1:], torch.zeros(1))
            assert torch.equal(result, expected), written


def test_suppressed_tokens(folder: Path, theirs: Any) -> None:
    opened = open_folder(folder)
    tokens = WhisperTokens.of(opened.tokenizer, opened.config.vocab_size)
    assert tokens is not None
    apply = SuppressTokens(tokens, 1)
    scores = apply(torch.zeros(1, opened.config.vocab_size), torch.tensor([[tokens.no_timestamps]]), torch.zeros(1))
    allowed = scores[0].isfinite()
    assert not allowed[EOS] and not allowed[ord(" ")] and not allowed[ord("[")] and allowed[ord("x")]
    later = apply(torch.zeros(1, opened.config.vocab_size), torch.tensor([[tokens.no_timestamps, 5]]), torch.zeros(1))
    assert later[0, EOS] == 0 and later[0, EOS + 1] == -torch.inf


def test_segments_between_times(folder: Path, theirs: Any) -> None:
    transcriber = heedful.load(folder, kind=Transcriber)
    transcript = transcriber.transcripts([np.resize(word("ma"), 70_000)], timestamps=True)[0]
    assert transcript.duration == pytest.approx(70_000 / 16_000)
    for segment in transcript.segments:
        assert 0 <= segment.start <= segment.end <= transcript.duration
    time = transcriber.whisper.first_time  # type: ignore[union-attr]
    ids = [time, 65, 66, time + 20, time + 30, 67, time + 40, time + 45, 68]
    pieces = transcriber._pieces(ids, 1.5)
    assert [(piece.start, piece.end, transcriber.decode(piece.ids)) for piece in pieces] == [
        (0.0, 0.4, "AB"), (0.6, 0.8, "C"), (0.9, 1.5, "D"),
    ]  # fmt: skip


@torch.inference_mode()
def test_words_between_times(folder: Path, theirs: Any) -> None:
    """Words get the attention of transformers to a transcript without times, and stay in the segment of their times."""
    transcriber = heedful.load(folder, kind=Transcriber, precision="float32")
    tokens = transcriber.whisper
    assert tokens is not None
    window = next(transcriber.windows(np.concatenate([word("ma"), np.zeros(9000, np.float32), word("ti", 2)])))
    text, time = transcriber.tokenizer.encode("the in"), tokens.first_time
    ids = (time, *text, time + 20, time + 30, *transcriber.tokenizer.encode(" the"), ord("."), time + 45)
    request = transcriber.search_request(window, transcriber.options({}), timestamps=True)
    best = Hypothesis(ids, -1.0, -9.0, tuple(-0.1 * n for n in range(len(ids) + 1)), True)
    timer = transcriber.timer(transcriber.time_options(True, True), threads=1)
    assert timer is not None
    transcript = transcriber.transcript(window, request, [best], timer)
    assert [segment.text for segment in transcript.segments] == ["the in", "the."]
    assert [[one.text for one in segment.words] for segment in transcript.segments] == [["the", "in"], ["the."]]
    expected = -0.1 * np.array([np.arange(1, 1 + len(text) - 2).mean(), np.arange(len(text) - 1, len(text) + 1).mean()])
    assert [one.probability for one in transcript.segments[0].words] == pytest.approx(np.exp(expected))

    ids_of_text = tokens.text_ids(ids)
    eager = transformers.WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager")
    features = torch.from_numpy(request.source.frames.T)[None]  # type: ignore[union-attr]
    german = replace(tokens, languages={"de": EOS + 2, "fr": EOS + 3})
    for timer.whisper, prefix in ((tokens, ()), (german, (EOS + 3, tokens.transcribe))):
        prompt = [EOS + 1, *prefix, tokens.no_timestamps]
        target = torch.tensor([[*prompt, *ids_of_text]])
        attention = eager(input_features=features, decoder_input_ids=target, output_attentions=True).cross_attentions
        ours = timer.attention(request._replace(prefix=prefix), ids_of_text)
        np.testing.assert_allclose(ours, attention[-1][0, :, len(prompt) - 1 :], atol=1e-5)


def test_recording_activations_of_a_transcript(folder: Path, theirs: Any) -> None:
    transcriber = heedful.load(folder, kind=Transcriber, precision="float32")
    with heedful.record(transcriber, "decoder.*.cross.weights", "front_end", "encoder") as trace:
        ids = next(transcriber.transcribe_windows(transcriber.windows(word("no")), beam=2)).ids
    weights = trace.sentence(0)["decoder.1.cross.weights"]
    assert weights.shape[0] == 2 and weights.shape[2] == 100 and len(ids) <= weights.shape[1] <= len(ids) + 1
    assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:2]), atol=1e-5)
    assert trace["front_end"].shape == trace["encoder"].shape == (1, 100, 16)
