"""A folder of our own format is no more to be trusted than a foreign one: only plain files in it are opened."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful import interop
from heedful.errors import FolderError
from heedful.inference import shortlist
from heedful.serve.server_settings import ServedFolder
from heedful.training import run_report

from .own import make
from .test_hostile import check_sentence, link, pipe, put
from .using import serve, use


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "model"
    make(path, likely=True)
    use(path)
    serve(path)
    return path


@pytest.fixture
def copy(clean: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(clean, tmp_path / "copy"))


def bind(name: str) -> Callable[[Path], None]:
    """A socket, whose address has to be short."""

    def change(path: Path) -> None:
        (path / name).unlink()
        here = Path.cwd()
        os.chdir(path)
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(name)
        finally:
            os.chdir(here)

    return change


def folder_for(name: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / name).unlink()
        (path / name).mkdir()

    return change


def link_out(name: str) -> Callable[[Path], None]:
    """The same content, in another folder."""

    def change(path: Path) -> None:
        shutil.move(path / name, path.parent / "elsewhere")
        (path / name).symlink_to("../elsewhere")

    return change


FILES = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "model.safetensors",
    "shortlist.safetensors",
    "run.json",
]
KINDS = {
    "pipe": pipe,
    "link": link_out,
    "socket": bind,
    "folder": folder_for,
    "device": lambda name: link(name, "/dev/zero"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", KINDS)
def test_only_plain_files_are_opened(copy: Path, kind: str, name: str) -> None:
    KINDS[kind](name)(copy)
    with pytest.raises(
        FolderError, match="is a link out of its folder" if kind in ("link", "device") else "plain file"
    ) as caught:
        ServedFolder.parse(str(copy))
        shortlist.load_shortlist(interop.open_folder(copy))
    check_sentence(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (" " * 5_000_000, "not that large"),
        ('{"a":' * 100_000, "is not valid JSON"),
        ("[]", "JSON list"),
        ("{", "valid JSON"),
    ],
    ids=["huge", "deep", "list", "cut"],
)
def test_run_json_has_the_limits_of_all_other_json(copy: Path, content: str, message: str) -> None:
    put("run.json", content)(copy)
    with pytest.raises(FolderError, match=message) as caught:
        ServedFolder.parse(str(copy))
    check_sentence(caught.value)


def test_metrics_of_a_run_that_is_resumed_are_a_plain_file_of_records(tmp_path: Path) -> None:
    (tmp_path / run_report.METRICS).write_text('[1]\n{"update": 3, "loss": 1.0}\n{"update": "x"}\n{"loss": 2}\n{"up')
    assert run_report.read_metrics(tmp_path) == [{"update": 3, "loss": 1.0}]
    pipe(run_report.METRICS)(tmp_path)
    with pytest.raises(FolderError, match="is not a plain file"):
        run_report.read_metrics(tmp_path)
