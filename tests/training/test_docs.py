"""The Python examples of docs/python.md and docs/extending.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heedful.model import attention, positions

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = re.compile(r"<!-- test: (\w+) -->\n```python\n(.*?)```", re.DOTALL)
EXAMPLES = [
    pytest.param(code, id=f"{page}-{name}")
    for page in ("python", "extending")
    for name, code in EXAMPLE.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_of_the_docs_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(positions.POSITIONS, "alibi", positions.POSITIONS["alibi"])  # restored after the example
    monkeypatch.setitem(attention.ATTENTIONS, "linear", attention.ATTENTIONS["linear"])
    lines = [f"The {number} birds sing in tree {number * 7}.\n" for number in range(60)]
    (tmp_path / "book.txt").write_text("\n".join(lines), encoding="utf-8")
    exec(compile(code, "example", "exec"), {})
    assert list((tmp_path / "runs").glob("*/model.safetensors"))


def test_every_example_is_found() -> None:
    assert [example.id for example in EXAMPLES] == [
        "python-data", "extending-position", "extending-attention", "extending-task",
    ]  # fmt: skip
