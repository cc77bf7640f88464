"""Without the packages of the extras: the engine computes and serves models, and other work says what to install.

Every process of these tests finds torch and the other optional packages missing, as after `pip install heedful`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from heedful.inference.aligner import Aligner
from heedful.inference.encoder import Encoder
from heedful.inference.generator import Generator
from heedful.inference.results import pharaoh
from heedful.inference.transcriber import Transcriber
from heedful.inference.translator import Translator
from heedful.native import library
from heedful.packages import EXTRAS
from heedful.storage.folder import load_folder, save_folder
from tests.inference.test_transcriber import folder, long_recording  # noqa: F401
from tests.serve.conftest import TEXT
from tests.serve.test_process import BODY, start

HEEDFUL = [sys.executable, "-m", "heedful"]
REMEDY = r"which is not installed; install it with: pip install 'heedful\[train\]'\.$"
needs_engine = pytest.mark.skipif(library() is None, reason="there is no compiled engine")


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which importing an optional package fails."""
    return without(EXTRAS, tmp_path_factory.mktemp("light"))


def without(packages: Iterable[str], site: Path) -> dict[str, str]:
    code = f"import sys\nsys.modules.update(dict.fromkeys({sorted(packages)!r}))\n"
    (site / "sitecustomize.py").write_text(code, encoding="utf-8")
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def run(light: dict[str, str], *words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [*HEEDFUL, *map(str, words)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, env=light, timeout=120, check=False)


def run_all(light: dict[str, str], commands: list[list[str]], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Several commands in one process, which starts once; their exit codes are lines of the output."""
    code = (
        "import sys\nfrom heedful.cli import main\n"
        f"for command in {commands!r}:\n"
        "    sys.argv = ['heedful', *command]\n"
        "    try: main()\n"
        "    except SystemExit as end: print('exit', end.code or 0)\n"
    )
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, env=light, timeout=120, check=True, cwd=cwd)


@needs_engine
def test_it_translates(light, folders) -> None:
    done = run(light, "translate", folders["en-de"], stdin=f"{TEXT}\n")
    assert done.returncode == 0 and not done.stderr
    assert done.stdout == Translator.load(folders["en-de"]).translate(TEXT) + "\n"


@needs_engine
def test_it_scores_and_aligns(light, folders, tmp_path: Path) -> None:
    """All commands in one process. A URL is placed by attention."""
    pairs = [("The dog sleeps at www.example.org today.", "Der Hund"), ("She reads.", "Sie liest."), ("", "Nichts.")]
    for name, side in zip(("a.en", "a.de"), zip(*pairs, strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
    model, files = str(folders["en-de"]), ["--source", "a.en", "--target", "a.de"]
    commands = [["score", model, *files], ["align", model, *files], ["translate", model, "-i", "a.en", "--alignments"]]
    done = run_all(light, commands, tmp_path)
    scores = [f"{score:.4f}" for score in Translator.load(model, precision="float32").score(pairs)]
    links = [pharaoh(alignment) for alignment in Aligner(load_folder(model)).align(pairs)]
    best = [best for (best,) in Translator.load(model).translations([source for source, _ in pairs], alignments=True)]
    assert best[0].text.count("www.example.org") == 1 and best[0].alignment
    aligned = [f"{translation.text}\t{pharaoh(translation.alignment or [])}" for translation in best]
    assert done.stdout.splitlines() == [*scores, "exit 0", *links, "exit 0", *aligned, "exit 0"], done.stderr


@needs_engine
def test_it_generates_fills_masks_embeds_and_classifies(light, folders, make_folder, tmp_path: Path) -> None:
    texts = ["The dog sleeps.", "", "She reads a book."]
    (tmp_path / "lines").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    labels = {"labels": ("no", "yes"), "pooler": True}
    save_folder(replace(make_folder("encoder", **labels), path=tmp_path / "classifier"))
    gpt, bert, sampling = folders["gpt"], folders["bert"], {"max_tokens": 9, "seed": 3}
    commands = [
        ["generate", str(gpt), "The dog", "--max-tokens", "9", "--seed", "3", "-n", "2"],
        ["fill-mask", str(bert), "The <mask> sleeps.", "--top", "3"],
        ["embed", str(bert), "-i", "lines", "-o", "vectors.npy"],
        ["classify", "classifier", "-i", "lines", "--scores"],
    ]
    done = run_all(light, commands, tmp_path)
    samples = Generator.load(gpt).samples("The dog", 2, **sampling)
    generated = [f"--- {number} ---\nThe dog{sample}" for number, sample in enumerate(samples, 1)]
    (candidates,) = Encoder.load(bert).fill_mask("The <mask> sleeps.", 3)
    filled = [f"{candidate.probability:.4f}\t{candidate.token}\t{candidate.text}" for candidate in candidates]
    predictions = Encoder.load(tmp_path / "classifier").classify(texts)
    predicted = [f"{prediction.label}\t{prediction.probability:.4f}" for prediction in predictions]
    expected = [*generated, "exit 0", *filled, "exit 0", "exit 0", *predicted, "exit 0"]
    assert done.stdout.splitlines() == "\n".join(expected).splitlines() and not done.stderr
    assert (np.load(tmp_path / "vectors.npy") == Encoder.load(bert).embed(texts)).all()


@needs_engine
def test_it_transcribes_with_the_extra_for_audio(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    samples = long_recording()
    light = without(EXTRAS.keys() - {"soundfile", "soxr"}, tmp_path)
    soundfile.write(tmp_path / "a.wav", samples, 16_000, subtype="FLOAT")
    done = run(light, "transcribe", folder, tmp_path / "a.wav", "--precision", "float32")
    assert done.returncode == 0 and not done.stderr
    assert done.stdout == Transcriber.load(folder, "float32").transcribe(samples) + "\n"


@needs_engine
def test_the_command_line_says_what_to_install(light, folders, make_folder, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("A dog.\n", encoding="utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/config.json").write_text(json.dumps({"model_type": "gpt2"}), encoding="utf-8")
    save_folder(replace(make_folder(attention="window"), path=tmp_path / "window"))
    model, lines, unknown = str(folders["en-de"]), ["-i", "lines"], "it does not know model.attention=window"
    needs = {
        "heedful train": ["train", "--source", "a", "--target", "b", "--out", "c"],
        "sampling translations (`translate --sample`)": ["translate", model, "--sample", *lines],
        f"translating with an ensemble ({model} and {model})": ["translate", model, model, *lines],
        "precision bfloat16": ["translate", model, "--precision", "bfloat16", *lines],
        f"a model that the native engine does not compute ({unknown})": ["translate", "window", *lines],
        f"computing window, which the native engine does not ({unknown}),": [
            *("score", "window", "--source", "lines", "--target", "lines"),
        ],
        "opening other, which is not in heedful's own format (`heedful convert` writes that),": ["generate", "other"],
    }
    done = run_all(light, list(needs.values()), tmp_path)
    assert done.stdout.splitlines() == ["exit 2"] * len(needs)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    for error, task in zip(errors, needs, strict=True):
        assert re.search(f"^error: {re.escape(task)} needs the package torch, {REMEDY}", error)


def test_python_says_what_to_install(light, tmp_path: Path) -> None:
    other = tmp_path / "marian"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"model_type": "marian"}), encoding="utf-8")
    code = (
        "import sys, heedful\n"
        "for act in (lambda: heedful.train, lambda: heedful.inside, lambda: heedful.load(sys.argv[1])):\n"
        "    try: act()\n"
        "    except heedful.errors.SettingError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, other], capture_output=True, text=True, env=light, timeout=120, check=True
    )
    for line, task in zip(
        done.stdout.splitlines(), ("heedful.train", "heedful.inside", f"opening {other}, which is not in "), strict=True
    ):
        assert re.search(f"^{re.escape(task)}.* needs the package torch, {REMEDY}", line)


@needs_engine
def test_it_serves_and_refuses_what_needs_torch(light, folders) -> None:
    served = [f"{name}={folders[name]}" for name in ("en-de", "gpt")]
    server, url = start(*served, PYTHONPATH=light["PYTHONPATH"])
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            answer = client.post("/translate", json=BODY).json()
            assert answer["translatedText"] == Translator.load(folders["en-de"]).translate(str(BODY["q"]))
            tagged = BODY | {"q": "<p>The <b>dog</b> sleeps.</p>", "format": "html"}
            assert client.post("/translate", json=tagged).json()["translatedText"].startswith("<p>")
            aligned = client.post("/v1/translations", json={"text": TEXT, "alignments": True}).json()
            assert aligned["translations"][0]["sentences"][0]["translations"][0]["alignment"]
            sampling = {"max_tokens": 9, "seed": 3}
            written = client.post("/v1/completions", json={"model": "gpt", "prompt": "The dog", **sampling}).json()
            assert written["choices"][0]["text"] == Generator.load(folders["gpt"]).generate("The dog", **sampling)
            refused = client.post("/inside", json={"text": TEXT})
            assert refused.status_code == 422 and "needs the package torch" in refused.text
    finally:
        server.terminate()
        server.communicate(timeout=60)
