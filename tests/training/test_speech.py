"""Training of speech recognizers: the loss, resuming, fine-tuning, and settings that do not fit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

import heedful
from heedful.config import ModelConfig, RunConfig
from heedful.data.batch import Batch
from heedful.errors import SettingError
from heedful.model.transformer import EncoderDecoder
from heedful.training.losses import speech_loss
from tests.audio.sounds import write_corpus

TINY: dict[str, Any] = {
    "model": {"d_model": 32, "d_ff": 64, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1},
    "train": {
        "max_updates": 4,
        "batch_tokens": 400,
        "checkpoint_every": 2,
        "threads": 1,
        "schedule": "constant",
        "warmup": 1,
    },
    "text.kind": "characters",
}


def model_and_batch() -> tuple[EncoderDecoder, Batch]:
    torch.manual_seed(0)
    config = ModelConfig(
        features=4, vocab_size=7, d_model=8, d_ff=8, n_heads=2, encoder_layers=1, decoder_layers=1, ctc=True, dropout=0
    )
    lengths, targets = torch.tensor([5, 3]), torch.tensor([[2, 4, 4, 5, 3], [2, 6, 3, 0, 0]])
    frames = torch.randn(2, 10, 4)
    frames[1, 6:] = 0
    batch = Batch(frames, targets, lengths, torch.tensor([4, 2]), 6)
    return EncoderDecoder(config).double(), Batch(frames.double(), targets, lengths, batch.target_lengths, 6)


def collapse(path: tuple[int, ...], blank: int) -> list[int]:
    return [token for token, _ in itertools.groupby(path) if token != blank]


def test_the_ctc_loss_sums_over_all_alignments() -> None:
    """Against the definition: the probability of a text is the sum over all paths that collapse to it."""
    model, batch = model_and_batch()
    expected = 0.0
    for row, labels in enumerate(([4, 4, 5], [6])):
        length = int(batch.source_lengths[row])
        memory = model.encode(batch.source[row : row + 1, : 2 * length]).memory
        assert model.ctc is not None and memory is not None
        log_probs = model.ctc(memory)[0].log_softmax(-1)  # (S, V)
        paths = itertools.product(range(7), repeat=length)
        scores = [
            sum(log_probs[t, token] for t, token in enumerate(path)) for path in paths if collapse(path, 0) == labels
        ]
        expected -= torch.stack(scores).logsumexp(0).item()
    plain = speech_loss(model, batch, 0.1, 0.0)
    both = speech_loss(model, batch, 0.1, 0.25)
    assert both.smoothed.item() == pytest.approx(0.75 * plain.smoothed.item() + 0.25 * expected, rel=1e-6)
    assert float(both.likelihood) == pytest.approx(float(plain.likelihood))


def test_the_likelihood_counts_every_label_and_eos() -> None:
    model, batch = model_and_batch()
    loss = speech_loss(model, batch, 0.0, 0.0)
    expected = 0.0
    for row, ids in enumerate(([2, 4, 4, 5, 3], [2, 6, 3])):
        frames = batch.source[row : row + 1, : 2 * int(batch.source_lengths[row])]
        log_probs = model.project(model(frames, torch.tensor([ids[:-1]])))[0].log_softmax(-1)
        expected -= sum(log_probs[t, token].item() for t, token in enumerate(ids[1:]))
    assert float(loss.likelihood) == pytest.approx(expected, rel=1e-6)
    assert loss.tokens == 6


def test_a_model_whose_padding_is_eos_learns_to_end() -> None:
    model, batch = model_and_batch()
    model.config = model.config.model_copy(update={"pad_id": 3})
    ends = torch.where(torch.arange(5) < torch.tensor([[5], [3]]), batch.target, 3)
    same = Batch(batch.source, ends, batch.source_lengths, batch.target_lengths, 6)
    assert float(speech_loss(model, same, 0.0, 0.0).likelihood) == pytest.approx(
        float(speech_loss(model_and_batch()[0], batch, 0.0, 0.0).likelihood), rel=1e-6
    )


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("speech"), copies=5, words=("ma", "ti", "so"))


@pytest.fixture(scope="module")
def trained(manifest: Path) -> Path:
    heedful.train(audio=manifest, out=manifest.parent / "run", task="speech", **TINY)
    return manifest.parent / "run"


def test_the_window_is_longer_than_the_longest_recording(manifest: Path, trained: Path) -> None:
    """So that a recording like those of the training set is one window."""
    recognizer = heedful.load(trained, kind=heedful.Transcriber)
    longest = max(path.stat().st_size for path in manifest.parent.glob("*.wav")) / 32_000
    assert longest / 0.9 + 0.9 < recognizer.window_seconds < longest / 0.9 + 1.2


def test_a_run_resumes_exactly(manifest: Path, trained: Path) -> None:
    out = manifest.parent / "resumed"
    shorter = TINY | {"train": TINY["train"] | {"max_updates": 2}}
    heedful.train(audio=manifest, out=out, **shorter)
    heedful.train(RunConfig(), out=out, audio=manifest, resume=True, **{"train.max_updates": 4})
    ours, theirs = (sorted((path / "checkpoints").glob("*/model.safetensors"))[-1] for path in (out, trained))
    assert ours.read_bytes() == theirs.read_bytes()


def test_training_starts_from_a_recognizer(manifest: Path, trained: Path) -> None:
    rows = [(manifest.parent / line.split("\t")[0], "ma") for line in manifest.read_text().splitlines()]
    out = manifest.parent / "tuned"
    settings = {"train": TINY["train"] | {"ctc_weight": 0.0}}
    model = heedful.train(audio=[(str(path), text) for path, text in rows], out=out, init=trained, **settings)
    assert isinstance(model, heedful.Transcriber)
    assert model.config.d_model == 32 and model.tokenizer.to_json() == heedful.load(trained).tokenizer.to_json()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train.rdrop": 1.0}, "train.rdrop is 1.0, but this run trains a speech recognizer"),
        ({"train.sampled_softmax": 100}, "train.sampled_softmax is 100, but this run trains a speech recognizer"),
        ({"model.features": 40, "model.vocab_size": 5}, "model.vocab_size is 5, and follows from the corpus"),
        ({"task": "translation"}, "task is translation, but a list of recordings can only train speech"),
        ({"text.vocab_size": 20_000}, "text.vocab_size is 20000"),
    ],
)
def test_settings_that_do_not_fit(manifest: Path, tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(heedful.errors.HeedfulError, match=message):
        heedful.train(audio=manifest, out=tmp_path / "run", **settings)


def test_a_task_without_its_data(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"task is speech, but no data are given for it; set data\.audio"):
        heedful.train(task="speech", out=tmp_path / "run")


def test_a_translator_has_no_speech_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"train\.ctc_weight is 0\.3, but this run trains a model of text"):
        heedful.train(pairs=[("a", "b")] * 30, out=tmp_path / "run", **{"train.ctc_weight": 0.3})


def test_a_recognizer_is_refused_by_other_commands(trained: Path) -> None:
    with pytest.raises(heedful.errors.FolderError, match="does not translate; use heedful transcribe"):
        heedful.Translator.load(trained)
