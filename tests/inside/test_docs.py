"""The page on looking inside is true: its names are those of the code, and its Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heedful.config import ModelConfig
from heedful.inference.record import activation_names, axes_of
from heedful.model.transformer import build_model
from heedful.storage.folder import save_folder
from tests.inside.conftest import FAMILIES

PAGE = (Path(__file__).parent.parent.parent / "docs" / "inside.md").read_text(encoding="utf-8")
VARIANTS: list[dict[str, object]] = [
    {}, {"pre_norm": True}, {"embedding_norm": True}, {"activation": "swiglu"}, {"positions": "relative"},
    {"tie": "none"},
]  # fmt: skip
OF_ENCODERS: list[dict[str, object]] = [
    {"token_types": 2},
    {"head": "transform"},
    {"pooler": True},
    {"labels": ("a", "b")},
]


def listed() -> dict[str, tuple[str, ...]]:
    """Names in the table of the page, with their axes."""
    rows = re.findall(r"^\| (`.*`) \| ([a-z, ]+) \|", PAGE, re.MULTILINE)
    return {name: tuple(axes.split(", ")) for left, axes in rows for name in re.findall(r"`([^`]+)`", left)}


def test_the_list_of_names_is_that_of_the_code():
    sizes = {"vocab_size": 30, "d_model": 8, "d_ff": 12, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    known: dict[str, tuple[str, ...]] = {}
    for family in FAMILIES:
        for changes in [*VARIANTS, *(OF_ENCODERS if family == "encoder" else [])]:
            for name in activation_names(build_model(ModelConfig(family=family, **sizes | changes))):
                known[re.sub(r"\.\d", ".i", name)] = axes_of(name)
    assert listed() == known


def test_the_python_of_the_page_runs(translator_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(translator_folder, "path", tmp_path / "runs" / "demo" / "model")
    save_folder(translator_folder)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    exec(compile(code, "inside.md", "exec"), {})
    assert "('sentence', 'head', 'query', 'key')" in capsys.readouterr().out


def test_every_view_is_described():
    scripts = Path(__file__).parent.parent.parent / "src" / "heedful" / "inside" / "page"
    titles = re.findall(
        r'^  title: "([^"]+)"', "\n".join(item.read_text() for item in scripts.glob("*.js")), re.MULTILINE
    )
    assert len(titles) >= 5
    for title in [*titles, "Decoding"]:
        assert f"| {title} |" in PAGE


@pytest.mark.parametrize("name", re.findall(r"\]\((images/[^)]+)\)", PAGE))
def test_pictures_are_small(name):
    assert (Path(__file__).parent.parent.parent / "docs" / name).stat().st_size < 150_000
