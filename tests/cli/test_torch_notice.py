"""Commands on models that the native engine does not know: a line on stderr names the setting, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.inference import native_choice
from heedful.storage.folder import save_folder
from tests.cli.conftest import Call
from tests.inside.conftest import make_folder, tokenizer

__all__ = ["make_folder", "tokenizer"]


@pytest.mark.parametrize(
    ("family", "command", "printed"),
    [
        ("encoder-decoder", ["translate", "{model}", "--input", "{lines}"], ""),
        (
            "encoder-decoder",
            ["align", "{model}", "--source", "{lines}", "--target", "{lines}"],
            "aligned by the heads ",
        ),
        ("decoder", ["generate", "{model}", "The", "--max-tokens", "2"], ""),
        ("encoder", ["fill-mask", "{model}", "The <mask>"], ""),
    ],
)
def test_stderr_names_the_setting(
    make_folder, call: Call, tmp_path: Path, monkeypatch, family: str, command: list[str], printed: str
) -> None:
    monkeypatch.setattr(native_choice, "library", object)  # so that the machine has an engine
    save_folder(folder := make_folder(family, attention="window"))
    (tmp_path / "a.en").write_text("The dog sleeps.\n", encoding="utf-8")
    done = call(*(word.format(model=folder.path, lines=tmp_path / "a.en") for word in command))
    notice, *rest = done.err.splitlines()
    assert done.code == 0 and done.out
    assert notice == f"PyTorch computes {folder.path}: the native engine does not know model.attention=window."
    assert len(rest) == bool(printed) and all(line.startswith(printed) for line in rest)
