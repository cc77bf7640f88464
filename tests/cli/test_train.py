"""`heedful train` as a process: what it leaves behind, and what a kill does not take away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from heedful.storage.folder import ModelFolder
from heedful.training.run_report import read_metrics
from heedful.training.tasks.task import Scores
from heedful.training.tasks.translation import TranslationTask, climb
from tests.cli.conftest import Call, Done, training


def test_a_run_leaves_a_model_and_its_metrics(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert names >= {"model.safetensors", "config.json", "tokenizer.json", "generation_config.json", "README.md"}
    assert names >= {"metrics.jsonl", "tensorboard", "learning_curve.png", "checkpoints", "run.json"}
    assert (trained / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert [r["update"] for r in read_metrics(trained) if "valid_bleu" in r] == [4, 8, 12]


@pytest.mark.parametrize("peak", [0.0, 0.15, 0.55, 0.6, 0.85, 9.0])
def test_climbing_ends_at_the_best_step(peak: float) -> None:
    requested: list[float] = []

    def score(x: float) -> float:
        requested.append(x)
        return -((x - peak) ** 2)

    best, reached = climb(score, 0.6, -((0.6 - peak) ** 2), 0.2, 1.0)
    steps = [round(0.2 * i, 6) for i in range(6)]  # 0 to 1
    assert best == max(steps, key=lambda x: -((x - peak) ** 2))
    assert reached == -((best - peak) ** 2)
    assert len(requested) == len({*requested, 0.6}) - 1  # nothing twice, and not what is known


def test_the_length_penalty_is_chosen_on_the_validation_set_unless_given(
    call: Call, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scores(task: TranslationTask, folder: ModelFolder, *context: object) -> Scores:
        return {"valid_bleu": top - abs(folder.search.length_penalty - peak), "valid_chrf": 50.0}

    def said(done: Done) -> str:
        assert done.code == 0, done.err
        return " ".join(done.err.split())

    monkeypatch.setattr(TranslationTask, "measure", scores)
    top, peak, chosen = 40.0, 0.25, tmp_path / "chosen"
    lower = said(call(*training(corpus, tmp_path / "lower")))
    assert "length penalty 0.2, chosen on the validation set: BLEU 39.95" in lower
    peak = 1.5  # no penalty is larger than 1
    assert "length penalty 1, chosen on the validation set: BLEU 39.50" in said(call(*training(corpus, chosen)))
    assert json.loads((chosen / "generation_config.json").read_text())["length_penalty"] == 1.0
    top, peak = 39.0, 0.6  # no better model than that of 39.1, which 0.6 now suits best
    again = said(call("train", "--out", chosen, "--resume", "train.max_updates=13"))
    assert "length penalty 0.6, chosen on the validation set: BLEU 39.10" in again
    assert json.loads((chosen / "generation_config.json").read_text())["length_penalty"] == 0.6
    inputs = call(*training(corpus, tmp_path / "given"), "train.max_updates=2", "search.length_penalty=0.9")
    assert "length penalty" not in inputs.err
    assert json.loads((tmp_path / "given" / "generation_config.json").read_text())["length_penalty"] == 0.9


def test_a_run_killed_after_its_last_update_is_finished_by_resuming(call: Call, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "x"
    assert call(*training(corpus, out)).code == 0
    chosen = (out / "generation_config.json").read_bytes()
    (out / "learning_curve.png").unlink()
    (out / "generation_config.json").write_text(json.dumps(json.loads(chosen) | {"length_penalty": 0.6}))
    done = call("train", "--out", out, "--resume")
    assert done.code == 0
    assert "length penalty" in done.err
    assert json.loads((out / "generation_config.json").read_text()) == json.loads(chosen)
    assert (out / "learning_curve.png").exists()
    assert "nothing to resume" in call("train", "--out", out, "--resume").err


def start(words: list[object]) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "heedful", *map(str, words)], env=environment, stderr=subprocess.PIPE
    )


def wait_for(path: Path, running: subprocess.Popen[bytes]) -> None:
    for _ in range(2000):
        if path.exists():
            return
        assert running.poll() is None, "the run ended too early"
        time.sleep(0.05)
    raise AssertionError(f"{path} never came")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), pytest.param(signal.SIGTERM, 130, marks=pytest.mark.long)]
)
def test_a_killed_run_resumes_to_the_same_weights(
    call: Call, corpus: Path, trained: Path, tmp_path: Path, number: int, code: int
) -> None:
    out = tmp_path / "x"
    running = start(training(corpus, out))
    wait_for(out / "checkpoints" / "step-4", running)
    running.send_signal(number)
    running.communicate(timeout=120)
    assert running.returncode in (code, 0)  # 0 if it was faster than the signal
    refused = call(*training(corpus, out))
    assert refused.code == 2
    assert "--resume" in refused.err
    assert call(*training(corpus, out), "--resume").code == 0
    assert (out / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


def test_a_toml_file_and_overrides(call: Call, corpus: Path, tmp_path: Path) -> None:
    toml = tmp_path / "run.toml"
    toml.write_text(
        f'[data]\nsource = "{corpus / "train.en"}"\ntarget = "{corpus / "train.de"}"\nvalid_size = 10\n'
        "[model]\nd_model = 16\nd_ff = 16\nn_heads = 2\nencoder_layers = 1\ndecoder_layers = 1\n"
        "[train]\nmax_updates = 50\nvalid_sentences = 2\n"
    )
    done = call("train", toml, "train.max_updates=2", "search.beam=1", "--out", tmp_path / "x")
    assert done.code == 0, done.err
    settings = json.loads((tmp_path / "x" / "run.json").read_text())["config"]
    assert (settings["train"]["max_updates"], settings["search"]["beam"], settings["model"]["d_model"]) == (2, 1, 16)
    assert "held out from the training data (distinct sources: 10)" in done.err


def test_separate_vocabularies_train_and_translate(call: Call, corpus: Path, tmp_path: Path) -> None:
    done = call(*training(corpus, tmp_path / "x"), "text.joint=false", "train.max_updates=2")
    assert done.code == 0, done.err
    assert (tmp_path / "x" / "source_tokenizer.json").exists()
    (tmp_path / "in").write_text("The dog sleeps.\n\nThe cat.\n", encoding="utf-8")
    assert call("translate", tmp_path / "x", "-i", tmp_path / "in").out.count("\n") == 3


@pytest.mark.parametrize(
    "change",
    [
        "model.pre_norm=true", "model.activation=swiglu", "model.activation=gelu", "model.positions=rotary",
        "model.positions=alibi", "model.positions=relative", "model.positions=learned", "model.tie=none",
        "model.encoder_layers=3", "train.label_smoothing_form=others", "train.precision=bfloat16",
        "model.attention_dropout=0.1",
    ],
)  # fmt: skip
def test_variants_of_the_model_and_the_training_run(call: Call, corpus: Path, tmp_path: Path, change: str) -> None:
    done = call(*training(corpus, tmp_path / "x"), change, "train.max_updates=2", "train.valid_sentences=1")
    assert done.code == 0, done.err


def test_continued_training_has_a_low_learning_rate(call: Call, corpus: Path, trained: Path, tmp_path: Path) -> None:
    files = training(corpus, tmp_path / "x")
    done = call(*files, "--init", trained, "train.max_updates=2", "train.valid_sentences=1")
    assert done.code == 0, done.err
    run = json.loads((tmp_path / "x" / "run.json").read_text())["config"]["train"]
    assert (run["optimizer"], run["learning_rate"], run["schedule"]) == ("adam", 3e-4, "linear")
    fresh = json.loads((trained / "run.json").read_text())["config"]["train"]
    assert (fresh["optimizer"], fresh["learning_rate"]) == ("muon", 6e-3)
    before, after = (load_file(path / "model.safetensors") for path in (trained, tmp_path / "x"))
    assert all(torch.allclose(before[name], after[name], atol=1e-3) for name in before)


def test_embeddings_are_initialized_by_lsa_once(call: Call, corpus: Path, tmp_path: Path) -> None:
    said = "LSA-initialized embeddings"
    begun = call(*training(corpus, tmp_path / "x"), "train.max_updates=2")
    assert said in " ".join(begun.err.split())
    resumed = call(*training(corpus, tmp_path / "x"), "--resume", "train.max_updates=4")
    assert resumed.code == 0, resumed.err
    assert said not in " ".join(resumed.err.split())
    random = call(*training(corpus, tmp_path / "y"), "train.max_updates=2", "train.embedding_init=random")
    assert random.code == 0, random.err
    assert said not in " ".join(random.err.split())
    weights = [load_file(tmp_path / name / "checkpoints" / "step-2" / "model.safetensors") for name in "xy"]
    changed = {name for name in weights[0] if (weights[0][name] - weights[1][name]).abs().max() > 0.1}
    assert changed == {"embedding.weight"}


def test_pretrained_embeddings_are_used_and_can_be_frozen(call: Call, corpus: Path, tmp_path: Path) -> None:
    from heedful.storage import folder

    vectors = tmp_path / "vectors.txt"
    numbers = " ".join(str(i / 10) for i in range(16))
    vectors.write_text(f"2 16\nthe {numbers}\nqqqqqqq {numbers}\nat name@domain.com {numbers}\n")
    words = [
        "text.lowercase=true",
        f"train.pretrained_embeddings={vectors}",
        "train.freeze_embeddings=true",
        "train.max_updates=3",
    ]
    done = call(*training(corpus, tmp_path / "x"), *words)
    assert done.code == 0, done.err
    assert "1 tokens" in done.err or "1 token" in done.err
    loaded = folder.load_folder(tmp_path / "x")
    (row,) = loaded.tokenizer.encode("the")
    seen = loaded.model.embedding.weight[row] * loaded.model.embedding.scale
    assert seen.tolist() == pytest.approx([i / 10 for i in range(16)], abs=1e-5)
