"""`heedful.train`: the run of the command, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import heedful
from heedful.config import load_config
from heedful.errors import DataError, FolderError, SettingError
from heedful.training.run_report import read_metrics, supports_progress
from tests.cli.conftest import run_here

MODEL = {"d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
TRAIN = {"batch_tokens": 384, "warmup": 5, "valid_sentences": 2, "max_updates": 4, "checkpoint_every": 2}
SETTINGS: dict[str, Any] = {"model": MODEL, "train": TRAIN, "search.beam": 1, "search.length_penalty": 0.6}


def files(corpus: Path) -> dict[str, Any]:
    sides = {"source": "train.en", "target": "train.de", "valid_source": "valid.en", "valid_target": "valid.de"}
    return {name: str(corpus / file) for name, file in sides.items()}


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from Python."""
    out = tmp_path_factory.mktemp("whole") / "x"
    heedful.train(**files(corpus), out=out, **SETTINGS)
    return out


def test_a_run_from_python_is_the_run_of_the_command(corpus: Path, whole: Path, tmp_path: Path) -> None:
    options = [word for name, path in files(corpus).items() for word in (f"--{name.replace('_', '-')}", path)]
    words = [f"model.{key}={value}" for key, value in MODEL.items()]
    words += [f"train.{key}={value}" for key, value in TRAIN.items()]
    done = run_here("train", *options, "--out", tmp_path / "x", *words, "search.beam=1", "search.length_penalty=0.6")
    assert done.code == 0, done.err
    assert weights(tmp_path / "x") == weights(whole)
    assert {path.name for path in (tmp_path / "x").iterdir()} == {path.name for path in whole.iterdir()}


def test_a_second_run_in_one_process_resumes_and_calls_back(corpus: Path, whole: Path, tmp_path: Path) -> None:
    out, records = tmp_path / "x", list[dict[str, float]]()
    half = {**SETTINGS, "train": {**TRAIN, "max_updates": 2, "schedule": "constant"}}
    rest = {**SETTINGS, "train": {**TRAIN, "schedule": "constant"}}
    heedful.train(**files(corpus), out=out, callback=records.append, **half)
    assert records == read_metrics(out)
    translator = heedful.train(**files(corpus), out=out, resume=True, callback=records.append, **rest)
    assert records == read_metrics(out)
    assert [record["update"] for record in records if "valid_bleu" in record] == [2, 4]
    assert isinstance(translator, heedful.Translator)
    assert len(translator.translate(["The dog sleeps."])) == 1
    with pytest.raises(FolderError, match=r"exists already; resume its run .*resume=True"):
        heedful.train(**files(corpus), out=out, **SETTINGS)


def test_pairs_may_be_an_iterable(corpus: Path, whole: Path, tmp_path: Path) -> None:
    def read(name: str) -> Any:
        lines = [(corpus / f"{name}.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")]
        return zip(*lines, strict=True)

    heedful.train(pairs=read("train"), valid_pairs=list(read("valid")), out=tmp_path / "x", **SETTINGS)
    assert weights(tmp_path / "x") == weights(whole)


def test_a_config_and_arguments_on_top(corpus: Path, whole: Path, tmp_path: Path) -> None:
    sections = {"model": MODEL, "train": TRAIN | {"max_updates": 9}, "search": {"beam": 1, "length_penalty": 0.6}}
    config = load_config(None, (), data=files(corpus), **sections)
    heedful.train(config, out=tmp_path / "x", train={"max_updates": 4})
    assert weights(tmp_path / "x") == weights(whole)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": {"d_modle": 16}}, SettingError, "unknown key model.d_modle; did you mean model.d_model"),
        ({"model.d_model": "x"}, SettingError, "model.d_model is 'x'"),
        ({"train": 3}, SettingError, "train is 3, but it is a section of settings"),
        ({"sourse": "a"}, SettingError, "unknown key sourse"),
        ({"time": "soon"}, SettingError, "train.time is 'soon'"),
        ({"task": "translating"}, SettingError, "task is 'translating'"),
        ({"pairs": "missing.tsv"}, DataError, "missing.tsv does not exist"),
        ({"pairs": [("a", "b"), "c d"]}, DataError, r"row 1 of pairs is 'c d'; give \(source, target\) as strings"),
        ({"labeled": [("a", 3)]}, DataError, r"row 0 of labeled is \('a', 3\)"),
        ({"text": "a.txt"}, SettingError, "set task to language-model or masked-lm"),
        ({"source": "a", "text": "b", "target": "c"}, SettingError, "both given"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        heedful.train(out=tmp_path / "x", **options)


def test_rows_with_tabs_and_line_breaks_are_one_line(tmp_path: Path) -> None:
    from heedful.training.api import _row_file

    path = _row_file("pairs", iter([("a\tb\nc", "d"), ("e  f", "g")]), tmp_path)
    assert path.read_text(encoding="utf-8") == "a b c\td\ne  f\tg\n"
    assert _row_file("pairs", str(path), tmp_path) == path


def test_a_folder_is_loaded_as_the_kind_that_is_expected(whole: Path) -> None:
    assert isinstance(heedful.load(whole, kind=heedful.Translator), heedful.Translator)
    with pytest.raises(SettingError, match="holds a model for Translator, not for Generator"):
        heedful.load(whole, kind=heedful.Generator)


def test_a_notebook_without_widgets_gets_lines() -> None:
    assert supports_progress(Console(force_terminal=True))
    assert not supports_progress(Console(force_terminal=False))
