"""The explanation of a transcript: the spectrogram, and where each token was heard."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import soundfile

from heedful.errors import SettingError
from heedful.inside import draw_attention, explain
from heedful.inside.recorded_speech import monotonic_path
from heedful.interop import open_folder
from tests.audio.sounds import word
from tests.inference.test_transcriber import folder  # noqa: F401


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "a.wav", np.concatenate([word("ma"), word("ti")]), 16_000)
    return tmp_path / "a.wav"


@pytest.mark.parametrize("seed", range(8))
def test_the_path_is_the_best_monotonic_one(seed: int) -> None:
    """Against exhaustive search."""
    weights = np.random.default_rng(seed).dirichlet(np.ones(5), size=4)
    rising = (path for path in itertools.product(range(5), repeat=4) if list(path) == sorted(path))
    best = max(rising, key=lambda path: sum(np.log(weights[t, s] + 1e-6) for t, s in enumerate(path)))
    assert monotonic_path(weights) == list(best)


def test_what_the_page_shows(folder: Path, recording: Path) -> None:  # noqa: F811
    explanation = explain(open_folder(folder), str(recording))
    run, data = explanation.run, explanation.data()
    sound = data["sound"]
    assert run.text == "a.wav" and run.output == data["output"]
    assert sound["spectrogram"].shape[1] == 80 and len(sound["tokens"]) == len(run.labels)
    assert sound["weights"].shape == (len(run.labels), len(run.source.ids))
    assert data["sides"]["source"]["pieces"][:3] == ["0.00", "0.02", "0.04"]
    times = [token["seconds"] for token in sound["tokens"]]
    assert times == sorted(times) and times[-1] <= sound["seconds"]
    assert [attention["kind"] for attention in data["attentions"]] == ["self", "cross"]
    assert explanation.numbers()["attention"]["decoder.0.cross.weights"]["keys"] == "source"
    assert "Where each token was heard" in explanation.html()


@pytest.mark.parametrize("what", [None, "decoder.0.cross"])
def test_the_picture_of_a_recording(folder: Path, recording: Path, tmp_path: Path, what: str | None) -> None:  # noqa: F811
    draw_attention(explain(open_folder(folder), str(recording)).run, tmp_path / "x.svg", what)
    text = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert "attention" in text and ("seconds" in text) == (what is None)


def test_a_given_transcript_and_silence(folder: Path, recording: Path, tmp_path: Path) -> None:  # noqa: F811
    run = explain(open_folder(folder), str(recording), "mati").run
    assert run.output == "mati" and run.tree is None
    soundfile.write(tmp_path / "silent.wav", np.zeros(8000), 16_000)
    with pytest.raises(SettingError, match="no sound above -60 dB"):
        explain(open_folder(folder), str(tmp_path / "silent.wav"))
