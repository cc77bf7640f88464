"""Settings that do not go with the task or with the model are refused before the corpus is read."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from heedful.config import ModelConfig, RunConfig, load_config
from heedful.errors import SettingError
from heedful.storage.folder import ModelFolder
from heedful.training.checks import check_options, check_run
from heedful.training.tasks import TASKS


def settings(*words: str) -> RunConfig:
    return load_config(None, words)


@pytest.mark.parametrize("task", ["language-model", "masked-lm", "classification"])
@pytest.mark.parametrize("word", ["train.bpe_dropout=0.1", "train.rdrop=5"])
def test_bpe_dropout_and_rdrop_are_for_translators(task: str, word: str) -> None:
    with pytest.raises(SettingError, match=rf"{word.partition('=')[0]} is for a translator"):
        check_options(settings(word), TASKS[task])  # type: ignore[index]
    check_options(settings(word), TASKS["translation"])
    check_options(settings(), TASKS[task])  # type: ignore[index]


def test_rdrop_does_not_go_with_act_halting() -> None:
    halting = ["model.universal=true", "model.act_halting=true", "model.pre_norm=true"]
    with pytest.raises(SettingError, match="does not work with"):
        check_options(settings(*halting, "train.rdrop=5"), TASKS["translation"])
    check_options(settings(*halting), TASKS["translation"])


def test_settings_are_checked_against_the_presets_that_a_corpus_of_so_many_lines_can_get(tmp_path: Path) -> None:
    """256 attention heads, one for each dimension of preset small, do not fit preset tiny."""
    for name, lines in (("short", 99_998), ("long", 100_001)):
        (tmp_path / name).write_text("a\n" * lines)
    heads = ["model.n_heads=256"]
    files = {name: [f"data.source={tmp_path / name}", f"data.target={tmp_path / name}"] for name in ("short", "long")}
    with pytest.raises(SettingError, match=r"d_model \(128\) must be divisible by n_heads \(256\)"):
        check_run(settings(*heads, *files["short"]), TASKS["translation"], None)
    check_run(settings(*heads, *files["long"]), TASKS["translation"], None)


@pytest.mark.parametrize("word", ["model.architecture=memory-network", "model.sentence_input=true"])
@pytest.mark.parametrize("task", ["masked-lm", "tagging", "question-answering"])
def test_a_model_with_one_state_for_a_text_labels_no_tokens(tmp_path: Path, word: str, task: str) -> None:
    (tmp_path / "file").write_text("a\n")
    data = {"masked-lm": "text"}.get(task, "labeled")
    with pytest.raises(SettingError, match=f"{word.partition('=')[0]}.* one state for a whole text"):
        check_run(settings(f"data.{data}={tmp_path / 'file'}", word), TASKS[task], None)  # type: ignore[index]
    check_run(settings(f"data.labeled={tmp_path / 'file'}", word), TASKS["classification"], None)


@pytest.mark.parametrize(
    ("task", "file", "features", "message"),
    [
        ("translation", "pairs", 80, "holds a speech recognizer; start from a model of text"),
        ("denoising", "text", 80, "holds a speech recognizer; start from a model of text"),
        ("speech", "audio", 0, "holds a translator; start from a speech recognizer"),
    ],
)
def test_text_and_speech_do_not_start_from_each_other(
    tmp_path: Path, task: str, file: str, features: int, message: str
) -> None:
    (tmp_path / "file.tsv").write_text("a\tb\n")
    config = ModelConfig(vocab_size=8, features=features)
    init = SimpleNamespace(config=config, task="", path=Path("runs/x"), tokenizer=SimpleNamespace(vocab_size=8))
    with pytest.raises(SettingError, match=f"runs/x {message}, or leave out train.init"):
        check_run(settings(f"data.{file}={tmp_path / 'file.tsv'}"), TASKS[task], cast(ModelFolder, init))  # type: ignore[index]
