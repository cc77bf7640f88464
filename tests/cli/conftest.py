"""One tiny trained model, and two ways to call the program: as a process, and in this one where speed matters."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from heedful.cli import main
from tests.conftest import TINY


@dataclass
class Done:
    code: int
    out: str
    err: str


Call = Callable[..., Done]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in this process: everything but the start-up of a new one."""

    def run(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["heedful", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return run


def run_here(*words: object) -> Done:
    """Run a command in this process, for fixtures that many tests share."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["heedful", *map(str, words)])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as ended:
            main()
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return Done(int(ended.value.code or 0), *texts)


def process(*words: object, stdin: bytes = b"", **options: object) -> Done:
    """Run a command as a user does."""
    done = subprocess.run(
        [sys.executable, "-m", "heedful", *map(str, words)],
        input=stdin,
        capture_output=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=240,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def training(corpus: Path, out: Path) -> list[object]:
    """The words of a short training command."""
    files = ["--source", corpus / "train.en", "--target", corpus / "train.de"]
    files += ["--valid-source", corpus / "valid.en", "--valid-target", corpus / "valid.de", "--out", out]
    return ["train", *TINY, "train.max_updates=12", "train.checkpoint_every=4", *files]


@pytest.fixture(scope="session")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a real training process."""
    out = tmp_path_factory.mktemp("runs") / "x"
    done = process(*training(corpus, out))
    assert done.code == 0, done.err
    return out
