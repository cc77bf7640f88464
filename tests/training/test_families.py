"""The promises of training hold for every family: resuming is exact, and ranks are accumulations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from heedful import config, demo
from heedful.config import RunConfig
from heedful.errors import SettingError
from heedful.ops.cross_entropy import Loss
from heedful.training.loop import TrainingRun, train
from heedful.training.run_report import RunReport
from heedful.training.setup import open_run
from heedful.training.tasks import task_for

TINY = [
    "model.d_model=16", "model.d_ff=32", "model.n_heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "model.dropout=0.2", "train.warmup=3", "train.batch_tokens=256", "train.block_size=32", "train.micro_batches=3",
    "train.max_updates=10", "train.checkpoint_every=4",
]  # fmt: skip
LABELED = {"labeled": "classification", "tagged": "tagging", "asked": "question-answering"}
FAMILIES = ["decoder", "encoder", "denoiser", *LABELED]
TASKS = {"decoder": "language-model", "encoder": "masked-lm", "denoiser": "denoising"}


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of a few hundred tokens, and labeled sentences."""
    folder = tmp_path_factory.mktemp("files")
    pairs = demo.generate(60, seed=4)
    (folder / "text.txt").write_text("\n\n".join(pair.source for pair in pairs), encoding="utf-8")
    lines = [f"{'question' if pair.source.endswith('?') else 'other'}\t{pair.source}\n" for pair in pairs]
    (folder / "labeled.tsv").write_text("".join(lines), encoding="utf-8")
    words = ["".join(f"{word} {'UP' if word.istitle() else 'O'}\n" for word in pair.source.split()) for pair in pairs]
    (folder / "tagged.tsv").write_text("\n".join(words), encoding="utf-8")
    answer = [{"text": pair.source.split()[1], "answer_start": pair.source.index(" ") + 1} for pair in pairs]
    rows = [
        [{"id": str(i), "question": "Which word?", "answers": [answer[i]] * (i % 3 > 0)}] for i in range(len(pairs))
    ]
    paragraphs = [{"context": pair.source, "qas": row} for pair, row in zip(pairs, rows, strict=True)]
    (folder / "asked.tsv").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return folder


def settings(files: Path, family: str, init: Path | None = None, *more: str) -> RunConfig:
    store = files / "store"
    if family in LABELED:
        shape = [
            setting
            for setting in TINY
            if not setting.startswith(("model.", "train.block_size")) or "dropout" in setting
        ]
        data = {"labeled": files / f"{family}.tsv", "cache_dir": store, "valid_size": 10}
        return config.load_config(None, [*shape, f"task={LABELED[family]}", *more], data=data, train={"init": init})
    words = [f"task={TASKS[family]}", *TINY, *more]
    return config.load_config(None, words, data={"text": files / "text.txt", "cache_dir": store})


def scores(folder: object, *context: object) -> dict[str, float]:
    weights = folder.model.embedding.weight  # type: ignore[attr-defined]
    changing = float(weights.detach().abs().sum())
    return {"valid_macro_f1": changing, "valid_f1": changing, "valid_accuracy": 0.0, "valid_exact": 0.0}


def open_(config_of_run: RunConfig, out: Path, resume: bool = False) -> TrainingRun:
    run = open_run(config_of_run, out, resume, RunReport(out, Console(quiet=True)))
    run.task.measure = scores
    return run


def kept(out: Path) -> dict[str, torch.Tensor]:
    tensors_of_run = load_file(out / "model.safetensors")
    for name in ("model", "optimizer"):
        tensors = load_file(out / f"checkpoints/step-10/{name}.safetensors")
        tensors_of_run |= {f"{name}.{key}": value for key, value in tensors.items()}
    return tensors_of_run


@pytest.fixture(scope="module")
def finished(files: Path) -> dict[str, Path]:
    """One run of each family that nothing interrupted; the classifier starts from the encoder."""
    folders: dict[str, Path] = {}
    for family in FAMILIES:
        folders[family] = files / "finished" / family
        state = train(open_(settings(files, family, folders.get("encoder")), folders[family]))
        assert state.ended == "all updates done"
        assert state.batch > 0 or state.epoch > 0
    return folders


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("call", [1, 7, 20])
def test_killed_and_resumed_equals_never_interrupted(
    files: Path, finished: dict[str, Path], tmp_path: Path, family: str, call: int
) -> None:
    config_of_run, out = settings(files, family, finished["encoder"]), tmp_path / "out"
    run = open_(config_of_run, out)
    loss_of, calls = run.loss_of, [0]

    def dying(piece: object) -> Loss:
        calls[0] += 1
        if calls[0] == call:
            raise Killed
        return loss_of(piece)  # type: ignore[arg-type]

    run.loss_of = dying  # type: ignore[method-assign]
    with pytest.raises(Killed):
        train(run)
    torch.manual_seed(999)
    train(open_(config_of_run, out, resume=True))
    resumed, uninterrupted = kept(out), kept(finished[family])
    assert resumed.keys() == uninterrupted.keys()
    assert all(torch.equal(resumed[name], uninterrupted[name]) for name in resumed)


@pytest.mark.parametrize("family", FAMILIES)
def test_micro_batches_are_the_batch_and_agree_on_its_tokens(
    files: Path, finished: dict[str, Path], family: str
) -> None:
    run = open_(settings(files, family, finished["encoder"]), finished[family], resume=True)
    batch = run.task.plan(0)[0]
    undivided = run.task.split_batch(batch, 5, 1)
    (piece,) = undivided.builders
    assert piece is not None
    run.model.eval()
    expected = run.task.loss(run.model, piece())
    for count in (2, 3, len(batch) + 2):
        cut = run.task.split_batch(batch, 5, count)
        assert cut.tokens == undivided.tokens == expected.tokens
        losses = [run.task.loss(run.model, build()) for build in cut.builders if build is not None]
        assert sum(loss.tokens for loss in losses) == cut.tokens
        total = sum(float(loss.likelihood.detach()) for loss in losses)
        assert total == pytest.approx(float(expected.likelihood.detach()), rel=1e-4)
    assert all(np.array_equal(a, b) for a, b in zip(run.task.plan(3), run.task.plan(3), strict=True))


def test_every_update_masks_other_tokens(files: Path, finished: dict[str, Path]) -> None:
    run = open_(settings(files, "encoder"), finished["encoder"], resume=True)
    batch = run.task.plan(0)[0]
    first, again, later = (run.task.split_batch(batch, update, 1).builders[0]() for update in (1, 1, 2))  # type: ignore[misc]
    assert torch.equal(first.ids, again.ids)  # type: ignore[attr-defined]
    assert not torch.equal(first.chosen, later.chosen)  # type: ignore[attr-defined]


@pytest.mark.parametrize("task", ["summarization", "translation"])
def test_a_denoiser_is_the_start_of_a_run_on_pairs(
    files: Path, finished: dict[str, Path], tmp_path: Path, task: str
) -> None:
    pairs = [f"{pair.source}\t{pair.target}\n" for pair in demo.generate(60, seed=5)]
    (tmp_path / "pairs.tsv").write_text("".join(pairs), encoding="utf-8")
    shape = [setting for setting in TINY if not setting.startswith(("model.", "train.block_size"))]
    data = {"pairs": [tmp_path / "pairs.tsv"], "cache_dir": tmp_path / "store", "valid_size": 10}
    config_of_run = config.load_config(
        None, [*shape, f"task={task}", "train.max_updates=1"], data=data, train={"init": finished["denoiser"]}
    )
    run = open_run(config_of_run, tmp_path / "out", False, RunReport(tmp_path / "out", Console(quiet=True)))
    started, denoiser = run.model.state_dict(), load_file(finished["denoiser"] / "model.safetensors")
    assert "embedding.weight" in denoiser and "decoder.0.cross.query.weight" in denoiser
    assert all(torch.equal(started[name], tensor) for name, tensor in denoiser.items())
    assert all("pointer" in name for name in started.keys() - denoiser.keys())
    assert (task == "summarization") == (started.keys() != denoiser.keys())
    tokenizers = [tokenizer.to_json() for tokenizer in run.task.tokenizers]
    assert tokenizers == [(finished["denoiser"] / "tokenizer.json").read_text(encoding="utf-8")] * 2
    assert train(run).ended == "all updates done"


@pytest.mark.long
@pytest.mark.parametrize("task", ["masked-lm", "denoising"])
def test_two_ranks_equal_two_accumulations_bit_for_bit(files: Path, tmp_path: Path, task: str) -> None:
    def run(name: str, ranks: int, *more: str) -> dict[str, torch.Tensor]:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
        program = [*(launcher if ranks > 1 else [sys.executable, "-m"]), "heedful", "train"]
        words = [
            setting
            for setting in TINY
            if "micro_batches" not in setting and "updates" not in setting and "every" not in setting
        ]
        words += [f"task={task}", "train.max_updates=4", "train.checkpoint_every=4", *more]
        command = [*program, *words, "--text", files / "text.txt", "--out", tmp_path / name / "out"]
        done = subprocess.run(
            [str(word) for word in command], env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
            timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return load_file(tmp_path / name / "out/checkpoints/step-4/model.safetensors")

    two, one = run("two", 2), run("one", 1, "train.micro_batches=2")
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data.text=a", "data.labeled=b"], r"data\.text and data\.labeled are both given"),
        (["data.text=a", "task=translation"], "plain text can only train language-model or masked-lm"),
        (["data.labeled=a", "task=language-model"], "labeled text can only train classification or regression"),
        (
            ["data.source=a", "task=language-model"],
            "sentence pairs can only train translation or summarization; set another task, or give data.text",
        ),
        (["data.text=a"], "set task to language-model"),
        (["data.source=a", "text.kind=bytes"], r"text\.kind is bytes"),
    ],
)
def test_contradicting_settings_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        task_for(config.load_config(None, words))


def test_a_classifier_starts_from_an_encoder_or_from_nothing(
    files: Path, finished: dict[str, Path], tmp_path: Path
) -> None:
    config_of_run = config.load_config(None, (), data={"labeled": files / "labeled.tsv", "cache_dir": files / "store"})
    new = open_(config_of_run, tmp_path / "x").config.model
    assert (new.labels, new.head, new.max_length) == (("other", "question"), "none", 256)
    with pytest.raises(SettingError, match=r"holds a GPT \(decoder family\), and this task trains the encoder family"):
        open_(settings(files, "labeled", finished["decoder"]), tmp_path / "y")
    with pytest.raises(SettingError, match=r"model\.d_model is 32, and .* has 16"):
        open_(settings(files, "labeled", finished["encoder"], "model.d_model=32"), tmp_path / "z")


def test_what_the_text_has_cut_may_be_asked_for_again(files: Path, tmp_path: Path) -> None:
    def asked(block: int) -> RunConfig:
        return settings(files, "decoder", None, f"train.block_size={block}")

    assert open_(asked(100_000), tmp_path / "x").config.train.block_size < 100_000
    assert open_(asked(100_000), tmp_path / "x", resume=True).config.train.block_size < 100_000
    with pytest.raises(SettingError, match=r"train\.block_size is 99999 now"):
        open_(asked(99_999), tmp_path / "x", resume=True)


@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_blocks_are_no_longer_than_the_model_takes(files: Path, tmp_path: Path, family: str) -> None:
    words = ["model.max_length=8", "train.block_size=30", "train.max_updates=2"]
    run = open_(settings(files, family, None, *words), tmp_path / "x")
    assert run.config.train.block_size == 8
    assert train(run).ended == "all updates done"


def test_the_passes_of_a_classifier_are_those_of_its_batches(
    files: Path, finished: dict[str, Path], tmp_path: Path
) -> None:
    def updates(name: str, *more: str) -> int:
        data = {"labeled": files / "labeled.tsv", "cache_dir": files / "store", "valid_size": 10}
        config_of_run = config.load_config(None, more, data=data, train={"init": finished["encoder"]})
        return open_(config_of_run, tmp_path / name).config.train.max_updates

    assert updates("many", "train.batch_tokens=8") > updates("few") == 100


def test_training_goes_on_from_another_model(files: Path, finished: dict[str, Path], tmp_path: Path) -> None:
    config_of_run = config.load_config(
        None,
        ["train.max_updates=1", "train.batch_tokens=64", "train.learning_rate=1e-9"],
        data={"text": files / "text.txt", "cache_dir": files / "store"},
        train={"init": finished["decoder"]},
    )
    train(open_(config_of_run, tmp_path / "x"))
    before, after = (load_file(path / "model.safetensors") for path in (finished["decoder"], tmp_path / "x"))
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
